/* amp.c - see amp.h. */
#include "fleet/amp.h"

#include "base/error.h"

fleet_status fl_amp_check(const fleet_distributed_strategy *s, fl_job_mode mode)
{
    if (!s->amp && s->amp_configs.use_bf16)
        return fl_fail(FLEET_EINVAL, "strategy.amp_configs.use_bf16 is 1, but "
                                     "strategy.amp is 0");
    if (fl_amp_narrow(s) == FLEET_FLOAT16 && mode != FL_LOCAL)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "strategy.amp: float16 is not there in mode %s in this "
                       "version; strategy.amp_configs.use_bf16 = 1 asks for "
                       "bfloat16",
                       fl_job_mode_name(mode));
    return FLEET_OK;
}

fleet_dtype fl_amp_narrow(const fleet_distributed_strategy *s)
{
    if (!s->amp)
        return 0;
    return s->amp_configs.use_bf16 ? FLEET_BFLOAT16 : FLEET_FLOAT16;
}
