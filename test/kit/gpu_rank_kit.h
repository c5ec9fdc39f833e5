/* gpu_rank_kit.h - ranks on emulated GPUs, threads of this process: each has a
 * handle and a GPU of its own, and meets the others as ranks of a job do.
 */
#pragma once

#include "workers_kit.h"
#include "gpu_kit.h"

enum { GPU_RANK_MOST = 4, GPU_RANK_FLOATS = 8192 };

typedef struct gpu_rank_lesson gpu_rank_lesson;

/* What a rank does once all have met. */
typedef fleet_status gpu_rank_work(kit_model *m, gpu_rank_lesson *s, int rank);

/* Batch b, of 50 rows, is rank b mod n's. */
struct gpu_rank_lesson {
    kit_kind kind;
    void (*open)(kit_model *m, const kit_options *how); /* NULL: the kind's */
    kit_options how;
    fl_training also; /* dgc.smallest, if it is not 0 */
    int ranks, batches, passes;
    int64_t last;          /* rows of the last batch */
    gpu_rank_work *before; /* they meet; NULL: nothing */
    gpu_rank_work *work;   /* NULL: gpu_rank_train() */
    gpu_rank_work *after;  /* they have left; NULL: nothing */
    int bad_rank;          /* whose second batch has a NaN; 0: nobody's */
    int64_t bad_label;     /* in place of NaN; 0: none */

    float weight[GPU_RANK_MOST][GPU_RANK_FLOATS];
    int64_t updates[GPU_RANK_MOST];
    uint64_t hash; /* as the first rank has it */
    fleet_status status[GPU_RANK_MOST];
    char error[GPU_RANK_MOST][600];
};

/* Emulated GPUs, and the emulated NCCL. */
void gpu_rank_open(int ranks);
void gpu_rank_close(void);

gpu_rank_work gpu_rank_train;

/* Whatever becomes of them. */
void gpu_rank_try(gpu_rank_lesson *s);

/* None fails, and all end with the same weights. */
void gpu_rank_run(gpu_rank_lesson *s);
