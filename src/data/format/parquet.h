/* parquet.h - rows of Parquet files into batches: a column's values are to its
 * slot what cells of csv are. */
#pragma once

#include "data/parse/parser.h"

fl_parse fl_parse_parquet;

/* Note each number of a column that standardizes, the which-th such one. */
fleet_status fl_parquet_note_numbers(
    const fl_parser *p, fl_scratch *scratch, const fl_batch_buffer *buffer,
    void (*note)(void *to, int which, double x), void *to);
