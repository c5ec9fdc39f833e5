/* cold_snapshot.c - copy on write of rows of which some are in a file. Copies
 * are kept by key, as rows have no place that stays. A bucket is gathered under
 * the locks: copies of rows that have changed, rows in memory, and the spots of
 * rows in the file, which are then read without a lock; until that is done
 * these spots get no other row (fl_cold_pages_read()). */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "runtime/cold/cold_internal.h"
#include "runtime/store/snapshot.h"
#include "runtime/store/table_snapshot.h"

enum { CAP_SHARE = 16 }; /* of the cap: copies, before a change waits */

/* Rows of a bucket as they were, sorted by key. at: number of a copy; NO_ROW:
 * there was none. */
typedef struct old_row {
    uint64_t key;
    uint32_t at;
} old_row;

#define NO_ROW UINT32_MAX

typedef struct old_rows {
    old_row *row;
    char *bytes;
    size_t n, n_copy, capacity, bytes_capacity;
    bool is_read;
} old_rows;

typedef struct cold_snapshot {
    fl_rows_snapshot base; /* first */
    fl_cold_table *t;
    int64_t most;         /* bytes of copies, before a change waits */
    pthread_mutex_t lock; /* before a part's */
    pthread_cond_t was_read;
    int64_t n_read; /* buckets */
    old_rows bucket[FL_N_BUCKET];
} cold_snapshot;

static cold_snapshot *snapshot_of(fl_rows_snapshot *s)
{
    return (cold_snapshot *)(void *)s;
}

/* --- made, freed ---------------------------------------------------------- */

static void free_bucket(cold_snapshot *s, old_rows *b)
{
    atomic_fetch_sub_explicit(&s->base.bytes,
                              (int64_t)(b->n_copy * s->t->row_bytes),
                              memory_order_relaxed);
    fl_free(b->row);
    fl_free(b->bytes);
    *b = (old_rows){.is_read = b->is_read};
}

static void end_snapshot(fl_rows_snapshot *base)
{
    cold_snapshot *s = snapshot_of(base);

    for (int i = 0; i < FL_N_BUCKET; i++)
        free_bucket(s, &s->bucket[i]);
    pthread_cond_destroy(&s->was_read);
    pthread_mutex_destroy(&s->lock);
    fl_free(s);
}

static fleet_status begin_snapshot(const fl_rows *r, fl_rows_snapshot **out)
{
    fl_cold_table *t = fl_cold_of(r);
    pthread_condattr_t monotonic;
    cold_snapshot *s;
    int64_t all;

    *out = NULL;
    FL_TRY(FL_NEW(&s, sizeof *s));
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->was_read, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&s->lock, NULL);
    s->base.methods = &fl_cold_snapshots;
    s->base.n = r->methods->count(r);
    s->t = t;
    all = s->base.n * (int64_t)t->row_bytes / FL_SNAPSHOT_SHARE;
    s->most = t->cap.bytes / CAP_SHARE < all ? t->cap.bytes / CAP_SHARE : all;
    *out = &s->base;
    return FLEET_OK;
}

/* --- by the thread that changes rows -------------------------------------- */

/* Where the key is, or would be. */
static size_t place_in(const old_rows *b, uint64_t key)
{
    size_t low = 0, high = b->n;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (b->row[middle].key < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool has_key(const old_rows *b, size_t at, uint64_t key)
{
    return at < b->n && b->row[at].key == key;
}

/* row NULL: there is none. */
static fleet_status add_old(cold_snapshot *s, old_rows *b, size_t at,
                            uint64_t key, const fl_row_head *row)
{
    size_t size = s->t->row_bytes;

    FL_TRY(fl_grow(&b->row, &b->capacity, b->n + 1, sizeof *b->row));
    if (row)
        FL_TRY(fl_grow(&b->bytes, &b->bytes_capacity, b->n_copy + 1, size));
    memmove(b->row + at + 1, b->row + at, (b->n - at) * sizeof *b->row);
    b->row[at] = (old_row){key, row ? (uint32_t)b->n_copy : NO_ROW};
    b->n++;
    if (!row)
        return FLEET_OK;
    memcpy(b->bytes + b->n_copy++ * size, row, size);
    atomic_fetch_add_explicit(&s->base.bytes, (int64_t)size,
                              memory_order_relaxed);
    return FLEET_OK;
}

/* As it is now, in memory or in the file. */
static fleet_status keep_row(cold_snapshot *s, old_rows *b, size_t at,
                             uint64_t key, fl_cold_head *buffer)
{
    fl_cold_part *p = &s->t->part[fl_part_of(fl_mix(key))];
    fleet_status status = FLEET_OK;
    uint32_t number, spot;
    bool found = false;
    fl_cold_place *place;

    pthread_mutex_lock(&p->lock);
    place = fl_cold_place_find(s->t, p, key, fl_mix(key), &number);
    if (place && fl_cold_place_is(place) == FL_PLACE_HAS_ROW)
        status = add_old(s, b, at, key, fl_cold_place_row(place));
    else if (place && fl_cold_place_is(place) == FL_PLACE_UNKNOWN)
        status = add_old(s, b, at, key, NULL);
    else
        status = fl_cold_find(s->t, p, key, buffer, &spot, &found);
    pthread_mutex_unlock(&p->lock);
    if (found)
        status = add_old(s, b, at, key,
                         (const fl_row_head *)(const void *)(buffer + 1));
    return status;
}

/* Until a bucket was read, for a while. */
static void slow_down(cold_snapshot *s)
{
    int64_t until_ns = fl_now_ns() + FL_SNAPSHOT_WAIT_MS * 1000000ll;
    struct timespec until = {until_ns / 1000000000, until_ns % 1000000000};
    int64_t before = s->n_read;

    while (s->n_read == before && s->n_read < FL_N_BUCKET &&
           pthread_cond_timedwait(&s->was_read, &s->lock, &until) != ETIMEDOUT)
        ;
}

static fleet_status keep_changing(fl_rows_snapshot *base, const uint64_t *key,
                                  int64_t n)
{
    cold_snapshot *s = snapshot_of(base);
    fl_cold_head *buffer = fl_alloc(sizeof *buffer + s->t->row_bytes);
    fleet_status status = buffer ? FLEET_OK : FLEET_ENOMEM;

    pthread_mutex_lock(&s->lock);
    if (atomic_load_explicit(&s->base.bytes, memory_order_relaxed) > s->most)
        slow_down(s);
    for (int64_t i = 0; i < n && status == FLEET_OK; i++) {
        old_rows *b = &s->bucket[fl_bucket_of(fl_mix(key[i]))];
        size_t at = place_in(b, key[i]);

        if (!b->is_read && !has_key(b, at, key[i]))
            status = keep_row(s, b, at, key[i], buffer);
    }
    pthread_mutex_unlock(&s->lock);
    fl_free(buffer);
    return status;
}

/* --- by the thread that reads --------------------------------------------- */

/* A bucket's rows: the first n_near have come, the rest is in the file. */
typedef struct gathered {
    char *bytes; /* with their heads; room for all */
    size_t n, n_near;
    uint32_t *spot; /* of the rest */
    int64_t *at;
} gathered;

static fleet_status make_room(gathered *g, size_t rows, size_t cold,
                              size_t size)
{
    g->bytes = fl_alloc_array(rows + 1, size);
    g->spot = fl_alloc_array(cold + 1, sizeof *g->spot);
    g->at = fl_alloc_array(cold + 1, sizeof *g->at);
    return g->bytes && g->spot && g->at ? FLEET_OK : FLEET_ENOMEM;
}

static void add_near(gathered *g, size_t size, uint64_t key, const void *row)
{
    fl_cold_head *to = (fl_cold_head *)(void *)(g->bytes + g->n * size);

    to->key = key;
    memcpy(to + 1, row, size - sizeof *to);
    g->n++;
    g->n_near++;
}

static size_t count_near(const fl_cold_table *t, const fl_cold_part *p,
                         int bucket)
{
    size_t n = 0;

    for (uint32_t i = 0; i < p->n_chunk << t->chunk_shift; i++) {
        const fl_cold_place *at = fl_cold_place_of(t, p, i);

        n += fl_cold_place_is(at) == FL_PLACE_HAS_ROW &&
             fl_bucket_of(fl_mix(at->key)) == bucket;
    }
    return n;
}

/* Under both locks: what is in memory, and where the rest is. */
static fleet_status gather(const cold_snapshot *s, const fl_cold_part *p,
                           int bucket, gathered *g)
{
    const fl_cold_table *t = s->t;
    const old_rows *b = &s->bucket[bucket];
    size_t size = p->pages.spot_bytes;
    uint32_t n_cold = fl_cold_list_spots(t, p, bucket, NULL), cold = 0;

    FL_TRY(make_room(g, n_cold + count_near(t, p, bucket) + b->n_copy, n_cold,
                     size));
    for (uint32_t i = 0; i < p->n_chunk << t->chunk_shift; i++) {
        fl_cold_place *at = fl_cold_place_of(t, p, i);

        if (fl_cold_place_is(at) == FL_PLACE_HAS_ROW &&
            fl_bucket_of(fl_mix(at->key)) == bucket &&
            !has_key(b, place_in(b, at->key), at->key))
            add_near(g, size, at->key, fl_cold_place_row(at));
    }
    for (size_t i = 0; i < b->n; i++)
        if (b->row[i].at != NO_ROW)
            add_near(g, size, b->row[i].key,
                     b->bytes + b->row[i].at * t->row_bytes);
    fl_cold_list_spots(t, p, bucket, g->spot);
    for (uint32_t i = 0; i < n_cold; i++) {
        const char *image = fl_cold_pages_find(&p->pages, g->spot[i]);
        const fl_cold_head *row = (const fl_cold_head *)(const void *)image;

        if (!image) {
            g->at[cold] = fl_cold_pages_offset(&p->pages, g->spot[i]);
            g->spot[cold++] = g->spot[i];
        } else if (!has_key(b, place_in(b, row->key), row->key)) {
            add_near(g, size, row->key, row + 1);
        }
    }
    g->n += cold;
    return FLEET_OK;
}

/* Without a lock. Of a row that has changed there is a copy. */
static fleet_status read_cold(const cold_snapshot *s, int part,
                              const old_rows *b, gathered *g)
{
    size_t size = s->t->part[part].pages.spot_bytes, n = g->n_near;
    size_t n_cold = g->n - g->n_near;
    fleet_status status[FL_COLD_BATCH];

    for (size_t i = 0; i < n_cold; i += FL_COLD_BATCH) {
        size_t m = n_cold - i < FL_COLD_BATCH ? n_cold - i : FL_COLD_BATCH;
        char *to = g->bytes + (g->n_near + i) * size;

        fl_cold_read_spots(s->t, part, g->spot + i, g->at + i, (int)m, to,
                           status);
        for (size_t j = 0; j < m; j++) {
            const fl_cold_head *row =
                (const fl_cold_head *)(const void *)(to + j * size);

            FL_TRY(status[j]);
            if (has_key(b, place_in(b, row->key), row->key))
                continue;
            memmove(g->bytes + n++ * size, row, size);
        }
    }
    g->n = n;
    return FLEET_OK;
}

static fleet_status visit_rows(const gathered *g, size_t size, int bucket,
                               const fl_table_walk *w)
{
    fl_row_entry *entry = fl_alloc_array(g->n + 1, sizeof *entry);
    fleet_status status = entry ? FLEET_OK : FLEET_ENOMEM;

    for (size_t i = 0; status == FLEET_OK && i < g->n; i++) {
        const fl_cold_head *row =
            (const fl_cold_head *)(const void *)(g->bytes + i * size);

        entry[i] = (fl_row_entry){row->key,
                                  (const fl_row_head *)(const void *)(row + 1)};
    }
    if (status == FLEET_OK)
        status = fl_table_visit(entry, (int64_t)g->n, bucket, w);
    fl_free(entry);
    return status;
}

static fleet_status read_bucket(cold_snapshot *s, int bucket,
                                const fl_table_walk *w)
{
    int part = bucket / (FL_N_BUCKET / FL_N_PART);
    fl_cold_part *p = &s->t->part[part];
    old_rows *b = &s->bucket[bucket];
    gathered g = {0};
    fleet_status status;

    pthread_mutex_lock(&s->lock);
    pthread_mutex_lock(&p->lock);
    status = gather(s, p, bucket, &g);
    fl_cold_pages_read(&p->pages);
    b->is_read = true; /* b stays as it is from now on */
    s->n_read++;
    pthread_cond_broadcast(&s->was_read);
    pthread_mutex_unlock(&p->lock);
    pthread_mutex_unlock(&s->lock);
    if (status == FLEET_OK)
        status = read_cold(s, part, b, &g);
    pthread_mutex_lock(&p->lock);
    fl_cold_pages_was_read(&p->pages);
    pthread_mutex_unlock(&p->lock);
    if (status == FLEET_OK)
        status = visit_rows(&g, p->pages.spot_bytes, bucket, w);
    pthread_mutex_lock(&s->lock);
    free_bucket(s, b);
    pthread_mutex_unlock(&s->lock);
    fl_free(g.bytes);
    fl_free(g.spot);
    fl_free(g.at);
    return status;
}

static fleet_status read_each(fl_rows_snapshot *base, fl_row_visitor *visit,
                              void *arg)
{
    const fl_table_walk all = {.all = true, .visit = visit, .arg = arg};
    fleet_status status = FLEET_OK;

    for (int i = 0; i < FL_N_BUCKET && status == FLEET_OK; i++)
        status = read_bucket(snapshot_of(base), i, &all);
    return status;
}

const fl_snapshot_class fl_cold_snapshots = {
    .begin = begin_snapshot,
    .end = end_snapshot,
    .change = keep_changing,
    .each = read_each,
};
