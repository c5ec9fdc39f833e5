/* save_every.h - saves that a training makes by itself: fleet_save_every. */
#pragma once

#include <fleet/train.h>

#include "fleet/job/handle.h"

/* A batch was trained. Is a save due? o NULL: none ever is; in a job it is the
 * first worker's. */
bool fl_save_every_due(const fleet_save_every *o, fleet *f);

/* Make it, and remove the oldest saves that are too many. */
fleet_status fl_save_every_write(const fleet_save_every *o, fleet *f);

/* The same in the middle of a pass: where the disk fails the training goes on,
 * with a warning. */
fleet_status fl_save_every_try(const fleet_save_every *o, fleet *f);
