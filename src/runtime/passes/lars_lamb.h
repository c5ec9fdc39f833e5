/* lars_lamb.h - what the passes lars and lamb share. */
#pragma once

#include "runtime/plan/layer_blocks.h"
#include "runtime/plan/pass.h"

/* What a part of a step works on: a block. */
typedef struct fl_layer_work {
    const fl_layers *all;
    const fl_layer_block *block;
    const fl_layer *layer;
    fl_squares *squares; /* the block's */
    fl_update u;         /* the layer's own */
    bool skip;           /* nothing is to be updated */
    float *w, *g;
} fl_layer_work;

/* prepare(), and what run() works on: the block with its states and its layer's
 * ratio. */
fleet_status fl_split_layers(fl_instance *in);
fl_layer_work fl_layer_work_of(const fl_instance *in, const fl_range *r);
float *fl_layer_state(const fl_instance *in, const fl_layer_work *k, int i);
float fl_layer_ratio_at(const fl_instance *in, const fl_layer_work *k);

/* Squares to ratios. */
extern const fl_kernel fl_kernel_layer_ratio;

/* Adds the steps of a group's layers. `all` has every block of the layers,
 * `own` the blocks of this rank's own part, whose states it has. */
typedef void fl_layers_emitter(fl_lowering *l, const fl_dense *d,
                               const fl_layers *all, const fl_layers *own,
                               int norms, int ratios);

/* The pass of a rule. */
fleet_status fl_pass_layers(fl_lowering *l, fl_layer_rule rule,
                            fl_layers_emitter *emit, bool *applied);
