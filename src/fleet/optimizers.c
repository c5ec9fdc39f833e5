/* builders.c - data variables, bare parameters, and the optimizers' calls. */
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

/* MAKE(f, KIND, rate, options, number...): the rule, with its numbers from the
 * options, which may be NULL. NUMBER(KIND, name) is one. */
#define MAKE(f, KIND, rate, options, ...)                                      \
    fl_handle_optimizer(f, FL_RULE_##KIND, rate,                               \
                        (options) ? (float[FL_MAX_NUMBER]){__VA_ARGS__}        \
                                  : (float[FL_MAX_NUMBER]){0})
#define NUMBER(KIND, name) [FL_AT_##KIND##_##name] = (float)options->name

fleet_optimizer *fleet_sgd(fleet *f, float learning_rate)
{
    return fl_handle_optimizer(f, FL_RULE_SGD, learning_rate,
                               (float[FL_MAX_NUMBER]){0});
}

fleet_optimizer *fleet_momentum(fleet *f, float learning_rate,
                                const fleet_momentum_options *options)
{
    return MAKE(f, MOMENTUM, learning_rate, options, NUMBER(MOMENTUM, momentum),
                NUMBER(MOMENTUM, nesterov));
}

fleet_optimizer *fleet_adagrad(fleet *f, float learning_rate,
                               const fleet_adagrad_options *options)
{
    return MAKE(f, ADAGRAD, learning_rate, options, NUMBER(ADAGRAD, epsilon),
                NUMBER(ADAGRAD, initial_accumulator));
}

fleet_optimizer *fleet_adam(fleet *f, float learning_rate,
                            const fleet_adam_options *options)
{
    return MAKE(f, ADAM, learning_rate, options, NUMBER(ADAM, beta1),
                NUMBER(ADAM, beta2), NUMBER(ADAM, epsilon));
}

fleet_optimizer *fleet_ftrl(fleet *f, float learning_rate,
                            const fleet_ftrl_options *options)
{
    return MAKE(f, FTRL, learning_rate, options, NUMBER(FTRL, beta),
                NUMBER(FTRL, l1), NUMBER(FTRL, l2));
}
