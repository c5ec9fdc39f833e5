/* table.h - rows in this process's memory: the maker for a store.
 *
 * A table is FL_N_BUCKET buckets. Each has a hash index of cache lines, five
 * keys to a line with the numbers of their rows, and pages of rows that never
 * move. Calls for different parts touch different buckets and may run at once.
 */
#pragma once

#include "runtime/store/table_api.h"

fl_rows_maker fl_table_make;
