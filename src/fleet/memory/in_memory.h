/* in_memory.h - what calls of in-memory datasets begin with. */
#pragma once

#include "fleet/job/dataset_memory.h"

/* FLEET_EINVAL, FLEET_ESTATE: as dataset.h says of all these calls. */
fleet_status fl_in_memory_check(const fleet_dataset *d, const char *call);

/* No slot's values are another sample's any more. */
void fl_in_memory_move_none(fl_dataset_memory *m);
