/* sequence.c - ragged values as a row of a fixed length, and which of it are
 * values.
 *
 *   sequence_pad   x ragged -> out [B, T], x's type; no gradient
 *   sequence_mask  x ragged -> out [B, T] of 1 and 0; no gradient
 *
 * Rows of a table side by side are sequence_embedding, of ops/embedding.c.
 */
#include "ops/sequence/sequence.h"

#include <math.h>
#include <string.h>

#include <fleet/sequence.h>

#include "ops/ops.h"

static const int64_t *offsets_of(const fl_instance *in)
{
    return (const int64_t *)(const void *)in->arg[1].base[1];
}

static const void *config_of(fl_lowering *l, const fl_node *n)
{
    const fl_attr *first = fl_node_attr(n, "keep_first"),
                  *value = fl_node_attr(n, "value");
    fl_sequence_config c = {.most = fl_node_int(n, "max_len"),
                            .keep_last = first && first->i == 0,
                            .value = value ? (float)value->f : 0.0f};

    return fl_config(l, &c, sizeof c);
}

static fl_shape shape_of(const fl_node *n)
{
    return fl_shape_2(-1, fl_node_int(n, "max_len"));
}

static void emit(fl_lowering *l, const fl_kernel *kernel, const fl_node *n)
{
    FL_EMIT(l, kernel, n, config_of(l, n), FL_W(fl_value_of(l, n->out[0])),
            FL_R(fl_value_of(l, n->in[0])));
}

/* --- sequence_pad --------------------------------------------------------- */

static fleet_status pad_infer(fl_node *n)
{
    double value = fl_node_float(n, "value");
    fl_shape out;

    FL_TRY(fl_want_sequence(n, 0));
    if (!isfinite((float)value) || (n->in[0]->dtype == FLEET_INT64 &&
                                    (double)(float)(int64_t)value != value))
        return fl_fail(FLEET_EINVAL,
                       "sequence_pad: value %g cannot stand for %s of \"%s\"",
                       value, fleet_dtype_name(n->in[0]->dtype),
                       n->in[0]->name);
    out = shape_of(n);
    fl_set_out(n, 0, &out);
    n->out[0]->dtype = n->in[0]->dtype;
    return FLEET_OK;
}

static fleet_status pad_run(const fl_instance *in, const fl_range *r)
{
    const fl_sequence_config *c = in->step->config;
    const int64_t *offset = offsets_of(in);
    bool ids = in->arg[0].dtype == FLEET_INT64;
    size_t size = fleet_dtype_size(in->arg[0].dtype);
    const char *x = fl_ptr(in, 1);
    char *out = fl_rows_any(in, 0, r);

    for (int64_t row = r->begin; row < r->end; row++) {
        fl_sequence_part part = fl_sequence_kept(c, offset + row);

        if (part.n > 0)
            memcpy(out, x + (size_t)part.first * size, (size_t)part.n * size);
        for (int64_t i = part.n; i < c->most; i++)
            if (ids)
                ((int64_t *)(void *)out)[i] = (int64_t)c->value;
            else
                ((float *)(void *)out)[i] = c->value;
        out += (size_t)c->most * size;
    }
    return FLEET_OK;
}

static const fl_kernel pad = {
    .name = "sequence_pad", .split = FL_SPLIT_ROWS, .run = pad_run};

static fleet_status pad_forward(fl_lowering *l, const fl_node *n)
{
    emit(l, &pad, n);
    return FLEET_OK;
}

const fl_op fl_op_sequence_pad = {
    .name = "sequence_pad",
    .n_out = 1,
    .least_in = 1,
    .most_in = 1,
    .attrs = "max_len:i keep_first:i value:f",
    .infer = pad_infer,
    .forward = pad_forward,
};

fleet_var *fleet_sequence_pad(fleet_program *p, fleet_var *x, int64_t max_len,
                              int keep_first, float value)
{
    const fl_attr attrs[] = {FL_ATTR_INT("max_len", max_len),
                             FL_ATTR_INT("keep_first", keep_first != 0),
                             FL_ATTR_FLOAT("value", value)};

    return fl_build_of_one(p, &fl_op_sequence_pad, x, attrs, 3);
}

/* --- sequence_mask -------------------------------------------------------- */

static fleet_status mask_infer(fl_node *n)
{
    fl_shape out;

    FL_TRY(fl_want_sequence(n, 0));
    out = shape_of(n);
    fl_set_out(n, 0, &out);
    return FLEET_OK;
}

static fleet_status mask_run(const fl_instance *in, const fl_range *r)
{
    const fl_sequence_config *c = in->step->config;
    const int64_t *offset = offsets_of(in);
    float *out = fl_rows_f32(in, 0, r);

    for (int64_t row = r->begin; row < r->end; row++, out += c->most) {
        int64_t n = fl_sequence_kept(c, offset + row).n;

        for (int64_t i = 0; i < c->most; i++)
            out[i] = i < n ? 1.0f : 0.0f;
    }
    return FLEET_OK;
}

static const fl_kernel mask = {
    .name = "sequence_mask", .split = FL_SPLIT_ROWS, .run = mask_run};

static fleet_status mask_forward(fl_lowering *l, const fl_node *n)
{
    emit(l, &mask, n);
    return FLEET_OK;
}

const fl_op fl_op_sequence_mask = {
    .name = "sequence_mask",
    .n_out = 1,
    .least_in = 1,
    .most_in = 1,
    .attrs = "max_len:i",
    .infer = mask_infer,
    .forward = mask_forward,
};

fleet_var *fleet_sequence_mask(fleet_program *p, fleet_var *x, int64_t max_len)
{
    return fl_build_of_one(p, &fl_op_sequence_mask, x,
                           &FL_ATTR_INT("max_len", max_len), 1);
}
