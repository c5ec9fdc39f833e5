/* amp.c - see amp.h. */
#include "fleet/amp.h"

#include "base/error.h"
#include "runtime/executor.h"

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

fl_scaling_rules fl_amp_scaling(const fleet_distributed_strategy *s)
{
    const fleet_amp_configs *c = &s->amp_configs;

    if (fl_amp_narrow(s) != FLEET_FLOAT16)
        return (fl_scaling_rules){0};
    return (fl_scaling_rules){
        .first = c->init_loss_scaling,
        .dynamic = c->use_dynamic_loss_scaling != 0,
        .grow_after = c->incr_every_n_steps,
        .shrink_after = c->decr_every_n_nan_or_inf,
        .grow = c->incr_ratio,
        .shrink = c->decr_ratio,
    };
}

fleet_status fleet_get_loss_scaling(fleet *f, float *scale)
{
    fl_store *s;
    fleet_status status;

    FL_TRY(fl_handle_check(f, "fleet_get_loss_scaling"));
    if (!scale)
        return fl_fail(FLEET_EINVAL, "fleet_get_loss_scaling: no scale");
    if (!f->trained || fl_amp_narrow(&f->strategy) != FLEET_FLOAT16)
        return fl_fail(FLEET_ESTATE,
                       "fleet_get_loss_scaling: nothing is trained in float16 "
                       "(strategy.amp without use_bf16)");
    s = f->store;
    FL_TRY(fl_store_land(s));
    pthread_rwlock_rdlock(&s->lock);
    status = fl_store_here(s);
    if (status == FLEET_OK)
        *scale = s->scaling.scale;
    pthread_rwlock_unlock(&s->lock);
    return status;
}
