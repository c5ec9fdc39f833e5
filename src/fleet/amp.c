/* amp.c - see amp.h. */
#include "fleet/amp.h"

#include "base/error.h"
#include "runtime/simd.h"

fleet_status fl_amp_check(const fleet_distributed_strategy *s)
{
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
