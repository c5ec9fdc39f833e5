/* layerwise.h - what the steps of LARS and LAMB (lars_lamb.c) know of the dense
 * parameters of a group, on CPUs and devices alike: each is a layer, and in
 * blocks. Operands:
 *
 *   lars.norm    update, gradient, weights, squares (two doubles per block)
 *   update.lars  update, gradient, weights, ratios (float, by layer), velocity
 *   lamb.step    update, gradient, weights, squares, both moments
 *   update.lamb  update, gradient, weights, ratios
 *   layer.ratio  squares, ratios
 */
#ifndef FL_RUNTIME_GRAPH_LAYERWISE_H
#define FL_RUNTIME_GRAPH_LAYERWISE_H

#include <stdbool.h>
#include <stdint.h>

/* Rules that give each layer, which is a parameter, a rate of its own. */
typedef enum fl_layer_rule { FL_NO_LAYERS, FL_LARS, FL_LAMB } fl_layer_rule;

typedef struct fl_layerwise {
    fl_layer_rule rule;
    float coeff, decay, epsilon; /* LAMB has a decay alone */
} fl_layerwise;

typedef struct fl_layer {
    float learning_rate, l2_decay; /* factor; -1: the optimizer's */
    float decay;                   /* its part of LARS' or LAMB's */
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

/* Sums of squares of a block. */
typedef struct fl_squares {
    double weights, step;
} fl_squares;

#endif
