/* table_internal.h - the inside of a table in this process's memory, shared by
 * table.c (rows found, made and erased) and table_each.c (walks over all of
 * them). */
#pragma once

#include "base/memory.h"
#include "base/alloc/buddy.h"
#include "runtime/store/table.h"

enum { FL_KEYS_PER_LINE = 5, FL_ROW_ALIGN = 16 };

/* A line of the index, one cache line. It has keys 0 .. n-1; a line that is
 * full hands on to the next one. */
typedef struct fl_table_line {
    uint64_t key[FL_KEYS_PER_LINE];
    uint32_t row[FL_KEYS_PER_LINE];
    uint32_t n;
} fl_table_line;

_Static_assert(sizeof(fl_table_line) == FL_CACHE_LINE, "one cache line");

typedef struct fl_row_bucket {
    fl_table_line *line; /* n_line of them: 2^k, or 3 * 2^k */
    size_t n_line;
    char **page; /* n_page of them; rows are in the first ones */
    size_t n_page, page_capacity;
    int64_t n;     /* places of rows: numbered, holes included */
    int64_t holes; /* that erased rows have left */
    int64_t hole;  /* the first one's number + 1; its key is the next one's */
} fl_row_bucket;

/* Pages of a part are cut from slabs that grow, until huge pages serve them. */
typedef struct fl_table_slab {
    struct fl_table_slab *next;
    size_t used, size;
    _Alignas(FL_CACHE_LINE) char bytes[];
} fl_table_slab;

typedef struct fl_table {
    fl_rows rows; /* first: a table is an fl_rows */
    fl_page_layout layout;
    fl_table_slab *slab[FL_N_PART];
    fl_buddy index[FL_N_PART][2]; /* memory of 2^k lines, of 3 * 2^k */
    fl_row_bucket bucket[FL_N_BUCKET];
} fl_table;

static inline const fl_table *fl_table_of(const fl_rows *r)
{
    return (const fl_table *)(const void *)r;
}

static inline float *fl_table_row(const fl_table *t, const fl_row_bucket *b,
                                  int64_t number)
{
    return (float *)(void *)(fl_place_at(&t->layout, b->page, number) + 1);
}

/* Bytes of a place, its key included. */
static inline size_t fl_page_place(const fl_page_layout *l)
{
    return l->stride + (l->key_step < l->stride ? l->key_step : 0);
}

static inline size_t fl_table_place(const fl_table *t)
{
    return fl_page_place(&t->layout);
}

/* Bytes of a row's weights and states, in whole words. */
static inline size_t fl_table_floats(const fl_rows *r)
{
    return ((size_t)fl_rows_record(r) * sizeof(float) + 7) / 8 * 8;
}

/* --- table_each.c --------------------------------------------------------- */

/* How rows with these weights and states lie in pages. */
fl_page_layout fl_table_lay_out(const fl_rows *r);

/* How many lines an index of n_line of them needs for n rows: at two thirds of
 * its capacity. */
size_t fl_table_lines(size_t n_line, int64_t n);

fleet_status fl_table_each(const fl_rows *r, fl_row_visitor *visit, void *arg);
fleet_status fl_table_each_changed(const fl_rows *r, uint64_t since,
                                   fl_row_visitor *visit, void *arg);
fleet_status fl_table_stat(const fl_rows *r, fl_rows_stat *stat);
