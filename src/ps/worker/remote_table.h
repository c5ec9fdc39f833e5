/* remote_table.h - a table whose rows are on servers, as a worker's store has
 * it: a name and a shape. Plans pull its rows and push their gradients. */
#pragma once

#include "runtime/store/table_api.h"

fl_rows_maker fl_remote_rows_make;
