/* dataset_sampling.h - the share of the samples that a training pass is of. */
#pragma once

#include "fleet/job/dataset.h"

/* FLEET_EINVAL: a share that cannot be. */
fleet_status fl_dataset_check_sampling(const fleet_dataset_options *options);

/* What the stream of the next training pass leaves out. FLEET_EINVAL: a slot
 * that nothing can be drawn by. */
fleet_status fl_dataset_sample(const fleet_dataset *d, fl_stream_spec *spec);
