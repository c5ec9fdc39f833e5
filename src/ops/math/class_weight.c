/* class_weight.c - of each sample the weight of its class; no gradient. */
#include "ops/math/class_weight.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include <fleet/ops.h>

#include "ops/ops.h"

_Static_assert((int)FL_MOST_CLASS_WEIGHTS <= (int)FL_MOST_FLOATS,
               "an attribute has room for them");

static const char *weights_error(const float *w, int64_t n)
{
    float most = 0;

    for (int64_t i = 0; i < n; i++) {
        if (!(w[i] >= 0) || !isfinite(w[i]))
            return "each from 0 on and finite";
        most = w[i] > most ? w[i] : most;
    }
    return most > 0 ? NULL : "one of them above 0";
}

static fleet_status class_weight_infer(fl_node *n)
{
    const fl_attr *a = fl_node_attr(n, "weights");
    fleet_var *label = n->in[0];
    const char *wanted;
    fl_shape out;

    FL_TRY(fl_want_label(n, 0, false));
    if (a->n < 2 || a->n > FL_MOST_CLASS_WEIGHTS || !a->w)
        return fl_fail(FLEET_EINVAL,
                       "class_weight: %d weights; expected 2 to %d, one for "
                       "each class",
                       a->n, (int)FL_MOST_CLASS_WEIGHTS);
    wanted = weights_error(a->w, a->n);
    if (wanted)
        return fl_fail(FLEET_EINVAL, "class_weight: weights; expected %s",
                       wanted);
    if (label->labels_to == 0 || a->n - 1 < label->labels_to)
        label->labels_to = a->n - 1;
    out = fl_shape_2(label->shape.dim[0], 1);
    fl_set_out(n, 0, &out);
    return FLEET_OK;
}

static fleet_status class_weight_run(const fl_instance *in, const fl_range *r)
{
    const fl_class_weight *c = in->step->config;
    int64_t first = r->begin * in->arg[0].factor;
    const int64_t *label = (const int64_t *)fl_ptr(in, 1) + first;
    float *out = fl_rows_f32(in, 0, r);

    for (int64_t i = 0; i < fl_range_rows(in, 0, r); i++) {
        if (label[i] < 0 || label[i] >= c->n)
            return fl_fail(FLEET_EINVAL,
                           "class_weight: label \"%s\" is %" PRId64
                           " in row %" PRId64 " of the batch, which is not a "
                           "class from 0 to %" PRId64,
                           in->step->node->in[0]->name, label[i], first + i,
                           c->n - 1);
        out[i] = c->weight[label[i]];
    }
    return FLEET_OK;
}

static const fl_kernel class_weight = {
    .name = "class_weight", .split = FL_SPLIT_ROWS, .run = class_weight_run};

static fleet_status class_weight_forward(fl_lowering *l, const fl_node *n)
{
    const fl_attr *a = fl_node_attr(n, "weights");
    fl_class_weight c = {.n = a->n};

    memcpy(c.weight, a->w, (size_t)a->n * sizeof *a->w);
    FL_EMIT(l, &class_weight, n, fl_config(l, &c, sizeof c),
            FL_W(fl_value_of(l, n->out[0])), FL_R(fl_value_of(l, n->in[0])));
    return FLEET_OK;
}

const fl_op fl_op_class_weight = {
    .name = "class_weight",
    .n_out = 1,
    .least_in = 1,
    .most_in = 1,
    .attrs = "weights:w",
    .infer = class_weight_infer,
    .forward = class_weight_forward,
};

fleet_var *fleet_class_weight(fleet_program *p, fleet_var *label,
                              const float *weights, int n)
{
    fl_attr attr = FL_ATTR_FLOATS("weights", weights, weights ? n : 0);

    if (attr.n < 0 || attr.n > FL_MOST_CLASS_WEIGHTS) /* infer() says so */
        attr = FL_ATTR_FLOATS("weights", NULL, n);
    return fl_build_of_one(p, &fl_op_class_weight, label, &attr, 1);
}
