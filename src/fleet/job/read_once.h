/* read_once.h - inputs of a dataset that come once: standard input, FIFOs and
 * whatever else is no regular file. */
#pragma once

#include "fleet/job/dataset.h"

/* Before a pass over spec's files, of which one may come once: FLEET_ESTATE if
 * it has come already, FLEET_EINVAL if several workers would read it. */
fleet_status fl_read_once_begin(fleet_dataset *d, const fl_stream_spec *spec);

/* FLEET_EINVAL: the pass that makes means would take it from the training. */
fleet_status fl_read_once_check_means(const fl_stream_spec *spec);
