/* inexact.c - what of a training is in no save, by its strategy. */
#include "fleet/job/inexact.h"

static bool averages(const fleet *f)
{
    return fl_mode_has_ranks(fl_handle_mode(f)) &&
           (f->strategy.localsgd || f->strategy.adaptive_localsgd);
}

bool fl_inexact_apart(const fleet *f)
{
    return !fl_mode_is_sync(fl_handle_mode(f)) || averages(f);
}

static void list_all(const fleet *f, fl_text *why)
{
    const fleet_distributed_strategy *s = &f->strategy;
    fl_job_mode mode = fl_handle_mode(f);

    if (!fl_mode_is_sync(mode))
        fl_text_add(why, "in mode %s each worker is at a batch of its own; ",
                    fl_job_mode_name(mode));
    if (averages(f))
        fl_text_add(why,
                    "strategy.%slocalsgd: each rank has weights of its "
                    "own; ",
                    s->localsgd ? "" : "adaptive_");
    if (fl_mode_has_ranks(mode) && s->dgc)
        fl_text_add(why, "strategy.dgc: what ranks have not sent yet is in no "
                         "save; ");
    if (f->role.server_num > 0 && s->wire_configs.error_feedback &&
        s->wire_configs.push_type != FLEET_WIRE_FP32)
        fl_text_add(why, "wire_configs.error_feedback: what pushes have "
                         "rounded away is in no save; ");
}

fleet_status fl_inexact_why(const fleet *f, fl_text *why)
{
    list_all(f, why);
    if (why->length >= 2)
        why->chars[why->length -= 2] = 0; /* the last "; " */
    return why->status;
}
