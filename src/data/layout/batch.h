/* batch.h - a batch as a stream hands it out: values by slot. batch_buffer.h
 * has the memory behind them. */
#pragma once

#include <stdint.h>

/* Dense buffers hold a multiple of this many rows: kernels that work on whole
 * blocks may write over the rows past the batch. */
enum { FL_ROW_PAD = 128 };

typedef struct fl_slot_data {
    void *values;     /* [rows, dim] of the slot's dtype, or all ids in a row */
    int64_t *offsets; /* ragged: rows + 1 of them, the first is 0; else NULL */
    float *weights;   /* weighted: as many as values; else NULL */
} fl_slot_data;

typedef struct fl_batch {
    int64_t index; /* in the stream, before it was shared out: 0, 1, ... */
    int64_t rows;
    double share;       /* of the input that was read by then: 0 to 1 */
    fl_slot_data *slot; /* as in the spec */
} fl_batch;
