/* cache_block.h - parsed rows as bytes: columns of a block of rows, as they lie
 * in a cache file, and single rows, for a shuffle.
 *
 * All numbers are little-endian and 8-byte aligned where they begin. Ids have
 * as many bytes as the largest one of their column in the block takes. */
#pragma once

#include "data/layout/batch_buffer.h"

/* Where the columns of a slot begin, in bytes from the block's begin. */
typedef struct fl_cache_field {
    uint64_t values;
    uint64_t offsets; /* ragged: u32 [rows + 1], the first is 0 */
    uint64_t weights; /* weighted: float, as many as values */
    uint64_t width;   /* of a value: 4 for floats, 1, 2, 4 or 8 for ids */
} fl_cache_field;

typedef struct fl_cache_block {
    uint64_t rows;
    int64_t number;   /* of the first row's line */
    uint64_t numbers; /* u32 [rows]: numbers of all rows' lines less that one;
                         0: they follow one another */
    fl_cache_field field[];
} fl_cache_block;

/* A parsed batch, whose lines are still at hand, into buffer->packed. */
fleet_status fl_cache_block_make(const fl_layout *l, fl_batch_buffer *buffer);

/* Is all that it says within its size? It may be damaged. */
bool fl_cache_block_holds(const fl_cache_block *b, size_t size,
                          const fl_layout *l);

int64_t fl_cache_block_number(const fl_cache_block *b, uint64_t row);

/* Rows from .. to of the block, into a batch from `row` on. used: values of
 * each ragged slot that the batch has, which grows. */
fleet_status fl_cache_block_copy(const fl_cache_block *b, uint64_t from,
                                 uint64_t to, const fl_layout *l,
                                 fl_batch_buffer *buffer, size_t *used,
                                 size_t row);

/* The same of one slot. */
fleet_status fl_cache_field_copy(const fl_cache_block *b, int field,
                                 uint64_t from, uint64_t to, const fl_layout *l,
                                 fl_batch_buffer *buffer, size_t *used,
                                 size_t row);

/* A row by itself: how many bytes it takes, these, and back into a batch.
 * FLEET_EUNSUPPORTED: 4 GiB or more. */
fleet_status fl_cache_row_size(const fl_cache_block *b, uint64_t row,
                               const fl_layout *l, uint32_t *size);
/* Is it a row of these slots? It may have come from another process. */
bool fl_cache_row_holds(const char *from, size_t size, const fl_layout *l);
void fl_cache_row_make(const fl_cache_block *b, uint64_t row,
                       const fl_layout *l, char *to);
fleet_status fl_cache_row_copy(const char *from, const fl_layout *l,
                               fl_batch_buffer *buffer, size_t *used,
                               size_t row);
