/* all_reduce_gpu.h - sums of ranks in a GPU's memory: what all_reduce_steps.c
 * does with a GPU's queue. */
#pragma once

#include "runtime/device/gpu.h"
#include "runtime/device/comm.h"
#include "runtime/plan/plan.h"

/* The GPU in whose memory a plan's ranks reduce; NULL: they do in the
 * host's. */
fl_gpu *fl_comm_gpu_of_plan(const fl_plan *plan);

/* What a GPU reduces. */
typedef struct fl_reduced {
    void *data;
    int64_t n;
    fl_wire_type type; /* FL_WIRE_F32 or FL_WIRE_F16 */
    bool joins;        /* this rank adds nothing to it */
} fl_reduced;

/* The communicator's next call comes after the queued steps that make it. */
fleet_status fl_reduced_follows(const fl_reduced *r, fl_gpu *g, fl_comm *p);
