/* cut.h - a program that is trained, cut into stages where its guards change
 * the device (fleet_device_guard()): which process of a heterogeneous job does
 * what.
 *
 * Stage 0 is on CPUs and has the data. A node is in the first stage of its
 * guard's device that comes after nothing it reads; without a guard, in the
 * last stage of what it reads. So the order in which branches were built makes
 * no stages. The backward pass is cut at the same places: a stage gets its
 * values from the one before it, its gradients from the one behind it, and
 * trains the parameters and tables that its own nodes read.
 *
 * Across the boundary behind stage s go the variables that stages up to s have
 * and later stages read, the data among them. Back go the gradients of
 * variables that the loss depends on through later stages, if something in
 * stages up to s is trained by them. A stage passes on what it does not read.
 *
 * If the nodes stand in the order of their stages, sums of gradients have the
 * bits that they have in the whole program. Else a variable that several stages
 * read may have its contributions added in another order. */
#pragma once

#include "base/json/json.h"
#include "runtime/graph/program.h"

typedef struct fl_crossing {
    const fleet_var *var;
    bool has_gradient; /* comes back */
} fl_crossing;

typedef struct fl_stage {
    fleet_place device;          /* FLEET_CPU of stage 0 */
    int n_node;                  /* that an iteration runs */
    const fleet_var *because_of; /* the result that made it a stage; NULL: of
                                    stage 0 */
    fl_crossing *out;            /* to the next stage, by the variables' ids */
    int n_out;
} fl_stage;

typedef struct fl_cut {
    const fleet_program *program;
    const fleet_var *loss;
    fl_arena arena;
    int *stage_of; /* by node; -1: no iteration runs it */
    fl_stage *stage;
    int n_stage;
    bool in_order; /* nodes stand in the order of their stages */
} fl_cut;

/* Cut for training on that loss, into at most `most` stages; 0: any number.
 * fl_cut_done() is for the caller, also after a failure.
 *
 *   FLEET_EUNSUPPORTED  a later stage would feed an earlier one; stage 0 has no
 *                       operator; the loss is not in the last stage; what is
 *                       trained, or a metric's state, is of two stages. The
 *                       text names operator, variable and stages. */
fleet_status fl_cut_make(fl_cut *cut, const fleet_program *p,
                         const fleet_var *loss, int most);
void fl_cut_done(fl_cut *cut);

/* The nodes of a stage as a program, whose data are what crosses to it, by the
 * same names. */
fleet_status fl_cut_to_json(const fl_cut *cut, int stage, fl_json **json);
