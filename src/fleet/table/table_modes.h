/* table_modes.h - checkpoints with some of the rows of tables with an
 * accessor. */
#pragma once

#include "fleet/checkpoint.h"

/* Of the process that saves: fl_checkpoint_save() in that mode, and what it
 * changes of the accessors' numbers once it is in its place. */
fleet_status fl_save_in_mode(fleet *f, const char *path,
                             const fl_scored *scored, fleet_save_mode mode);
