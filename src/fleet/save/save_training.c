/* save_training.c - of what optimizer and loss scaling a save is. */
#include "fleet/save/save_training.h"

#include "base/json/json_write.h"

/* The loss's, of a training in float16. */
static fleet_status put_scaling(const fl_save *s, fl_json *m)
{
    const fl_scaling *now = &s->store->scaling;
    fl_json *entry;

    if (!s->states || !(now->scale > 0))
        return FLEET_OK;
    entry = fl_json_object();
    FL_TRY(fl_json_put(m, "loss_scaling", entry));
    FL_TRY(fl_json_put(entry, "scale", fl_json_double((double)now->scale, 9)));
    FL_TRY(fl_json_put(entry, "good", fl_json_int(now->good)));
    return fl_json_put(entry, "bad", fl_json_int(now->bad));
}

static fleet_status put_plateau(const fl_save *s, fl_json *m)
{
    const fleet_optimizer *o = s->store->optimizer;
    const fl_plateau_state *p;
    fl_json *entry;

    if (!s->states || !o || !o->plateau.on || o->plateau.seen.reports == 0)
        return FLEET_OK;
    p = &o->plateau.seen;
    entry = fl_json_object();
    FL_TRY(fl_json_put(m, "plateau", entry));
    FL_TRY(fl_json_put(entry, "learning_rate",
                       fl_json_double((double)o->learning_rate, 9)));
    FL_TRY(fl_json_put(entry, "best", fl_json_double(p->best, 17)));
    FL_TRY(fl_json_put(entry, "bad", fl_json_int(p->bad)));
    FL_TRY(fl_json_put(entry, "cooling", fl_json_int(p->cooling)));
    return fl_json_put(entry, "reports", fl_json_int(p->reports));
}

/* Do Adam's rows have steps of their own? */
static fleet_status put_row_steps(const fl_save *s, fl_json *m)
{
    const fleet_optimizer *o = s->store->optimizer;

    if (!s->states || !o || !fl_optimizer_has_moments(o))
        return FLEET_OK;
    return fl_json_put(m, "row_steps",
                       fl_json_bool(fl_optimizer_has_row_steps(o)));
}

fleet_status fl_save_put_training(const fl_save *s, fl_json *m)
{
    FL_TRY(put_scaling(s, m));
    FL_TRY(put_plateau(s, m));
    return put_row_steps(s, m);
}
