/* table.h - rows in this process's memory: the maker for a store.
 *
 * A table is FL_N_BUCKET buckets. Each has a hash index of cache lines, five
 * keys to a line with the numbers of their rows, and pages of rows that never
 * move. Calls for different parts touch different buckets and may run at once.
 */
#pragma once

#include "runtime/store/table_api.h"

fl_rows_maker fl_table_make;

/* --- rows, wherever they are kept ----------------------------------------- */

/* What a row would have if it were made now. */
void fl_rows_first(const fl_rows *r, uint64_t key, float *out);

/* What training reads of a key without a row. */
void fl_rows_unknown(const fl_rows *r, uint64_t key, float *out);

/* n rows changed by their gradients, dim floats each: every row of a table in
 * this process goes through it, be the process alone, a rank, a server or a
 * worker with copies. all: the optimizer of all other parameters. key: of each
 * row, where weights are no floats, or the table has a live hash; else it may
 * be NULL. */
void fl_rows_change(const fl_rows *r, const fleet_optimizer *all,
                    const fl_update *u, const uint64_t *key, float *const *w,
                    const float *const *g, int64_t n);

/* What n rows of a bucket take in a process: pages, and the index. */
int64_t fl_table_bucket_bytes(const fl_rows *r, int64_t n);

/* From now on a table with a life has as many rows as its options say, given
 * what a row takes with its states. FLEET_EINVAL: not even one in a bucket. */
fleet_status fl_rows_bound(fl_rows *r);

/* How many rows an update after version `since` has changed, or a write by
 * hand. */
fleet_status fl_rows_count_changed(const fl_rows *r, uint64_t since,
                                   int64_t *n);

/* The versions of rows move by that, as fl_version_moved(); rows of version 0
 * stay. What remembers versions of the table starts anew: a new epoch. A table
 * with a cap of memory, whose rows never go, is left as it is. */
void fl_rows_move_versions(fl_rows *r, int64_t by);

/* --- for snapshots (table_snapshot.c) ------------------------------------- */

/* How rows lie in a page: 1 << shift places of `stride` bytes, each of a head,
 * weights and states. A place's key is apart from them, as no update reads it:
 * in what is left over of the place, or behind all places. */
typedef struct fl_page_layout {
    size_t stride;
    size_t key_at, key_step; /* of place i: at key_at + i * key_step */
    int shift;
} fl_page_layout;

/* Places 0 .. n-1 of rows of a bucket, in pages that never move. In a hole only
 * the head may be read, and says so. */
typedef struct fl_table_bucket {
    char *const *page;
    int64_t n, holes;
} fl_table_bucket;

bool fl_is_table(const fl_rows *r); /* made by fl_table_make() */
fl_table_bucket fl_table_bucket_of(const fl_rows *r, int index);
fl_page_layout fl_table_layout(const fl_rows *r);

static inline fl_row_head *fl_place_at(const fl_page_layout *l,
                                       char *const *page, int64_t number)
{
    int64_t in_page = number & (((int64_t)1 << l->shift) - 1);

    return (fl_row_head *)(void *)(page[number >> l->shift] +
                                   (size_t)in_page * l->stride);
}

static inline uint64_t *fl_place_key(const fl_page_layout *l, char *const *page,
                                     int64_t number)
{
    int64_t in_page = number & (((int64_t)1 << l->shift) - 1);

    return (uint64_t *)(void *)(page[number >> l->shift] + l->key_at +
                                (size_t)in_page * l->key_step);
}

/* The rows of a bucket, one after the other as they lie; rows may change
 * meanwhile, none may come or go:
 *
 *     fl_bucket_walk h = fl_bucket_walk_of(r, bucket);
 *
 *     while (fl_bucket_walk_next(&h))
 *         h.head, h.key */
typedef struct fl_bucket_walk {
    fl_row_head *head;
    uint64_t key;
    fl_table_bucket bucket;
    fl_page_layout layout;
    int64_t at; /* of the next place */
} fl_bucket_walk;

static inline fl_bucket_walk fl_bucket_walk_of(const fl_rows *r, int bucket)
{
    return (fl_bucket_walk){.bucket = fl_table_bucket_of(r, bucket),
                            .layout = fl_table_layout(r)};
}

static inline bool fl_bucket_walk_next(fl_bucket_walk *h)
{
    while (h->at < h->bucket.n) {
        h->head = fl_place_at(&h->layout, h->bucket.page, h->at);
        if (!h->head->erased) {
            h->key = *fl_place_key(&h->layout, h->bucket.page, h->at++);
            return true;
        }
        h->at++;
    }
    return false;
}

static inline float *fl_bucket_walk_row(const fl_bucket_walk *h)
{
    return (float *)(void *)(h->head + 1);
}

/* A place, and the key of the row that it has. */
typedef struct fl_row_entry {
    uint64_t key;
    const fl_row_head *place;
} fl_row_entry;

/* Which rows are visited, and by what. */
typedef struct fl_table_walk {
    uint64_t since; /* changed after it; with all: any */
    bool all;
    fl_row_visitor *visit;
    void *arg;
} fl_table_walk;

/* Visit the rows of these places of a bucket, by growing key: holes are stepped
 * over. The entries come into another order. */
fleet_status fl_table_visit(fl_row_entry *entry, int64_t n, int bucket,
                            const fl_table_walk *w);

/* Which row of its bucket a key has; -1: none. */
int64_t fl_table_number(const fl_rows *r, uint64_t key);
