/* parquet_kit.h - Parquet files that a test writes cell by cell, by the plug-in
 * libfleet_arrow.so; without it the test skips. */
#pragma once

#include <stdint.h>

#include "data/format/parquet_table.h"

enum { PARQUET_MOST = 16 };

/* Values of a column, of the rows that are in no group yet. */
typedef struct parquet_cells {
    uint64_t *values;
    uint32_t *begins, *offsets;
    char *bytes;
    uint8_t *there;
    size_t values_capacity, begins_capacity, offsets_capacity, bytes_capacity,
        there_capacity;
    size_t n, rows;
} parquet_cells;

typedef struct parquet_sheet {
    const fl_parquet_table *table;
    fl_parquet_writer *writer;
    int n;
    fl_parquet_column column[PARQUET_MOST];
    parquet_cells cells[PARQUET_MOST];
} parquet_sheet;

const fl_parquet_table *parquet_table(void);

/* A file at path of n columns; a kind is one letter: i, u, r, t, and as a
 * capital one a list of them. */
void parquet_open(parquet_sheet *s, const char *path, const char *const *name,
                  const char *kinds);

/* A row's value of a column that is no list, or one more of a list's row. */
void parquet_int(parquet_sheet *s, int column, int64_t x);
void parquet_real(parquet_sheet *s, int column, double x);
void parquet_text(parquet_sheet *s, int column, const char *text, size_t n);

/* The row has none; of a list: the row's values are all there. */
void parquet_null(parquet_sheet *s, int column);
void parquet_list(parquet_sheet *s, int column);

void parquet_group(parquet_sheet *s); /* what was put since the last one */
void parquet_close(parquet_sheet *s); /* the rest, and the file */

/* The first rows of Adult's training data as csv and as Parquet, whose columns
 * have names and, of numbers, integers, in groups of 7,000 rows. */
void parquet_adult(const char *csv, const char *parquet, int rows);
