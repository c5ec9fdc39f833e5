/* sim_job_internal.h - what a worker and the reference have in common: what a
 * script says at each point. */
#pragma once

#include "base/memory.h"
#include "sim_job.h"

typedef struct sim_keys {
    uint64_t key[SIM_MOST_KEY];
    int n;
} sim_keys;

/* A step of a worker. */
typedef struct sim_step {
    uint64_t at; /* which it is */
    int n_batch;
    float clip; /* of async */
    sim_keys keys[SIM_N_TABLE];
} sim_step;

typedef enum sim_act { SIM_NO_ACT, SIM_SAVE, SIM_FULL, SIM_ACTS } sim_act;
typedef enum sim_disk_act {
    SIM_NO_DISK,
    SIM_TO_DISK,
    SIM_TO_BAD_DISK,
    SIM_FROM_DISK,
    SIM_DISK_ACTS
} sim_disk_act;
typedef enum sim_meeting {
    SIM_NO_MEETING,
    SIM_BARRIER,
    SIM_MAX,
    SIM_MIN,
    SIM_MEETINGS
} sim_meeting;

void sim_batch(const sim_script *k, int worker, int pass, int step,
               sim_step *b);

/* Half-async: how many batches the worker's group has when that step of the
 * pass is pushed; and how many groups it has pushed in the pass before, ended:
 * if that step's question for a hash has ended one. */
int sim_gathered(const sim_script *k, int worker, int pass, int step);
int sim_groups(const sim_script *k, int worker, int pass, int step, bool asked);
bool sim_pushes(const sim_script *k, const sim_step *b, const char *param);
void sim_gradient(const sim_script *k, const sim_step *b, uint64_t of,
                  const float *pulled, float *grad, int64_t n);
bool sim_saves_beside(const sim_script *k, int worker, int pass, int step);
bool sim_asks(const sim_script *k, const sim_step *b, int *table);
sim_disk_act sim_disk_act_after(const sim_script *k, int pass);
bool sim_loads_after(const sim_script *k, int pass);
sim_act sim_act_after(const sim_script *k, int pass);
sim_meeting sim_meeting_after(const sim_script *k, int pass);
void sim_number(int worker, int pass, double x[2]);
