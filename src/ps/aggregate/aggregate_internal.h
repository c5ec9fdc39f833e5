/* aggregate_internal.h - parts of an aggregate, shared by aggregate.c (pieces,
 * sums), aggregate_apply.c (norms, updates, reads) and aggregate_layers.c (LARS
 * and LAMB). */
#pragma once

#include "ps/aggregate/aggregate.h"

/* One table's part of an aggregate. */
struct fl_aggregate_rows {
    int64_t n;
    uint64_t *key;
    const float **grad;
    float **target; /* NULL: to be looked for */
    uint64_t epoch; /* of the table, at which the other targets are good */
    size_t key_capacity, grad_capacity, target_capacity;

    /* of several contributions */
    fl_key_set set;
    uint32_t *sum_of; /* by row: number of its sum + 1; 0: it has none */
    float *sum;
    size_t sum_of_capacity, sum_capacity;
    int64_t n_sum;
};

/* One block's part. */
struct fl_aggregate_block {
    const fl_param *param;
    int number; /* of the param */
    int64_t block, n;
    const float *grad; /* NULL: none */
    float *sum;        /* NULL until it is needed */
};

/* With strategy.lars or lamb: of fl_aggregate_init(), which has listed the
 * blocks; of fl_aggregate_apply_dense(). */
fleet_status fl_aggregate_init_layers(fl_aggregate *u);
void fl_aggregate_apply_layers(fl_aggregate *u);
