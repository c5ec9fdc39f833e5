/* pass.c - runs the passes of passes.def, one after the other. */
#include "runtime/plan/pass.h"

#include <string.h>

static bool has_applied(const fl_plan *plan, const char *name)
{
    const char *at = fl_text_chars(&plan->passes);
    size_t length = strlen(name);

    while (*at) {
        size_t word = strcspn(at, " ");

        if (word == length && strncmp(at, name, length) == 0)
            return true;
        at += word + (at[word] == ' ');
    }
    return false;
}

static fleet_status run_one(fl_lowering *l, const fl_pass *pass)
{
    bool applied = false;

    if (*pass->needs && !has_applied(l->plan, pass->needs))
        return fl_fail(FLEET_EUNSUPPORTED,
                       "pass %s needs %s, which was not applied", pass->name,
                       pass->needs);
    FL_TRY(pass->run(l, &applied));
    if (!applied)
        return FLEET_OK;
    if (*pass->conflicts && has_applied(l->plan, pass->conflicts))
        return fl_fail(FLEET_EUNSUPPORTED, "%s cannot be used together with %s",
                       pass->name, pass->conflicts);
    fl_text_add(&l->plan->passes, "%s%s", l->plan->passes.length ? " " : "",
                pass->name);
    return l->plan->passes.status;
}

fleet_status fl_passes_run_list(fl_lowering *l, const fl_pass *pass, int n,
                                fl_pass_when when)
{
    for (int i = 0; i < n; i++)
        if (pass[i].when == when)
            FL_TRY(run_one(l, &pass[i]));
    return FLEET_OK;
}

fleet_status fl_passes_run(fl_lowering *l, fl_pass_when when)
{
    static const fl_pass passes[] = {
#define FL_PASS(name, when, needs, conflicts)                                  \
    {#name, when, needs, conflicts, fl_pass_##name},
#include "runtime/plan/passes.def"
#undef FL_PASS
    };
    return fl_passes_run_list(l, passes, sizeof passes / sizeof *passes, when);
}
