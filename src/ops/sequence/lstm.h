/* lstm.h - the formulas of an element of lstm.c, for both its halves.
 *
 *   lstm        out, gates <- x, W, b, updates
 *   lstm.grad   dx, dh, last, d updates <- g, out, gates, W, updates
 *
 * gates [B, T, 6 H]: i, f, g, o, tanh(f c + i g), and the cell behind the step.
 * dh is dx again, as rows, and last the state that h W is of; fc.dw and fc.db
 * make dW and db of them.
 */
#pragma once

#include "base/host_device.h"

/* What a unit keeps of a step. */
typedef struct fl_lstm_gates {
    float i, f, g, o, tanh_cell;
} fl_lstm_gates;

/* Of a state, with an update of `weight`. */
FL_EVERYWHERE float fl_lstm_updated(float before, float after, float weight)
{
    return before + weight * (after - before);
}

/* Gradients of a unit in a step. */
typedef struct fl_lstm_slopes {
    float i, f, g, o; /* of x, and of h W */
    float state;      /* of the state before, but for the product's share */
    float cell;       /* of the cell before */
    float weight;     /* of the update's weight */
} fl_lstm_slopes;

/* dh, dc: of state and cell after the step. */
FL_EVERYWHERE fl_lstm_slopes fl_lstm_gradient(const fl_lstm_gates *t,
                                              float state, float cell,
                                              float weight, float dh, float dc)
{
    float d_state = weight * dh;
    float d_cell =
        weight * dc + d_state * t->o * (1.0f - t->tanh_cell * t->tanh_cell);
    fl_lstm_slopes s;

    s.i = d_cell * t->g * t->i * (1.0f - t->i);
    s.f = d_cell * cell * t->f * (1.0f - t->f);
    s.g = d_cell * t->i * (1.0f - t->g * t->g);
    s.o = d_state * t->tanh_cell * t->o * (1.0f - t->o);
    s.state = (1.0f - weight) * dh;
    s.cell = (1.0f - weight) * dc + d_cell * t->f;
    s.weight = dh * (t->o * t->tanh_cell - state) +
               dc * (t->f * cell + t->i * t->g - cell);
    return s;
}
