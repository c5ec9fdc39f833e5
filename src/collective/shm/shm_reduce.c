/* shm_reduce.c - reductions in shared memory. Each rank reduces a chunk of
 * every piece, over all ranks in their order, so that the bits are the same on
 * all of them and in every run. A rank's own numbers are taken from where they
 * are. */
#include <string.h>

#include "base/memory.h"
#include "collective/reduce_kernels.h"
#include "collective/shm/shm_internal.h"
#include "collective/wire_type.h"

enum { SMALL = 8 * 1024 }; /* bytes that each rank reduces for itself */

/* A reduction in progress. */
typedef struct reduction {
    fl_shm *shm;
    const fl_work *work;
    int64_t size;  /* of an element */
    int64_t at, n; /* of the piece, in elements */
    const void **from;
    void **to;
} reduction;

/* A rank's chunk of elements that ranks share out: whole cache lines. */
static void share_out(int size, int rank, int64_t all, int64_t element,
                      int64_t *begin, int64_t *n)
{
    int64_t line = FL_CACHE_LINE / element;
    int64_t each = ((all + size - 1) / size + line - 1) / line * line;

    *begin = fl_least(rank * each, all);
    *n = fl_least(*begin + each, all) - *begin;
}

void fl_shm_add_chunk(const fl_shm *shm, const fl_call *call, const void **from,
                      void **to, fl_stream_copy *copy)
{
    int size = shm->base.comm.size, me = shm->base.comm.rank;
    int64_t element = fl_wire_size((fl_wire_type)call->type), begin, n;

    share_out(size, me, call->n, element, &begin, &n);
    for (int r = 0; r < size; r++)
        from[r] = (const char *)from[r] + begin * element;
    for (int i = 0; i < size; i++) /* its own first */
        to[i] = (void *)from[(me + i) % size];
    fl_stream_copy_begin(copy);
    if (n > 0)
        fl_reduce_run(&(fl_reduce_args){.how = (fl_reduce)call->how,
                                        .type = (fl_wire_type)call->type,
                                        .in = from,
                                        .n_in = size,
                                        .out = to,
                                        .n_out = size,
                                        .is_nontemporal = copy->turns > 0,
                                        .n = n});
    fl_stream_copy_end(copy, n * element * size);
}

static void chunk_of(const reduction *d, int rank, int64_t *begin, int64_t *n)
{
    share_out(d->shm->base.comm.size, rank, d->n, d->size, begin, n);
}

static const char *in_at(const reduction *d, int64_t i)
{
    return (const char *)d->work->in + (d->at + i) * d->size;
}

static char *out_at(const reduction *d, int64_t i)
{
    return (char *)d->work->out + (d->at + i) * d->size;
}

static char *half_at(const reduction *d, int rank, int64_t i)
{
    return fl_half(d->shm, rank) + i * d->size;
}

static void reduce_into(const reduction *d, int n_out, int64_t n)
{
    fl_reduce_args f = {.how = (fl_reduce)d->work->call.how,
                        .type = (fl_wire_type)d->work->call.type,
                        .in = d->from,
                        .n_in = d->shm->base.comm.size,
                        .out = d->to,
                        .n_out = n_out,
                        .is_nontemporal = d->shm->copy.turns > 0,
                        .n = n};

    if (n > 0)
        fl_reduce_run(&f);
}

static fleet_status open_reduction(reduction *d, fl_shm *shm,
                                   const fl_work *work)
{
    size_t n = (size_t)shm->base.comm.size;

    *d = (reduction){.shm = shm, .work = work};
    d->size = fl_wire_size((fl_wire_type)work->call.type);
    FL_TRY(FL_NEW(&d->from, 2 * n * sizeof *d->from));
    d->to = (void **)(d->from + n);
    return FLEET_OK;
}

/* --- a few elements: each rank reduces all of them ----------------------- */

static fleet_status reduce_small(reduction *d, const fl_call *call)
{
    int me = d->shm->base.comm.rank;

    if (d->n > 0)
        memcpy(half_at(d, me, 0), d->work->in, (size_t)(d->n * d->size));
    FL_TRY(fl_shm_barrier(d->shm, call));
    for (int r = 0; r < d->shm->base.comm.size; r++)
        d->from[r] = r == me ? d->work->in : half_at(d, r, 0);
    d->to[0] = d->work->out;
    reduce_into(d, 1, d->n);
    d->shm->n_piece++;
    return FLEET_OK;
}

/* --- through the halves -------------------------------------------------- */

/* What other ranks reduce. */
static void copy_to_half(reduction *d)
{
    int me = d->shm->base.comm.rank;
    int64_t begin, n;

    chunk_of(d, me, &begin, &n);
    fl_stream_copy_run(&d->shm->copy, half_at(d, me, 0), in_at(d, 0),
                       begin * d->size);
    fl_stream_copy_run(&d->shm->copy, half_at(d, me, begin + n),
                       in_at(d, begin + n), (d->n - begin - n) * d->size);
}

/* Into the place of what was not given. */
static void reduce_own(reduction *d)
{
    int me = d->shm->base.comm.rank;
    int64_t begin, n;

    chunk_of(d, me, &begin, &n);
    for (int r = 0; r < d->shm->base.comm.size; r++)
        d->from[r] = r == me ? in_at(d, begin) : half_at(d, r, begin);
    d->to[0] = out_at(d, begin);
    d->to[1] = half_at(d, me, begin);
    reduce_into(d, 2, n);
}

static void copy_from_halves(reduction *d)
{
    int64_t begin, n;

    for (int r = 0; r < d->shm->base.comm.size; r++) {
        chunk_of(d, r, &begin, &n);
        if (r != d->shm->base.comm.rank && n > 0)
            memcpy(out_at(d, begin), half_at(d, r, begin),
                   (size_t)(n * d->size));
    }
}

/* The next piece is copied while other ranks still reduce this one: its half
 * was read before they arrived at this piece. */
static void copy_next_to_half(const reduction *d)
{
    reduction next = *d;

    next.at += d->n;
    next.n = fl_least(d->work->call.n - next.at, FL_SHM_HALF / d->size);
    if (next.n > 0) {
        d->shm->n_piece++;
        copy_to_half(&next);
        d->shm->n_piece--;
    }
}

/* Do some rank's numbers lie in memory that all map? Then that rank has copied
 * nothing before the first phase, and all ranks need one more. */
static bool one_is_direct(const fl_shm *shm)
{
    for (int r = 0; r < shm->base.comm.size; r++)
        if (fl_shm_call(shm, r)->extra[0] != 0)
            return true;
    return false;
}

/* The first phase is that of the call, or, for NULL, is over. */
static fleet_status reduce_pieces(reduction *d, const fl_call *call)
{
    int64_t most = FL_SHM_HALF / d->size, all = d->work->call.n;

    d->n = fl_least(all, most);
    copy_to_half(d);
    if (call)
        FL_TRY(fl_shm_barrier(d->shm, call));
    if (!call || one_is_direct(d->shm))
        FL_TRY(fl_shm_barrier(d->shm, NULL));
    for (;;) {
        reduce_own(d);
        fl_shm_arrive(d->shm, NULL);
        copy_next_to_half(d);
        FL_TRY(fl_shm_await(d->shm, NULL));
        copy_from_halves(d);
        d->shm->n_piece++;
        d->at += d->n;
        d->n = fl_least(all - d->at, most);
        if (d->n == 0)
            return FLEET_OK;
        FL_TRY(fl_shm_barrier(d->shm, NULL));
    }
}

/* --- in memory that all map ---------------------------------------------- */

static bool all_are_direct(const fl_shm *shm)
{
    for (int r = 0; r < shm->base.comm.size; r++)
        if (fl_shm_call(shm, r)->extra[0] != fl_shm_call(shm, 0)->extra[0])
            return false;
    return true;
}

static fleet_status reduce_direct(reduction *d, const fl_shm_region *region)
{
    fl_call call = d->work->call;

    call.extra[0] = region->serial;
    call.extra[1] = (const char *)d->work->in - region->base -
                    region->stride * d->shm->base.comm.rank;
    FL_TRY(fl_shm_barrier(d->shm, &call));
    if (!all_are_direct(d->shm))
        return reduce_pieces(d, NULL);
    for (int r = 0; r < d->shm->base.comm.size; r++)
        d->from[r] = region->base + region->stride * r +
                     fl_shm_call(d->shm, r)->extra[1];
    fl_shm_add_chunk(d->shm, &call, d->from, d->to, &d->shm->copy);
    return fl_shm_barrier(d->shm, NULL);
}

fleet_status fl_shm_reduce(fl_shm *shm, const fl_work *work)
{
    const fl_shm_region *region = NULL;
    fleet_status status;
    reduction d;

    FL_TRY(open_reduction(&d, shm, work));
    d.n = work->call.n;
    if (work->in == work->out)
        region = fl_shm_region_at(shm, work->in, d.n * d.size);
    if (d.n * d.size <= SMALL)
        status = reduce_small(&d, &work->call);
    else if (region)
        status = reduce_direct(&d, region);
    else
        status = reduce_pieces(&d, &work->call);
    fl_free(d.from);
    return status;
}

/* --- reduce_scatter ------------------------------------------------------ */

/* `each` elements of every rank's part lie side by side in the halves. */
static fleet_status scatter_piece(reduction *d, int64_t each,
                                  const fl_call *call)
{
    int me = d->shm->base.comm.rank;
    int64_t n = d->work->call.n;

    for (int r = 0; r < d->shm->base.comm.size && d->n > 0; r++)
        if (r != me)
            fl_stream_copy_run(&d->shm->copy, half_at(d, me, r * each),
                               in_at(d, r * n), d->n * d->size);
    FL_TRY(fl_shm_barrier(d->shm, call));
    for (int r = 0; r < d->shm->base.comm.size; r++)
        d->from[r] = r == me ? in_at(d, me * n) : half_at(d, r, me * each);
    d->to[0] = out_at(d, 0);
    reduce_into(d, 1, d->n);
    d->shm->n_piece++;
    d->at += d->n;
    return FLEET_OK;
}

fleet_status fl_shm_scatter(fl_shm *shm, const fl_work *work)
{
    const fl_call *call = &work->call;
    fleet_status status = FLEET_OK;
    reduction d;
    int64_t each;

    FL_TRY(open_reduction(&d, shm, work));
    each = FL_SHM_HALF / d.size / shm->base.comm.size;
    do {
        d.n = fl_least(work->call.n - d.at, each);
        status = scatter_piece(&d, each, call);
        call = NULL;
    } while (status == FLEET_OK && d.at < work->call.n);
    fl_free(d.from);
    return status;
}
