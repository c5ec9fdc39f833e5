/* sharded_internal.h - the inside of sharded_table.h: sharded_table.c fetches
 * rows, sharded_push.c brings gradients back, sharded_exchange.c moves both
 * between ranks. */
#pragma once

#include "collective/sharded/sharded_table.h"
#include "runtime/lookup/lookup_data.h"
#include "runtime/store/norm.h"

enum { FL_SHARDED_CHUNK = 1024 };

/* What goes to each rank, or comes from it, side by side in rank order; then
 * this rank's own part, which does not travel. */
typedef struct fl_sharded_buffer {
    int64_t *bytes; /* by rank; its own: 0 */
    int64_t *at;    /* by rank, then table: where its keys begin */
    char *data;
    size_t capacity;
} fl_sharded_buffer;

/* A pull, and the rows that came. */
typedef struct fl_sharded_request {
    fl_pull_rows *table;
    int n_table;
    size_t table_capacity;
    fl_sharded_buffer rows;
} fl_sharded_request;

/* The ranks' gradients of a table, by key. */
typedef struct fl_sharded_sums {
    fl_key_set set;
    float **grad;
    size_t capacity;
} fl_sharded_sums;

struct fl_sharded_tables {
    fl_remote remote; /* first */
    const fl_agree *agree;
    fl_store *store;
    int n_table, n_rank;
    fl_rows **table; /* by name */
    fl_sharded_request slot[FL_N_SLOT];

    /* of the exchange in progress: by rank, then table */
    int64_t *to, *from; /* keys that go out, that came in */
    int64_t *done;      /* of these, keys that have been processed */
    fl_sharded_buffer to_keys, from_keys, to_rows, from_rows;

    /* of the update */
    fl_sharded_sums *sum; /* by table */
    bool is_summed;       /* a clip was first */
    double *square;       /* by table, then bucket */
    fl_norm_row *sorted;
    float **row;
    uint64_t *key; /* of row[], where a table with a life needs them */
    size_t square_capacity, sorted_capacity, row_capacity, key_capacity;
};

static inline fl_sharded_tables *fl_sharded_of(fl_remote *x)
{
    return (fl_sharded_tables *)(void *)x;
}

/* --- sharded_exchange.c --------------------------------------------------- */

static inline int fl_sharded_rank(const fl_sharded_tables *s)
{
    return s->agree->comm->rank;
}

/* Keys [begin, end) of a part are all one rank's. */
typedef struct fl_sharded_run {
    int owner;
    int64_t begin, end;
} fl_sharded_run;

/* Of n keys of a part; the i-th is key[which ? which[i] : i]. */
fl_sharded_run fl_sharded_next_run(const fl_sharded_tables *s, int part,
                                   const uint64_t *key, const uint32_t *which,
                                   int64_t begin, int64_t n);

int fl_sharded_number(const fl_sharded_tables *s, const fl_rows *rows);

/* Bytes that a key of a table takes: the key itself, its row, or a gradient. */
typedef int64_t fl_sharded_item_size(const fl_sharded_tables *s, int table);
fl_sharded_item_size fl_sharded_key_size, fl_sharded_row_size,
    fl_sharded_grad_size;

/* Lay out the parts of all ranks: count[] keys, by rank, then table. */
fleet_status fl_sharded_reserve(const fl_sharded_tables *s,
                                fl_sharded_buffer *p, const int64_t *count,
                                fl_sharded_item_size *size_of);

/* Key i of a table in a rank's part, or what belongs to it. */
void *fl_sharded_item(const fl_sharded_tables *s, const fl_sharded_buffer *p,
                      int rank, int table, int64_t i,
                      fl_sharded_item_size *size_of);
fleet_status fl_sharded_exchange(fl_sharded_tables *s,
                                 const fl_sharded_buffer *to,
                                 const fl_sharded_buffer *from);

/* All-to-all of counts and keys; both sides know then what else travels. */
fleet_status fl_sharded_exchange_counts(fl_sharded_tables *s);
fleet_status fl_sharded_exchange_keys(fl_sharded_tables *s);

/* The keys that came from a rank, or this rank's own. */
const uint64_t *fl_sharded_keys_of(const fl_sharded_tables *s, int rank,
                                   int table);

/* No key has been processed yet. */
void fl_sharded_reset_done(fl_sharded_tables *s);

/* --- sharded_push.c ------------------------------------------------------- */

fleet_status fl_sharded_clip(fl_remote *x, const fl_push *p, fl_norm_list *all,
                             float *factor);
fleet_status fl_sharded_push(fl_remote *x, const fl_push *p);
