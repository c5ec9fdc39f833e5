/* gpu_ps_kit.h - a small model trained in passes whose rows are in a GPU's
 * memory (GPU-PS), or with tables on the GPU as a whole. */
#pragma once

#include "gpu_kit.h"
#include "model_kit.h"

enum { GPU_PS_BATCH = 32, GPU_PS_LINES = 400, GPU_PS_PASSES = 2 };

/* All zeros: tables that are on the GPU as a whole. */
typedef struct ps_case {
    bool passes;           /* with use_ps_gpu */
    int64_t memory_bytes;  /* of a part */
    int64_t cap;           /* of each table's memory */
    const char *optimizer; /* NULL: adagrad */
    int merge;
    bool shuffled;
    int threads; /* 0: 2 */
    bool early;  /* a clone for test runs before the program is trained */
    const char *folder; /* for notes of passes; NULL: none */
} ps_case;

/* What the last one has logged; in how many parts. */
extern char gpu_ps_said[40000];
int gpu_ps_parts_said(void);

/* Of c.early: the clone's variables. */
extern fleet_model gpu_ps_early_model;

/* Its model, and an executor that trains it; then a dataset of it. */
void gpu_ps_build(scene *s, const ps_case *c);
fleet_psgpu *gpu_ps_open_passes(scene *s, const ps_case *c);

/* Both, over samples in memory of the kit; NULL without passes. */
fleet_psgpu *gpu_ps_open(scene *s, const ps_case *c);

void gpu_ps_train_pass(scene *s, const ps_case *c, fleet_psgpu *g);

/* params_hash of all passes. */
uint64_t gpu_ps_hash(const ps_case *c);
