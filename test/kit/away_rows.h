/* away_rows.h - a table that has its rows out of memory, but for those that are
 * wanted: they come after some looks, and go when they are released. A row that
 * was not waited for is an error of find and make. */
#pragma once

#include "runtime/store/table_api.h"

fl_rows_maker away_rows_make;

/* Looks until rows are ready that are asked for from now on, of all such
 * tables; 3 at first. */
extern int away_rows_looks;

/* How often rows have come, and how many are in memory now. */
int64_t away_rows_came(fl_rows *r);
int64_t away_rows_near(fl_rows *r);

/* Until it is called again rows must not go: another thread reads them all. */
void away_rows_hold(fl_rows *r, bool hold);

/* The row of a key, wherever it is; read it at once. NULL: there is none. */
const float *away_rows_row(fl_rows *r, uint64_t key);
