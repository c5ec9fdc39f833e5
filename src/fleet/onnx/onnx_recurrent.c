/* onnx_recurrent.c - recurrent units in ONNX: a Scan over the steps, whose body
 * is the formula of fleet/sequence.h; sequences from the last value to the
 * first. ONNX's own GRU and LSTM have no weights of updates, and multiply the
 * input, which a layer in front has done. */
#include <inttypes.h>

#include "fleet/onnx/onnx_ops.h"
#include "ops/ops.h"

enum { X, W, B, WEIGHTS };

enum { MOST_STATES = 2, MOST_GATES = 4 };

/* A step: states and gates of [batch, H]; the last `now` of next is what the
 * step gives. */
typedef struct unit {
    int64_t units;
    int states, gates;
    void (*step)(fl_onnx *x, const char *const *gate, const char *const *of_h,
                 const char *const *state, const char **next);
} unit;

/* An input of the body: [batch, cols], or [batch] for 0. */
static const char *body_input(fl_onnx *x, const char *what, int64_t cols)
{
    const fl_shape s = cols > 0 ? fl_shape_2(-1, cols) : fl_shape_1(-1);
    const char *name = fl_onnx_text(x, "/step_%d_%s", x->n_made++, what);

    if (name)
        fl_onnx_input(x, fl_onnx_value_of(x, name, FL_ONNX_FLOAT, &s));
    return name;
}

static void body_output(fl_onnx *x, const char *name, int64_t cols)
{
    const fl_shape s = fl_shape_2(-1, cols);

    if (name)
        fl_onnx_output(x, fl_onnx_value_of(x, name, FL_ONNX_FLOAT, &s));
}

/* Of [batch, gates H]. */
static const char *const *gates_of(fl_onnx *x, const char *v, const unit *u)
{
    const int64_t sizes[MOST_GATES] = {u->units, u->units, u->units, u->units};
    const char *const in[] = {v, fl_onnx_ints(x, sizes, u->gates)};
    const char *const *out = fl_onnx_put_many(x, "Split", in, 2, u->gates);

    fl_onnx_with_int(x, "axis", 1);
    return out;
}

static const char *gate_of(fl_onnx *x, const char *type, const char *a,
                           const char *b)
{
    return FL_ONNX(x, type, FL_ONNX(x, "Add", a, b));
}

/* n, and z h + (1 - z) n without weights: h + (1 - z) (n - h). */
static void gru_step(fl_onnx *x, const char *const *gate,
                     const char *const *of_h, const char *const *state,
                     const char **next)
{
    const char *r = gate_of(x, "Sigmoid", gate[0], of_h[0]);
    const char *z = gate_of(x, "Sigmoid", gate[1], of_h[1]);
    const char *now =
        gate_of(x, "Tanh", gate[2], FL_ONNX(x, "Mul", r, of_h[2]));

    z = FL_ONNX(x, "Sub", fl_onnx_number(x, 1), z);
    now = FL_ONNX(x, "Mul", z, FL_ONNX(x, "Sub", now, state[0]));
    next[0] = FL_ONNX(x, "Add", state[0], now);
}

static void lstm_step(fl_onnx *x, const char *const *gate,
                      const char *const *of_h, const char *const *state,
                      const char **next)
{
    const char *i = gate_of(x, "Sigmoid", gate[0], of_h[0]);
    const char *f = gate_of(x, "Sigmoid", gate[1], of_h[1]);
    const char *g = gate_of(x, "Tanh", gate[2], of_h[2]);
    const char *o = gate_of(x, "Sigmoid", gate[3], of_h[3]);

    next[1] = FL_ONNX(x, "Add", FL_ONNX(x, "Mul", f, state[1]),
                      FL_ONNX(x, "Mul", i, g));
    next[0] = FL_ONNX(x, "Mul", o, FL_ONNX(x, "Tanh", next[1]));
}

/* s + a (next - s) */
static const char *updated(fl_onnx *x, const char *s, const char *next,
                           const char *weight)
{
    const char *by = FL_ONNX(x, "Sub", next, s);

    return FL_ONNX(x, "Add", s, FL_ONNX(x, "Mul", weight, by));
}

static void next_states(fl_onnx *x, const fl_node *n, const unit *u,
                        const char *step, const char *weight,
                        const char *const *state, const char **next)
{
    const char *product = FL_ONNX(x, "Gemm", state[0], fl_onnx_of(x, n->in[W]),
                                  fl_onnx_of(x, n->in[B]));
    const char *const *of_h = gates_of(x, product, u);
    const char *const *gate = gates_of(x, step, u);

    if (!of_h || !gate)
        return;
    u->step(x, gate, of_h, state, next);
    if (weight)
        weight = fl_onnx_unsqueeze(x, weight, 1);
    for (int i = 0; weight && i < u->states; i++)
        next[i] = updated(x, state[i], next[i], weight);
}

static fl_onnx_graph *body_of(fl_onnx *x, const fl_node *n, const unit *u)
{
    fl_onnx_graph *body = fl_onnx_room(x, 1, sizeof *body), *outside = x->at;
    const char *state[MOST_STATES] = {NULL}, *next[MOST_STATES] = {NULL};
    const char *step, *weight = NULL;

    if (!body)
        return NULL;
    body->name = fl_onnx_text(x, "%s_%d", n->op->name, x->n_made++);
    x->at = body;
    for (int i = 0; i < u->states; i++)
        state[i] = body_input(x, "state", u->units);
    step = body_input(x, "input", u->gates * u->units);
    if (fl_input_of(n, WEIGHTS))
        weight = body_input(x, "weight", 0);
    next_states(x, n, u, step, weight, state, next);
    for (int i = 0; i < u->states; i++)
        body_output(x, next[i], u->units);
    body_output(x, FL_ONNX(x, "Identity", next[0]), u->units);
    x->at = outside;
    return body;
}

/* Zeros [batch, H]. */
static const char *first_state(fl_onnx *x, const char *v, int64_t units)
{
    const char *batch = FL_ONNX(x, "Shape", v), *both[2];

    fl_onnx_with_int(x, "start", 0);
    fl_onnx_with_int(x, "end", 1);
    both[0] = batch;
    both[1] = fl_onnx_int1(x, units);
    return FL_ONNX(x, "Expand", fl_onnx_number(x, 0),
                   fl_onnx_concat(x, 0, both, 2));
}

static const char *emit(fl_onnx *x, const fl_node *n, const char *type,
                        const unit *u)
{
    static const int64_t along[] = {1, 1};
    const fleet_var *weights = fl_input_of(n, WEIGHTS);
    const char *v = fl_onnx_of(x, n->in[X]), *in[MOST_STATES + 2];
    const char *first = first_state(x, v, u->units);
    const fl_onnx_graph *body;
    const char *const *out;
    int n_in = 0, scanned = weights ? 2 : 1;

    while (n_in < u->states)
        in[n_in++] = first;
    in[n_in++] = v;
    if (weights)
        in[n_in++] = fl_onnx_of(x, weights);
    body = body_of(x, n, u);
    out = fl_onnx_put_many(x, type, in, (size_t)n_in, u->states + 1);
    fl_onnx_with_graph(x, "body", body);
    fl_onnx_with_int(x, "num_scan_inputs", scanned);
    fl_onnx_with_ints(x, "scan_input_axes", along, scanned);
    fl_onnx_with_ints(x, "scan_output_axes", along, 1);
    return out ? out[u->states] : NULL;
}

const char *fl_onnx_emit_gru(fl_onnx *x, const fl_node *n, const char *type)
{
    const unit u = {n->in[X]->shape.dim[2] / 3, 1, 3, gru_step};

    return emit(x, n, type, &u);
}

const char *fl_onnx_emit_lstm(fl_onnx *x, const fl_node *n, const char *type)
{
    const unit u = {n->in[X]->shape.dim[2] / 4, 2, 4, lstm_step};

    return emit(x, n, type, &u);
}

/* --- reversed ------------------------------------------------------------- */

/* How many values each sample has, up to the first 0 of its mask: [batch]. */
static const char *count_of(fl_onnx *x, const char *mask)
{
    static const int64_t behind[] = {0, 0, 0, 1};
    const char *is_zero = fl_onnx_cast(
        x, FL_ONNX(x, "Equal", mask, fl_onnx_number(x, 0)), FL_ONNX_FLOAT);
    const char *count = FL_ONNX(x, "Pad", is_zero, fl_onnx_ints(x, behind, 4),
                                fl_onnx_number(x, 1));

    count = FL_ONNX(x, "ArgMax", count);
    fl_onnx_with_int(x, "axis", 1);
    fl_onnx_with_int(x, "keepdims", 0);
    return count;
}

const char *fl_onnx_emit_sequence_reverse(fl_onnx *x, const fl_node *n,
                                          const char *type)
{
    const fleet_var *mask = fl_input_of(n, 1);
    const char *in = fl_onnx_of(x, n->in[0]), *out;

    if (!mask)
        return FL_ONNX(x, "Slice", in, fl_onnx_int1(x, -1),
                       fl_onnx_int1(x, INT64_MIN), fl_onnx_int1(x, 1),
                       fl_onnx_int1(x, -1));
    out = FL_ONNX(x, type, in, count_of(x, fl_onnx_of(x, mask)));
    fl_onnx_with_int(x, "batch_axis", 0);
    fl_onnx_with_int(x, "time_axis", 1);
    return out;
}
