/* update_settings.c - settings taken from an optimizer, checked, compared. */
#include "runtime/optim/update_settings.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"

fl_update_settings fl_update_settings_of(const fleet_optimizer *o,
                                         const fl_update *u)
{
    return (fl_update_settings){u->lr, u->decay, o->clip_norm, u->most, u->l1};
}

void fl_update_settings_apply(const fl_update_settings *s, fl_update *u)
{
    u->lr = s->learning_rate;
    u->decay = s->l2_decay;
    u->most = s->value_clip;
    u->l1 = s->l1_decay;
}

/* The settings as an array, in their order. */
static const char *const names[] = {
#define FL_UPDATE_SETTING(name) #name,
    FL_UPDATE_SETTINGS(FL_UPDATE_SETTING)
#undef FL_UPDATE_SETTING
};
enum { N_SETTING = sizeof names / sizeof *names };
_Static_assert(sizeof(fl_update_settings) == N_SETTING * sizeof(float),
               "settings are floats alone");

fleet_status fl_update_settings_check(const fl_update_settings *s)
{
    float x[N_SETTING];

    memcpy(x, s, sizeof x);
    for (int i = 0; i < N_SETTING; i++)
        if (!(x[i] >= 0) || !isfinite(x[i]))
            return fl_fail(FLEET_EINVAL, "%s: %g is out of range", names[i],
                           (double)x[i]);
    return FLEET_OK;
}

bool fl_update_settings_differ(const fl_update_settings *a, const char *of_a,
                               const fl_update_settings *b, const char *of_b,
                               fl_text *text)
{
    float x[N_SETTING], y[N_SETTING];
    int i = 0;

    memcpy(x, a, sizeof x);
    memcpy(y, b, sizeof y);
    while (i < N_SETTING && x[i] == y[i])
        i++;
    if (i == N_SETTING)
        return false;
    fl_text_add(text, "%s is ", names[i]);
    fl_text_float(text, x[i]);
    fl_text_add(text, " in %s, ", of_a);
    fl_text_float(text, y[i]);
    fl_text_add(text, " in %s", of_b);
    return true;
}

uint64_t fl_optimizer_settings_hash(const fleet_optimizer *o)
{
    const float number[] = {o->learning_rate, o->l2_decay, o->clip_norm,
                            o->value_clip, o->l1_decay};
    fl_hasher h;

    fl_hasher_init(&h, 0);
    fl_hasher_add(&h, number, sizeof number);
    fl_schedule_hash(&o->schedule, &h);
    return fl_hasher_end(&h);
}
