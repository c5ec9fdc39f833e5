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

#include "runtime/store/layer_rule.h"

typedef struct fl_layer_block {
    int64_t offset, n; /* in the group */
    int layer;
} fl_layer_block;

typedef struct fl_layers {
    fl_layerwise how;
    fl_layer *layer;
    fl_layer_block *block;
    int n_layer, n_block;
    int begin, end;   /* blocks that a step works on */
    int64_t first;    /* of the group: where its states begin */
    int64_t gradient; /* of the group: where its gradient begins */
    int64_t weight;   /* of the group: where the weights begin */
} fl_layers;
