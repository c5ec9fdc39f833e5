/* partition.h - what servers keep: parameters and tables numbered alike in
 * every process that runs the same program, dense parameters cut into blocks,
 * each in a bucket. bucket_map.h has which lane keeps a bucket. */
#pragma once

#include "ps/bucket_map.h"
#include "runtime/store/store.h"

typedef struct fl_partition {
    fl_store *store;
    fl_param **param; /* by name */
    int n_param;
    fl_rows **table; /* by name */
    int n_table;
    int n_server;
} fl_partition;

/* Of a store whose workers are ranks, without what those keep. The store must
 * not get parameters or tables afterwards. */
fleet_status fl_partition_make(fl_partition *l, fl_store *store, int n_server);
void fl_partition_done(fl_partition *l);

/* How a message names a block: the parameter's number and its own. */
static inline uint64_t fl_block_key(int param, int64_t block)
{
    return (uint64_t)param << 32 | (uint64_t)block;
}

/* Where the block of such a key is; of one that the store keeps. */
typedef struct fl_block_place {
    float *weight;
    size_t bytes;
} fl_block_place;

static inline fl_block_place fl_block_at(const fl_partition *k, uint64_t key)
{
    const fl_param *p = k->param[key >> 32];
    int64_t block = (int64_t)(key & UINT32_MAX);

    return (fl_block_place){p->flat->weight + fl_block_offset(p, block),
                            (size_t)fl_block_size(p, block) * sizeof(float)};
}

/* The filter of a lane's store (fl_block_filter): the blocks of these buckets
 * that servers keep; `own` is an fl_bucket_set. */
bool fl_lane_keeps_block(const fl_store *s, const void *own, const fl_param *p,
                         int64_t block);

/* The bucket of a block. LARS and LAMB need norms of the whole parameter: all
 * its blocks are in one bucket then, and so on one lane. */
int fl_block_bucket(const fl_store *s, const fl_param *p, int64_t block);

/* Which number a parameter or table has; -1: none. */
int fl_partition_param(const fl_partition *l, const char *name);
int fl_partition_table(const fl_partition *l, const char *name);
