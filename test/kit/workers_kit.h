/* workers_kit.h - workers of one model in this process, with a fake exchange,
 * driven in turn. */
#pragma once

#include "fake_remote.h"
#include "train_kit.h"

#include "runtime/exec/executor.h"

enum { CREW_MOST = 3, WORK_MOST = 32, WORK_ROWS = 50 };

typedef struct crew {
    kit_model m[CREW_MOST];
    fake_worker w[CREW_MOST];
    fake_server server;
    int n;
} crew;

/* n workers with their executors. */
void crew_open(crew *c, int n, bool sync, kit_kind kind, const kit_options *o);
void crew_close(crew *c);

/* Batches of WORK_ROWS rows, the last one of its own size. Executors whose bits
 * are compared have one max_batch. */
typedef struct work {
    kit_batch *b[WORK_MOST];
    int n;
} work;

void work_open(work *k, const kit_model *m, int n, int64_t last);
void work_close(work *k);

/* Say that this batch comes after the next iteration; run one. */
void crew_announce(fleet_executor *e, const kit_batch *b);
fleet_status crew_iterate(fleet_executor *e, const kit_batch *b);

/* Run batch i; the one `step` after it is announced, if it is there; 0: none
 * is. */
fleet_status crew_train(fleet_executor *e, const work *k, int i, int step);

/* The hash after those batches, in a process of its own. */
uint64_t crew_alone(kit_kind kind, const kit_options *o, int n, int64_t last);
