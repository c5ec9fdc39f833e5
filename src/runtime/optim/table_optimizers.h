/* table_optimizers.h - optimizers of single tables, as the optimizer that is
 * minimized lists them. */
#pragma once

#include "runtime/optim/optimizer.h"

/* That of a table's rows; NULL: they have none of their own. */
fleet_optimizer *fl_optimizer_own(const fleet_optimizer *o, const char *table);

/* Where its list has the table; -1: nowhere. */
int fl_optimizer_own_at(const fleet_optimizer *o, const char *table);

/* The scalars by which a table's rows are updated after `done` updates. own:
 * its own optimizer; NULL: that of all other parameters, of which `all` are. A
 * table with its own takes of `all` what belongs to the whole update: scale,
 * clip and version. */
fl_update fl_table_update(const fleet_optimizer *own,
                          const fleet_param_attr *attr, const fl_update *all,
                          int64_t done);

/* A program is minimized with it: what has to stay from now on stays. */
void fl_optimizer_fix(fleet_optimizer *o);
