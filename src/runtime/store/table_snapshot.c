/* table_snapshot.c - copy on write of rows. Of each bucket that was not read
 * yet a bit per row says whether the row was copied; a bucket is read as a
 * whole, under the lock, copies for what has changed. */
#include "runtime/store/table_snapshot.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "runtime/store/snapshot.h"
#include "runtime/store/table.h"

/* Rows of a bucket as they were: `stride` bytes each. */
typedef struct copies {
    uint32_t *number; /* of the row in its bucket */
    char *bytes;
    size_t n, number_capacity, bytes_capacity;
} copies;

typedef struct frozen {
    char **page; /* the table's own array may move */
    int64_t n;
    uint64_t *copied; /* a bit per row; NULL: none yet */
    copies copies;
    bool is_read;
} frozen;

struct fl_rows_snapshot {
    const fl_rows *rows;
    size_t stride;
    int shift;
    int64_t n;    /* rows */
    int64_t most; /* bytes of copies, before a change waits */
    _Atomic int64_t bytes;
    pthread_mutex_t lock;
    pthread_cond_t was_read;
    int64_t n_read; /* buckets */
    frozen bucket[FL_N_BUCKET];
};

/* --- made, freed ---------------------------------------------------------- */

static fleet_status freeze(fl_rows_snapshot *s, int index)
{
    fl_table_bucket now = fl_table_bucket_of(s->rows, index);
    frozen *b = &s->bucket[index];
    size_t pages =
        (size_t)((now.n + ((int64_t)1 << now.shift) - 1) >> now.shift);

    s->stride = now.stride;
    s->shift = now.shift;
    s->n += b->n = now.n;
    if (now.n == 0)
        return FLEET_OK;
    FL_TRY(FL_NEW(&b->page, pages * sizeof *b->page));
    memcpy(b->page, now.page, pages * sizeof *b->page);
    return FLEET_OK;
}

static void init_waits(fl_rows_snapshot *s)
{
    pthread_condattr_t monotonic;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->was_read, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&s->lock, NULL);
}

fleet_status fl_table_snapshot(const fl_rows *r, fl_rows_snapshot **out)
{
    fleet_status status = FLEET_OK;
    fl_rows_snapshot *s;

    *out = NULL;
    if (!fl_is_table(r))
        return fl_fail(FLEET_EUNSUPPORTED,
                       "table \"%s\": a snapshot of rows that are not in this "
                       "process's memory",
                       r->name);
    FL_TRY(FL_NEW(&s, sizeof *s));
    s->rows = r;
    init_waits(s);
    for (int i = 0; i < FL_N_BUCKET && status == FLEET_OK; i++)
        status = freeze(s, i);
    if (status != FLEET_OK) {
        fl_table_snapshot_free(s);
        return status;
    }
    s->most = s->n * (int64_t)s->stride / FL_SNAPSHOT_SHARE;
    *out = s;
    return FLEET_OK;
}

static void free_bucket(fl_rows_snapshot *s, frozen *b)
{
    atomic_fetch_sub_explicit(&s->bytes, (int64_t)(b->copies.n * s->stride),
                              memory_order_relaxed);
    fl_free(b->copies.number);
    fl_free(b->copies.bytes);
    fl_free(b->copied);
    fl_free(b->page);
    b->copies = (copies){0};
    b->copied = NULL;
    b->page = NULL;
}

void fl_table_snapshot_free(fl_rows_snapshot *s)
{
    if (!s)
        return;
    for (int i = 0; i < FL_N_BUCKET; i++)
        free_bucket(s, &s->bucket[i]);
    pthread_cond_destroy(&s->was_read);
    pthread_mutex_destroy(&s->lock);
    fl_free(s);
}

int64_t fl_table_snapshot_count(const fl_rows_snapshot *s)
{
    return s->n;
}

int64_t fl_table_snapshot_bytes(const fl_rows_snapshot *s)
{
    return atomic_load_explicit(&s->bytes, memory_order_relaxed);
}

/* --- by the thread that changes rows -------------------------------------- */

static const char *row_of(const fl_rows_snapshot *s, const frozen *b,
                          int64_t number)
{
    int64_t in_page = number & (((int64_t)1 << s->shift) - 1);

    return b->page[number >> s->shift] + (size_t)in_page * s->stride;
}

static bool is_copied(const frozen *b, int64_t number)
{
    return b->copied && b->copied[number / 64] >> (number % 64) & 1;
}

static fleet_status copy_row(fl_rows_snapshot *s, frozen *b, int64_t number)
{
    copies *c = &b->copies;

    if (!b->copied)
        FL_TRY(FL_NEW(&b->copied, (size_t)(b->n / 64 + 1) * sizeof *b->copied));
    FL_TRY(
        fl_grow(&c->number, &c->number_capacity, c->n + 1, sizeof *c->number));
    FL_TRY(fl_grow(&c->bytes, &c->bytes_capacity, c->n + 1, s->stride));
    c->number[c->n] = (uint32_t)number;
    memcpy(c->bytes + c->n * s->stride, row_of(s, b, number), s->stride);
    c->n++;
    b->copied[number / 64] |= (uint64_t)1 << (number % 64);
    atomic_fetch_add_explicit(&s->bytes, (int64_t)s->stride,
                              memory_order_relaxed);
    return FLEET_OK;
}

/* Until a bucket was read, for a while. */
static void slow_down(fl_rows_snapshot *s)
{
    int64_t until_ns = fl_now_ns() + FL_SNAPSHOT_WAIT_MS * 1000000ll;
    struct timespec until = {until_ns / 1000000000, until_ns % 1000000000};
    int64_t before = s->n_read;

    while (s->n_read == before && s->n_read < FL_N_BUCKET &&
           pthread_cond_timedwait(&s->was_read, &s->lock, &until) != ETIMEDOUT)
        ;
}

fleet_status fl_table_snapshot_change(fl_rows_snapshot *s, const uint64_t *key,
                                      int64_t n)
{
    fleet_status status = FLEET_OK;

    pthread_mutex_lock(&s->lock);
    if (fl_table_snapshot_bytes(s) > s->most)
        slow_down(s);
    for (int64_t i = 0; i < n && status == FLEET_OK; i++) {
        frozen *b = &s->bucket[fl_bucket_of(fl_mix(key[i]))];
        int64_t number = b->is_read ? -1 : fl_table_number(s->rows, key[i]);

        if (number >= 0 && number < b->n && !is_copied(b, number))
            status = copy_row(s, b, number);
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* --- by the thread that reads --------------------------------------------- */

/* A bucket's rows, `stride` bytes each, for fl_free(); then it is read. */
static fleet_status take_bucket(fl_rows_snapshot *s, frozen *b, char **bytes)
{
    fleet_status status;

    pthread_mutex_lock(&s->lock);
    status = FL_NEW(bytes, (size_t)b->n * s->stride);
    for (int64_t i = 0; status == FLEET_OK && i < b->n; i++)
        if (!is_copied(b, i))
            memcpy(*bytes + (size_t)i * s->stride, row_of(s, b, i), s->stride);
    for (size_t i = 0; status == FLEET_OK && i < b->copies.n; i++)
        memcpy(*bytes + b->copies.number[i] * s->stride,
               b->copies.bytes + i * s->stride, s->stride);
    b->is_read = true;
    s->n_read++;
    free_bucket(s, b);
    pthread_cond_broadcast(&s->was_read);
    pthread_mutex_unlock(&s->lock);
    return status;
}

static fleet_status visit_bucket(
    const fl_rows_snapshot *s, int index, const char *bytes,
    fleet_status (*visit)(void *, int, const float *), void *arg)
{
    int64_t n = s->bucket[index].n;
    const float **row = fl_alloc_array((size_t)n, sizeof *row);
    fleet_status status = FLEET_ENOMEM;

    for (int64_t i = 0; row && i < n; i++)
        row[i] = (const float *)(const void *)(bytes + (size_t)i * s->stride +
                                               sizeof(fl_row_head));
    if (row)
        status = fl_table_visit(row, n, index, visit, arg);
    fl_free(row);
    return status;
}

fleet_status fl_table_snapshot_each(fl_rows_snapshot *s,
                                    fleet_status (*visit)(void *, int,
                                                          const float *),
                                    void *arg)
{
    fleet_status status = FLEET_OK;

    for (int i = 0; i < FL_N_BUCKET && status == FLEET_OK; i++) {
        char *bytes = NULL;

        if (s->bucket[i].n == 0)
            continue;
        status = take_bucket(s, &s->bucket[i], &bytes);
        if (status == FLEET_OK)
            status = visit_bucket(s, i, bytes, visit, arg);
        fl_free(bytes);
    }
    return status;
}
