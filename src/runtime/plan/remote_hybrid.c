/* remote_hybrid.c - see remote_hybrid.h. */
#include "runtime/plan/remote_hybrid.h"

#include "base/memory.h"

/* A pull that is under way: tables of servers first, then those of ranks. */
typedef struct pulled {
    fl_pull_rows *table;
    size_t capacity;
    int n_away, n;
} pulled;

struct fl_remote_hybrid {
    fl_remote exchange; /* first */
    fl_remote *servers, *ranks;
    pulled slot[FL_N_SLOT];
    fl_push_rows *pushed;
    size_t pushed_capacity;
};

static fl_remote_hybrid *joint_of(fl_remote *x)
{
    return (fl_remote_hybrid *)(void *)x;
}

static fleet_status follow(fl_remote_hybrid *j, fleet_status status)
{
    j->exchange.updates = j->servers->updates;
    return status;
}

/* --- pulls --------------------------------------------------------------- */

static fleet_status sort_pull(pulled *p, const fl_pull_rows *table, int n)
{
    p->n = p->n_away = 0;
    FL_TRY(fl_grow(&p->table, &p->capacity, (size_t)n + 1, sizeof *p->table));
    for (int i = 0; i < n; i++)
        if (table[i].rows->remote)
            p->table[p->n_away++] = table[i];
    p->n = p->n_away;
    for (int i = 0; i < n; i++)
        if (!table[i].rows->remote)
            p->table[p->n++] = table[i];
    return FLEET_OK;
}

static fleet_status joint_pull(fl_remote *x, int slot,
                               const fl_pull_rows *table, int n_table,
                               bool dense, bool ahead, bool now)
{
    fl_remote_hybrid *j = joint_of(x);
    pulled *p = &j->slot[slot];

    FL_TRY(sort_pull(p, table, n_table));
    FL_TRY(j->ranks->methods->pull(j->ranks, slot, p->table + p->n_away,
                                   p->n - p->n_away, false, ahead, now));
    return follow(j, j->servers->methods->pull(j->servers, slot, p->table,
                                               p->n_away, dense, ahead, now));
}

static fleet_status joint_arrive(fl_remote *x, int slot)
{
    fl_remote_hybrid *j = joint_of(x);
    const pulled *p = &j->slot[slot];

    FL_TRY(follow(j, j->servers->methods->wait_pull(j->servers, slot)));
    return p->n > p->n_away ? j->ranks->methods->wait_pull(j->ranks, slot)
                            : FLEET_OK;
}

/* Those of ranks are fetched by all of them at once. */
static bool joint_came(fl_remote *x, int slot)
{
    fl_remote_hybrid *j = joint_of(x);
    const pulled *p = &j->slot[slot];

    return p->n == p->n_away && j->servers->methods->came &&
           j->servers->methods->came(j->servers, slot);
}

static void joint_drop(fl_remote *x, int slot)
{
    fl_remote_hybrid *j = joint_of(x);

    j->servers->methods->drop(j->servers, slot);
    j->ranks->methods->drop(j->ranks, slot);
    j->slot[slot].n = j->slot[slot].n_away = 0;
}

/* --- pushes -------------------------------------------------------------- */

/* The servers' tables first; how many those are. */
static fleet_status sort_push(fl_remote_hybrid *j, const fl_push *p,
                              int *n_away)
{
    int n = 0;

    FL_TRY(fl_grow(&j->pushed, &j->pushed_capacity, (size_t)p->n_table + 1,
                   sizeof *j->pushed));
    for (int i = 0; i < p->n_table; i++)
        if (p->table[i].rows->remote)
            j->pushed[n++] = p->table[i];
    *n_away = n;
    for (int i = 0; i < p->n_table; i++)
        if (!p->table[i].rows->remote)
            j->pushed[n++] = p->table[i];
    return FLEET_OK;
}

static fleet_status joint_push(fl_remote *x, const fl_push *p)
{
    fl_remote_hybrid *j = joint_of(x);
    fl_push away = *p, here = *p;

    FL_TRY(sort_push(j, p, &away.n_table));
    away.table = j->pushed;
    here.table = j->pushed + away.n_table;
    here.n_table -= away.n_table;
    here.n_param = 0;
    FL_TRY(follow(j, j->servers->methods->push(j->servers, &away)));
    return j->ranks->methods->push(j->ranks, &here);
}

/* Of tables that are all the ranks': beside tables of servers it is refused
 * (clip_global_norm.c). */
static fleet_status joint_clip(fl_remote *x, const fl_push *p, double squares,
                               float *factor)
{
    fl_remote_hybrid *j = joint_of(x);

    return j->ranks->methods->clip(j->ranks, p, squares, factor);
}

static fleet_status joint_settle(fl_remote *x)
{
    fl_remote_hybrid *j = joint_of(x);

    FL_TRY(j->ranks->methods->wait_update(j->ranks));
    return follow(j, j->servers->methods->wait_update(j->servers));
}

/* --- passes -------------------------------------------------------------- */

static fleet_status joint_end_pass(fl_remote *x, double *sum, int n)
{
    fl_remote_hybrid *j = joint_of(x);

    return follow(j, j->servers->methods->end_pass(j->servers, sum, n));
}

static fleet_status joint_refresh(fl_remote *x)
{
    fl_remote_hybrid *j = joint_of(x);

    return follow(j, j->servers->methods->refresh(j->servers));
}

static const fl_remote_class methods = {
    .pull = joint_pull,
    .wait_pull = joint_arrive,
    .came = joint_came,
    .drop = joint_drop,
    .clip = joint_clip,
    .push = joint_push,
    .wait_update = joint_settle,
    .end_pass = joint_end_pass,
    .refresh = joint_refresh,
};

/* --- life ---------------------------------------------------------------- */

fleet_status fl_remote_hybrid_create(fl_remote_hybrid **joint,
                                     fl_remote *servers, fl_remote *ranks)
{
    FL_TRY(FL_NEW(joint, sizeof **joint));
    **joint = (fl_remote_hybrid){.exchange = {.methods = &methods,
                                              .sync = servers->sync,
                                              .updates = servers->updates},
                                 .servers = servers,
                                 .ranks = ranks};
    return FLEET_OK;
}

void fl_remote_hybrid_destroy(fl_remote_hybrid *j)
{
    if (!j)
        return;
    for (int i = 0; i < FL_N_SLOT; i++)
        fl_free(j->slot[i].table);
    fl_free(j->pushed);
    fl_free(j);
}

fl_remote *fl_remote_hybrid_remote(fl_remote_hybrid *j)
{
    return &j->exchange;
}
