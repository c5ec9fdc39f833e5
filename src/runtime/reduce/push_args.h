/* push_args.h - what a push is made of: the configuration and the operands of
 * steps that make an fl_push (remote.h), which are ps.push and clip.rows. */
#pragma once

#include "runtime/plan/lower.h"
#include "runtime/plan/remote.h"

typedef struct fl_push_args {
    fl_store *store;
    bool average; /* over the batches of a merge group */
    bool sum;     /* over ranks, not averaged */
    bool merged;  /* tables' gradients are merged sums */
    const fl_param **param;
    int *gradient; /* of each: which operand its group's is */
    int n_param;
    int first_table; /* operand: the lookup with the sums */
    int n_table;
} fl_push_args;

/* Operands: the update, room for what is sent, the groups' gradients, the
 * lookups, the weights, and the gradients that sums may lie in. */
enum { FL_PUSH_UPDATE, FL_PUSH_ROOM, FL_PUSH_GRADIENT };

fl_push_args fl_push_args_of(const fl_lowering *l);
int fl_push_most_operands(const fl_plan *plan);

/* After the update and the room: the groups' gradients, with which of them has
 * which parameter's; the lookups. */
fleet_status fl_push_add_params(fl_lowering *l, fl_operands *all,
                                fl_push_args *c);
void fl_push_add_tables(const fl_plan *plan, fl_operands *all, fl_push_args *c);

/* Sums may lie in the outputs' gradients, whose memory is to stay theirs. */
void fl_push_add_gradients(const fl_plan *plan, fl_operands *all);

/* At the end, when it is known how large it is. */
void fl_push_add_room(fl_lowering *l, fl_operands *all, const fl_push_args *c);

/* When the step runs: what it pushes. */
fleet_status fl_push_of(const fl_instance *in, const fl_push_args *c,
                        fl_push *p);
