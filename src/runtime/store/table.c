/* table.c - rows in this process's memory: found, made, erased. */
#include "runtime/store/table.h"

#include <string.h>

#include "base/memory.h"
#include "base/alloc/buddy.h"
#include "runtime/store/key_log.h"
#include "runtime/store/table_internal.h"
#include "runtime/store/table_snapshot.h"

enum { LEAST_SLAB = 64 << 10, MOST_SLAB = 2 << 20 };

static fl_table *table_of(fl_rows *r)
{
    return (fl_table *)(void *)r;
}

/* --- the index ----------------------------------------------------------- */

static size_t line_of(const fl_row_bucket *b, uint64_t hash)
{
    return fl_hash_below(fl_mix_secretly(hash), b->n_line);
}

static size_t line_after(const fl_row_bucket *b, size_t i)
{
    return i + 1 < b->n_line ? i + 1 : 0;
}

/* How many lines a search goes on by, to come from one to the other. */
static size_t lines_from(const fl_row_bucket *b, size_t from, size_t to)
{
    return to >= from ? to - from : to + b->n_line - from;
}

/* All places are compared, because which one it is cannot be predicted. */
static uint32_t find_in_line(const fl_table_line *l, uint64_t key)
{
    uint32_t found = 0;

    for (uint32_t i = 0; i < FL_KEYS_PER_LINE; i++)
        found |= (uint32_t)(l->key[i] == key) << i;
    found &= (1u << l->n) - 1;
    return found ? l->row[__builtin_ctz(found)] + 1 : 0;
}

/* The row's number + 1; 0: the bucket does not have the key. */
static uint32_t find_row(const fl_row_bucket *b, uint64_t key, uint64_t hash)
{
    size_t i;

    if (b->n_line == 0)
        return 0;
    for (i = line_of(b, hash);; i = line_after(b, i)) {
        uint32_t row = find_in_line(&b->line[i], key);

        if (row || b->line[i].n < FL_KEYS_PER_LINE)
            return row;
    }
}

static void put_key(fl_row_bucket *b, uint64_t key, uint32_t row)
{
    size_t i = line_of(b, fl_mix(key));
    fl_table_line *l;

    while (b->line[i].n == FL_KEYS_PER_LINE)
        i = line_after(b, i);
    l = &b->line[i];
    l->key[l->n] = key;
    l->row[l->n++] = row;
}

static int part_of(int index)
{
    return index >> (FL_BUCKET_BITS - FL_PART_BITS);
}

/* What keeps arrays of that many lines of a part. */
static fl_buddy *memory_of(fl_table *t, int part, size_t n_line)
{
    return &t->index[part][(n_line & (n_line - 1)) != 0];
}

/* Room in the index for n rows at two thirds of its capacity. */
static fleet_status widen_index(fl_table *t, int part, fl_row_bucket *b,
                                int64_t n)
{
    size_t wanted = fl_table_lines(b->n_line, n);
    fl_table_line *old = b->line;
    size_t n_old = b->n_line;

    if (wanted == b->n_line)
        return FLEET_OK;
    b->line =
        fl_buddy_alloc(memory_of(t, part, wanted), wanted * sizeof *b->line);
    if (!b->line) {
        b->line = old;
        return FLEET_ENOMEM;
    }
    b->n_line = wanted;
    for (size_t i = 0; i < n_old; i++)
        for (uint32_t j = 0; j < old[i].n; j++)
            put_key(b, old[i].key[j], old[i].row[j]);
    fl_buddy_free(memory_of(t, part, n_old), old, n_old * sizeof *old);
    return FLEET_OK;
}

/* --- rows ---------------------------------------------------------------- */

static fl_table_slab *new_slab(fl_table *t, int part, size_t least)
{
    size_t size = t->slab[part] ? 8 * t->slab[part]->size : LEAST_SLAB;
    fl_table_slab *s;

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

static char *new_page(fl_table *t, int part)
{
    size_t size = fl_table_place(t) << t->layout.shift;
    fl_table_slab *s = t->slab[part];

    size = (size + FL_ROW_ALIGN - 1) / FL_ROW_ALIGN * FL_ROW_ALIGN;
    if (!s || sizeof *s + s->used + size > s->size)
        s = new_slab(t, part, size);
    if (!s)
        return NULL;
    s->used += size;
    return s->bytes + s->used - size;
}

static fleet_status add_page(fl_table *t, fl_row_bucket *b, int index)
{
    size_t n = (size_t)(b->n >> t->layout.shift);

    if (b->n & ((1 << t->layout.shift) - 1))
        return FLEET_OK;
    FL_TRY(fl_grow(&b->page, &b->page_capacity, n + 1, sizeof *b->page));
    if (n < b->n_page) /* its row was not made for want of memory */
        return FLEET_OK;
    b->page[n] = new_page(t, part_of(index));
    if (!b->page[n])
        return FLEET_ENOMEM;
    b->n_page++;
    return FLEET_OK;
}

/* A place for a row: a hole, or behind all rows; take_place() takes it. */
static fleet_status find_place(fl_table *t, fl_row_bucket *b, int index)
{
    if (b->hole)
        return FLEET_OK;
    if (b->n >= UINT32_MAX - 1)
        return fl_fail(FLEET_EUNSUPPORTED, "table \"%s\": bucket %d is full",
                       t->rows.name, index);
    return add_page(t, b, index);
}

static int64_t take_place(const fl_table *t, fl_row_bucket *b)
{
    int64_t number = b->hole - 1;

    if (!b->hole)
        return b->n++;
    b->hole = (int64_t)*fl_place_key(&t->layout, b->page, number);
    b->holes--;
    return number;
}

/* A row as it begins. */
static void fill_row(const fl_rows *r, uint64_t key, float *row)
{
    float w[FL_MOST_NARROW_DIM];

    if (fl_rows_are_floats(r)) {
        fl_filler_row(&r->filler, key, row, r->dim);
    } else {
        fl_filler_row(&r->filler, key, w, r->dim);
        fl_rows_write(r, row, w);
    }
    fl_rows_first_states(r, fl_rows_states(r, row));
}

static fleet_status add_row(fl_table *t, int index, uint64_t key, float **row)
{
    fl_row_bucket *b = &t->bucket[index];
    int64_t number;
    float *w;

    FL_TRY(find_place(t, b, index));
    FL_TRY(widen_index(t, part_of(index), b, b->n - b->holes + 1));
    number = take_place(t, b);
    w = fl_table_row(t, b, number);
    fl_show(w, fl_table_floats(&t->rows));
    *fl_row_of(w) = (fl_row_head){0};
    *fl_place_key(&t->layout, b->page, number) = key;
    fill_row(&t->rows, key, w);
    put_key(b, key, (uint32_t)number);
    fl_key_log_made(&t->rows, key, w);
    *row = w;
    return FLEET_OK;
}

/* --- erasing ------------------------------------------------------------- */

/* The line that has the key, and where in it; NULL: the bucket does not have
 * it. */
static fl_table_line *line_with(const fl_row_bucket *b, uint64_t key,
                                uint32_t *at)
{
    if (b->n_line == 0)
        return NULL;
    for (size_t i = line_of(b, fl_mix(key));; i = line_after(b, i)) {
        fl_table_line *l = &b->line[i];

        for (*at = 0; *at < l->n; ++*at)
            if (l->key[*at] == key)
                return l;
        if (l->n < FL_KEYS_PER_LINE)
            return NULL;
    }
}

static void take_out(fl_table_line *l, uint32_t at)
{
    l->n--;
    l->key[at] = l->key[l->n];
    l->row[at] = l->row[l->n];
}

/* A search ends at a line that is not full, and this line has become one: a key
 * that went past it, because it was full, comes back into it, and leaves a gap
 * in turn. */
static void close_gap(fl_row_bucket *b, size_t gap)
{
    bool was_full = true;

    for (size_t i = line_after(b, gap); was_full; i = line_after(b, i)) {
        fl_table_line *l = &b->line[i], *to = &b->line[gap];
        size_t back = lines_from(b, gap, i);
        uint32_t j = 0;

        while (j < l->n &&
               lines_from(b, line_of(b, fl_mix(l->key[j])), i) < back)
            j++;
        was_full = l->n == FL_KEYS_PER_LINE;
        if (j == l->n)
            continue;
        to->key[to->n] = l->key[j];
        to->row[to->n++] = l->row[j];
        take_out(l, j);
        gap = i;
    }
}

/* Other rows stay where they are: the place is a hole. */
static void drop_row(const fl_table *t, fl_row_bucket *b, int64_t number)
{
    float *w = fl_table_row(t, b, number);

    *fl_row_of(w) = (fl_row_head){.erased = 1};
    *fl_place_key(&t->layout, b->page, number) = (uint64_t)b->hole;
    b->hole = number + 1;
    b->holes++;
    fl_hide(w, fl_table_floats(&t->rows));
}

static bool erase_key(const fl_table *t, fl_row_bucket *b, uint64_t key)
{
    uint32_t at, number;
    fl_table_line *l = line_with(b, key, &at);
    float *row;

    if (!l)
        return false;
    number = l->row[at];
    row = fl_table_row(t, b, number);
    fl_key_log_gone(&t->rows, key, row);
    take_out(l, at);
    if (l->n == FL_KEYS_PER_LINE - 1)
        close_gap(b, (size_t)(l - b->line));
    drop_row(t, b, number);
    return true;
}

static fleet_status table_erase(fl_rows *r, const uint64_t *key, int64_t n,
                                int64_t *erased)
{
    fl_table *t = table_of(r);

    *erased = 0;
    for (int64_t i = 0; i < n; i++)
        *erased +=
            erase_key(t, &t->bucket[fl_bucket_of(fl_mix(key[i]))], key[i]);
    if (*erased > 0)
        fl_rows_next_epoch(r);
    return FLEET_OK;
}

/* --- methods ------------------------------------------------------------- */

/* How many keys before it is used a line, and then a row's page, is asked for.
 * That many requests for memory are under way all the time. */
enum { LINE_AHEAD = 20, PAGE_AHEAD = 8 };
enum { UNDER_WAY = 32 }; /* keys, a power of two */

_Static_assert(LINE_AHEAD + PAGE_AHEAD < UNDER_WAY, "a place for each");

static const fl_row_bucket *bucket_of(const fl_table *t, uint64_t hash)
{
    return &t->bucket[fl_bucket_of(hash)];
}

/* A key between its hash and its row. */
typedef struct sought {
    uint64_t hash;
    uint32_t number;
} sought;

static void ask_for_line(const fl_table *t, uint64_t key, sought *s)
{
    const fl_row_bucket *b = bucket_of(t, s->hash = fl_mix(key));

    if (b->n_line)
        __builtin_prefetch(&b->line[line_of(b, s->hash)]);
}

static void ask_for_page(const fl_table *t, uint64_t key, sought *s)
{
    const fl_row_bucket *b = bucket_of(t, s->hash);

    s->number = find_row(b, key, s->hash);
    if (s->number)
        __builtin_prefetch(&b->page[(s->number - 1) >> t->layout.shift]);
}

/* A lookup waits for memory twice, for the line and for the row's page. The
 * rows are not asked for: another processor may read them next. */
static void find_numbers(const fl_table *t, const uint64_t *key, int64_t n,
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

            row[k] = at->number ? fl_table_row(t, bucket_of(t, at->hash),
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
    fl_table *t = table_of(r);

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
            row[i] = fl_table_row(t, &t->bucket[index], number - 1);
    }
    return FLEET_OK;
}

static int64_t table_count(const fl_rows *r)
{
    const fl_table *t = fl_table_of(r);
    int64_t n = 0;

    for (int i = 0; i < FL_N_BUCKET; i++)
        n += t->bucket[i].n - t->bucket[i].holes;
    return n;
}

static void table_clear(fl_rows *r)
{
    fl_table *t = table_of(r);

    for (int i = 0; i < FL_N_BUCKET; i++) {
        fl_row_bucket *b = &t->bucket[i];

        fl_buddy_free(memory_of(t, part_of(i), b->n_line), b->line,
                      b->n_line * sizeof *b->line);
        fl_free(b->page);
        *b = (fl_row_bucket){0};
    }
    fl_key_log_cleared(r);
    fl_rows_next_epoch(r);
    for (int p = 0; p < FL_N_PART; p++)
        for (int i = 0; i < 2; i++)
            fl_buddy_done(&t->index[p][i]);
    for (int p = 0; p < FL_N_PART; p++)
        while (t->slab[p]) {
            fl_table_slab *next = t->slab[p]->next;

            fl_free(t->slab[p]);
            t->slab[p] = next;
        }
}

static fleet_status table_set_state(fl_rows *r, int n_state, int n_row,
                                    float initial)
{
    fl_table *t = table_of(r);

    if (fl_rows_has_state(r, n_state, n_row, initial))
        return FLEET_OK;
    if (table_count(r) > 0)
        return fl_fail(FLEET_ESTATE,
                       "table \"%s\" has rows without this optimizer's state: "
                       "minimize before loading",
                       r->name);
    table_clear(r); /* pages of rows that were erased are of the old length */
    fl_rows_note_state(r, n_state, n_row, initial);
    t->layout = fl_table_lay_out(&t->rows);
    return FLEET_OK;
}

static fleet_status table_set_storage(fl_rows *r, fleet_row_storage storage)
{
    fl_table *t = table_of(r);

    if (r->storage == storage)
        return FLEET_OK;
    if (table_count(r) > 0)
        return fl_fail(FLEET_ESTATE, "table \"%s\" has rows already", r->name);
    table_clear(r);
    r->storage = storage;
    t->layout = fl_table_lay_out(&t->rows);
    return FLEET_OK;
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
    .set_storage = table_set_storage,
    .count = table_count,
    .clear = table_clear,
    .erase = table_erase,
    .each = fl_table_each,
    .each_changed = fl_table_each_changed,
    .stat = fl_table_stat,
    .hashes = true,
    .snapshot = &fl_table_snapshots,
    .destroy = table_destroy,
};

fleet_status fl_table_make(const char *name, int64_t dim, int64_t modulo,
                           const fl_filler *filler, fl_rows **rows)
{
    fl_table *t;

    FL_TRY(FL_NEW(&t, sizeof *t));
    fl_rows_init(&t->rows, &table_methods, name, dim, modulo, filler);
    fl_secret_draw();
    for (int p = 0; p < FL_N_PART; p++)
        t->index[p][1].by_three = true;
    t->layout = fl_table_lay_out(&t->rows);
    *rows = &t->rows;
    return FLEET_OK;
}

/* --- rows, wherever they are kept ----------------------------------------- */

void fl_rows_first(const fl_rows *r, uint64_t key, float *out)
{
    float row[FL_MOST_NARROW_DIM];

    fl_filler_row(&r->filler, key, out, r->dim);
    if (fl_rows_are_floats(r))
        return;
    fl_rows_write(r, row, out);
    fl_rows_read(r, out, row);
}

void fl_rows_unknown(const fl_rows *r, uint64_t key, float *out)
{
    if (r->life && r->life->o.unknown_zeros)
        memset(out, 0, (size_t)r->dim * sizeof *out);
    else
        fl_rows_first(r, key, out);
}

static void change_rows(const fl_rows *r, const fleet_optimizer *o,
                        const fl_update *u, const uint64_t *key,
                        float *const *w, const float *const *g, int64_t n)
{
    if (!fl_rows_are_floats(r)) {
        const fl_narrow_rows narrow = {r->storage, r->dim, fl_rows_floats(r),
                                       fl_filler_row_seed(&r->filler)};

        fl_narrow_change(&narrow, o, u, key, w, g, n);
        return;
    }
    fl_optimizer_rows(o)(u, w, g, n, r->dim);
    if (o->bounds)
        fl_rule_set_best()->bound(o->low, o->high, w, n, r->dim);
}

/* A rule hashes a row while it has it; but not what comes after it. */
static void change_live(const fl_rows *r, const fleet_optimizer *o,
                        const fl_update *u, const uint64_t *key,
                        float *const *w, const float *const *g, int64_t n)
{
    const fl_row_hash hash = {r->live->bucket, key, fl_rows_record(r)};
    fl_update with = *u;

    if (fl_rows_are_floats(r) && !o->bounds) {
        with.hash = &hash;
        change_rows(r, o, &with, key, w, g, n);
        return;
    }
    for (int64_t i = 0, m; i < n; i += m) {
        m = fl_live_hash_apart(r, w + i, n - i);
        fl_live_hash_out(r, key + i, w + i, m);
        change_rows(r, o, u, key + i, w + i, g + i, m);
        fl_live_hash_in(r, key + i, w + i, m);
    }
}

void fl_rows_change(const fl_rows *r, const fleet_optimizer *all,
                    const fl_update *u, const uint64_t *key, float *const *w,
                    const float *const *g, int64_t n)
{
    const fleet_optimizer *o = fl_rows_optimizer(all, r);

    if (r->live)
        change_live(r, o, u, key, w, g, n);
    else
        change_rows(r, o, u, key, w, g, n);
}

/* --- for snapshots -------------------------------------------------------- */

bool fl_is_table(const fl_rows *r)
{
    return r->methods == &table_methods;
}

fl_table_bucket fl_table_bucket_of(const fl_rows *r, int index)
{
    const fl_table *t = fl_table_of(r);
    const fl_row_bucket *b = &t->bucket[index];

    return (fl_table_bucket){b->page, b->n, b->holes};
}

int64_t fl_table_number(const fl_rows *r, uint64_t key)
{
    const fl_table *t = fl_table_of(r);
    uint64_t hash = fl_mix(key);

    return (int64_t)find_row(bucket_of(t, hash), key, hash) - 1;
}
