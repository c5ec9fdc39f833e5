/* sim_save.h - saves of simulated jobs, by the code of src/fleet, and of the
 * stores that they are compared with. */
#pragma once

#include "sim_job.h"

/* What the job's lanes have, as worker 0 saves it. */
fleet_status sim_save_job(sim_worker *w, const char *path);

/* What worker 0 does after a pass; and at the job's begin. */
fleet_status sim_use_disk(sim_worker *w, sim_script *k, int pass);
/* What lanes are told of a load of that path. */
const char *sim_load_text(const char *path, char text[400]);
fleet_status sim_load_job(sim_worker *w, const sim_script *k);

/* All of a store; and what is saved there, brought into one. */
fleet_status sim_save_store(fl_store *s, const char *path);
fleet_status sim_load_store(fl_store *s, const char *path);

/* Weights, states and rows to the bit, and the number of updates. */
bool sim_same_store(const fl_store *a, const fl_store *b);
bool sim_same_block(const fl_param *p, const fl_param *q, int64_t block);
