/* check_gradient.c - backward() of a registered operator against central
 * differences of its forward(). */
#include <math.h>
#include <string.h>

#include "ops/custom/custom.h"

/* All of a call, in memory of an arena. */
typedef struct check {
    const fl_custom *c;
    fl_arena arena;
    fl_attr attr[FLEET_CUSTOM_MOST_ATTR];
    fleet_custom_attrs attrs;
    fleet_custom_tensor in[FLEET_CUSTOM_MOST_IN], in_grad[FLEET_CUSTOM_MOST_IN];
    fleet_custom_tensor out[FLEET_CUSTOM_MOST_OUT],
        out_grad[FLEET_CUSTOM_MOST_OUT];
    fleet_custom_call call;
    int64_t rows; /* of the batch; 0: not known yet */
} check;

static int64_t count_of(const fleet_custom_tensor *t)
{
    int64_t n = 1;

    for (int i = 0; i < t->n_dim; i++)
        n *= t->dims[i];
    return n;
}

/* Of the results in the sum: some numbers around 0. */
static float weight_of(int64_t i)
{
    return (float)((i * 7919 + 13) % 17 - 8) / 8.0f;
}

static fleet_status add_floats(check *k, fleet_custom_tensor *t)
{
    t->data = fl_arena_alloc(&k->arena, (size_t)count_of(t) * sizeof(float));
    return t->data ? FLEET_OK : FLEET_ENOMEM;
}

/* Inputs are copied: they are changed element by element. */
static fleet_status copy_input(check *k, int i, const fleet_custom_tensor *from)
{
    fleet_custom_tensor *t = &k->in[i];
    fl_shape shape;

    if (from->n_dim < 1 || from->n_dim > FLEET_MAX_DIM || !from->data ||
        (from->dtype != FLEET_FLOAT32 && from->dtype != FLEET_INT64))
        return fl_fail(
            FLEET_EINVAL,
            "fleet_check_gradient: input %d needs data of float32 or "
            "int64, and 1 to %d dimensions",
            i, (int)FLEET_MAX_DIM);
    *t = *from;
    if (t->dims[0] < 0)
        t->dims[0] = t->dims[0] < -FL_MOST_DIM ? INT64_MAX : -t->dims[0];
    shape = fl_shape_make(t->dims, t->n_dim);
    FL_TRY(fl_shape_check("fleet_check_gradient", shape.dim, shape.n_dim));
    if (from->dims[0] < 0) {
        if (k->rows > 0 && k->rows != t->dims[0])
            return fl_fail(FLEET_ESHAPE,
                           "fleet_check_gradient: input %d is a batch of %lld "
                           "rows; expected %lld, as those before it have",
                           i, (long long)t->dims[0], (long long)k->rows);
        k->rows = t->dims[0];
    }
    t->data = fl_arena_copy(&k->arena, from->data,
                            (size_t)count_of(t) * fleet_dtype_size(t->dtype));
    k->in_grad[i] = *t;
    k->in_grad[i].data = NULL;
    if (!t->data)
        return FLEET_ENOMEM;
    return t->dtype == FLEET_FLOAT32 ? add_floats(k, &k->in_grad[i]) : FLEET_OK;
}

static fleet_status add_result(check *k, int i)
{
    fleet_custom_tensor *t = &k->out[i];
    float *g;

    if (t->n_dim < 1 || t->n_dim > FLEET_MAX_DIM)
        return fl_fail(FLEET_ESHAPE,
                       "%s: shape() gives result %d %d dimensions", k->c->name,
                       i, t->n_dim);
    t->dims[0] = t->dims[0] < 0 ? -t->dims[0] * k->rows : t->dims[0];
    FL_TRY(fl_shape_check(k->c->name, t->dims, t->n_dim));
    FL_TRY(add_floats(k, t));
    k->out_grad[i] = *t;
    FL_TRY(add_floats(k, &k->out_grad[i]));
    g = k->out_grad[i].data;
    for (int64_t j = 0; j < count_of(t); j++)
        g[j] = weight_of(j);
    return FLEET_OK;
}

static fleet_status make_call(check *k, const fleet_custom_tensor *in)
{
    fleet_custom_tensor shape[FLEET_CUSTOM_MOST_IN];
    int n_in = k->c->spec.n_in, n_out = k->c->spec.n_out;
    int64_t saved;

    for (int i = 0; i < n_in; i++) {
        FL_TRY(copy_input(k, i, &in[i]));
        shape[i] = k->in[i];
        shape[i].data = NULL;
        shape[i].dims[0] = in[i].dims[0] < 0 ? -1 : in[i].dims[0];
    }
    k->rows = k->rows > 0 ? k->rows : 1;
    FL_TRY(fl_custom_shape(k->c, k->attr, k->attrs.n, shape, k->out, &saved));
    for (int i = 0; i < n_out; i++)
        FL_TRY(add_result(k, i));
    k->call = (fleet_custom_call){.user = k->c->spec.user,
                                  .attrs = &k->attrs,
                                  .n_in = n_in,
                                  .n_out = n_out,
                                  .in = k->in,
                                  .out = k->out,
                                  .out_grad = k->out_grad,
                                  .in_grad = k->in_grad,
                                  .batch = k->rows};
    if (saved == 0)
        return FLEET_OK;
    fleet_custom_tensor rows = {.n_dim = 2, .dims = {k->out[0].dims[0], saved}};

    FL_TRY(fl_shape_check(k->c->name, rows.dims, 2));
    FL_TRY(add_floats(k, &rows));
    k->call.saved = rows.data;
    return FLEET_OK;
}

/* The weighted sum of all results. */
static fleet_status run_forward(check *k, double *sum)
{
    *sum = 0;
    fl_error_clear();
    FL_TRY(fl_custom_said(k->c, "forward", k->c->spec.forward(&k->call)));
    for (int i = 0; i < k->c->spec.n_out; i++) {
        const float *x = k->out[i].data;

        for (int64_t j = 0; j < count_of(&k->out[i]); j++)
            *sum += (double)x[j] * (double)weight_of(j);
    }
    return FLEET_OK;
}

/* By steps that single precision can tell apart. */
static fleet_status difference(check *k, float *x, double *slope)
{
    float was = *x, h = 0x1p-7f * fmaxf(1.0f, fabsf(was));
    volatile float up = was + h, down = was - h;
    double above = 0, below = 0;
    fleet_status status;

    *x = up;
    status = run_forward(k, &above);
    *x = down;
    if (status == FLEET_OK)
        status = run_forward(k, &below);
    *x = was;
    *slope = (above - below) / ((double)up - (double)down);
    return status;
}

static fleet_status check_input(check *k, int i, double tolerance)
{
    int64_t n = count_of(&k->in[i]);
    float *x = k->in[i].data;
    const float *got = k->in_grad[i].data;
    double most = 1e-6;

    for (int64_t j = 0; j < n; j++)
        most = fmax(most, fabs((double)got[j]));
    for (int64_t j = 0; j < n; j++) {
        double want;

        FL_TRY(difference(k, &x[j], &want));
        if (!(fabs((double)got[j] - want) <= tolerance * fmax(most, 1e-3)))
            return fl_fail(FLEET_ENUMERIC,
                           "%s: the gradient of input %d, element %lld, is "
                           "%.6g; differences give %.6g",
                           k->c->name, i, (long long)j, (double)got[j], want);
    }
    return FLEET_OK;
}

static fleet_status check_all(check *k, const fleet_custom_tensor *in,
                              double tolerance)
{
    double sum;

    FL_TRY(make_call(k, in));
    FL_TRY(run_forward(k, &sum));
    fl_error_clear();
    FL_TRY(fl_custom_said(k->c, "backward", k->c->spec.backward(&k->call)));
    for (int i = 0; i < k->c->spec.n_in; i++)
        if (k->in[i].dtype == FLEET_FLOAT32)
            FL_TRY(check_input(k, i, tolerance > 0 ? tolerance : 0.01));
    return FLEET_OK;
}

fleet_status fleet_check_gradient(const char *name,
                                  const fleet_custom_tensor *in, int n_in,
                                  const fleet_custom_attr *attr, int n_attr,
                                  double tolerance)
{
    check k = {.rows = 0};
    fleet_status status;

    FL_TRY(fl_custom_find(name, in ? n_in : 0, &k.c));
    if (!k.c->spec.backward)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "fleet_check_gradient: %s has no backward", k.c->name);
    status =
        fl_custom_attrs_of(&k.arena, k.c, attr, attr && n_attr > 0 ? n_attr : 0,
                           k.attr, &k.attrs.n);
    k.attrs.attr = k.attr;
    if (status == FLEET_OK)
        status = check_all(&k, in, tolerance);
    fl_arena_done(&k.arena);
    return status;
}
