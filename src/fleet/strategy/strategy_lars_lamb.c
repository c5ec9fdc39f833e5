/* strategy_lars_lamb.c - strategy.lars and strategy.lamb: as in Fleet they change
 * Momentum and Adam, and no other optimizer. */
#include "fleet/handle.h"

#include <stddef.h>
#include <string.h>

typedef struct number {
    const char *name;
    size_t at, needs; /* the field, and the one that switches it on */
    const char *needs_name;
} number;

#define AT(member) offsetof(fleet_distributed_strategy, member)
#define NUMBER(needs, member)                                                  \
    {                                                                          \
#member, AT(member), AT(needs), #needs                                 \
    }

static const number numbers[] = {
    NUMBER(lars, lars_configs.lars_coeff),
    NUMBER(lars, lars_configs.lars_weight_decay),
    NUMBER(lars, lars_configs.epsilon),
    NUMBER(lamb, lamb_configs.lamb_weight_decay),
};

static float float_at(const fleet_distributed_strategy *s, size_t at)
{
    float x;

    memcpy(&x, (const char *)s + at, sizeof x);
    return x;
}

static fleet_status check_number(const fleet_distributed_strategy *s,
                                 const number *n)
{
    const fleet_distributed_strategy defaults =
        fleet_distributed_strategy_default();
    float got = float_at(s, n->at);
    int on;

    memcpy(&on, (const char *)s + n->needs, sizeof on);
    if (!on && got != float_at(&defaults, n->at))
        return fl_fail(FLEET_EINVAL, "strategy.%s is %g, but strategy.%s is 0",
                       n->name, (double)got, n->needs_name);
    return FLEET_OK;
}

fleet_status fl_layerwise_check_numbers(const fleet_distributed_strategy *s)
{
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        FL_TRY(check_number(s, &numbers[i]));
    return FLEET_OK;
}

fleet_status fl_layerwise_check(const fleet_distributed_strategy *s,
                                const fleet_optimizer *o)
{
    const char *got = fl_rule_of(o->kind)->name;

    if (s->lars && o->kind != FL_RULE_MOMENTUM)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "strategy.lars: expected the optimizer momentum, got %s",
                       got);
    if (s->lars && o->nesterov)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "strategy.lars: expected momentum without nesterov");
    if (s->lamb && o->kind != FL_RULE_ADAM)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "strategy.lamb: expected the optimizer adam, got %s",
                       got);
    return FLEET_OK;
}

fl_layerwise fl_layerwise_of(const fleet_distributed_strategy *s)
{
    if (s->lars)
        return (fl_layerwise){FL_LARS, s->lars_configs.lars_coeff,
                              s->lars_configs.lars_weight_decay,
                              s->lars_configs.epsilon};
    if (s->lamb)
        return (fl_layerwise){.rule = FL_LAMB,
                              .decay = s->lamb_configs.lamb_weight_decay};
    return (fl_layerwise){0};
}
