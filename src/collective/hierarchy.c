/* hierarchy.c - sums in two levels. Each level adds in rank order if its
 * communicator does: then (x0 + x1) + (x2 + x3) for two groups of two ranks, in
 * every run. */
#include "collective/hierarchy.h"

#include "base/memory.h"
#include "collective/wire_type.h"

typedef struct hierarchy {
    fl_comm comm; /* first; rank and size of the whole communicator */
    fl_comm *inner;
    fl_comm *leaders; /* of the first rank of `inner`; else NULL */
} hierarchy;

static hierarchy *hierarchy_of(fl_comm *p)
{
    return (hierarchy *)(void *)p;
}

/* The text of an inner communicator's failure numbers its own ranks. */
static fleet_status fail_within(fl_comm *p, fleet_status status)
{
    const fl_comm *inner = hierarchy_of(p)->inner;
    int first = p->rank - inner->rank;

    return status == FLEET_OK
               ? FLEET_OK
               : fl_fail_in(status, "of ranks %d to %d, counted from 0", first,
                            first + inner->size - 1);
}

static fleet_status all_reduce(fl_comm *p, fl_reduce how, fl_wire_type type,
                               const void *in, void *out, int64_t n,
                               fl_work **work)
{
    fl_comm *inner = hierarchy_of(p)->inner,
            *leaders = hierarchy_of(p)->leaders;
    fleet_status status = FLEET_OK;

    if (work)
        *work = NULL;
    FL_TRY(fl_check_reduce("all_reduce", how, type, n));
    if (how == FL_ALL_MEAN)
        return fl_fail(FLEET_EUNSUPPORTED, "all_reduce: no means by groups");
    FL_TRY(fail_within(
        p, inner->methods->all_reduce(inner, how, type, in, out, n, NULL)));
    if (leaders)
        status =
            leaders->methods->all_reduce(leaders, how, type, out, out, n, NULL);
    if (status != FLEET_OK)
        return fl_fail_in(status, "of each %d ranks' first, counted from 0",
                          inner->size);
    return fail_within(p, inner->methods->broadcast(
                              inner, out, n * fl_wire_size(type), 0, NULL));
}

static fleet_status hierarchy_wait(fl_comm *p, fl_work **work)
{
    (void)p;
    (void)work; /* all calls return when they are done */
    return FLEET_OK;
}

static void give_up(fl_comm *p, const char *why)
{
    fl_comm_abort(hierarchy_of(p)->inner, why);
    if (hierarchy_of(p)->leaders)
        fl_comm_abort(hierarchy_of(p)->leaders, why);
}

static void destroy_comm(fl_comm *p)
{
    if (p)
        p->methods->destroy(p);
}

static void hierarchy_destroy(fl_comm *p)
{
    if (!p)
        return;
    destroy_comm(hierarchy_of(p)->leaders);
    destroy_comm(hierarchy_of(p)->inner);
    fl_free(p);
}

static const fl_comm_class methods = {
    .name = "hierarchy",
    .all_reduce = all_reduce,
    .wait = hierarchy_wait,
    .abort = give_up,
    .destroy = hierarchy_destroy,
};

fleet_status fl_comm_hierarchy(fl_comm *whole, int inner, fl_comm **comm)
{
    fleet_status status;
    hierarchy *h;

    *comm = NULL;
    if (inner < 1 || whole->size % inner != 0)
        return fl_fail(FLEET_EINVAL, "%d ranks cannot be cut into groups of %d",
                       whole->size, inner);
    FL_TRY(FL_NEW(&h, sizeof *h));
    h->comm = *whole;
    h->comm.methods = &methods;
    status = whole->methods->split(whole, whole->rank / inner, whole->rank,
                                   &h->inner);
    if (status == FLEET_OK)
        status = whole->methods->split(whole, whole->rank % inner ? -1 : 0,
                                       whole->rank, &h->leaders);
    if (status == FLEET_OK)
        *comm = &h->comm;
    else
        hierarchy_destroy(&h->comm);
    return status;
}
