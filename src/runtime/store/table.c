/* table.c - rows in this process's memory. */
#include "runtime/store/table.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/store/buddy.h"

enum { KEYS_PER_LINE = 5, PAGE_BYTES = 4096, LEAST_LINES = 2 };
enum { LEAST_SLAB = 64 << 10, MOST_SLAB = 2 << 20 };

/* A line of the index, one cache line. It has keys 0 .. n-1; a line that is
 * full hands on to the next one. */
typedef struct line {
    uint64_t key[KEYS_PER_LINE];
    uint32_t row[KEYS_PER_LINE];
    uint32_t n;
} line;

_Static_assert(sizeof(line) == FL_CACHE_LINE, "one cache line");

typedef struct bucket {
    line *line; /* n_line of them, a power of two */
    size_t n_line;
    char **page;
    size_t page_capacity;
    int64_t n; /* rows */
} bucket;

/* Pages of a part are cut from pieces that grow, until huge pages serve
 * them. */
typedef struct slab {
    struct slab *next;
    size_t used, size;
    _Alignas(FL_CACHE_LINE) char bytes[];
} slab;

typedef struct table {
    fl_rows rows;   /* first: a table is an fl_rows */
    size_t stride;  /* bytes of a row, head included */
    int page_shift; /* a page has 1 << page_shift rows */
    slab *slab[FL_N_PART];
    fl_buddy index[FL_N_PART]; /* memory of the lines */
    bucket bucket[FL_N_BUCKET];
} table;

static table *table_of(fl_rows *r)
{
    return (table *)(void *)r;
}

/* --- the index ----------------------------------------------------------- */

static size_t line_of(const bucket *b, uint64_t hash)
{
    return fl_mix_secretly(hash) & (b->n_line - 1);
}

/* All places are compared, because which one it is cannot be predicted. */
static uint32_t find_in_line(const line *l, uint64_t key)
{
    uint32_t found = 0;

    for (uint32_t i = 0; i < KEYS_PER_LINE; i++)
        found |= (uint32_t)(l->key[i] == key) << i;
    found &= (1u << l->n) - 1;
    return found ? l->row[__builtin_ctz(found)] + 1 : 0;
}

/* The row's number + 1; 0: the bucket does not have the key. */
static uint32_t find_row(const bucket *b, uint64_t key, uint64_t hash)
{
    size_t i;

    if (b->n_line == 0)
        return 0;
    for (i = line_of(b, hash);; i = (i + 1) & (b->n_line - 1)) {
        uint32_t row = find_in_line(&b->line[i], key);

        if (row || b->line[i].n < KEYS_PER_LINE)
            return row;
    }
}

static void put_key(bucket *b, uint64_t key, uint32_t row)
{
    size_t i = line_of(b, fl_mix(key));
    line *l;

    while (b->line[i].n == KEYS_PER_LINE)
        i = (i + 1) & (b->n_line - 1);
    l = &b->line[i];
    l->key[l->n] = key;
    l->row[l->n++] = row;
}

static int part_of(int index)
{
    return index >> (FL_BUCKET_BITS - FL_PART_BITS);
}

/* Room in the index for n rows at two thirds of its capacity. */
static fleet_status widen_index(fl_buddy *memory, bucket *b, int64_t n)
{
    size_t wanted = b->n_line ? b->n_line : LEAST_LINES;
    line *old = b->line;
    size_t n_old = b->n_line;

    while ((size_t)n * 3 > wanted * KEYS_PER_LINE * 2)
        wanted *= 2;
    if (wanted == b->n_line)
        return FLEET_OK;
    b->line = fl_buddy_alloc(memory, wanted * sizeof *b->line);
    if (!b->line) {
        b->line = old;
        return FLEET_ENOMEM;
    }
    b->n_line = wanted;
    for (size_t i = 0; i < n_old; i++)
        for (uint32_t j = 0; j < old[i].n; j++)
            put_key(b, old[i].key[j], old[i].row[j]);
    fl_buddy_free(memory, old, n_old * sizeof *old);
    return FLEET_OK;
}

/* --- rows ---------------------------------------------------------------- */

static float *row_at(const table *t, const bucket *b, int64_t number)
{
    int64_t in_page = number & ((1 << t->page_shift) - 1);
    char *page = b->page[number >> t->page_shift];

    return (float *)(void *)(page + (size_t)in_page * t->stride +
                             sizeof(fl_row_head));
}

static slab *new_slab(table *t, int part, size_t least)
{
    size_t size = t->slab[part] ? 8 * t->slab[part]->size : LEAST_SLAB;
    slab *s;

    if (size > MOST_SLAB)
        size = MOST_SLAB;
    if (size < sizeof *s + least)
        size = sizeof *s + least;
    s = fl_alloc(size);
    if (!s)
        return NULL;
    s->size = size;
    s->next = t->slab[part];
    return t->slab[part] = s;
}

static char *new_page(table *t, int part)
{
    size_t size = t->stride << t->page_shift;
    slab *s = t->slab[part];

    size = (size + FL_CACHE_LINE - 1) / FL_CACHE_LINE * FL_CACHE_LINE;
    if (!s || sizeof *s + s->used + size > s->size)
        s = new_slab(t, part, size);
    if (!s)
        return NULL;
    s->used += size;
    return s->bytes + s->used - size;
}

static fleet_status add_page(table *t, bucket *b, int index)
{
    size_t n = (size_t)(b->n >> t->page_shift);

    if (b->n & ((1 << t->page_shift) - 1))
        return FLEET_OK;
    FL_TRY(fl_grow(&b->page, &b->page_capacity, n + 1, sizeof *b->page));
    if (!b->page[n]) /* a failure after this point leaves it for the next */
        b->page[n] = new_page(t, part_of(index));
    return b->page[n] ? FLEET_OK : FLEET_ENOMEM;
}

static fleet_status add_row(table *t, int index, uint64_t key, float **row)
{
    bucket *b = &t->bucket[index];
    int64_t dim = t->rows.dim;
    float *w;

    if (b->n >= UINT32_MAX - 1)
        return fl_fail(FLEET_EUNSUPPORTED, "table \"%s\": bucket %d is full",
                       t->rows.name, index);
    FL_TRY(add_page(t, b, index));
    FL_TRY(widen_index(&t->index[part_of(index)], b, b->n + 1));
    w = row_at(t, b, b->n);
    *fl_row_of(w) = (fl_row_head){.key = key};
    fl_filler_row(&t->rows.filler, key, w, dim);
    for (int64_t i = 0; i < dim * t->rows.n_state; i++)
        w[dim + i] = t->rows.initial_state;
    put_key(b, key, (uint32_t)b->n++);
    *row = w;
    return FLEET_OK;
}

/* --- methods ------------------------------------------------------------- */

/* How many keys before it is used a line, and then a row's page, is asked for.
 * That many requests for memory are under way all the time. */
enum { LINE_AHEAD = 20, PAGE_AHEAD = 8 };
enum { UNDER_WAY = 32 }; /* keys, a power of two */

_Static_assert(LINE_AHEAD + PAGE_AHEAD < UNDER_WAY, "a place for each");

static const bucket *bucket_of(const table *t, uint64_t hash)
{
    return &t->bucket[fl_bucket_of(hash)];
}

/* A key between its hash and its row. */
typedef struct sought {
    uint64_t hash;
    uint32_t number;
} sought;

static void ask_for_line(const table *t, uint64_t key, sought *s)
{
    const bucket *b = bucket_of(t, s->hash = fl_mix(key));

    if (b->n_line)
        __builtin_prefetch(&b->line[line_of(b, s->hash)]);
}

static void ask_for_page(const table *t, uint64_t key, sought *s)
{
    const bucket *b = bucket_of(t, s->hash);

    s->number = find_row(b, key, s->hash);
    if (s->number)
        __builtin_prefetch(&b->page[(s->number - 1) >> t->page_shift]);
}

/* A lookup waits for memory twice, for the line and for the row's page. The
 * rows are not asked for: another processor may read them next. */
static void find_numbers(const table *t, const uint64_t *key, int64_t n,
                         float **row)
{
    const int64_t line_ahead = n < LINE_AHEAD ? n : LINE_AHEAD;
    const int64_t page_ahead = n < PAGE_AHEAD ? n : PAGE_AHEAD;
    sought s[UNDER_WAY];

    for (int64_t i = 0; i < n + line_ahead + page_ahead; i++) {
        int64_t j = i - line_ahead, k = j - page_ahead;

        if (i < n)
            ask_for_line(t, key[i], &s[i % UNDER_WAY]);
        if (j >= 0 && j < n)
            ask_for_page(t, key[j], &s[j % UNDER_WAY]);
        if (k >= 0) {
            const sought *at = &s[k % UNDER_WAY];

            row[k] = at->number ? row_at(t, bucket_of(t, at->hash),
                                         (int64_t)at->number - 1)
                                : NULL;
        }
    }
}

static fleet_status table_find(fl_rows *r, const uint64_t *key, int64_t n,
                               float **row)
{
    find_numbers(table_of(r), key, n, row);
    return FLEET_OK;
}

static fleet_status table_make(fl_rows *r, const uint64_t *key, int64_t n,
                               float **row)
{
    table *t = table_of(r);

    find_numbers(t, key, n, row);
    for (int64_t i = 0; i < n; i++) {
        if (row[i])
            continue;
        uint64_t hash = fl_mix(key[i]);
        int index = fl_bucket_of(hash);
        /* it may have come since: the same call has it twice */
        uint32_t number = find_row(&t->bucket[index], key[i], hash);
        if (!number)
            FL_TRY(add_row(t, index, key[i], &row[i]));
        else
            row[i] = row_at(t, &t->bucket[index], number - 1);
    }
    return FLEET_OK;
}

static int64_t table_count(const fl_rows *r)
{
    const table *t = (const table *)(const void *)r;
    int64_t n = 0;

    for (int i = 0; i < FL_N_BUCKET; i++)
        n += t->bucket[i].n;
    return n;
}

static void set_stride(table *t)
{
    size_t floats = (size_t)t->rows.dim * (size_t)(1 + t->rows.n_state);

    t->stride = (sizeof(fl_row_head) + floats * sizeof(float) + 15) / 16 * 16;
    t->page_shift = 0;
    while (t->stride << (t->page_shift + 1) <= PAGE_BYTES)
        t->page_shift++;
}

static fleet_status table_set_state(fl_rows *r, int n_state, float initial)
{
    table *t = table_of(r);

    if (r->n_state == n_state && r->initial_state == initial)
        return FLEET_OK;
    if (table_count(r) > 0)
        return fl_fail(FLEET_ESTATE,
                       "table \"%s\" has rows without this optimizer's state: "
                       "minimize before loading",
                       r->name);
    r->n_state = n_state;
    r->initial_state = initial;
    set_stride(t);
    return FLEET_OK;
}

static int by_key(const void *a, const void *b)
{
    const float *x = *(const float *const *)a, *y = *(const float *const *)b;
    uint64_t kx = ((const fl_row_head *)(const void *)x)[-1].key;
    uint64_t ky = ((const fl_row_head *)(const void *)y)[-1].key;

    return kx < ky ? -1 : kx > ky;
}

fleet_status fl_table_visit(const float **row, int64_t n, int index,
                            fleet_status (*visit)(void *, int, const float *),
                            void *arg)
{
    fleet_status status = FLEET_OK;

    if (n > 1)
        qsort(row, (size_t)n, sizeof *row, by_key);
    for (int64_t i = 0; status == FLEET_OK && i < n; i++)
        status = visit(arg, index, row[i]);
    return status;
}

static fleet_status each_in_bucket(const table *t, int index,
                                   fleet_status (*visit)(void *, int,
                                                         const float *),
                                   void *arg)
{
    const bucket *b = &t->bucket[index];
    const float **row = fl_alloc_array((size_t)b->n, sizeof *row);
    fleet_status status = FLEET_ENOMEM;

    for (int64_t i = 0; row && i < b->n; i++)
        row[i] = row_at(t, b, i);
    if (row)
        status = fl_table_visit(row, b->n, index, visit, arg);
    fl_free(row);
    return status;
}

static fleet_status table_each(const fl_rows *r,
                               fleet_status (*visit)(void *, int,
                                                     const float *),
                               void *arg)
{
    const table *t = (const table *)(const void *)r;

    for (int i = 0; i < FL_N_BUCKET; i++)
        if (t->bucket[i].n > 0)
            FL_TRY(each_in_bucket(t, i, visit, arg));
    return FLEET_OK;
}

static void table_clear(fl_rows *r)
{
    table *t = table_of(r);

    for (int i = 0; i < FL_N_BUCKET; i++) {
        bucket *b = &t->bucket[i];

        fl_buddy_free(&t->index[part_of(i)], b->line,
                      b->n_line * sizeof *b->line);
        fl_free(b->page);
        *b = (bucket){0};
    }
    for (int p = 0; p < FL_N_PART; p++)
        fl_buddy_done(&t->index[p]);
    for (int p = 0; p < FL_N_PART; p++)
        while (t->slab[p]) {
            slab *next = t->slab[p]->next;

            fl_free(t->slab[p]);
            t->slab[p] = next;
        }
}

static void table_destroy(fl_rows *r)
{
    table_clear(r);
    fl_free(table_of(r));
}

static const fl_rows_class table_methods = {
    .find = table_find,
    .make = table_make,
    .set_state = table_set_state,
    .count = table_count,
    .clear = table_clear,
    .each = table_each,
    .destroy = table_destroy,
};

fleet_status fl_table_make(const char *name, int64_t dim, int64_t modulo,
                           const fl_filler *filler, fl_rows **rows)
{
    table *t;

    FL_TRY(FL_NEW(&t, sizeof *t));
    fl_rows_init(&t->rows, &table_methods, name, dim, modulo, filler);
    fl_secret_draw();
    set_stride(t);
    *rows = &t->rows;
    return FLEET_OK;
}

/* --- for snapshots -------------------------------------------------------- */

bool fl_is_table(const fl_rows *r)
{
    return r->methods == &table_methods;
}

fl_table_bucket fl_table_bucket_of(const fl_rows *r, int index)
{
    const table *t = (const table *)(const void *)r;

    return (fl_table_bucket){t->bucket[index].page, t->bucket[index].n,
                             t->stride, t->page_shift};
}

int64_t fl_table_number(const fl_rows *r, uint64_t key)
{
    const table *t = (const table *)(const void *)r;
    uint64_t hash = fl_mix(key);

    return (int64_t)find_row(bucket_of(t, hash), key, hash) - 1;
}
