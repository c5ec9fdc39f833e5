/* shm_async.c - reductions in memory that all ranks map, with work: begun,
 * and ended later, without a thread. Who begins one says so and goes on; who
 * comes by afterwards, in the next begin or in a wait, and sees that all have
 * begun it, adds up its chunk for all. So there are two words, of how many a
 * rank has begun and of how many it has added up, which no other call touches.
 */
#include "base/memory.h"
#include "collective/reduce_kernels.h"
#include "collective/shm/shm.h"
#include "collective/wire_type.h"

/* The n-th that was begun, as a rank has it. */
static const fl_call *call_of(const fl_shm *w, int rank, uint32_t n)
{
    return &w->slot[rank].async[n % FL_MOST_ASYNC];
}

static char *data_of(const fl_shm *w, const fl_shm_region *region, int rank,
                     uint32_t n)
{
    return region->base + region->stride * rank + call_of(w, rank, n)->extra[1];
}

/* Numbers in the same memory, as many of the same kind. */
static fleet_status match(fl_shm *w, uint32_t n)
{
    const fl_call *first = call_of(w, 0, n);

    for (int r = 1; r < w->base.comm.size; r++) {
        const fl_call *call = call_of(w, r, n);

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

/* This rank's chunk of all ranks becomes the sum in all of them. */
static void add_chunk(fl_shm *w, const fl_shm_region *region, uint32_t n,
                      const void **from, void **to)
{
    int size = w->base.comm.size, me = w->base.comm.rank;
    const fl_call *call = call_of(w, me, n);
    int64_t element = fl_wire_size((fl_wire_type)call->type), begin, count;

    fl_shm_chunk(size, me, call->n, element, &begin, &count);
    for (int r = 0; r < size; r++)
        from[r] = data_of(w, region, r, n) + begin * element;
    for (int i = 0; i < size; i++) /* its own first */
        to[i] = (void *)from[(me + i) % size];
    fl_stream_copy_begin(&w->copy_async);
    if (count > 0)
        fl_reduce_run(
            &(fl_reduce_args){.how = (fl_reduce)call->how,
                              .type = (fl_wire_type)call->type,
                              .in = from,
                              .n_in = size,
                              .out = to,
                              .n_out = size,
                              .is_nontemporal = w->copy_async.turns > 0,
                              .n = count});
    fl_stream_copy_end(&w->copy_async, count * element * size);
}

/* All have begun the next one. */
static fleet_status add_next(fl_shm *w)
{
    int me = w->base.comm.rank;
    uint32_t n = w->n_added + 1;
    const fl_call *call = call_of(w, me, n);
    fl_shm_region *region;
    const void **from;

    FL_TRY(match(w, n));
    region = fl_shm_region_of(w, call->extra[0]);
    FL_TRY(FL_NEW(&from, 2 * (size_t)w->base.comm.size * sizeof *from));
    add_chunk(w, region, n, from, (void **)(from + w->base.comm.size));
    fl_free(from);
    w->n_added = n;
    fl_shm_set(&w->slot[me].added, n);
    return FLEET_OK;
}

static bool all_have_begun(const fl_shm *w, uint32_t n)
{
    for (int r = 0; r < w->base.comm.size; r++)
        if (!fl_shm_has_come(&w->slot[r].begun, n))
            return false;
    return true;
}

static fleet_status add_what_has_come(fl_shm *w)
{
    while (w->n_added != w->n_begun && all_have_begun(w, w->n_added + 1))
        FL_TRY(add_next(w));
    return FLEET_OK;
}

/* The n-th is done, on all ranks. */
static fleet_status complete(fl_shm *w, uint32_t n)
{
    int size = w->base.comm.size, me = w->base.comm.rank;

    while ((int32_t)(w->n_added - n) < 0) {
        uint32_t next = w->n_added + 1;

        for (int r = 0; r < size; r++)
            FL_TRY(fl_shm_wait(w, r, &w->slot[r].begun, next,
                               call_of(w, me, next), false));
        FL_TRY(add_next(w));
    }
    FL_TRY(add_what_has_come(w));
    for (int r = 0; r < size; r++)
        FL_TRY(
            fl_shm_wait(w, r, &w->slot[r].added, n, call_of(w, me, n), false));
    return FLEET_OK;
}

fleet_status fl_shm_begin(fl_shm *w, fl_work *work, bool *is_begun)
{
    fl_shm_rank *own = &w->slot[w->base.comm.rank];
    int64_t size = fl_wire_size((fl_wire_type)work->call.type);
    const fl_shm_region *region = NULL;
    uint32_t n = w->n_begun + 1;

    if (work->call.kind == FL_CALL_ALL_REDUCE && work->in == work->out)
        region = fl_shm_region_at(w, work->in, work->call.n * size);
    *is_begun = region != NULL;
    if (!region)
        return FLEET_OK;
    FL_TRY(complete(w, n - FL_MOST_ASYNC)); /* its place is free */
    work->number = n;
    own->async[n % FL_MOST_ASYNC] = work->call;
    own->async[n % FL_MOST_ASYNC].extra[0] = region->serial;
    own->async[n % FL_MOST_ASYNC].extra[1] = (const char *)work->in -
                                             region->base -
                                             region->stride * w->base.comm.rank;
    w->n_begun = n;
    fl_shm_set(&own->begun, n);
    return add_what_has_come(w);
}

fleet_status fl_shm_end(fl_shm *w, const fl_work *work)
{
    return complete(w, work->number);
}
