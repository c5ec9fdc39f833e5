/* all_reduce_steps.h - plan steps in which ranks sum a value of their plans: by
 * one all-reduce, or by one that is begun early and waited for. */
#pragma once

#include "runtime/plan/agree.h"
#include "runtime/plan/lower.h"

/* The plan's fl_work *, one for each bucket at most: steps that meet other
 * ranks change it, so that they have one order, on all ranks. The first call
 * makes it. */
int fl_works_value(fl_lowering *l);

/* The sum over the ranks, in place, of what the value's bytes are; dgc: not in
 * updates in which dgc exchanges pairs. */
void fl_emit_all_reduce(fl_lowering *l, int value, fl_wire_type type, bool dgc);

/* The same, begun in FL_REDUCE_BEGIN and waited for in FL_UPDATE, which is the
 * lowering's phase then. */
void fl_emit_all_reduce_async(fl_lowering *l, int value, fl_wire_type type);

/* Doubles of which each rank has worked out [begin, end): all get all. */
void fl_emit_share_squares(fl_lowering *l, int value, int begin, int end);

/* The same of doubles that are zero on all ranks but one: into another value,
 * so that they are zero again in the next update. */
void fl_emit_share_norms(fl_lowering *l, int mine, int whole);

/* The kernel of fl_emit_all_reduce(), and what its step does, with another
 * group of ranks. */
extern const fl_kernel fl_kernel_all_reduce;
const fl_agree *fl_all_reduce_agree(const fl_instance *in);
fleet_status fl_all_reduce_by(const fl_instance *in, fl_comm *p);
