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

/* Rows of a bucket as they were: `kept` bytes each, the place and the key. */
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

typedef struct table_snapshot {
    fl_rows_snapshot base; /* first */
    const fl_rows *rows;
    fl_page_layout layout;
    size_t kept;
    int64_t most; /* bytes of copies, before a change waits */
    pthread_mutex_t lock;
    pthread_cond_t was_read;
    int64_t n_read; /* buckets */
    frozen bucket[FL_N_BUCKET];
} table_snapshot;

static table_snapshot *snapshot_of(fl_rows_snapshot *s)
{
    return (table_snapshot *)(void *)s;
}

/* --- made, freed ---------------------------------------------------------- */

static void keep_place(const table_snapshot *s, const frozen *b, int64_t number,
                       char *to)
{
    memcpy(to, fl_place_at(&s->layout, b->page, number), s->layout.stride);
    memcpy(to + s->layout.stride, fl_place_key(&s->layout, b->page, number),
           sizeof(uint64_t));
}

/* Memory for one more copy, of row `number`; NULL: there is none. */
static char *add_copy(table_snapshot *s, frozen *b, int64_t number)
{
    copies *c = &b->copies;

    if (!b->copied && FL_NEW(&b->copied, (size_t)(b->n / 64 + 1) *
                                             sizeof *b->copied) != FLEET_OK)
        return NULL;
    if (fl_grow(&c->number, &c->number_capacity, c->n + 1, sizeof *c->number) !=
            FLEET_OK ||
        fl_grow(&c->bytes, &c->bytes_capacity, c->n + 1, s->kept) != FLEET_OK)
        return NULL;
    c->number[c->n] = (uint32_t)number;
    b->copied[number / 64] |= (uint64_t)1 << (number % 64);
    atomic_fetch_add_explicit(&s->base.bytes, (int64_t)s->kept,
                              memory_order_relaxed);
    return c->bytes + c->n++ * s->kept;
}

/* A hole may be another row's by the time at which it is read. */
static fleet_status keep_holes(table_snapshot *s, frozen *b)
{
    for (int64_t i = 0; i < b->n; i++)
        if (fl_place_at(&s->layout, b->page, i)->erased) {
            char *copy = add_copy(s, b, i);

            if (!copy)
                return FLEET_ENOMEM;
            *(fl_row_head *)(void *)copy = (fl_row_head){.erased = 1};
        }
    return FLEET_OK;
}

static fleet_status freeze(table_snapshot *s, int index)
{
    fl_table_bucket now = fl_table_bucket_of(s->rows, index);
    frozen *b = &s->bucket[index];
    int shift = s->layout.shift;
    size_t pages = (size_t)((now.n + ((int64_t)1 << shift) - 1) >> shift);

    b->n = now.n;
    s->base.n += now.n - now.holes;
    if (now.n == 0)
        return FLEET_OK;
    FL_TRY(FL_NEW(&b->page, pages * sizeof *b->page));
    memcpy(b->page, now.page, pages * sizeof *b->page);
    return now.holes > 0 ? keep_holes(s, b) : FLEET_OK;
}

static void init_waits(table_snapshot *s)
{
    pthread_condattr_t monotonic;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->was_read, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&s->lock, NULL);
}

static void free_bucket(table_snapshot *s, frozen *b)
{
    atomic_fetch_sub_explicit(&s->base.bytes, (int64_t)(b->copies.n * s->kept),
                              memory_order_relaxed);
    fl_free(b->copies.number);
    fl_free(b->copies.bytes);
    fl_free(b->copied);
    fl_free(b->page);
    b->copies = (copies){0};
    b->copied = NULL;
    b->page = NULL;
}

static void end_snapshot(fl_rows_snapshot *base)
{
    table_snapshot *s = snapshot_of(base);

    for (int i = 0; i < FL_N_BUCKET; i++)
        free_bucket(s, &s->bucket[i]);
    pthread_cond_destroy(&s->was_read);
    pthread_mutex_destroy(&s->lock);
    fl_free(s);
}

static fleet_status begin_snapshot(const fl_rows *r, fl_rows_snapshot **out)
{
    fleet_status status = FLEET_OK;
    table_snapshot *s;

    *out = NULL;
    FL_TRY(FL_NEW(&s, sizeof *s));
    s->base.methods = &fl_table_snapshots;
    s->rows = r;
    s->layout = fl_table_layout(r);
    s->kept = s->layout.stride + sizeof(uint64_t);
    init_waits(s);
    for (int i = 0; i < FL_N_BUCKET && status == FLEET_OK; i++)
        status = freeze(s, i);
    if (status != FLEET_OK) {
        end_snapshot(&s->base);
        return status;
    }
    s->most = s->base.n * (int64_t)s->kept / FL_SNAPSHOT_SHARE;
    *out = &s->base;
    return FLEET_OK;
}

fleet_status fl_table_snapshot(const fl_rows *r, fl_rows_snapshot **out)
{
    *out = NULL;
    if (!r->methods->snapshot)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "table \"%s\": a snapshot of rows that are not in this "
                       "process's memory",
                       r->name);
    return r->methods->snapshot->begin(r, out);
}

/* --- by the thread that changes rows -------------------------------------- */

static bool is_copied(const frozen *b, int64_t number)
{
    return b->copied && b->copied[number / 64] >> (number % 64) & 1;
}

static fleet_status copy_row(table_snapshot *s, frozen *b, int64_t number)
{
    char *copy = add_copy(s, b, number);

    if (!copy)
        return FLEET_ENOMEM;
    keep_place(s, b, number, copy);
    return FLEET_OK;
}

/* Until a bucket was read, for a while. */
static void slow_down(table_snapshot *s)
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
    table_snapshot *s = snapshot_of(base);
    fleet_status status = FLEET_OK;

    pthread_mutex_lock(&s->lock);
    if (atomic_load_explicit(&s->base.bytes, memory_order_relaxed) > s->most)
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

/* A bucket's rows, `kept` bytes each, for fl_free(); then it is read. */
static fleet_status take_bucket(table_snapshot *s, frozen *b, char **bytes)
{
    fleet_status status;

    pthread_mutex_lock(&s->lock);
    status = FL_NEW(bytes, (size_t)b->n * s->kept);
    for (int64_t i = 0; status == FLEET_OK && i < b->n; i++)
        if (!is_copied(b, i))
            keep_place(s, b, i, *bytes + (size_t)i * s->kept);
    for (size_t i = 0; status == FLEET_OK && i < b->copies.n; i++)
        memcpy(*bytes + b->copies.number[i] * s->kept,
               b->copies.bytes + i * s->kept, s->kept);
    b->is_read = true;
    s->n_read++;
    free_bucket(s, b);
    pthread_cond_broadcast(&s->was_read);
    pthread_mutex_unlock(&s->lock);
    return status;
}

static fleet_status visit_bucket(const table_snapshot *s, int index,
                                 const char *bytes, const fl_table_walk *w)
{
    int64_t n = s->bucket[index].n;
    fl_row_entry *entry = fl_alloc_array((size_t)n, sizeof *entry);
    fleet_status status = FLEET_ENOMEM;

    for (int64_t i = 0; entry && i < n; i++) {
        const char *one = bytes + (size_t)i * s->kept;

        entry[i].place = (const fl_row_head *)(const void *)one;
        memcpy(&entry[i].key, one + s->layout.stride, sizeof(uint64_t));
    }
    if (entry)
        status = fl_table_visit(entry, n, index, w);
    fl_free(entry);
    return status;
}

static fleet_status read_each(fl_rows_snapshot *base, fl_row_visitor *visit,
                              void *arg)
{
    table_snapshot *s = snapshot_of(base);
    const fl_table_walk all = {.all = true, .visit = visit, .arg = arg};
    fleet_status status = FLEET_OK;

    for (int i = 0; i < FL_N_BUCKET && status == FLEET_OK; i++) {
        char *bytes = NULL;

        if (s->bucket[i].n == 0)
            continue;
        status = take_bucket(s, &s->bucket[i], &bytes);
        if (status == FLEET_OK)
            status = visit_bucket(s, i, bytes, &all);
        fl_free(bytes);
    }
    return status;
}

const fl_snapshot_class fl_table_snapshots = {
    .begin = begin_snapshot,
    .end = end_snapshot,
    .change = keep_changing,
    .each = read_each,
};
