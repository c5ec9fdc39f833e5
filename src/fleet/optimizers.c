/* optimizers.c - the calls that make optimizers, and the one that reads a
 * learning rate. */
#include "fleet/job/handle.h"
#include "runtime/optim/schedule.h"
#include "runtime/plan/remote.h"

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
                NUMBER(ADAM, beta2), NUMBER(ADAM, epsilon),
                NUMBER(ADAM, row_steps));
}

fleet_optimizer *fleet_adamw(fleet *f, float learning_rate,
                             const fleet_adamw_options *options)
{
    return MAKE(f, ADAMW, learning_rate, options, NUMBER(ADAMW, beta1),
                NUMBER(ADAMW, beta2), NUMBER(ADAMW, epsilon),
                NUMBER(ADAMW, row_steps), NUMBER(ADAMW, weight_decay));
}

fleet_optimizer *fleet_adamax(fleet *f, float learning_rate,
                              const fleet_adam_options *options)
{
    return MAKE(f, ADAMAX, learning_rate, options, NUMBER(ADAMAX, beta1),
                NUMBER(ADAMAX, beta2), NUMBER(ADAMAX, epsilon),
                NUMBER(ADAMAX, row_steps));
}

fleet_optimizer *fleet_adadelta(fleet *f, float learning_rate,
                                const fleet_adadelta_options *options)
{
    return MAKE(f, ADADELTA, learning_rate, options, NUMBER(ADADELTA, rho),
                NUMBER(ADADELTA, epsilon));
}

/* One call for three rules, which differ in the states of a weight. */
fleet_optimizer *fleet_rmsprop(fleet *f, float learning_rate,
                               const fleet_rmsprop_options *options)
{
    if (options && options->momentum != 0 && options->centered) {
        fl_fail(FLEET_EUNSUPPORTED,
                "rmsprop: momentum %g beside centered: expected one of them",
                (double)options->momentum);
        return NULL;
    }
    if (options && options->momentum != 0)
        return MAKE(f, RMSPROP_MOMENTUM, learning_rate, options,
                    NUMBER(RMSPROP_MOMENTUM, alpha),
                    NUMBER(RMSPROP_MOMENTUM, epsilon),
                    NUMBER(RMSPROP_MOMENTUM, momentum));
    if (options && options->centered)
        return MAKE(f, RMSPROP_CENTERED, learning_rate, options,
                    NUMBER(RMSPROP_CENTERED, alpha),
                    NUMBER(RMSPROP_CENTERED, epsilon));
    return MAKE(f, RMSPROP, learning_rate, options, NUMBER(RMSPROP, alpha),
                NUMBER(RMSPROP, epsilon));
}

fleet_optimizer *fleet_std_adagrad(fleet *f, float learning_rate,
                                   const fleet_std_adagrad_options *options)
{
    return MAKE(f, STD_ADAGRAD, learning_rate, options,
                NUMBER(STD_ADAGRAD, initial_g2sum));
}

fleet_optimizer *fleet_rowwise_adagrad(
    fleet *f, float learning_rate, const fleet_rowwise_adagrad_options *options)
{
    return MAKE(f, ROWWISE_ADAGRAD, learning_rate, options,
                NUMBER(ROWWISE_ADAGRAD, epsilon),
                NUMBER(ROWWISE_ADAGRAD, initial_accumulator),
                NUMBER(ROWWISE_ADAGRAD, initial_g2sum));
}

fleet_optimizer *fleet_shared_adam(fleet *f, float learning_rate,
                                   const fleet_adam_options *options)
{
    return MAKE(f, SHARED_ADAM, learning_rate, options,
                NUMBER(SHARED_ADAM, beta1), NUMBER(SHARED_ADAM, beta2),
                NUMBER(SHARED_ADAM, epsilon), NUMBER(SHARED_ADAM, row_steps));
}

fleet_optimizer *fleet_ftrl(fleet *f, float learning_rate,
                            const fleet_ftrl_options *options)
{
    return MAKE(f, FTRL, learning_rate, options, NUMBER(FTRL, beta),
                NUMBER(FTRL, l1), NUMBER(FTRL, l2));
}

/* As fl_executor_set_update() counts. */
static int64_t updates_of(const fl_store *s)
{
    return s->remote && !s->dense_local ? s->remote->updates : s->updates;
}

fleet_status fleet_optimizer_get_learning_rate(const fleet_optimizer *o,
                                               float *learning_rate)
{
    static const char call[] = "fleet_optimizer_get_learning_rate";

    if (!o || !o->handle || !learning_rate)
        return fl_fail(FLEET_EINVAL, "%s: no %s", call,
                       o ? "learning_rate" : "optimizer");
    if (o->serves)
        return fl_fail(FLEET_ESTATE,
                       "%s: the workers say how this server updates", call);
    *learning_rate = fl_schedule_rate(&o->schedule, o->learning_rate,
                                      updates_of(o->handle->store));
    return FLEET_OK;
}
