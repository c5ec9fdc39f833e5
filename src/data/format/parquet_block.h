/* parquet_block.h - rows of a Parquet file on their way to a batch: columns of
 * some rows of a group, side by side in a block; and single rows, which a
 * shuffle moves.
 *
 * Numbers begin at multiples of 8. FL_TEXT_PAD bytes around a block are
 * readable. */
#pragma once

#include "data/format/parquet_table.h"
#include "data/text/text_lines.h"

/* A column's part; places are bytes from the block's begin. */
typedef struct fl_parquet_slice {
    uint32_t kind; /* fl_parquet_kind */
    uint32_t n;    /* values */
    uint32_t values, bytes;
    uint32_t offsets; /* 0: it is no list */
    uint32_t there;   /* 0: each row has a value, or it is a list */
} fl_parquet_slice;

typedef struct fl_parquet_block {
    uint32_t rows, group;
    fl_parquet_slice column[];
} fl_parquet_block;

/* Bytes of the rows whose columns are read; 0: 4 GiB or more. */
size_t fl_parquet_block_size(const fl_parquet_piece *piece,
                             const fl_parquet_column *column, int n,
                             size_t rows);
void fl_parquet_block_make(fl_parquet_block *b, const fl_parquet_piece *piece,
                           const fl_parquet_column *column, int n, size_t rows,
                           int group);

/* A row by itself: how many bytes it takes, and these. */
size_t fl_parquet_row_size(const fl_parquet_block *b, size_t row, int n);
void fl_parquet_row_make(const fl_parquet_block *b, size_t row, int n,
                         char *to);

/* The block of a row made so: bytes that it takes at most, and the block. */
size_t fl_parquet_row_room(size_t row_size, int n);
void fl_parquet_row_open(const char *row, int n, fl_parquet_block *b);

static inline const void *fl_parquet_at(const fl_parquet_block *b,
                                        uint32_t place)
{
    return (const char *)b + place;
}

/* Which values of a column a row has: [*from, *to), of a null none. */
static inline void fl_parquet_range(const fl_parquet_block *b,
                                    const fl_parquet_slice *s, size_t row,
                                    size_t *from, size_t *to)
{
    const uint32_t *offset = fl_parquet_at(b, s->offsets);
    const uint8_t *there = fl_parquet_at(b, s->there);

    *from = s->offsets ? offset[row] : row;
    *to = s->offsets ? offset[row + 1] : row + (!s->there || there[row]);
}
