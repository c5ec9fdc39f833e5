/* table_cap.h - how much memory a table may take, as users state it. */
#pragma once

#include "runtime/graph/program.h"

enum { FL_LEAST_CAP = 1 << 20 }; /* bytes; 0 is none */

/* The table, new in the program or shared by this layer, with that cap. NULL
 * if it is NULL, and after an error: FLEET_EINVAL for a cap that cannot be,
 * FLEET_EEXIST where the table has another one. */
fleet_var *fl_table_with_cap(fleet_program *p, fleet_var *table, bool is_new,
                             const fl_table_cap *cap);
