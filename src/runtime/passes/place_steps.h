/* place_steps.h - which steps run on the GPU; the pass is in place_steps.c. */
#pragma once

#include "runtime/plan/plan.h"

/* Shall the steps of a node run on the plan's GPU, as program and guards have
 * it? NULL: steps that belong to no node. */
bool fl_node_is_for_gpu(const fl_plan *plan, const fl_node *n);

/* Shall the step run on the plan's GPU, as program and guards have it? */
bool fl_is_for_gpu(const fl_plan *plan, const fl_step *s);
