/* update_ranges.h - how updates and norms walk the flat groups of
 * parameters. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "runtime/optim/rule.h"

/* A stretch of a group that one call of the rule updates: it lies inside one
 * parameter, or covers several that differ in nothing. */
typedef struct fl_update_range {
    int64_t offset, n;
    fl_update_rates rates;
    fl_rule_kind rule;
    int own; /* its optimizer's number in fl_device_update.own, from 1 on; 0: it
                has none of its own */
    const struct fleet_optimizer *optimizer; /* its own, on the host; NULL */
    bool dgc; /* its gradient is what ranks have exchanged */
} fl_update_range;

/* update.dense    update, gradient, weights, states of the rule */
typedef struct fl_update_ranges {
    fl_update_range *block;
    int n;
    int64_t first;    /* of the group: where its states begin */
    int64_t gradient; /* of the group: where its gradient begins */
    int64_t weight;   /* of the group: where the weights begin */
} fl_update_ranges;

/* A dense block, as the norm counts it: where in the group's gradient. */
typedef struct fl_norm_block {
    int64_t offset, n;
} fl_norm_block;

/* clip.norm    update, norms (double, one per block), gradient
 * clip.own     the same: the gradient of the parameter whose norms these are
 *
 * Where ranks share out gradients, a parameter has `all` norms, and this rank
 * has n of its blocks, whose norms are the ones from `at` on. */
typedef struct fl_norm_config {
    fl_norm_block *block;
    int n, at, all;
} fl_norm_config;
