/* memory_reader.h - a reader of samples in memory, in their order or in a
 * shuffled one. A "line" is a row of a block. */
#pragma once

#include "data/parse/reader.h"
#include "data/permutation.h"
#include "data/sample_memory.h"

/* Samples in memory as a pass sees them; they stay while a stream reads. */
typedef struct fl_memory_view {
    fl_sample_memory *memory;
    bool shuffled;
    fl_permutation order; /* then: of all its rows */
    const bool *moved;    /* by slot: a row has the values of another row; NULL:
                             each has its own */
    fl_permutation other; /* then: of which row */
} fl_memory_view;

fleet_status fl_memory_reader_open(fl_reader **reader,
                                   const fl_reader_env *env);

/* Of a stream with such a reader. */
fl_parse fl_memory_parse;
