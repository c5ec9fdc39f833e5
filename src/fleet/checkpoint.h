/* checkpoint.h - what the calls that save have in common. */
#pragma once

#include "fleet/job/handle.h"
#include "fleet/save/load_into.h"

/* Write the store's parameters and tables, those alone that marked nodes of the
 * program read unless `marked` is NULL; as s->elsewhere says, or, if that is
 * NULL, with the servers and ranks that have parts of it, if any have. */
fleet_status fl_checkpoint_write(fleet *f, fl_save *s, const fleet_program *p,
                                 const bool *marked, const char *path);

/* A save of the tables that it lists, of no parameter. */
fleet_status fl_checkpoint_save_tables(fleet *f, fl_save *s, const char *path);

/* Into what this process has, and checked as all of it; and with the servers,
 * which are told. */
fleet_status fl_checkpoint_load_here(fleet *f, const char *path,
                                     const fl_load_how *how);
fleet_status fl_checkpoint_load(fleet *f, const char *path,
                                const fl_load_how *how);

/* Worker 0 saves for all; other workers need not, and say so in the log. */
bool fl_checkpoint_is_mine(fleet *f, const char *call);

/* What a predictor does with a checkpoint: compute the model's prediction, of
 * lines as the dataset reads them; without one, of values alone. */
typedef struct fl_scored {
    const fleet_model *model;
    const fleet_dataset *data;
} fl_scored;

/* A checkpoint that a predictor can score with, too: scored may be NULL. */
fleet_status fl_checkpoint_save(fleet *f, const char *path,
                                const fl_scored *scored, fleet_save_mode mode);
