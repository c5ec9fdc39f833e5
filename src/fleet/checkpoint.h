/* checkpoint.h - what the calls that save have in common. */
#ifndef FL_FLEET_CHECKPOINT_H
#define FL_FLEET_CHECKPOINT_H

#include "fleet/job/handle.h"
#include "fleet/save/save.h"

/* Write it, alone or with the servers and ranks that have parts of it. */
fleet_status fl_checkpoint_write(fleet *f, fl_save *s, const char *path);

/* Worker 0 saves for all; other workers need not, and say so in the log. */
bool fl_checkpoint_is_mine(fleet *f, const char *call);

/* A checkpoint that a predictor can score with, too: model may be NULL. */
fleet_status fl_checkpoint_save(fleet *f, const char *path,
                                const fleet_model *model);

#endif
