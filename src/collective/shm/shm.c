/* shm.c - see shm.h: the window's parts, its calls but for reductions. */
#include "collective/shm/shm.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"

enum {
    MOST_RING = 128 * 1024,
    LEAST_RING = 4 * 1024,
    ALL_RINGS = 16 << 20, /* together, if they can be that small */
    SPIN_NS = 15000,
    SPIN_CROWDED_NS = 1000 /* more ranks than processors */
};

/* --- where things lie ---------------------------------------------------- */

static size_t lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static size_t ring_data(int size)
{
    size_t n = (size_t)ALL_RINGS / FL_N_CHANNEL / (size_t)size / (size_t)size;

    n = n > MOST_RING ? MOST_RING : n;
    return n < LEAST_RING ? LEAST_RING : lines(n);
}

static size_t ring_size(int size)
{
    return sizeof(fl_ring) + ring_data(size);
}

static size_t slots_at(void)
{
    return lines(sizeof(fl_shm_head));
}

static size_t halves_at(int size)
{
    return (slots_at() + (size_t)size * sizeof(fl_shm_rank) + 4095) / 4096 *
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

static fl_ring *ring_of(const fl_shm *w, int from, int to, int lane)
{
    size_t i =
        ((size_t)from * (size_t)w->base.comm.size + (size_t)to) * FL_N_CHANNEL +
        (size_t)lane;

    return (fl_ring *)(w->rings + i * w->ring_bytes);
}

void fl_shm_prepare(void *memory, int rank, int size)
{
    char *m = memory;
    size_t rings = (size_t)size * FL_N_CHANNEL, n = ring_size(size);
    fl_shm_rank *slot = (fl_shm_rank *)(m + slots_at());

    if (rank == 0)
        memset(m, 0, sizeof(fl_shm_head));
    memset(&slot[rank], 0, sizeof slot[rank]);
    for (size_t i = 0; i < rings; i++) {
        fl_ring *r =
            (fl_ring *)(m + rings_at(size) + ((size_t)rank * rings + i) * n);

        atomic_store(&r->written, 0);
        atomic_store(&r->read, 0);
    }
}

/* --- rings --------------------------------------------------------------- */

/* Nothing moves, because the other end of a ring stands at `still`: will it
 * ever be elsewhere? */
static fleet_status look_at(fl_shm *w, int rank, const _Atomic uint64_t *end,
                            uint64_t still)
{
    fleet_status status = fl_shm_look_at(w, rank, w->looks);

    if (status == FLEET_OK || atomic_load(end) != still)
        return FLEET_OK; /* it moved, and left afterwards */
    return fl_comm_base_fail(&w->base, status, true);
}

static fleet_status ring_write(fl_comm_base *g, int to, int lane, const void *p,
                               int64_t n, int64_t *moved)
{
    fl_shm *w = (fl_shm *)g;
    fl_ring *r = ring_of(w, g->comm.rank, to, lane);
    uint64_t size = ring_data(g->comm.size);
    uint64_t at = atomic_load_explicit(&r->written, memory_order_relaxed);
    uint64_t space =
        size - (at - atomic_load_explicit(&r->read, memory_order_acquire));
    uint64_t k = (uint64_t)n < space ? (uint64_t)n : space, first;

    *moved = (int64_t)k;
    if (k == 0)
        return n > 0 ? look_at(w, to, &r->read, at - size) : FLEET_OK;
    first = size - at % size < k ? size - at % size : k;
    fl_stream_copy_copy(&w->copy, r->data + at % size, p, (int64_t)first);
    fl_stream_copy_copy(&w->copy, r->data, (const char *)p + first,
                        (int64_t)(k - first));
    atomic_store_explicit(&r->written, at + k, memory_order_release);
    fl_shm_post(&w->slot[to].wakeup);
    return FLEET_OK;
}

static fleet_status ring_read(fl_comm_base *g, int from, int lane, void *p,
                              int64_t n, int64_t *moved)
{
    fl_shm *w = (fl_shm *)g;
    fl_ring *r = ring_of(w, from, g->comm.rank, lane);
    uint64_t size = ring_data(g->comm.size);
    uint64_t at = atomic_load_explicit(&r->read, memory_order_relaxed);
    uint64_t there =
        atomic_load_explicit(&r->written, memory_order_acquire) - at;
    uint64_t k = (uint64_t)n < there ? (uint64_t)n : there, first;

    *moved = (int64_t)k;
    if (k == 0)
        return n > 0 ? look_at(w, from, &r->written, at) : FLEET_OK;
    first = size - at % size < k ? size - at % size : k;
    memcpy(p, r->data + at % size, first);
    memcpy((char *)p + first, r->data, k - first);
    atomic_store_explicit(&r->read, at + k, memory_order_release);
    fl_shm_post(&w->slot[from].wakeup);
    return FLEET_OK;
}

static uint32_t look(fl_comm_base *g)
{
    return atomic_load(&((fl_shm *)g)->slot[g->comm.rank].wakeup.value);
}

static fleet_status rest(fl_comm_base *g, uint32_t seen)
{
    fl_shm *w = (fl_shm *)g;
    fl_futex *bell = &w->slot[g->comm.rank].wakeup;
    int64_t until = fl_now_ns() + w->spin_ns;

    w->looks = false;
    while (atomic_load(&bell->value) == seen && fl_now_ns() < until)
        ;
    FL_TRY(fl_shm_check(w));
    if (atomic_load(&bell->value) == seen)
        w->looks = !fl_shm_sleep(bell, seen, FL_SHM_NAP_MS);
    return FLEET_OK;
}

static void wake(fl_comm_base *g)
{
    fl_shm_post(&((fl_shm *)g)->slot[g->comm.rank].wakeup);
}

/* --- calls by pieces ----------------------------------------------------- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* in may lie in out, where it belongs. */
static void copy(char *to, const char *from, int64_t n)
{
    if (to != from && n > 0)
        memcpy(to, from, (size_t)n);
}

static fleet_status all_gather(fl_shm *w, const fl_work *work)
{
    int me = w->base.comm.rank;
    int64_t bytes = work->call.n, i = 0;

    do {
        int64_t k = least(bytes - i, FL_SHM_HALF);

        fl_stream_copy_copy(&w->copy, fl_half(w, me),
                            (const char *)work->in + i, k);
        FL_TRY(fl_shm_barrier(w, i == 0 ? &work->call : NULL));
        for (int r = 0; r < w->base.comm.size; r++)
            copy((char *)work->out + r * bytes + i,
                 r == me ? (const char *)work->in + i : fl_half(w, r), k);
        w->n_piece++;
        i += k;
    } while (i < bytes);
    return FLEET_OK;
}

static fleet_status broadcast(fl_shm *w, const fl_work *work)
{
    int root = work->call.root;
    bool is_root = root == w->base.comm.rank;
    int64_t i = 0;

    do {
        int64_t k = least(work->call.n - i, FL_SHM_HALF);

        if (is_root)
            fl_stream_copy_copy(&w->copy, fl_half(w, root),
                                (const char *)work->in + i, k);
        FL_TRY(fl_shm_barrier(w, i == 0 ? &work->call : NULL));
        if (!is_root)
            copy((char *)work->out + i, fl_half(w, root), k);
        w->n_piece++;
        i += k;
    } while (i < work->call.n);
    return FLEET_OK;
}

static fleet_status run(fl_comm_base *g, fl_work *work)
{
    fl_shm *w = (fl_shm *)g;

    FL_TRY(fl_shm_check(w));
    switch (work->call.kind) {
    case FL_CALL_ALL_REDUCE:
        return fl_shm_reduce(w, work);
    case FL_CALL_REDUCE_SCATTER:
        return fl_shm_scatter(w, work);
    case FL_CALL_ALL_GATHER:
        return all_gather(w, work);
    case FL_CALL_BROADCAST:
        return broadcast(w, work);
    case FL_CALL_MEMORY:
        return fl_shm_memory(w, work);
    case FL_CALL_SPLIT:
        return fl_shm_split(w, work);
    case FL_CALL_ALL_TO_ALL:
        FL_TRY(fl_shm_barrier(w, &work->call));
        return fl_p2p_all_to_all(g, work);
    default:
        return fl_shm_barrier(w, &work->call);
    }
}

/* --- its life ------------------------------------------------------------ */

static void tell(fl_comm_base *g, const fl_error *e)
{
    fl_shm_tell((fl_shm *)g, e);
}

static void free_memory(fl_comm_base *g, void *memory)
{
    fl_shm_free((fl_shm *)g, memory);
}

static void destroy(fl_comm_base *g)
{
    fl_shm *w = (fl_shm *)g;

    fl_shm_leave(w);
    while (w->region)
        fl_shm_free(w, w->region->base + w->region->stride * g->comm.rank);
    if (w->unmap)
        w->unmap(w->memory, fl_shm_bytes(g->comm.size));
    fl_comm_base_done(g);
    fl_free(w);
}

static fleet_status begin(fl_comm_base *g, fl_work *w, bool *is_begun)
{
    return fl_shm_begin((fl_shm *)g, w, is_begun);
}

static fleet_status end(fl_comm_base *g, fl_work *w)
{
    return fl_shm_end((fl_shm *)g, w);
}

static const fl_transport carrier = {
    .run = run,
    .begin = begin,
    .end = end,
    .write = ring_write,
    .read = ring_read,
    .look = look,
    .rest = rest,
    .wake = wake,
    .report = tell,
    .free_memory = free_memory,
    .destroy = destroy,
};

fleet_status fl_shm_open(void *memory, int rank, int size, const char *name,
                         const fl_comm_options *options, fl_shm_unmap *unmap,
                         fl_comm **peers)
{
    bool is_crowded = size > (int)sysconf(_SC_NPROCESSORS_ONLN);
    char *m = memory;
    fl_shm *w;
    fleet_status status;

    *peers = NULL;
    FL_TRY(FL_NEW(&w, sizeof *w));
    status = fl_comm_base_init(&w->base, &carrier, name, options, rank, size);
    if (status != FLEET_OK) {
        fl_free(w);
        return status;
    }
    w->memory = memory;
    w->unmap = unmap;
    w->head = memory;
    w->slot = (fl_shm_rank *)(m + slots_at());
    w->halves = m + halves_at(size);
    w->rings = m + rings_at(size);
    w->ring_bytes = ring_size(size);
    w->spin_ns = is_crowded ? SPIN_CROWDED_NS : SPIN_NS;
    fl_shm_enter(w);
    *peers = &w->base.comm;
    return FLEET_OK;
}
