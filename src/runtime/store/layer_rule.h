/* layer_rule.h - the arithmetic of LARS and LAMB, which one process, ranks and
 * servers must do alike to the bit: a dense parameter is a layer, and has a
 * rate of its own by the norms of its weights and of its step. Squares are
 * added up as the clip by global norm adds them (norm.h): in double, per block
 * in index order, blocks in their order. On GPUs: passes/lars_lamb.cu.
 */
#pragma once

#include "base/host_device.h"
#include "runtime/graph/training.h"
#include "runtime/optim/rule.h"

typedef struct fl_layer {
    fl_update_rates rates;
    float decay; /* its part of LARS' or LAMB's */
    bool no_decay;
    int first, n; /* blocks in a list that the caller has */
} fl_layer;

/* Sums of squares of a block. */
typedef struct fl_squares {
    double weights, step;
} fl_squares;

/* By the norms of its weights and of its step. In Fleet's LARS a parameter
 * without decay has no ratio. Without weights or without a step it is 1. */
FL_EVERYWHERE double fl_layer_ratio_of(const fl_layerwise *how,
                                       const fl_layer *l, double weights,
                                       double step)
{
    if (!(weights > 0 && step > 0))
        return 1;
    if (how->rule == FL_LAMB)
        return weights / step;
    if (l->no_decay)
        return 1;
    return (double)how->coeff * weights /
           (step + (double)how->decay * weights + (double)how->epsilon);
}

fl_layer fl_layer_of(const fl_layerwise *how, const fleet_param_attr *attr);

/* `block`: of the list that the layer's blocks are in. */
float fl_layer_ratio(const fl_layerwise *how, const fl_layer *l,
                     const fl_squares *block);

/* n elements of a layer, with the update that its rates have changed. */
fl_squares fl_lars_squares(const fl_update *u, const float *w, const float *g,
                           int64_t n);
void fl_lars_update(const fl_update *u, const fl_layer *l, float ratio,
                    float *w, const float *g, float *velocity, int64_t n);

/* w stays, `step` may be g. */
fl_squares fl_lamb_step(const fl_update *u, const fl_layer *l, float *w,
                        const float *g, float *const moment[2], float *step,
                        int64_t n);
void fl_lamb_update(const fl_update *u, float ratio, float *w,
                    const float *step, int64_t n);
