/* remote.c - what a store's servers have to do with an update. */
#include "runtime/plan/remote.h"

#include "runtime/store/mirror.h"

bool fl_remote_has_dense(const fl_store *s)
{
    bool any = !s->dense_local;

    for (size_t i = 0; !any && i < s->params.n; i++)
        any = fl_param_is_remote(s, s->params.entry[i].value);
    return any && s->remote;
}

fleet_status fl_remote_catch_up(fl_store *s)
{
    fl_remote *x = s->remote;

    if (!x || !x->behind)
        return FLEET_OK;
    FL_TRY(fl_store_to_host(s));
    FL_TRY(x->methods->refresh(x));
    fl_store_written(s);
    return FLEET_OK;
}

bool fl_remote_gets_update(const fl_store *s, bool skipped)
{
    return !skipped || (s->remote->sync && !s->dense_local);
}
