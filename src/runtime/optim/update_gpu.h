/* update_gpu.h - the numbers of an update on a GPU: what the host sends before
 * an iteration, in place of an fl_update_now (plan.h), and the status that the
 * GPU sends back. */
#pragma once

#include "runtime/optim/rule.h"

/* What the updates done change of an update. */
typedef struct fl_device_rates {
    float lr, correct_a, correct_b;
} fl_device_rates;

/* The most updates that are queued of which the host does not know whether they
 * were skipped: two iterations are under way at a time. */
enum { FL_MOST_UNKNOWN = 2 };

/* The most optimizers of tables and groups that a program on a GPU can have. */
enum { FL_MOST_OWN = 4 };

/* What such an optimizer says in place of the whole update's. */
typedef struct fl_device_own {
    float decay, most, l1, number[FL_MAX_NUMBER];
    const float *correct_a_at, *correct_b_at; /* device memory */
    uint32_t n_correct;
    fl_device_rates after[FL_MOST_UNKNOWN + 1];
} fl_device_own;

typedef struct fl_device_update {
    fl_update u; /* correct_a_at, correct_b_at: device memory */
    float clip_norm;
    float norm_clip; /* of each parameter and table by itself */
    int32_t skip;    /* set by scaling.decide: nothing is to be updated now */
    int64_t known_skips; /* that the numbers of u know of */
    fl_device_rates after[FL_MOST_UNKNOWN + 1]; /* [i]: after i more skips */
    int32_t more;                               /* how many of them u is for */
    fl_device_own own[FL_MOST_OWN]; /* by fl_optimizer_own_number() */
    int32_t micro; /* which batch of the merge group this is, from 0 */
    int64_t batch; /* as fl_update_now has it */
    int32_t dgc;   /* what dgc takes has been sent as it changes the weights */
    const int32_t *stop; /* device memory, not 0: nothing is to be updated any
                            more; NULL: it is */
} fl_device_update;

/* Of iterations up to now; all zero at first. */
typedef struct fl_device_status {
    uint64_t row; /* the least sample with a fault */
    int32_t step; /* of the plan, whose fault it is; -1: the loss */
    int32_t stop; /* one has failed */
    float loss;   /* the last one */
} fl_device_status;

/* "iteration.end": status, loss (or none), faults by step. */
typedef struct fl_device_end {
    int n_step;
    int trains; /* a loss that is not finite is a failure */
} fl_device_end;
