/* own_optimizers.h - optimizers of single tables and of groups of dense
 * parameters, as the optimizer that is minimized lists them. */
#pragma once

#include "runtime/optim/optimizer.h"

/* That of a table's rows, or of a dense parameter; NULL: it has none of its
 * own. */
fleet_optimizer *fl_optimizer_own(const fleet_optimizer *o, const char *name,
                                  bool is_param);

/* Its number among the different optimizers of the list, from 0 on; -1: the
 * name is not in the list. */
int fl_optimizer_own_number(const fleet_optimizer *o, const char *name,
                            bool is_param);

/* The optimizer of that number; NULL: there is none. */
fleet_optimizer *fl_optimizer_own_of(const fleet_optimizer *o, int number);

/* The scalars by which a table's rows, or a parameter, are updated after `done`
 * updates. own: its own optimizer; NULL: that of all other parameters, of which
 * `all` are. Its own takes of `all` what belongs to the whole update: scale,
 * clip and version. */
fl_update fl_own_update(const fleet_optimizer *own,
                        const fleet_param_attr *attr, const fl_update *all,
                        int64_t done);

/* The same without attributes, in place. */
void fl_update_take_own(fl_update *u, const fleet_optimizer *own, int64_t done);

/* A program is minimized with it: what has to stay from now on stays. */
void fl_optimizer_fix(fleet_optimizer *o);
