/* save_every.h - saves that a training makes by itself: fleet_save_every. */
#pragma once

#include <fleet/train.h>

#include "fleet/job/handle.h"

/* Are its numbers possible, and, before the handle's first batch, in the first
 * worker, can its folder be made or have saves? FLEET_EINVAL, or FLEET_EIO: the
 * path and the reason are named. */
fleet_status fl_save_every_check(const fleet_save_every *o, const fleet *f);

/* fleet_newest_checkpoint(), with a warning for each that is passed over. */
fleet_status fl_newest_checkpoint(const char *folder, fl_log *log, char **path);

/* A batch was trained. Is a save due? o NULL: none ever is; in a job it is the
 * first worker's. */
bool fl_save_every_due(const fleet_save_every *o, fleet *f);

/* Make it, and remove the oldest saves that are too many. */
fleet_status fl_save_every_write(const fleet_save_every *o, fleet *f);

/* The same in the middle of a pass: where the disk fails the training goes on,
 * with a warning. */
fleet_status fl_save_every_try(const fleet_save_every *o, fleet *f);
