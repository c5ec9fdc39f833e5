/* slot_bounds.h - what a program takes in the slots of a dataset, so that a
 * line that has something else is refused where it is read, by file and line.
 */
#pragma once

#include "data/layout/spec.h"
#include "runtime/graph/program.h"

/* var: of each of n slots the variable that it feeds, -1: none. Ids are bounded
 * by the tables that look them up, labels by the losses that the training's
 * loss is made of: a program may have losses that do not run. */
fleet_status fl_slot_bounds_find(const fleet_program *p, const int *var, int n,
                                 fl_slot_bounds *bounds);
