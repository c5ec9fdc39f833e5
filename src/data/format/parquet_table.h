/* parquet_table.h - what the plug-in libfleet_arrow.so brings: columns of
 * Parquet files, which Apache Arrow reads and writes. No exception of C++
 * leaves its functions. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* What the values of a column are, whatever the file keeps them as. */
typedef enum fl_parquet_kind {
    FL_PARQUET_INT,  /* int64_t: booleans and signed integers */
    FL_PARQUET_UINT, /* uint64_t */
    FL_PARQUET_REAL, /* double: float and double */
    FL_PARQUET_TEXT
} fl_parquet_kind;

typedef struct fl_parquet_column {
    const char *name; /* of a member of a structure: "outer.member" */
    fl_parquet_kind kind;
    bool is_list;
} fl_parquet_column;

/* Values of some rows of a column. */
typedef struct fl_parquet_piece {
    size_t n;
    const void *values; /* n of 8 bytes each; of texts uint32_t [n + 1], where
                           each begins in bytes */
    const char *bytes;
    const uint32_t *offsets; /* lists: [rows + 1] into values, which have no
                                nulls; else NULL, and n is rows */
    const uint8_t *there;    /* [rows]: 0 is null; NULL: none is, or it is a
                                list, whose null has no values */
} fl_parquet_piece;

typedef struct fl_parquet_file fl_parquet_file;
typedef struct fl_parquet_writer fl_parquet_writer;

typedef struct fl_parquet_table {
    /* Open a file, or the text_size bytes at text, which outlive it. Of each
     * column the name, which is kept, is given, and kind and is_list are found.
     * FLEET_ECORRUPT: it is no Parquet file; FLEET_EFORMAT: it lacks a column,
     * or has one of another kind than these. */
    fleet_status (*open)(const char *path, const char *text, size_t text_size,
                         fl_parquet_column *column, int n,
                         fl_parquet_file **file);
    int (*count_groups)(const fl_parquet_file *f);
    int64_t (*count_rows)(const fl_parquet_file *f, int group);

    /* The next rows, of which the group has as many, into piece [n], whose
     * memory is the file's until the next call; fewer, but one, where those
     * before have some MB of a column already. The first call for a group
     * begins with its first row. FLEET_ECORRUPT names file, column and group.
     */
    fleet_status (*read)(fl_parquet_file *f, int group, int64_t *rows,
                         fl_parquet_piece *piece);
    void (*close)(fl_parquet_file *f); /* NULL is fine */

    /* Write a file: a group of rows by each call of write(), compressed, with
     * checksums. FLEET_EIO. A file that is not finished is no Parquet file. */
    fleet_status (*create)(const char *path, const fl_parquet_column *column,
                           int n, fl_parquet_writer **writer);
    fleet_status (*write)(fl_parquet_writer *w, int64_t rows,
                          const fl_parquet_piece *piece);
    fleet_status (*finish)(fl_parquet_writer *w);
    void (*abandon)(fl_parquet_writer *w); /* also after it; NULL is fine */
} fl_parquet_table;
