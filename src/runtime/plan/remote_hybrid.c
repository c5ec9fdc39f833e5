/* remote_hybrid.c - servers and sharded tables behind one interface. */
#include "runtime/plan/remote_hybrid.h"

#include "base/memory.h"

/* A pull that is under way: tables of servers first, then tables of ranks. */
typedef struct pulled {
    fl_pull_rows *table;
    size_t capacity;
    int n_servers, n;
} pulled;

struct fl_remote_hybrid {
    fl_remote remote; /* first */
    fl_remote *servers, *ranks;
    pulled slot[FL_N_SLOT];
    fl_push_rows *pushed;
    size_t pushed_capacity;
};

static fl_remote_hybrid *hybrid_of(fl_remote *x)
{
    return (fl_remote_hybrid *)(void *)x;
}

static fleet_status count_updates(fl_remote_hybrid *h, fleet_status status)
{
    h->remote.updates = h->servers->updates;
    return status;
}

/* --- pulls --------------------------------------------------------------- */

static fleet_status sort_pull(pulled *p, const fl_pull_rows *table, int n)
{
    p->n = p->n_servers = 0;
    FL_TRY(fl_grow(&p->table, &p->capacity, (size_t)n + 1, sizeof *p->table));
    for (int i = 0; i < n; i++)
        if (table[i].rows->remote)
            p->table[p->n_servers++] = table[i];
    p->n = p->n_servers;
    for (int i = 0; i < n; i++)
        if (!table[i].rows->remote)
            p->table[p->n++] = table[i];
    return FLEET_OK;
}

static fleet_status hybrid_pull(fl_remote *x, int slot,
                                const fl_pull_rows *table, int n_table,
                                bool dense, bool prefetch, bool now)
{
    fl_remote_hybrid *h = hybrid_of(x);
    pulled *p = &h->slot[slot];

    FL_TRY(sort_pull(p, table, n_table));
    FL_TRY(h->ranks->methods->pull(h->ranks, slot, p->table + p->n_servers,
                                   p->n - p->n_servers, false, prefetch, now));
    return count_updates(h, h->servers->methods->pull(h->servers, slot,
                                                      p->table, p->n_servers,
                                                      dense, prefetch, now));
}

static fleet_status hybrid_wait_pull(fl_remote *x, int slot)
{
    fl_remote_hybrid *h = hybrid_of(x);
    const pulled *p = &h->slot[slot];

    FL_TRY(count_updates(h, h->servers->methods->wait_pull(h->servers, slot)));
    return p->n > p->n_servers ? h->ranks->methods->wait_pull(h->ranks, slot)
                               : FLEET_OK;
}

/* Rows of ranks are fetched by all of them at once, in wait_pull(). */
static bool hybrid_came(fl_remote *x, int slot)
{
    fl_remote_hybrid *h = hybrid_of(x);
    const pulled *p = &h->slot[slot];

    return p->n == p->n_servers && h->servers->methods->came &&
           h->servers->methods->came(h->servers, slot);
}

static void hybrid_drop(fl_remote *x, int slot)
{
    fl_remote_hybrid *h = hybrid_of(x);

    h->servers->methods->drop(h->servers, slot);
    h->ranks->methods->drop(h->ranks, slot);
    h->slot[slot].n = h->slot[slot].n_servers = 0;
}

/* --- pushes -------------------------------------------------------------- */

/* The servers' tables first, *n_servers of them. */
static fleet_status sort_push(fl_remote_hybrid *h, const fl_push *p,
                              int *n_servers)
{
    int n = 0;

    FL_TRY(fl_grow(&h->pushed, &h->pushed_capacity, (size_t)p->n_table + 1,
                   sizeof *h->pushed));
    for (int i = 0; i < p->n_table; i++)
        if (p->table[i].rows->remote)
            h->pushed[n++] = p->table[i];
    *n_servers = n;
    for (int i = 0; i < p->n_table; i++)
        if (!p->table[i].rows->remote)
            h->pushed[n++] = p->table[i];
    return FLEET_OK;
}

static fleet_status share_push(fl_remote_hybrid *h, const fl_push *p,
                               fl_push *to_servers, fl_push *to_ranks)
{
    *to_servers = *to_ranks = *p;
    FL_TRY(sort_push(h, p, &to_servers->n_table));
    to_servers->table = h->pushed;
    to_ranks->table = h->pushed + to_servers->n_table;
    to_ranks->n_table -= to_servers->n_table;
    to_ranks->n_param = 0;
    return FLEET_OK;
}

static fleet_status hybrid_push(fl_remote *x, const fl_push *p)
{
    fl_remote_hybrid *h = hybrid_of(x);
    fl_push to_servers, to_ranks;

    FL_TRY(share_push(h, p, &to_servers, &to_ranks));
    FL_TRY(
        count_updates(h, h->servers->methods->push(h->servers, &to_servers)));
    return h->ranks->methods->push(h->ranks, &to_ranks);
}

/* First among ranks, as all of them take part: if servers have the factor
 * already, from another rank, they have no squares any more. */
static fleet_status hybrid_clip(fl_remote *x, const fl_push *p,
                                fl_norm_list *all, float *factor)
{
    fl_remote_hybrid *h = hybrid_of(x);
    fl_push to_servers, to_ranks;

    FL_TRY(share_push(h, p, &to_servers, &to_ranks));
    FL_TRY(h->ranks->methods->clip(h->ranks, &to_ranks, all, factor));
    return h->remote.sync
               ? h->servers->methods->clip(h->servers, &to_servers, all, factor)
               : FLEET_OK;
}

static fleet_status hybrid_wait_update(fl_remote *x)
{
    fl_remote_hybrid *h = hybrid_of(x);

    FL_TRY(h->ranks->methods->wait_update(h->ranks));
    return count_updates(h, h->servers->methods->wait_update(h->servers));
}

/* --- passes -------------------------------------------------------------- */

static fleet_status hybrid_end_pass(fl_remote *x, double *sum, int n)
{
    fl_remote_hybrid *h = hybrid_of(x);

    return count_updates(h, h->servers->methods->end_pass(h->servers, sum, n));
}

static fleet_status hybrid_refresh(fl_remote *x)
{
    fl_remote_hybrid *h = hybrid_of(x);

    return count_updates(h, h->servers->methods->refresh(h->servers));
}

static const fl_remote_class methods = {
    .pull = hybrid_pull,
    .wait_pull = hybrid_wait_pull,
    .came = hybrid_came,
    .drop = hybrid_drop,
    .clip = hybrid_clip,
    .push = hybrid_push,
    .wait_update = hybrid_wait_update,
    .end_pass = hybrid_end_pass,
    .refresh = hybrid_refresh,
};

/* --- life ---------------------------------------------------------------- */

fleet_status fl_remote_hybrid_create(fl_remote_hybrid **hybrid,
                                     fl_remote *servers, fl_remote *ranks)
{
    FL_TRY(FL_NEW(hybrid, sizeof **hybrid));
    **hybrid = (fl_remote_hybrid){.remote = {.methods = &methods,
                                             .sync = servers->sync,
                                             .updates = servers->updates},
                                  .servers = servers,
                                  .ranks = ranks};
    return FLEET_OK;
}

void fl_remote_hybrid_destroy(fl_remote_hybrid *h)
{
    if (!h)
        return;
    for (int i = 0; i < FL_N_SLOT; i++)
        fl_free(h->slot[i].table);
    fl_free(h->pushed);
    fl_free(h);
}

fl_remote *fl_remote_hybrid_remote(fl_remote_hybrid *h)
{
    return &h->remote;
}
