/* plan_dump.h - a plan as text and as a Graphviz digraph. */
#pragma once

#include "base/text.h"
#include "runtime/plan/plan.h"

fleet_status fl_plan_text(const fl_plan *plan, fl_text *out);
fleet_status fl_plan_dot(const fl_plan *plan, fl_text *out);
