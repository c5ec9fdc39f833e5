/* strategy_lars_lamb.c - which optimizers strategy.lars and strategy.lamb
 * change. */
#include "fleet/strategy/strategy_lars_lamb.h"

#include "base/error.h"
#include "runtime/optim/optimizer.h"

fleet_status fl_lars_lamb_check(const fleet_distributed_strategy *s,
                                const fleet_optimizer *o)
{
    const char *got = fl_rule_of(o->kind)->name;

    if (s->lars && o->kind != FL_RULE_MOMENTUM)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "strategy.lars: expected the optimizer momentum, got %s",
                       got);
    if (s->lars && FL_NUMBER_OF(o, MOMENTUM, nesterov) != 0.0f)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "strategy.lars: expected momentum without nesterov");
    if (s->lamb && o->kind != FL_RULE_ADAM)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "strategy.lamb: expected the optimizer adam, got %s",
                       got);
    return FLEET_OK;
}
