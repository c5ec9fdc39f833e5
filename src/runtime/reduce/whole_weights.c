/* whole_weights.c - all weights on a rank that asks for them, by broadcasts of
 * each rank's part; and the part alone, for training. */
#include "runtime/reduce/whole_weights.h"

#include <string.h>

#include "base/memory.h"
#include "runtime/plan/agree.h"
#include "runtime/store/store_check.h"

enum { PIECE = 1 << 18 }; /* floats of a broadcast */

/* A group whose weights are sent: `to` has room for all of them, or is NULL on
 * a rank that sends alone. */
typedef struct sending {
    const fl_store *store;
    const fl_flat *group;
    float *to, *scratch;
} sending;

static float *own_part(const sending *c)
{
    const fl_flat *g = c->group;

    return g->weight ? g->weight + g->first : g->own;
}

static fleet_status send_part(const sending *c, int rank)
{
    fl_comm *p = c->store->agree->comm;
    const fl_flat *g = c->group;
    int64_t end = fl_share_first(c->store, g, rank + 1);

    for (int64_t at = fl_share_first(c->store, g, rank); at < end;) {
        int64_t n = end - at < PIECE ? end - at : PIECE;
        float *data = c->to ? c->to + at : c->scratch;

        if (rank == p->rank)
            data = own_part(c) + (at - g->first);
        FL_TRY(p->methods->broadcast(p, data, n * (int64_t)sizeof *data, rank,
                                     NULL));
        at += n;
    }
    return FLEET_OK;
}

static fleet_status send_group(const sending *c)
{
    const fl_flat *g = c->group;

    for (int r = 0; r < c->store->share.ranks; r++)
        FL_TRY(send_part(c, r));
    if (c->to && g->end > g->first)
        memcpy(c->to + g->first, own_part(c),
               (size_t)(g->end - g->first) * sizeof *c->to);
    return FLEET_OK;
}

/* On all ranks at once. to: room, by group, on a rank that has asked. */
static fleet_status send_all(fl_store *s, float *const *to, float *scratch)
{
    int i = 0;

    for (fl_flat *g = s->flats; g; g = g->next, i++) {
        const sending c = {s, g, to ? to[i] : NULL, scratch};

        FL_TRY(fl_mirror_use(s, g->own, false, false));
        FL_TRY(send_group(&c));
    }
    return FLEET_OK;
}

static bool has_joined(const fl_store *s)
{
    return fl_store_shards_weights(s) && s->agree &&
           s->agree->comm->size == s->share.ranks;
}

static bool is_whole(const fl_store *s)
{
    const fl_flat *g = s->flats;

    while (g && g->weight)
        g = g->next;
    return !g;
}

/* For groups that are parted. */
static fleet_status make_room(const fl_store *s, float **to)
{
    for (const fl_flat *g = s->flats; g; g = g->next, to++)
        if (!g->weight)
            FL_TRY(FL_NEW(to, (size_t)g->n * sizeof **to));
    return FLEET_OK;
}

/* What is half-way done leaves no rank waiting. */
static fleet_status ask_ranks(fl_store *s, float *const *to, float *scratch)
{
    fl_agreed agreed;
    fleet_status status = fl_agree_on(s->agree, FL_INTENT_WEIGHTS, 0, &agreed);

    if (status == FLEET_OK)
        status = send_all(s, to, scratch);
    if (status != FLEET_OK)
        fl_agree_abort(s->agree, fleet_last_error());
    return status;
}

/* There is room before the other ranks hear of it. */
static fleet_status ask_for_all(fl_store *s)
{
    float **to, *scratch = NULL;
    fleet_status status;
    size_t n = 0;

    if (!has_joined(s))
        return fl_store_check_weights(s);
    for (const fl_flat *g = s->flats; g; g = g->next)
        n++;
    FL_TRY(FL_NEW(&to, n * sizeof *to));
    status = make_room(s, to);
    if (status == FLEET_OK)
        status = FL_NEW(&scratch, PIECE * sizeof *scratch);
    if (status == FLEET_OK)
        status = ask_ranks(s, to, scratch);
    fl_free(scratch);
    n = 0;
    for (fl_flat *g = s->flats; g; g = g->next, n++)
        if (status == FLEET_OK && to[n])
            g->weight = to[n];
        else
            fl_free(to[n]);
    fl_free(to);
    return status;
}

fleet_status fl_whole_weights_locked(fl_store *s)
{
    return fl_store_shards_weights(s) && !is_whole(s) ? ask_for_all(s)
                                                      : FLEET_OK;
}

fleet_status fl_whole_weights_lock(fl_store *s, bool writes)
{
    fleet_status status = FLEET_OK;

    if (!writes) {
        pthread_rwlock_rdlock(&s->lock);
        if (!fl_store_shards_weights(s) || is_whole(s))
            return FLEET_OK;
        pthread_rwlock_unlock(&s->lock); /* what is asked for is written */
    }
    pthread_rwlock_wrlock(&s->lock);
    status = fl_whole_weights_locked(s);
    if (status != FLEET_OK)
        pthread_rwlock_unlock(&s->lock);
    return status;
}

static fleet_status give_part(fl_store *s)
{
    float *scratch;
    fleet_status status;

    FL_TRY(FL_NEW(&scratch, PIECE * sizeof *scratch));
    status = send_all(s, NULL, scratch);
    fl_free(scratch);
    return status;
}

fleet_status fl_whole_weights_serve(fl_store *s)
{
    fleet_status status = give_part(s);

    if (status != FLEET_OK)
        fl_agree_abort(s->agree, fleet_last_error());
    return status;
}

fleet_status fl_part_weights(fl_store *s)
{
    if (!has_joined(s))
        return FLEET_OK;
    for (fl_flat *g = s->flats; g; g = g->next) {
        if (!g->weight || !g->own)
            continue;
        FL_TRY(fl_mirror_use(s, g->own, false, true));
        memcpy(g->own, g->weight + g->first,
               (size_t)(g->end - g->first) * sizeof *g->own);
        fl_free(g->weight);
        g->weight = NULL;
    }
    return FLEET_OK;
}
