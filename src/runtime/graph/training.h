/* training.h - the options of a training, as fleet_minimize() has found them in
 * the strategy, for each pass that reads them. Plain data, for CPUs and GPUs
 * alike. */
#pragma once

#include <fleet/fleet.h>
#include <stdbool.h>
#include <stdint.h>

/* Rules that give each layer, which is a parameter, a rate of its own. */
typedef enum fl_layer_rule { FL_NO_LAYERS, FL_LARS, FL_LAMB } fl_layer_rule;

typedef struct fl_layerwise {
    fl_layer_rule rule;
    float coeff, decay, epsilon; /* LAMB has a decay alone */
} fl_layerwise;

/* Of a store, and in its checkpoints. */
typedef struct fl_scaling {
    float scale;       /* 0: nothing has asked for it */
    int32_t good, bad; /* updates in a row, since the scale changed */
    int32_t padding;
    int64_t skipped; /* updates, in this process and since a load */
} fl_scaling;

typedef struct fl_scaling_rules {
    float first;
    bool dynamic;
    int32_t grow_after, shrink_after; /* that many updates in a row */
    float grow, shrink;               /* factors */
} fl_scaling_rules;

typedef struct fl_training {
    fleet_var *loss; /* NULL: the program is not trained */
    struct fleet_optimizer *optimizer;
    bool sum_over_ranks;  /* gradients of ranks are added up, not averaged */
    bool sync_batch_norm; /* statistics are of all ranks' batches */
    struct {              /* gradient_merge */
        int steps;        /* batches per update, >= 1 */
        bool average;     /* the sum is divided by its batches */
    } merge;
    struct {
        fleet_dtype type;      /* of products; 0: float32 */
        const char *wide_ops;  /* words: operators that stay float32; NULL */
        const char *wide_vars; /* variables whose operators do; NULL */
    } amp;
    struct {
        bool on;
        const char *checkpoints; /* words: variables that are kept */
    } recompute;
    fl_scaling_rules scaling; /* loss_scaling, in float16 */
    fl_layerwise layerwise;   /* lars, lamb */
    struct {
        int64_t bucket, last_bucket; /* floats of a bucket, at least one
                                        parameter's, and of the last; 0: 1 */
        bool fp16;                   /* gradients travel as float16 */
        int group; /* hierarchical: ranks in a group; 0, 1: all together */
    } all_reduce;
    bool sharded;       /* ranks share out the states, see store.h */
    int sharding_stage; /* 2: gradients, too; less: states alone */
    struct {            /* with ranks: each updates on its own */
        int64_t steps;  /* between two means of weights; 0: none */
        int64_t begin;  /* from this one on; before it with all ranks */
        bool adaptive;  /* steps is where it starts */
    } localsgd;
    struct { /* with ranks: only the largest elements are exchanged */
        bool on;
        float sparsity;      /* the part that is not exchanged */
        int64_t begin, ramp; /* updates before, and until it is so sparse */
        int64_t smallest;    /* floats of a parameter that is worth it */
    } dgc;
} fl_training;
