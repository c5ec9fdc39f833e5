/* parquet_block.c - columns side by side, and rows taken out of them. */
#include "data/format/parquet_block.h"

#include <string.h>

static size_t round_up(size_t size)
{
    return (size + 7) / 8 * 8;
}

static size_t head_size(int n)
{
    return sizeof(fl_parquet_block) + (size_t)n * sizeof(fl_parquet_slice);
}

/* Bytes of the values; of texts where they begin. */
static size_t values_size(uint32_t kind, size_t n)
{
    return kind == FL_PARQUET_TEXT ? (n + 1) * sizeof(uint32_t)
                                   : n * sizeof(uint64_t);
}

static size_t text_size(const fl_parquet_piece *p, fl_parquet_kind kind)
{
    const uint32_t *begin = p->values;

    return kind == FL_PARQUET_TEXT ? begin[p->n] - begin[0] : 0;
}

size_t fl_parquet_block_size(const fl_parquet_piece *piece,
                             const fl_parquet_column *column, int n,
                             size_t rows)
{
    size_t size = round_up(head_size(n));

    for (int i = 0; i < n; i++) {
        const fl_parquet_piece *p = &piece[i];

        size += round_up(values_size(column[i].kind, p->n));
        size += round_up(text_size(p, column[i].kind));
        size += p->offsets ? round_up((rows + 1) * sizeof(uint32_t)) : 0;
        size += p->there ? round_up(rows) : 0;
    }
    return size < UINT32_MAX ? size : 0;
}

/* Where `size` bytes go, which is *end so far. */
static uint32_t place_bytes(size_t *end, const void *from, size_t size,
                            fl_parquet_block *b)
{
    const size_t at = *end;

    if (size > 0)
        memcpy((char *)b + at, from, size);
    *end += round_up(size);
    return (uint32_t)at;
}

/* Texts begin at 0 in the block's bytes. */
static void place_texts(size_t *end, const fl_parquet_piece *p,
                        fl_parquet_slice *s, fl_parquet_block *b)
{
    const uint32_t *from = p->values;
    uint32_t *begin;

    s->values = place_bytes(end, from, values_size(s->kind, p->n), b);
    s->bytes =
        place_bytes(end, p->bytes + from[0], text_size(p, FL_PARQUET_TEXT), b);
    begin = (uint32_t *)(void *)((char *)b + s->values);
    for (size_t i = 0; from[0] > 0 && i <= p->n; i++)
        begin[i] -= from[0];
}

void fl_parquet_block_make(fl_parquet_block *b, const fl_parquet_piece *piece,
                           const fl_parquet_column *column, int n, size_t rows,
                           int group)
{
    size_t end = round_up(head_size(n));

    b->rows = (uint32_t)rows;
    b->group = (uint32_t)group;
    for (int i = 0; i < n; i++) {
        const fl_parquet_piece *p = &piece[i];
        fl_parquet_slice *s = &b->column[i];

        *s = (fl_parquet_slice){.kind = column[i].kind, .n = (uint32_t)p->n};
        if (s->kind == FL_PARQUET_TEXT)
            place_texts(&end, p, s, b);
        else
            s->values =
                place_bytes(&end, p->values, values_size(s->kind, p->n), b);
        if (p->offsets)
            s->offsets =
                place_bytes(&end, p->offsets, (rows + 1) * sizeof(uint32_t), b);
        if (p->there)
            s->there = place_bytes(&end, p->there, rows, b);
    }
}

/* --- rows ----------------------------------------------------------------- */

/* In front of a column's values; behind it the sizes of texts, then all bytes.
 * A list is told by its flag, as one of a single value is. */
typedef struct row_column {
    uint8_t kind, is_list, is_null;
    uint8_t unused;
    uint32_t n;
} row_column;

static const uint32_t *texts_of(const fl_parquet_block *b,
                                const fl_parquet_slice *s)
{
    return fl_parquet_at(b, s->values);
}

size_t fl_parquet_row_size(const fl_parquet_block *b, size_t row, int n)
{
    size_t size = sizeof b->group, from, to;

    for (int i = 0; i < n; i++) {
        const fl_parquet_slice *s = &b->column[i];

        fl_parquet_range(b, s, row, &from, &to);
        size += sizeof(row_column);
        if (s->kind == FL_PARQUET_TEXT)
            size += (to - from) * sizeof(uint32_t) + texts_of(b, s)[to] -
                    texts_of(b, s)[from];
        else
            size += (to - from) * sizeof(uint64_t);
    }
    return size;
}

static char *put_bytes(char *to, const void *from, size_t size)
{
    if (size > 0)
        memcpy(to, from, size);
    return to + size;
}

static char *put_texts(const fl_parquet_block *b, const fl_parquet_slice *s,
                       size_t from, size_t end, char *to)
{
    const uint32_t *begin = texts_of(b, s);

    for (size_t i = from; i < end; i++) {
        const uint32_t size = begin[i + 1] - begin[i];

        to = put_bytes(to, &size, sizeof size);
    }
    return put_bytes(to, (const char *)fl_parquet_at(b, s->bytes) + begin[from],
                     begin[end] - begin[from]);
}

void fl_parquet_row_make(const fl_parquet_block *b, size_t row, int n, char *to)
{
    to = put_bytes(to, &b->group, sizeof b->group);
    for (int i = 0; i < n; i++) {
        const fl_parquet_slice *s = &b->column[i];
        row_column c = {.kind = (uint8_t)s->kind, .is_list = s->offsets != 0};
        size_t from, end;

        fl_parquet_range(b, s, row, &from, &end);
        c.n = (uint32_t)(end - from);
        c.is_null = !c.is_list && c.n == 0;
        to = put_bytes(to, &c, sizeof c);
        if (s->kind == FL_PARQUET_TEXT)
            to = put_texts(b, s, from, end, to);
        else
            to = put_bytes(to,
                           (const uint64_t *)fl_parquet_at(b, s->values) + from,
                           c.n * sizeof(uint64_t));
    }
}

size_t fl_parquet_row_room(size_t row_size, int n)
{
    /* a null has a value; sections are rounded up */
    return round_up(head_size(n)) + 2 * row_size + (size_t)n * 64;
}

/* The texts of a row's column; where the next column begins. */
static const char *open_texts(const char *from, size_t *end,
                              fl_parquet_slice *s, fl_parquet_block *b)
{
    const size_t n = s->n;
    uint32_t *begin = (uint32_t *)(void *)((char *)b + *end), size;

    s->values = (uint32_t)*end;
    *end += round_up(values_size(FL_PARQUET_TEXT, n));
    begin[0] = 0;
    for (size_t i = 0; i < n; i++, from += sizeof size) {
        memcpy(&size, from, sizeof size);
        begin[i + 1] = begin[i] + size;
    }
    s->bytes = place_bytes(end, from, begin[n], b);
    return from + begin[n];
}

void fl_parquet_row_open(const char *row, int n, fl_parquet_block *b)
{
    size_t end = round_up(head_size(n));

    b->rows = 1;
    memcpy(&b->group, row, sizeof b->group);
    row += sizeof b->group;
    for (int i = 0; i < n; i++) {
        fl_parquet_slice *s = &b->column[i];
        row_column c;

        memcpy(&c, row, sizeof c);
        row += sizeof c;
        *s = (fl_parquet_slice){.kind = c.kind, .n = c.n};
        if (c.kind == FL_PARQUET_TEXT) {
            row = open_texts(row, &end, s, b);
        } else {
            s->values = place_bytes(&end, row, c.n * sizeof(uint64_t), b);
            row += c.n * sizeof(uint64_t);
        }
        if (c.is_list)
            s->offsets = place_bytes(&end, (uint32_t[]){0, c.n},
                                     2 * sizeof(uint32_t), b);
        if (c.is_null)
            s->there = place_bytes(&end, "", 1, b);
    }
}
