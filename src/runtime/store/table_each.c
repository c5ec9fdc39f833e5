/* table_each.c - walks over all rows of a table, and what it has. */
#include <stdlib.h>
#include <string.h>

#include "runtime/store/table_internal.h"

/* --- each, each_changed --------------------------------------------------- */

static int by_key(const void *a, const void *b)
{
    uint64_t x = ((const fl_row_entry *)a)->key;
    uint64_t y = ((const fl_row_entry *)b)->key;

    return x < y ? -1 : x > y;
}

enum { DIGIT = 256, LEAST_DIGITS = 64 /* entries; fewer are compared */ };

/* In the order of one byte of their keys, and else as they are. */
static void sort_by_digit(const fl_row_entry *from, fl_row_entry *to, int64_t n,
                          int shift)
{
    int64_t at[DIGIT] = {0}, sum = 0;

    for (int64_t i = 0; i < n; i++)
        at[from[i].key >> shift & (DIGIT - 1)]++;
    for (int d = 0; d < DIGIT; d++) {
        int64_t count = at[d];

        at[d] = sum;
        sum += count;
    }
    for (int64_t i = 0; i < n; i++)
        to[at[from[i].key >> shift & (DIGIT - 1)]++] = from[i];
}

/* By key: digit after digit from the least; equal ones are left out. */
static fleet_status sort_by_key(fl_row_entry *entry, int64_t n)
{
    fl_row_entry *from = entry, *to, *spare;
    uint64_t differs = 0;

    if (n < LEAST_DIGITS) {
        if (n > 1)
            qsort(entry, (size_t)n, sizeof *entry, by_key);
        return FLEET_OK;
    }
    FL_TRY(FL_NEW(&spare, (size_t)n * sizeof *spare));
    for (int64_t i = 1; i < n; i++)
        differs |= entry[i].key ^ entry[0].key;
    for (int shift = 0; shift < 64; shift += 8)
        if (differs >> shift & (DIGIT - 1)) {
            to = from == entry ? spare : entry;
            sort_by_digit(from, to, n, shift);
            from = to;
        }
    if (from != entry)
        memcpy(entry, from, (size_t)n * sizeof *entry);
    fl_free(spare);
    return FLEET_OK;
}

fleet_status fl_table_visit(fl_row_entry *entry, int64_t places, int bucket,
                            const fl_table_walk *w)
{
    int64_t n = 0;

    for (int64_t i = 0; i < places; i++) {
        const fl_row_head *head = entry[i].place;

        entry[n] = entry[i];
        n += !head->erased && (w->all || head->changed_at > w->since);
    }
    FL_TRY(sort_by_key(entry, n));
    for (int64_t i = 0; i < n; i++)
        FL_TRY(w->visit(w->arg, bucket, entry[i].key,
                        (const float *)(const void *)(entry[i].place + 1)));
    return FLEET_OK;
}

static fleet_status walk_bucket(const fl_table *t, int index,
                                const fl_table_walk *w)
{
    const fl_row_bucket *b = &t->bucket[index];
    fl_row_entry *entry = fl_alloc_array((size_t)b->n, sizeof *entry);
    fleet_status status = FLEET_ENOMEM;

    for (int64_t i = 0; entry && i < b->n; i++)
        entry[i] = (fl_row_entry){*fl_place_key(&t->layout, b->page, i),
                                  fl_place_at(&t->layout, b->page, i)};
    if (entry)
        status = fl_table_visit(entry, b->n, index, w);
    fl_free(entry);
    return status;
}

static fleet_status walk_table(const fl_rows *r, const fl_table_walk *w)
{
    const fl_table *t = fl_table_of(r);

    for (int i = 0; i < FL_N_BUCKET; i++)
        if (t->bucket[i].n > 0)
            FL_TRY(walk_bucket(t, i, w));
    return FLEET_OK;
}

fleet_status fl_table_each(const fl_rows *r, fl_row_visitor *visit, void *arg)
{
    return walk_table(
        r, &(fl_table_walk){.all = true, .visit = visit, .arg = arg});
}

fleet_status fl_table_each_changed(const fl_rows *r, uint64_t since,
                                   fl_row_visitor *visit, void *arg)
{
    return walk_table(
        r, &(fl_table_walk){.since = since, .visit = visit, .arg = arg});
}

/* --- stat ----------------------------------------------------------------- */

static uint64_t newest_of(const fl_table *t, const fl_row_bucket *b)
{
    uint64_t newest = 0;

    for (int64_t i = 0; i < b->n; i++) {
        uint64_t at = fl_place_at(&t->layout, b->page, i)->changed_at;

        newest = at > newest ? at : newest;
    }
    return newest;
}

/* What is left of a slab when the next one is cut is lost, and not counted. */
fleet_status fl_table_stat(const fl_rows *r, fl_rows_stat *stat)
{
    const fl_table *t = fl_table_of(r);
    uint64_t places = 0;

    *stat = (fl_rows_stat){.epoch = fl_rows_epoch(r)};
    for (int i = 0; i < FL_N_BUCKET; i++) {
        const fl_row_bucket *b = &t->bucket[i];
        uint64_t newest = newest_of(t, b);

        stat->rows += b->n - b->holes;
        places += (uint64_t)b->n_page << t->layout.shift;
        stat->index_bytes +=
            b->n_line * sizeof *b->line + b->page_capacity * sizeof *b->page;
        if (newest > stat->changed_at)
            stat->changed_at = newest;
    }
    for (int p = 0; p < FL_N_PART; p++) {
        const fl_table_slab *s = t->slab[p];

        stat->free_bytes += fl_buddy_free_bytes(&t->index[p][0]) +
                            fl_buddy_free_bytes(&t->index[p][1]);
        if (s)
            stat->free_bytes += s->size - sizeof *s - s->used;
    }
    stat->row_bytes = (uint64_t)stat->rows * fl_table_place(t);
    stat->free_bytes += places * fl_table_place(t) - stat->row_bytes;
    return FLEET_OK;
}

/* --- what rows take ------------------------------------------------------- */

enum { PAGE_BYTES = 4096, LEAST_LINES = 2 };

fl_page_layout fl_table_lay_out(const fl_rows *r)
{
    size_t used = sizeof(fl_row_head) + fl_table_floats(r);
    fl_page_layout l = {0};

    l.stride = (used + FL_ROW_ALIGN - 1) / FL_ROW_ALIGN * FL_ROW_ALIGN;
    l.key_step =
        l.stride - used < sizeof(uint64_t) ? sizeof(uint64_t) : l.stride;
    while (fl_page_place(&l) << (l.shift + 1) <= PAGE_BYTES)
        l.shift++;
    l.key_at = l.key_step < l.stride ? l.stride << l.shift
                                     : l.stride - sizeof(uint64_t);
    return l;
}

/* By a half and by a third in turn: half as much of it stays empty as if it
 * doubled. */
static size_t more_lines(size_t n)
{
    if (n < 4)
        return 2 * n;
    return n & (n - 1) ? n / 3 * 4 : n + n / 2;
}

size_t fl_table_lines(size_t n_line, int64_t n)
{
    size_t wanted = n_line ? n_line : LEAST_LINES;

    while ((size_t)n * 3 > wanted * FL_KEYS_PER_LINE * 2)
        wanted = more_lines(wanted);
    return wanted;
}

/* As fl_grow() makes room for that many pages, one after the other. */
static size_t page_pointers(size_t pages)
{
    size_t room = 8;

    while (room < pages)
        room += room / 2;
    return room * sizeof(char *);
}

int64_t fl_table_bucket_bytes(const fl_rows *r, int64_t n)
{
    const fl_page_layout l = fl_table_lay_out(r);
    size_t pages = (size_t)((n - 1) >> l.shift) + 1;

    if (n <= 0)
        return 0;
    return (int64_t)((pages << l.shift) * fl_page_place(&l) +
                     page_pointers(pages) +
                     fl_table_lines(0, n) * sizeof(fl_table_line));
}

/* Of a bucket with n rows of the table, all that it takes. */
static int64_t bytes_of_life(const fl_rows *r, int64_t n)
{
    const fl_life *life = r->life;
    int64_t bytes = fl_table_bucket_bytes(r, n);

    if (life->waiting)
        bytes += fl_table_bucket_bytes(life->waiting, n);
    if (life->filter)
        bytes += fl_table_bucket_bytes(life->filter, life->shape.blocks);
    return bytes;
}

/* The most rows that take no more than that. */
static int64_t rows_within(const fl_rows *r, int64_t bytes)
{
    int64_t least = 0, most = bytes / (int64_t)sizeof(fl_row_head) + 1;

    while (most - least > 1) {
        int64_t n = least + (most - least) / 2;

        if (bytes_of_life(r, n) <= bytes)
            least = n;
        else
            most = n;
    }
    return least;
}

fleet_status fl_rows_bound(fl_rows *r)
{
    fl_life *life = r->life;
    int64_t n;

    if (!life)
        return FLEET_OK;
    life->bucket_rows = life->o.most_rows / FL_N_BUCKET;
    if (life->o.most_bytes == 0)
        return FLEET_OK;
    n = rows_within(r, life->o.most_bytes / FL_N_BUCKET);
    if (n == 0)
        return fl_fail(FLEET_EINVAL,
                       "table \"%s\": most_bytes %lld: expected %lld or more, "
                       "for a row in each of its %d buckets",
                       r->name, (long long)life->o.most_bytes,
                       (long long)bytes_of_life(r, 1) * FL_N_BUCKET,
                       (int)FL_N_BUCKET);
    if (life->bucket_rows == 0 || n < life->bucket_rows)
        life->bucket_rows = n;
    return FLEET_OK;
}

/* --- what has changed lately ---------------------------------------------- */

static fleet_status count_row(void *arg, int bucket, uint64_t key,
                              const float *row)
{
    (void)bucket;
    (void)key;
    (void)row;
    ++*(int64_t *)arg;
    return FLEET_OK;
}

fleet_status fl_rows_count_changed(const fl_rows *r, uint64_t since, int64_t *n)
{
    *n = 0;
    if (!fl_is_table(r))
        return r->methods->each_changed(r, since, count_row, n);
    for (int i = 0; i < FL_N_BUCKET; i++)
        for (fl_bucket_walk h = fl_bucket_walk_of(r, i);
             fl_bucket_walk_next(&h);)
            *n += h.head->changed_at > since;
    return FLEET_OK;
}

void fl_rows_move_versions(fl_rows *r, int64_t by)
{
    if (!fl_is_table(r))
        return;
    for (int i = 0; i < FL_N_BUCKET; i++)
        for (fl_bucket_walk h = fl_bucket_walk_of(r, i);
             fl_bucket_walk_next(&h);)
            if (h.head->changed_at > 0)
                h.head->changed_at = fl_version_moved(h.head->changed_at, by);
    fl_rows_next_epoch(r);
}

fl_page_layout fl_table_layout(const fl_rows *r)
{
    return fl_table_of(r)->layout;
}
