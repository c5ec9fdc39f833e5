/* csv_cells.h - a csv line cut into cells. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "data/text/text_kernels.h"
#include "data/text/text_lines.h"

/* What stands in a cell: without the blanks around it, or, in quotes, without
 * the quotes and with "" for each quote in it. */
typedef struct fl_cell {
    const char *text; /* FL_TEXT_PAD bytes around it are readable */
    const char *end;
} fl_cell;

typedef struct fl_csv_cells {
    fl_cell *cell;
    size_t n, capacity;
    char *unquoted; /* texts that differ from what stands in the line */
    size_t unquoted_capacity;
} fl_csv_cells;

/* Cut text[0, size). *wrong says what is wrong with its quotes, NULL: nothing.
 * The cells are valid until the next call and as long as the text. */
fleet_status fl_csv_cells_cut(fl_csv_cells *c, const fl_kernels *k,
                              const char *text, size_t size, char separator,
                              const char **wrong);
void fl_csv_cells_done(fl_csv_cells *c);
