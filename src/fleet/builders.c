/* builders.c - data variables, bare parameters and optimizers. */
#include <math.h>

#include "fleet/job/handle.h"
#include "ops/ops.h"
#include "runtime/graph/program.h"

static fleet_status check_data(const char *name, fleet_dtype dtype,
                               const int64_t *dims, int n_dim)
{
    if (dtype != FLEET_FLOAT32 && dtype != FLEET_INT64)
        return fl_fail(FLEET_EDTYPE,
                       "data \"%s\": %s; expected float32 or int64", name,
                       fleet_dtype_name(dtype));
    return fl_shape_check(name, dims, n_dim);
}

fleet_var *fleet_data(fleet_program *p, const char *name, fleet_dtype dtype,
                      const int64_t *dims, int n_dim)
{
    fleet_status status;
    fl_shape shape;

    if (!p || !fl_program_ok(p))
        return NULL;
    status = check_data(name ? name : "(null)", dtype, dims, n_dim);
    if (status != FLEET_OK)
        return fl_program_failed(p, status);
    shape = fl_shape_make(dims, n_dim);
    return fl_program_data(p, name, dtype, &shape, false);
}

fleet_var *fleet_data_ragged(fleet_program *p, const char *name)
{
    fl_shape shape = fl_shape_2(-1, 1);

    return p ? fl_program_data(p, name, FLEET_INT64, &shape, true) : NULL;
}

fleet_var *fleet_parameter(fleet_program *p, const int64_t *dims, int n_dim,
                           const fleet_param_attr *attr)
{
    fleet_initializer xavier = {FLEET_INIT_XAVIER_UNIFORM, 0, 0};
    fleet_status status = FLEET_OK;
    fl_shape shape;

    if (!p || !fl_program_ok(p))
        return NULL;
    if (!attr || !attr->name)
        status = fl_fail(FLEET_EINVAL, "fleet_parameter: a name is required");
    if (status == FLEET_OK)
        status = fl_shape_check(attr->name, dims, n_dim);
    if (status == FLEET_OK && dims[0] < 0)
        status =
            fl_fail(FLEET_ESHAPE, "parameter \"%s\": it cannot have a batch",
                    attr->name);
    if (status != FLEET_OK)
        return fl_program_failed(p, status);
    shape = fl_shape_make(dims, n_dim);
    return fl_program_param(p, "", "", &shape, attr, xavier);
}

/* --- optimizers ---------------------------------------------------------- */

static float or_default(float x, float otherwise)
{
    return x != 0.0f ? x : otherwise;
}

/* Give the optimizer to the handle, if its numbers are possible. */
static fleet_optimizer *keep(fleet *f, fleet_optimizer *o, float a, float b,
                             float epsilon)
{
    if (!o)
        return NULL;
    if (fl_optimizer_set_numbers(o, a, b, epsilon) != FLEET_OK) {
        fl_optimizer_destroy(o);
        return NULL;
    }
    o->next = f->optimizers;
    return f->optimizers = o;
}

static fleet_optimizer *create(fleet *f, fl_rule_kind kind, float learning_rate)
{
    if (fl_handle_check(f, fl_rule_of(kind)->name) != FLEET_OK)
        return NULL;
    return fl_optimizer_create(&f->context, kind, learning_rate);
}

fleet_optimizer *fleet_sgd(fleet *f, float learning_rate)
{
    return keep(f, create(f, FL_RULE_SGD, learning_rate), 0, 0, 0);
}

fleet_optimizer *fleet_momentum(fleet *f, float learning_rate,
                                const fleet_momentum_options *options)
{
    fleet_optimizer *o = create(f, FL_RULE_MOMENTUM, learning_rate);

    if (o && options)
        o->nesterov = options->nesterov;
    return keep(f, o, or_default(options ? options->momentum : 0, 0.9f), 0, 0);
}

fleet_optimizer *fleet_adagrad(fleet *f, float learning_rate,
                               const fleet_adagrad_options *options)
{
    fleet_optimizer *o = create(f, FL_RULE_ADAGRAD, learning_rate);
    float first = options ? options->initial_accumulator : 0;

    if (o && !(first >= 0 && isfinite(first))) {
        fl_fail(FLEET_EINVAL, "adagrad: initial_accumulator %g is out of range",
                (double)first);
        fl_optimizer_destroy(o);
        return NULL;
    }
    if (o)
        o->initial_state = first;
    return keep(f, o, 0, 0, or_default(options ? options->epsilon : 0, 1e-6f));
}

fleet_optimizer *fleet_adam(fleet *f, float learning_rate,
                            const fleet_adam_options *options)
{
    static const fleet_adam_options defaults;
    const fleet_adam_options *x = options ? options : &defaults;

    return keep(f, create(f, FL_RULE_ADAM, learning_rate),
                or_default(x->beta1, 0.9f), or_default(x->beta2, 0.999f),
                or_default(x->epsilon, 1e-8f));
}
