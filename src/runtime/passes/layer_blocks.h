/* layer_blocks.h - what the steps of LARS and LAMB (lars.c, lamb.c) know of
 * the dense parameters of a group, on CPUs and GPUs alike: each parameter is a
 * layer, and a layer is cut into blocks. Operands:
 *
 *   lars.norm    update, gradient, weights, squares (two doubles per block)
 *   update.lars  update, gradient, weights, ratios (float, by layer), velocity
 *   lamb.step    update, gradient, weights, squares, both moments
 *   update.lamb  update, gradient, weights, ratios
 *   layer.ratio  squares, ratios
 */
#pragma once

#include "base/host_device.h"
#include "runtime/graph/training.h"
#include "runtime/optim/rule.h"

typedef struct fl_layer {
    fl_update_rates rates;
    float decay; /* its part of LARS' or LAMB's */
    bool no_decay;
    int first, n; /* blocks */
} fl_layer;

typedef struct fl_layer_block {
    int64_t offset, n; /* in the group */
    int layer;
} fl_layer_block;

typedef struct fl_layers {
    fl_layerwise how;
    fl_layer *layer;
    fl_layer_block *block;
    int n_layer, n_block;
    int begin, end; /* blocks that a step works on */
    int64_t first;  /* of the group: where its states begin */
} fl_layers;

/* By the norms of its weights and of its step. In Fleet's LARS a parameter
 * without decay has no ratio. */
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

/* Sums of squares of a block. */
typedef struct fl_squares {
    double weights, step;
} fl_squares;
