/* update.h - the steps between gradients and new weights: sums of
 * contributions, gradient merge, norms and the clip, the rules,
 * layer by layer or not. */
#ifndef FL_RUNTIME_PASSES_UPDATE_H
#define FL_RUNTIME_PASSES_UPDATE_H

#include "runtime/plan/lower.h"
#include "runtime/plan/agree.h"

/* Where the scalars of the update are: made by the first pass that asks. */
int fl_update_value(fl_lowering *l);

/* Value of array i beside the weights of a group. */
int fl_state_value(fl_lowering *l, const fl_flat *g, int i);

/* Does the parameter get a gradient in this plan? */
bool fl_gets_gradient(const fl_lowering *l, const fl_param *p);

/* And who brings it to the weights: this process, perhaps after a sum over
 * ranks, or those of an exchange? */
bool fl_is_updated_here(const fl_lowering *l, const fl_param *p);
bool fl_is_pushed(const fl_lowering *l, const fl_param *p);

/* What a group's parameters with a gradient are reduced in: neighbours, in the
 * order in which gradients are ready; n floats. */
typedef void fl_bucket_emitter(fl_lowering *l, const fl_dense *d,
                               int64_t offset, int64_t n);
void fl_each_bucket(fl_lowering *l, const fl_dense *d, fl_bucket_emitter *emit);

/* The same of those that are pushed, each alone. */
void fl_each_pushed(fl_lowering *l, const fl_dense *d, fl_bucket_emitter *emit);

/* The sum over the ranks, in place, of what the value's bytes are; dgc: not in
 * updates in which pairs are exchanged. */
void fl_emit_all_reduce(fl_lowering *l, int value, fl_wire_type type, bool dgc);

/* The same, begun in FL_REDUCE_BEGIN and waited for in FL_UPDATE; the phase is then
 * that. */
void fl_emit_leave(fl_lowering *l, int value, fl_wire_type type);

/* What its steps are, and what they do with a group of ranks. */
extern const fl_kernel fl_kernel_all_reduce;
const fl_agree *fl_all_reduce_agree(const fl_instance *in);
fleet_status fl_all_reduce_by(const fl_instance *in, fl_comm *p);

/* --- push_pull.c: the clip by global norm where rows are elsewhere, and dense
 * parameters here; n values with squares, so many of each. */
fleet_status fl_emit_clip_rows(fl_lowering *l, const fl_operand *norm,
                               const int *count, int n);

/* --- loss_scaling.c ----------------------------------------------------------- */

/* Is the plan a training in float16? The value of the loss's gradient then, by
 * a step of the node's. */
bool fl_is_scaled(const fl_lowering *l);
int fl_scaled_loss_gradient(fl_lowering *l, const fl_node *n);

/* --- sharding.c ---------------------------------------------------------- */

/* Doubles of which each rank has worked out [begin, end): all get all. */
void fl_emit_share_squares(fl_lowering *l, int value, int begin, int end);

/* --- dgc.c --------------------------------------------------------------- */

/* The part of such a parameter that the update after so many others sends. */
double fl_dgc_density(const fl_training *t, int64_t updates);
bool fl_dgc_takes(const fl_lowering *l, const fl_param *p);
fl_bucket_emitter fl_emit_dgc;

/* The same of a stretch of a group's gradient, as float16. */
fl_bucket_emitter fl_emit_half_all_reduce;

/* total += part: batched values, and those without a batch. */
extern const fl_kernel fl_kernel_add_rows, fl_kernel_add_parts;

#endif
