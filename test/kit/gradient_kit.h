/* gradient_kit.h - the gradients of one iteration, read from inside, and what
 * SGD makes of them, worked by hand. */
#pragma once

#include "train_kit.h"

/* Gradients by parameter and by (table, key). The first contribution is copied,
 * each later one added. */
typedef struct gradients gradients;

gradients *gradients_new(const kit_model *m);
void gradients_free(gradients *g);

/* Those of the batch, for the weights that a model starts with. */
void gradients_add(gradients *g, const kit_batch *b);

/* The square of their global norm, each times `scale`. */
double gradients_square(const gradients *g, float scale);

/* The model, which had its first weights, must now have been updated by SGD:
 * w - rate (((g scale) clip) + decay w), within `tolerance`; 0: to the bit. */
typedef struct sgd_step {
    float rate, scale, clip, decay;
    double norm; /* that each parameter and table is clipped to; 0: none is */
    double tolerance;
} sgd_step;

void gradients_check(const gradients *g, const kit_model *m,
                     const sgd_step *step);
