/* launcher_env.h - which rank of how many this process is, as its launcher says
 * in the environment: PaddlePaddle's, Open MPI's mpirun, launchers that speak
 * PMI or PMIx, Slurm's srun. Each says it in variables of its own, and one may
 * have started another: what several of them say has to be the same.
 */
#pragma once

#include "ps/server/lane.h"

typedef struct fl_rank {
    int index, num;   /* -1: no variable says */
    int local_index;  /* on its machine; -1: no variable says */
    bool is_launched; /* by a launcher of ranks, with servers or without */
    fl_address first; /* where rank 0 can be met, "tcp://ip:port"; "": no
                         variable says */
} fl_rank;

/* endpoints: look at Paddle's endpoints, too; beside servers they are of
 * workers that need not be ranks.
 *
 *   FLEET_EINVAL  a number or an endpoint that is none, two that contradict
 */
fleet_status fl_rank_read(fl_rank *r, bool endpoints);

/* Of a job without servers: an index and a number, 0 and 1 if no variable says.
 *
 *   FLEET_ENOENT  one of several, but no variable says which or of how many
 */
fleet_status fl_rank_need(fl_rank *r);

/* The GPU that the launcher gave to this process, or that of the same number as
 * the rank on its machine. */
fleet_status fl_rank_gpu(const fl_rank *r, int *gpu);
