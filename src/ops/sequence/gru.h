/* gru.h - the configuration of the kernels of gru.c, and the formulas of an
 * element, for both their halves.
 *
 *   gru        out, gates <- x, W, b, updates
 *   gru.grad   dx, dh, last, d updates <- g, out, gates, W, updates
 *
 * gates [B, T, 4 H]: r, z, n and the part of the state in n before r. dh is the
 * gradient of the state's part h W + b, last the state that it is of; fc.dw and
 * fc.db make dW and db of them.
 */
#pragma once

#include <math.h>
#include "base/host_device.h"

/* What a unit keeps of a step. */
typedef struct fl_gru_gates {
    float r, z, n, state;
} fl_gru_gates;

/* How much of n comes into the state, with an update of `weight`. */
FL_EVERYWHERE float fl_gru_taken(const fl_gru_gates *g, float weight)
{
    return weight * (1.0f - g->z);
}

/* Gradients of a unit in a step. */
typedef struct fl_gru_slopes {
    float xr, xz, xn; /* of x */
    float state;      /* of the state's part in n; in r and z as of x */
    float before;     /* of the state before, but for the product's share */
    float weight;     /* of the update's weight */
} fl_gru_slopes;

/* dh: of the state after the step. */
FL_EVERYWHERE fl_gru_slopes fl_gru_gradient(const fl_gru_gates *g, float before,
                                            float weight, float dh)
{
    float taken = fl_gru_taken(g, weight);
    float d_taken = dh * (g->n - before), dn = dh * taken;
    fl_gru_slopes s;

    s.xn = dn * (1.0f - g->n * g->n);
    s.state = s.xn * g->r;
    s.xr = s.xn * g->state * g->r * (1.0f - g->r);
    s.xz = -d_taken * weight * g->z * (1.0f - g->z);
    s.before = dh * (1.0f - taken);
    s.weight = d_taken * (1.0f - g->z);
    return s;
}
