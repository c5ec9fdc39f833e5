/* column_norm.c - columns less their means, over their deviations, by
 * statistics; the gradient of it, where they are the batch's and where not. */
#include "ops/norm/column_norm.h"

#include <math.h>

#include "runtime/simd/simd.h"

fleet_status fl_split_columns(fl_instance *in)
{
    const fl_batch_norm *c = in->step->config;

    in->n_part = (int)((c->n + FL_COLUMN_PART - 1) / FL_COLUMN_PART);
    return FLEET_OK;
}

fl_column_part fl_column_part_of(const fl_batch_norm *c, const fl_range *r)
{
    int64_t first = r->begin * FL_COLUMN_PART, left = c->n - first;

    return (fl_column_part){first,
                            left < FL_COLUMN_PART ? left : FL_COLUMN_PART};
}

void fl_finish_stats(const fl_batch_norm *c, float *stats, const float *w,
                     fl_column_part k)
{
    for (int64_t j = k.first; j < k.first + k.n; j++) {
        float inverse =
            1.0f / sqrtf(stats[FL_NORM_VARIANCE * c->n + j] + c->epsilon);

        stats[FL_NORM_INVERSE * c->n + j] = inverse;
        stats[FL_NORM_SCALE * c->n + j] = w ? inverse * w[j] : inverse;
    }
}

int64_t fl_batch_lines(const fl_instance *in, int i, const fl_range *r)
{
    const fl_batch_norm *c = in->step->config;

    return r->batch * in->arg[i].factor * in->arg[i].cols / c->n;
}

static int64_t lines_of(const fl_instance *in, const fl_range *r)
{
    const fl_batch_norm *c = in->step->config;

    return fl_range_count(in, 0, r) / c->n;
}

/* --- column_norm ---------------------------------------------------------- */

enum { Y, OF_X, OF_STATS, OF_B };

static fleet_status norm_run(const fl_instance *in, const fl_range *r)
{
    const fl_batch_norm *c = in->step->config;
    const fl_simd *simd = fl_simd_best();
    const float *stats = fl_ptr(in, OF_STATS);
    const float *b = fl_optional_ptr(in, OF_B);
    const float *x = fl_rows_f32(in, OF_X, r);
    float *y = fl_rows_f32(in, Y, r);

    for (int64_t i = lines_of(in, r); i > 0; i--, x += c->n, y += c->n) {
        simd->sub(y, x, stats + FL_NORM_MEAN * c->n, c->n);
        simd->mul(y, y, stats + FL_NORM_SCALE * c->n, c->n);
        if (b)
            simd->add(y, y, b, c->n);
    }
    return FLEET_OK;
}

/* --- column_norm.grad ----------------------------------------------------- */

enum { DX, G, GRAD_X, GRAD_STATS, GRAD_SUMS, GRAD_MOMENTS };

static fleet_status grad_run(const fl_instance *in, const fl_range *r)
{
    const fl_batch_norm *c = in->step->config;
    const float *stats = fl_ptr(in, GRAD_STATS);
    const float *mean = stats + FL_NORM_MEAN * c->n;
    const float *inverse = stats + FL_NORM_INVERSE * c->n;
    const float *scale = stats + FL_NORM_SCALE * c->n;
    const float *of_g = fl_optional_ptr(in, GRAD_SUMS);
    const float *g = fl_rows_f32(in, G, r), *x = fl_rows_f32(in, GRAD_X, r);
    const double *moments = fl_optional_ptr(in, GRAD_MOMENTS);
    const double lines = moments ? moments[fl_norm_moments(c->n) - 1]
                                 : (double)fl_batch_lines(in, G, r);
    const float share = 1.0f / (float)lines;
    float *dx = fl_rows_f32(in, DX, r);

    for (int64_t i = lines_of(in, r); i > 0; i--) {
        if (!of_g)
            fl_simd_best()->mul(dx, g, scale, c->n);
        else
            for (int64_t j = 0; j < c->n; j++) {
                float z = (x[j] - mean[j]) * inverse[j];
                float along = z * of_g[FL_NORM_GZ * c->n + j];

                dx[j] = scale[j] * (g[j] - share * (of_g[j] + along));
            }
        dx += c->n, g += c->n, x += c->n;
    }
    return FLEET_OK;
}

const fl_kernel fl_kernel_column_norm = {
    .name = "column_norm", .split = FL_SPLIT_ROWS, .run = norm_run};
const fl_kernel fl_kernel_column_norm_grad = {
    .name = "column_norm.grad", .split = FL_SPLIT_ROWS, .run = grad_run};

/* --- shapes --------------------------------------------------------------- */

int64_t fl_columns_of(const fleet_var *x)
{
    int64_t n = x->shape.n_dim > 0 ? x->shape.dim[x->shape.n_dim - 1] : 1;

    return n > 0 ? n : 1;
}

fleet_status fl_want_columns(const fl_node *n)
{
    const fleet_var *x = n->in[0];

    FL_TRY(fl_want_dtype(n, 0, FLEET_FLOAT32));
    if (!fl_shape_batched(&x->shape) || x->shape.n_dim < 2 || x->ragged)
        return fl_want_shape(n, 0, "[-1,N]");
    return FLEET_OK;
}

fleet_status fl_want_one_each(const fl_node *n, int in)
{
    const fl_shape *s = &n->in[in]->shape;

    FL_TRY(fl_want_dtype(n, in, FLEET_FLOAT32));
    if (fl_shape_batched(s) || s->n_dim != 1 ||
        s->dim[0] != fl_columns_of(n->in[0]))
        return fl_want_shape(n, in, "one number for each column");
    return FLEET_OK;
}
