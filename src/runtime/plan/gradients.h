/* gradients.h - the gradients of a plan: the first one, which is the loss's;
 * sums of contributions to one gradient; and what becomes of a parameter's
 * gradient, an update in this process or a push to servers. For lowering and
 * passes. */
#pragma once

#include "runtime/plan/lower.h"

/* The value of the loss's gradient, by a step of the node's if it is scaled. */
int fl_loss_gradient(fl_lowering *l, const fl_node *n);

/* Is the loss scaled, as a training in float16 has it? The value of the store's
 * fl_scaling then. */
bool fl_is_scaled(const fl_lowering *l);
int fl_scaling_value(fl_lowering *l);

/* If a parameter gets a gradient in this plan, either servers get that, or this
 * process updates the weights, perhaps after a sum over ranks. */
bool fl_is_pushed(const fl_lowering *l, const fl_param *p);
bool fl_is_updated_locally(const fl_lowering *l, const fl_param *p);

/* total += part: batched values, and values without a batch. */
extern const fl_kernel fl_kernel_add_rows, fl_kernel_add_parts;

/* prepare() of a kernel whose parts are blocks of operand 0; and the block of
 * operand i that is a part's, its length in *n. */
fleet_status fl_split_blocks(fl_instance *in);
float *fl_block_of(const fl_instance *in, int i, const fl_range *r, int64_t *n);
