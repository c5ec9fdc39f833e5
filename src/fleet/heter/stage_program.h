/* stage_program.h - a stage of a cut as a program of its own, which a process
 * of a heterogeneous job trains. */
#pragma once

#include <fleet/program.h>

#include "runtime/stages/cut.h"
#include "runtime/stages/stage_link.h"

/* A program of the handle with the nodes of a stage. Its data are what crosses
 * to it, and in stage 0 the job's data that it reads or passes on, by the same
 * names; its parameters and tables have the names that they have in the whole
 * program. *loss is what fleet_minimize() trains it on: the job's loss in the
 * last stage, else what comes back by the link, which has to outlive the
 * program.
 *
 * The gradients of what crosses to it are computed, too: fl_stage_gradient()
 * reads them after an iteration. */
fleet_status fl_stage_program(fleet *f, const fl_cut *cut, int stage,
                              fl_stage_link *link, fleet_program **program,
                              fleet_var **loss);

/* A variable's gradient in the last iteration of an executor that trains,
 * copied without gaps; n floats. FLEET_ESTATE: nothing computed it. */
fleet_status fl_stage_gradient(fleet_executor *e, const fleet_var *v, float *to,
                               int64_t n);
