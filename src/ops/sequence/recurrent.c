/* recurrent.c - products between steps, shapes, sums and layers of recurrent
 * operators. */
#include "ops/sequence/recurrent.h"

#include <stdio.h>

#include "base/memory.h"
#include "ops/fc_kernels.h"
#include "runtime/graph/program.h"
#include "runtime/simd/simd.h"

/* --- kernels -------------------------------------------------------------- */

static size_t padded(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

int64_t fl_recurrent_slice(const fl_instance *in, int i)
{
    return in->slice * in->arg[i].factor;
}

static fleet_status prepare(fl_instance *in, const fl_matmul_spec *spec,
                            int64_t room)
{
    fl_recurrent_state *s = in->state;

    FL_TRY(fl_matmul_create(&s->matmul, spec, in->n_thread));
    s->product = padded(fl_matmul_scratch(s->matmul));
    in->scratch_size = s->product + (size_t)(spec->m * room) * sizeof(float);
    return FLEET_OK;
}

fleet_status fl_recurrent_prepare(fl_instance *in, int gates)
{
    const fl_recurrent *c = in->step->config;
    int64_t n = gates * c->units;

    return prepare(in,
                   &(fl_matmul_spec){.m = fl_recurrent_slice(in, F_OUT),
                                     .n = n,
                                     .k = c->units,
                                     .bias = true,
                                     .lda = c->len * c->units,
                                     .ldb = n,
                                     .ldc = n},
                   n);
}

fleet_status fl_recurrent_prepare_grad(fl_instance *in, int gates, int64_t room)
{
    const fl_recurrent *c = in->step->config;
    int64_t k = gates * c->units;

    return prepare(in,
                   &(fl_matmul_spec){.m = fl_recurrent_slice(in, D_G),
                                     .n = c->units,
                                     .k = k,
                                     .tb = true,
                                     .lda = c->len * k,
                                     .ldb = k,
                                     .ldc = c->units},
                   room);
}

void fl_recurrent_finish(fl_instance *in)
{
    fl_matmul_destroy(((fl_recurrent_state *)in->state)->matmul);
}

float *fl_recurrent_scratch(const fl_instance *in, const fl_range *r)
{
    const fl_recurrent_state *s = in->state;

    return (float *)(void *)((char *)r->scratch + s->product);
}

/* --- the operator --------------------------------------------------------- */

static const fleet_var *weights_of(const fl_node *n)
{
    return fl_input_of(n, FL_RECURRENT_WEIGHTS);
}

static int64_t units_of(const fl_node *n, int gates)
{
    return n->in[FL_RECURRENT_X]->shape.dim[2] / gates;
}

/* "[-1,T,3 H]" with the number of gates in it. */
static fleet_status do_not_fit(const fl_node *n, int i, const char *before,
                               int gates)
{
    const fleet_var *x = n->in[FL_RECURRENT_X];
    char many[16] = "";

    if (gates > 0)
        snprintf(many, sizeof many, "%d H]", gates);
    return fl_fail(
        FLEET_ESHAPE, "%s: \"%s\" has shape %s; expected %s%s for \"%s\" %s",
        n->op->name, n->in[i]->name, fl_shape_print(&n->in[i]->shape).chars,
        before, many, x->name, fl_shape_print(&x->shape).chars);
}

static fleet_status check_weights(const fl_node *n)
{
    const fleet_var *weights = weights_of(n);
    const fl_shape *x = &n->in[FL_RECURRENT_X]->shape;

    if (!weights ||
        (weights->shape.n_dim == 2 && weights->shape.dim[0] == x->dim[0] &&
         weights->shape.dim[1] == x->dim[1]))
        return FLEET_OK;
    return do_not_fit(n, FL_RECURRENT_WEIGHTS, "[-1,T]", 0);
}

fleet_status fl_recurrent_infer(fl_node *n, int gates)
{
    const fl_shape *x = &n->in[FL_RECURRENT_X]->shape;
    const fl_shape *w = &n->in[FL_RECURRENT_W]->shape;
    const fl_shape *b = &n->in[FL_RECURRENT_B]->shape;
    fl_shape out = *x;
    char expected[32];

    for (int i = 0; i < (weights_of(n) ? 4 : 3); i++)
        FL_TRY(fl_want_dtype(n, i, FLEET_FLOAT32));
    if (x->n_dim != 3 || !fl_shape_batched(x) || x->dim[2] % gates != 0) {
        snprintf(expected, sizeof expected, "[-1,T,%d H]", gates);
        return fl_want_shape(n, FL_RECURRENT_X, expected);
    }
    out.dim[2] = units_of(n, gates);
    if (w->n_dim != 2 || w->dim[0] != out.dim[2] || w->dim[1] != x->dim[2])
        return do_not_fit(n, FL_RECURRENT_W, "[H,", gates);
    if (b->n_dim != 1 || b->dim[0] != x->dim[2])
        return do_not_fit(n, FL_RECURRENT_B, "[", gates);
    FL_TRY(check_weights(n));
    fl_set_out(n, 0, &out);
    return FLEET_OK;
}

/* A value for each step of each sample, as x lies. */
static int temp_of(fl_lowering *l, const fl_node *n, const char *name,
                   int64_t cols)
{
    fl_shape shape = n->out[0]->shape;

    shape.dim[2] = cols;
    return fl_temp(l, name, FLEET_FLOAT32, &shape);
}

/* The same as rows of a matrix. */
static int rows_of(fl_lowering *l, const fl_node *n, const char *name,
                   int64_t cols)
{
    fl_shape shape =
        fl_shape_2(n->out[0]->shape.dim[0] * n->out[0]->shape.dim[1], cols);

    return fl_temp(l, name, FLEET_FLOAT32, &shape);
}

static const void *config_of(fl_lowering *l, const fl_node *n, int gates)
{
    fl_recurrent c = {n->in[FL_RECURRENT_X]->shape.dim[1], units_of(n, gates)};

    return fl_config(l, &c, sizeof c);
}

/* dW and db: sums over the batch, of states before steps and the gradients of
 * what is made of them, as rows. */
static void add_sums(fl_lowering *l, const fl_node *n, int gates, int last,
                     int state)
{
    int64_t u = units_of(n, gates);
    fl_fc_config c = {.k = u, .n = gates * u, .bias = true};
    const void *config = fl_config(l, &c, sizeof c);
    bool small = c.n <= FL_SMALL_N;
    int to;

    if ((to = fl_gradient_to(l, n->in[FL_RECURRENT_W])) >= 0)
        FL_EMIT(l, small ? &fl_kernel_fc_small_dw : &fl_kernel_fc_dw, n, config,
                FL_W(to), FL_R(last), FL_R(state));
    if ((to = fl_gradient_to(l, n->in[FL_RECURRENT_B])) >= 0)
        FL_EMIT(l, &fl_kernel_fc_db, n, config, FL_W(to), FL_R(state));
}

void fl_recurrent_forward(fl_lowering *l, const fl_node *n, int gates, int kept,
                          const fl_kernel *kernel)
{
    int saved = temp_of(l, n, "gates", kept * units_of(n, gates));

    FL_EMIT(l, kernel, n, config_of(l, n, gates),
            FL_W(fl_value_of(l, n->out[0])), FL_W(saved),
            FL_R(fl_value_of(l, n->in[FL_RECURRENT_X])),
            FL_R(fl_value_of(l, n->in[FL_RECURRENT_W])),
            FL_R(fl_value_of(l, n->in[FL_RECURRENT_B])),
            FL_R(fl_value_of(l, weights_of(n))));
    l->node[n->id].saved = saved;
}

void fl_recurrent_gradient(fl_lowering *l, const fl_node *n, int gates,
                           const fl_kernel *kernel)
{
    int64_t u = units_of(n, gates);
    int g = fl_gradient_of(l, n->out[0]);
    int dx = fl_gradient_to(l, n->in[FL_RECURRENT_X]);
    int da = fl_gradient_to(l, weights_of(n));
    int state = rows_of(l, n, "state gradient", gates * u);
    int last = rows_of(l, n, "state before", u);

    if (dx < 0)
        dx = temp_of(l, n, "not wanted", gates * u);
    FL_EMIT(l, kernel, n, config_of(l, n, gates), FL_W(dx), FL_W(state),
            FL_W(last), FL_W(da), FL_R(g), FL_R(fl_value_of(l, n->out[0])),
            FL_R(l->node[n->id].saved),
            FL_R(fl_value_of(l, n->in[FL_RECURRENT_W])),
            FL_R(fl_value_of(l, weights_of(n))));
    add_sums(l, n, gates, last, state);
}

/* --- the builder ---------------------------------------------------------- */

static fleet_var *add(fleet_program *p, const fl_op *op, int gates,
                      fleet_var *x, int64_t units, fleet_var *weights,
                      const fleet_recurrent_options *o, const char *name)
{
    fleet_initializer zero = {FLEET_INIT_CONSTANT, 0, 0};
    fleet_initializer xavier = {FLEET_INIT_XAVIER_UNIFORM, 0, 0};
    fl_shape w = fl_shape_2(units, gates * units), b = fl_shape_1(w.dim[1]);
    fleet_fc_options input = {.name = fl_arena_format(&p->arena, "%s.x", name),
                              .weight = o->input,
                              .bias = o->input_bias,
                              .num_flatten_dims = 2};
    const char *state = fl_arena_format(&p->arena, "%s.h", name);
    fleet_var *in[4] = {[FL_RECURRENT_WEIGHTS] = weights};

    if (!input.name || !state)
        return fl_program_failed(p, FLEET_ENOMEM);
    in[FL_RECURRENT_X] = fleet_fc(p, x, w.dim[1], &input);
    in[FL_RECURRENT_W] = fl_program_param(p, state, "w", &w, &o->state, xavier);
    in[FL_RECURRENT_B] =
        fl_program_param(p, state, "b", &b, &o->state_bias, zero);
    return fl_program_add(p, op, in, weights ? 4 : 3, NULL, 0);
}

fleet_var *fl_recurrent_build(fleet_program *p, const fl_op *op, int gates,
                              fleet_var *x, int64_t units, fleet_var *weights,
                              const fleet_recurrent_options *options)
{
    static const fleet_recurrent_options defaults;
    const fleet_recurrent_options *o = options ? options : &defaults;
    fleet_status status = FLEET_OK;
    const char *name;

    if (!fl_builder_ready(p, x))
        return NULL;
    if (x->shape.n_dim != 3 || x->ragged)
        status =
            fl_fail(FLEET_ESHAPE, "%s: \"%s\" has shape %s; expected [-1,T,D]",
                    op->name, x->name, fl_shape_print(&x->shape).chars);
    else if (units < 1 || units > (1 << 20))
        status = fl_fail(FLEET_ESHAPE, "%s: cannot have %lld units", op->name,
                         (long long)units);
    if (status != FLEET_OK)
        return fl_program_failed(p, status);
    name = o->name ? o->name : fl_program_name(p, op->name);
    return name ? add(p, op, gates, x, units, weights, o, name)
                : fl_program_failed(p, FLEET_ENOMEM);
}
