/* amp.c - see amp.h. */
#include "fleet/amp.h"

#include "base/error.h"
#include "runtime/simd.h"

/* What has no effect with bfloat16 must still be something that could be. */
static fleet_status check_ranges(const fleet_amp_configs *c)
{
    const double least = 1e-6, most = 1e9;
    const struct {
        const char *name;
        double got, low, high;
    } range[] = {
        {"init_loss_scaling", (double)c->init_loss_scaling, least, 1e12},
        {"incr_every_n_steps", c->incr_every_n_steps, 1, most},
        {"decr_every_n_nan_or_inf", c->decr_every_n_nan_or_inf, 1, most},
        {"incr_ratio", (double)c->incr_ratio, 1, 1e6},
        {"decr_ratio", (double)c->decr_ratio, least, 1},
    };

    for (size_t i = 0; i < sizeof range / sizeof *range; i++)
        if (!(range[i].got >= range[i].low && range[i].got <= range[i].high))
            return fl_fail(FLEET_EINVAL,
                           "strategy.amp_configs.%s: expected %g to %g, got %g",
                           range[i].name, range[i].low, range[i].high,
                           range[i].got);
    return FLEET_OK;
}

fleet_status fl_amp_check(const fleet_distributed_strategy *s)
{
    FL_TRY(check_ranges(&s->amp_configs));
    if (!s->amp && s->amp_configs.use_bf16)
        return fl_fail(FLEET_EINVAL, "strategy.amp_configs.use_bf16 is 1, but "
                                     "strategy.amp is 0");
    if (s->amp && !s->amp_configs.use_bf16)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "strategy.amp: float16 is not there on a CPU; "
                       "strategy.amp_configs.use_bf16 = 1 asks for bfloat16");
    return FLEET_OK;
}

fleet_status fl_amp_check_processor(const fleet_distributed_strategy *s,
                                    const fl_role *role)
{
    if (!s->amp || role->kind != FLEET_WORKER || fl_simd_has_bf16())
        return FLEET_OK;
    return fl_fail(FLEET_EUNSUPPORTED,
                   "strategy.amp_configs.use_bf16: it needs a processor with "
                   "avx512_bf16; this one has, or FLEET_ISA asks for, %s",
                   fl_simd_best()->isa);
}
