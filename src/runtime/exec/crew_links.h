/* crew_links.h - what members' compiled plans have in common: operands that
 * lead to another member's memory, or to a copy. Plans of one batch size are
 * the same, step by step and value by value. */
#pragma once

#include "runtime/exec/compile.h"
#include "runtime/plan/hogwild.h"

/* Steps of FL_MERGE add to the sums that `to` has, which may be c itself. */
void fl_crew_link_sums(fl_compiled *c, const fl_compiled *to);

/* Steps before FL_UPDATE read copies of the dense weights, one for each flat
 * buffer of the store; lookups copy rows; updates take the locks. For good. */
void fl_crew_link_copies(fl_compiled *c, fl_hogwild *h, char *const *weight);
