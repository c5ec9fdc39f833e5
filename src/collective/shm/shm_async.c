/* shm_async.c - reductions in memory that all ranks map, with work: begun, and
 * ended later, without a thread. A rank that begins one publishes that and goes
 * on; in its next begin or wait it sees whether all ranks have begun it, and
 * then adds up its chunk for all. Each rank has two words for that, how many it
 * has begun and how many it has added up, which no other call touches.
 */
#include "base/memory.h"
#include "collective/shm/shm_internal.h"
#include "collective/wire_type.h"

/* The n-th that was begun, as a rank has it. */
static const fl_call *call_of(const fl_shm *shm, int rank, uint32_t n)
{
    return &shm->rank[rank].async[n % FL_MOST_ASYNC];
}

/* Numbers in the same memory, as many of the same kind. */
static fleet_status check_match(fl_shm *shm, uint32_t n)
{
    const fl_call *first = call_of(shm, 0, n);

    for (int r = 1; r < shm->base.comm.size; r++) {
        const fl_call *call = call_of(shm, r, n);

        if (!fl_call_matches(first, call))
            return fl_call_differs(0, first, r, call);
        if (first->extra[0] != call->extra[0])
            return fl_fail(FLEET_EINVAL,
                           "all_reduce: ranks 0 and %d reduce in memory of "
                           "different get_memory()",
                           r);
    }
    return FLEET_OK;
}

/* All have begun the next one. */
static fleet_status add_next(fl_shm *shm)
{
    int me = shm->base.comm.rank, size = shm->base.comm.size;
    uint32_t n = shm->n_added + 1;
    const fl_call *call = call_of(shm, me, n);
    fl_shm_region *region;
    const void **from;

    FL_TRY(check_match(shm, n));
    region = fl_shm_region_of(shm, call->extra[0]);
    FL_TRY(FL_NEW(&from, 2 * (size_t)size * sizeof *from));
    for (int r = 0; r < size; r++)
        from[r] =
            region->base + region->stride * r + call_of(shm, r, n)->extra[1];
    fl_shm_add_chunk(shm, call, from, (void **)(from + size), &shm->copy_async);
    fl_free(from);
    shm->n_added = n;
    fl_shm_set(&shm->rank[me].added, n);
    return FLEET_OK;
}

static bool all_have_begun(const fl_shm *shm, uint32_t n)
{
    for (int r = 0; r < shm->base.comm.size; r++)
        if (!fl_shm_has_come(&shm->rank[r].begun, n))
            return false;
    return true;
}

static fleet_status add_what_has_come(fl_shm *shm)
{
    while (shm->n_added != shm->n_begun &&
           all_have_begun(shm, shm->n_added + 1))
        FL_TRY(add_next(shm));
    return FLEET_OK;
}

/* The n-th is done, on all ranks. */
static fleet_status complete_until(fl_shm *shm, uint32_t n)
{
    int size = shm->base.comm.size, me = shm->base.comm.rank;

    while ((int32_t)(shm->n_added - n) < 0) {
        uint32_t next = shm->n_added + 1;

        for (int r = 0; r < size; r++)
            FL_TRY(fl_shm_wait(shm, r, &shm->rank[r].begun, next,
                               call_of(shm, me, next), false));
        FL_TRY(add_next(shm));
    }
    FL_TRY(add_what_has_come(shm));
    for (int r = 0; r < size; r++)
        FL_TRY(fl_shm_wait(shm, r, &shm->rank[r].added, n, call_of(shm, me, n),
                           false));
    return FLEET_OK;
}

fleet_status fl_shm_begin(fl_comm_base *g, fl_work *work, bool *is_begun)
{
    fl_shm *shm = fl_shm_of(g);
    fl_shm_rank *own = &shm->rank[shm->base.comm.rank];
    int64_t size = fl_wire_size((fl_wire_type)work->call.type);
    const fl_shm_region *region = NULL;
    uint32_t n = shm->n_begun + 1;

    if (work->call.kind == FL_CALL_ALL_REDUCE && work->in == work->out)
        region = fl_shm_region_at(shm, work->in, work->call.n * size);
    *is_begun = region != NULL;
    if (!region)
        return FLEET_OK;
    FL_TRY(complete_until(shm, n - FL_MOST_ASYNC)); /* its place is free */
    work->number = n;
    own->async[n % FL_MOST_ASYNC] = work->call;
    own->async[n % FL_MOST_ASYNC].extra[0] = region->serial;
    own->async[n % FL_MOST_ASYNC].extra[1] =
        (const char *)work->in - region->base -
        region->stride * shm->base.comm.rank;
    shm->n_begun = n;
    fl_shm_set(&own->begun, n);
    return add_what_has_come(shm);
}

fleet_status fl_shm_end(fl_comm_base *g, fl_work *work)
{
    return complete_until(fl_shm_of(g), work->number);
}
