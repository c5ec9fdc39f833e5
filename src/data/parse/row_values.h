/* row_values.h - values of a row that come one by one, in any order of their
 * slots, as lines that name their slots have them.
 *
 * scratch->used counts values by slot, of dense slots, too: a row of those is
 * whole, or it has none, which reads as zeros. */
#pragma once

#include "data/parse/parser.h"

typedef struct fl_row_values {
    const fl_parser *parser;
    const fl_line *line;
    fl_batch_buffer *buffer;
    fl_scratch *scratch;
    int64_t row;
} fl_row_values;

/* Before the first row of a batch: room, and no values. */
fleet_status fl_row_values_begin(fl_row_values *v);

/* Room for one more value of the slot, whose place is *at. FLEET_EFORMAT: it is
 * one too many. */
fleet_status fl_row_values_add(fl_row_values *v, int slot, size_t *at);

/* The same of n values side by side. */
fleet_status fl_row_values_add_many(fl_row_values *v, int slot, size_t n,
                                    size_t *at);

/* After each row. FLEET_EFORMAT: some values of a dense slot are missing, or
 * all of one that is required. */
fleet_status fl_row_values_end(fl_row_values *v);
