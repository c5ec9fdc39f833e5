/* stage_exchange.h - the last operator of a stage that is not the last: what
 * crosses goes to the next stage, whose loss and gradients are this operator's
 * (Paddle's send_and_recv). So a stage's program has a loss and trains as any
 * other. */
#pragma once

#include "runtime/plan/kernel.h"
#include "runtime/stages/cut.h"
#include "runtime/stages/stage_link.h"

/* The loss; n variables of the program, with what the cut says of them. The
 * program has to have its link before it runs. NULL: the program has failed. */
fleet_var *fl_stage_exchange(fleet_program *p, const fl_crossing *crossing,
                             int n);

/* Its step that waits for the next stage. Where several batches are in flight
 * what comes behind it is a phase of its own. */
extern const fl_kernel fl_kernel_stage_receive;
