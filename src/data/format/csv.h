/* csv.h - the csv parser, what a file's first line says, the number in a
 * cell. */
#pragma once

#include "data/format/parser.h"

fl_parse fl_parse_csv;

/* Find the columns of a file without a header. */
void fl_csv_places(const fl_parser *p, int file);

/* Find them by the names in its header. */
fleet_status fl_csv_header(const fl_parser *p, fl_csv_cells *cells,
                           const fl_line *line);

/* Cut a line and see that it has the cells that are wanted. */
fleet_status fl_csv_cut(const fl_parser *p, fl_csv_cells *cells,
                        const fl_line *line);

bool fl_csv_is_missing(const fl_parser *p, const fl_cell *cell);

/* The cell's number, or its logarithm if the column wants it. */
fleet_status fl_csv_number(const fl_parser *p, const fl_line *line,
                           const fl_field *f, const fl_column *column,
                           const fl_cell *cell, double *x);
