/* sync_batch_norm.h - batch_norm.c by the batches of all ranks:
 * strategy.sync_batch_norm. */
#pragma once

#include "ops/norm/batch_norm.h"
#include "runtime/plan/lower.h"

/* Values: stats, which is the newest one, x, w (-1: none). */
typedef struct fl_sync_norm {
    int stats, x, w;
} fl_sync_norm;

/* Are its statistics of all ranks' batches? Not where the loss does not reach,
 * which one rank alone may fetch. */
bool fl_is_sync_norm(fl_lowering *l, const fl_node *n);

/* The steps from x to stats. */
void fl_emit_sync_stats(fl_lowering *l, const fl_node *n, const void *config,
                        fl_sync_norm v);

/* Their moments: the value behind stats. */
int fl_sync_moments(int stats);
