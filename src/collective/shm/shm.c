/* shm.c - the layout of the shared memory, rings of bytes, and all calls but
 * reductions. */
#include "collective/shm/shm.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "collective/shm/shm_internal.h"

enum {
    MOST_RING = 128 * 1024,
    LEAST_RING = 4 * 1024,
    ALL_RINGS = 16 << 20, /* together, if they can be that small */
    SPIN_NS = 15000,
    YIELD_NS = 500000,     /* waking up a processor takes long */
    SPIN_CROWDED_NS = 1000 /* more ranks than processors: no yields */
};

/* --- where things lie ---------------------------------------------------- */

static size_t whole_lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static size_t ring_data(int size)
{
    size_t n = (size_t)ALL_RINGS / FL_N_CHANNEL / (size_t)size / (size_t)size;

    n = n > MOST_RING ? MOST_RING : n;
    return n < LEAST_RING ? LEAST_RING : whole_lines(n);
}

static size_t ring_size(int size)
{
    return sizeof(fl_ring) + ring_data(size);
}

static size_t ranks_at(void)
{
    return whole_lines(sizeof(fl_shm_head));
}

static size_t halves_at(int size)
{
    return (ranks_at() + (size_t)size * sizeof(fl_shm_rank) + 4095) / 4096 *
           4096;
}

static size_t rings_at(int size)
{
    return halves_at(size) + (size_t)size * 2 * (size_t)FL_SHM_HALF;
}

size_t fl_shm_bytes(int size)
{
    return rings_at(size) +
           (size_t)size * (size_t)size * FL_N_CHANNEL * ring_size(size);
}

static fl_ring *ring_of(const fl_shm *shm, int from, int to, int channel)
{
    size_t i = ((size_t)from * (size_t)shm->base.comm.size + (size_t)to) *
                   FL_N_CHANNEL +
               (size_t)channel;

    return (fl_ring *)(shm->rings + i * shm->ring_bytes);
}

void fl_shm_prepare(void *memory, int rank, int size)
{
    char *m = memory;
    size_t rings = (size_t)size * FL_N_CHANNEL, n = ring_size(size);
    fl_shm_rank *ranks = (fl_shm_rank *)(m + ranks_at());

    if (rank == 0)
        memset(m, 0, sizeof(fl_shm_head));
    memset(&ranks[rank], 0, sizeof ranks[rank]);
    for (size_t i = 0; i < rings; i++) {
        fl_ring *r =
            (fl_ring *)(m + rings_at(size) + ((size_t)rank * rings + i) * n);

        atomic_store(&r->written, 0);
        atomic_store(&r->read, 0);
    }
}

/* --- rings --------------------------------------------------------------- */

/* Nothing moves, because the other end of a ring is at `still`: an error if
 * that rank is dead, or has left while a call needs what does not move. A rank
 * may leave before the other ranks have ended works that no call waits for. */
static fleet_status check_end(fl_shm *shm, int rank,
                              const _Atomic uint64_t *end, uint64_t still,
                              bool is_awaited)
{
    fleet_status status;

    if (!is_awaited && atomic_load(&shm->rank[rank].has_left))
        return FLEET_OK;
    status = fl_shm_look_at(shm, rank, shm->is_stalled);
    if (status == FLEET_OK || atomic_load(end) != still)
        return FLEET_OK; /* it moved before the rank left */
    return fl_comm_base_fail(&shm->base, status, true);
}

static fleet_status ring_write(fl_comm_base *g, int to, int channel,
                               const void *p, int64_t n, int64_t *moved)
{
    fl_shm *shm = fl_shm_of(g);
    fl_ring *r = ring_of(shm, g->comm.rank, to, channel);
    uint64_t size = ring_data(g->comm.size);
    uint64_t at = atomic_load_explicit(&r->written, memory_order_relaxed);
    uint64_t space =
        size - (at - atomic_load_explicit(&r->read, memory_order_acquire));
    uint64_t k = (uint64_t)n < space ? (uint64_t)n : space, first;

    *moved = (int64_t)k;
    if (k == 0)
        return n > 0 ? check_end(shm, to, &r->read, at - size,
                                 fl_p2p_is_awaited(g, to, channel, FL_OUT))
                     : FLEET_OK;
    first = size - at % size < k ? size - at % size : k;
    fl_stream_copy_run(&shm->copy, r->data + at % size, p, (int64_t)first);
    fl_stream_copy_run(&shm->copy, r->data, (const char *)p + first,
                       (int64_t)(k - first));
    atomic_store_explicit(&r->written, at + k, memory_order_release);
    fl_shm_post(&shm->rank[to].wakeup);
    return FLEET_OK;
}

static fleet_status ring_read(fl_comm_base *g, int from, int channel, void *p,
                              int64_t n, int64_t *moved)
{
    fl_shm *shm = fl_shm_of(g);
    fl_ring *r = ring_of(shm, from, g->comm.rank, channel);
    uint64_t size = ring_data(g->comm.size);
    uint64_t at = atomic_load_explicit(&r->read, memory_order_relaxed);
    uint64_t full =
        atomic_load_explicit(&r->written, memory_order_acquire) - at;
    uint64_t k = (uint64_t)n < full ? (uint64_t)n : full, first;

    *moved = (int64_t)k;
    if (k == 0)
        return n > 0 ? check_end(shm, from, &r->written, at,
                                 fl_p2p_is_awaited(g, from, channel, FL_IN))
                     : FLEET_OK;
    first = size - at % size < k ? size - at % size : k;
    memcpy(p, r->data + at % size, first);
    memcpy((char *)p + first, r->data, k - first);
    atomic_store_explicit(&r->read, at + k, memory_order_release);
    fl_shm_post(&shm->rank[from].wakeup);
    return FLEET_OK;
}

static uint32_t look(fl_comm_base *g)
{
    return atomic_load(&fl_shm_of(g)->rank[g->comm.rank].wakeup.value);
}

static fleet_status shm_rest(fl_comm_base *g, uint32_t seen)
{
    fl_shm *shm = fl_shm_of(g);
    fl_futex *wakeup = &shm->rank[g->comm.rank].wakeup;
    int64_t until = fl_now_ns() + shm->spin_ns;

    shm->is_stalled = false;
    while (atomic_load(&wakeup->value) == seen && fl_now_ns() < until)
        ;
    FL_TRY(fl_shm_check(shm));
    if (atomic_load(&wakeup->value) == seen)
        shm->is_stalled = !fl_shm_sleep(wakeup, seen, FL_SHM_NAP_MS);
    return FLEET_OK;
}

static void shm_wake(fl_comm_base *g)
{
    fl_shm_post(&fl_shm_of(g)->rank[g->comm.rank].wakeup);
}

/* --- calls in pieces ----------------------------------------------------- */

/* in may lie in out, where it belongs. */
static void copy_unless_same(char *to, const char *from, int64_t n)
{
    if (to != from && n > 0)
        memcpy(to, from, (size_t)n);
}

static fleet_status all_gather(fl_shm *shm, const fl_work *work)
{
    int me = shm->base.comm.rank;
    int64_t bytes = work->call.n, i = 0;

    do {
        int64_t k = fl_least(bytes - i, FL_SHM_HALF);

        fl_stream_copy_run(&shm->copy, fl_half(shm, me),
                           (const char *)work->in + i, k);
        FL_TRY(fl_shm_barrier(shm, i == 0 ? &work->call : NULL));
        for (int r = 0; r < shm->base.comm.size; r++)
            copy_unless_same(
                (char *)work->out + r * bytes + i,
                r == me ? (const char *)work->in + i : fl_half(shm, r), k);
        shm->n_piece++;
        i += k;
    } while (i < bytes);
    return FLEET_OK;
}

static fleet_status shm_broadcast(fl_shm *shm, const fl_work *work)
{
    int root = work->call.root;
    bool is_root = root == shm->base.comm.rank;
    int64_t i = 0;

    do {
        int64_t k = fl_least(work->call.n - i, FL_SHM_HALF);

        if (is_root)
            fl_stream_copy_run(&shm->copy, fl_half(shm, root),
                               (const char *)work->in + i, k);
        FL_TRY(fl_shm_barrier(shm, i == 0 ? &work->call : NULL));
        if (!is_root)
            copy_unless_same((char *)work->out + i, fl_half(shm, root), k);
        shm->n_piece++;
        i += k;
    } while (i < work->call.n);
    return FLEET_OK;
}

static fleet_status shm_run(fl_comm_base *g, fl_work *work)
{
    fl_shm *shm = fl_shm_of(g);

    FL_TRY(fl_shm_check(shm));
    switch (work->call.kind) {
    case FL_CALL_ALL_REDUCE:
        return fl_shm_reduce(shm, work);
    case FL_CALL_REDUCE_SCATTER:
        return fl_shm_scatter(shm, work);
    case FL_CALL_ALL_GATHER:
        return all_gather(shm, work);
    case FL_CALL_BROADCAST:
        return shm_broadcast(shm, work);
    case FL_CALL_MEMORY:
        return fl_shm_memory(shm, work);
    case FL_CALL_SPLIT:
        return fl_shm_split(shm, work);
    case FL_CALL_ALL_TO_ALL:
        FL_TRY(fl_shm_barrier(shm, &work->call));
        return fl_p2p_all_to_all(g, work);
    default:
        return fl_shm_barrier(shm, &work->call);
    }
}

/* --- life ---------------------------------------------------------------- */

static void shm_destroy(fl_comm_base *g)
{
    fl_shm *shm = fl_shm_of(g);

    fl_shm_leave(shm);
    while (shm->region)
        fl_shm_free(g, shm->region->base + shm->region->stride * g->comm.rank);
    if (shm->unmap)
        shm->unmap(shm->memory, fl_shm_bytes(g->comm.size));
    fl_comm_base_done(g);
    fl_free(shm);
}

static const fl_transport transport = {
    .run = shm_run,
    .begin = fl_shm_begin,
    .end = fl_shm_end,
    .write = ring_write,
    .read = ring_read,
    .look = look,
    .rest = shm_rest,
    .wake = shm_wake,
    .report = fl_shm_report,
    .free_memory = fl_shm_free,
    .destroy = shm_destroy,
};

fleet_status fl_shm_open(void *memory, int rank, int size, const char *name,
                         const fl_comm_options *options, fl_shm_unmap *unmap,
                         fl_comm **comm)
{
    bool is_crowded = size > (int)sysconf(_SC_NPROCESSORS_ONLN);
    char *m = memory;
    fl_shm *shm;
    fleet_status status;

    *comm = NULL;
    FL_TRY(FL_NEW(&shm, sizeof *shm));
    status =
        fl_comm_base_init(&shm->base, &transport, name, options, rank, size);
    if (status != FLEET_OK) {
        fl_free(shm);
        return status;
    }
    shm->memory = memory;
    shm->unmap = unmap;
    shm->head = memory;
    shm->rank = (fl_shm_rank *)(m + ranks_at());
    shm->halves = m + halves_at(size);
    shm->rings = m + rings_at(size);
    shm->ring_bytes = ring_size(size);
    shm->spin_ns = is_crowded ? SPIN_CROWDED_NS : SPIN_NS;
    shm->yield_ns = is_crowded ? 0 : YIELD_NS;
    fl_shm_enter(shm);
    *comm = &shm->base.comm;
    return FLEET_OK;
}
