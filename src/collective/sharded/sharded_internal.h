/* sharded_internal.h - what the files of sharded_table.h share. */
#ifndef FL_COLLECTIVE_SHARDS_INTERNAL_H
#define FL_COLLECTIVE_SHARDS_INTERNAL_H

#include "collective/sharded/sharded_table.h"
#include "runtime/lookup/lookup_data.h"
#include "runtime/store/norm.h"

enum { FL_SHARDS_CHUNK = 1024 };

/* For each rank so many bytes, side by side in rank order; then what stays: a
 * rank's own part does not travel. */
typedef struct fl_parcels {
    int64_t *bytes; /* by rank; own: 0 */
    int64_t *at;    /* by rank, then table: where its keys begin */
    char *data;
    size_t capacity;
} fl_parcels;

/* A pull that was asked for, and the rows that came. */
typedef struct fl_shards_request {
    fl_pull_rows *table;
    int n_table;
    size_t table_capacity;
    fl_parcels rows;
} fl_shards_request;

/* The ranks' gradients of a table, by key. */
typedef struct fl_shards_sums {
    fl_key_set set;
    float **grad;
    size_t capacity;
} fl_shards_sums;

struct fl_shards {
    fl_exchange exchange; /* first */
    const fl_rounds *rounds;
    fl_store *store;
    int n_table, n_rank;
    fl_rows **table; /* by name */
    fl_shards_request slot[FL_N_SLOT];

    /* of the round that is under way: by rank, then table */
    int64_t *to, *from; /* keys that go out, that came in */
    int64_t *done;      /* that have been dealt with */
    fl_parcels to_keys, from_keys, to_rows, from_rows;

    /* of the update */
    fl_shards_sums *sum; /* by table */
    bool is_summed;      /* a clip was first */
    double *square;      /* by table, then bucket */
    fl_norm_row *sorted;
    float **row;
    size_t square_capacity, sorted_capacity, row_capacity;
};

static inline fl_shards *fl_shards_of(fl_exchange *x)
{
    return (fl_shards *)(void *)x;
}

/* --- sharded_exchange.c ----------------------------------------------------- */

static inline int fl_shards_rank(const fl_shards *s)
{
    return s->rounds->peers->rank;
}

/* Keys [begin, end) of a part are all one rank's. */
typedef struct fl_shards_run {
    int owner;
    int64_t begin, end;
} fl_shards_run;

/* Of n keys of a part; the i-th is key[which ? which[i] : i]. */
fl_shards_run fl_shards_next_run(const fl_shards *s, int part,
                                 const uint64_t *key, const uint32_t *which,
                                 int64_t begin, int64_t n);

int fl_shards_number(const fl_shards *s, const fl_rows *rows);

/* Bytes of each rank's part: each key of a table takes so many. */
typedef int64_t fl_shards_item_size(const fl_shards *s, int table);
fl_shards_item_size fl_shards_key_size, fl_shards_row_size;

fleet_status fl_parcels_room(const fl_shards *s, fl_parcels *p,
                             const int64_t *count,
                             fl_shards_item_size *size_of);

/* Key i of a table in a rank's part, or what belongs to it. */
void *fl_parcels_item(const fl_shards *s, const fl_parcels *p, int rank,
                      int table, int64_t i, fl_shards_item_size *size_of);
fleet_status fl_parcels_swap(fl_shards *s, const fl_parcels *to,
                             const fl_parcels *from);

/* Counts and keys; both sides know then what else travels. */
fleet_status fl_shards_tell_counts(fl_shards *s);
fleet_status fl_shards_swap_keys(fl_shards *s);

/* The keys that came from a rank, or this rank's own. */
const uint64_t *fl_shards_keys_of(const fl_shards *s, int rank, int table);

/* What has been dealt with: nothing. */
void fl_shards_count_again(fl_shards *s);

/* --- sharded_push.c -------------------------------------------------------- */

fleet_status fl_shards_clip(fl_exchange *x, const fl_push *p, double squares,
                            float *factor);
fleet_status fl_shards_push(fl_exchange *x, const fl_push *p);

#endif
