/* csv.h - the csv parser, what a file's first line says, the number in a
 * cell. */
#pragma once

#include "data/parse/parser.h"

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

/* The logarithm that the column wants, if it does; false: the number is too
 * small. Then what it standardizes to, if it does. */
bool fl_csv_log(const fl_column *column, double *x);
double fl_csv_standard(const fl_column *column, double x);

/* What the cell is to the column of that number, among all columns, into a
 * slot at that index. */
fleet_status fl_csv_value(const fl_parser *p, const fl_line *line,
                          const fl_field *f, int column, const fl_cell *cell,
                          fl_slot_data *out, size_t index);

/* The ids of the cell's words behind what the slot has. */
fleet_status fl_csv_words(const fl_parser *p, const fl_field *f,
                          fl_scratch *scratch, fl_batch_buffer *buffer,
                          const fl_cell *cell);

/* The cell's number, or its logarithm if the column wants it. */
fleet_status fl_csv_number(const fl_parser *p, const fl_line *line,
                           const fl_field *f, const fl_column *column,
                           const fl_cell *cell, double *x);
