/* comm_base.c - the calls of runtime/device/comm.h for communicators of several
 * ranks: their order and their end. */
#include "collective/comm_base.h"

#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "collective/comm_p2p.h"
#include "collective/wire_type.h"

enum { SPIN_NS = 20000 }; /* for the end of a work, before sleeping */

/* --- failure ------------------------------------------------------------- */

fleet_status fl_comm_base_check(fl_comm_base *g)
{
    if (atomic_load_explicit(&g->failed, memory_order_acquire))
        return fl_error_raise(&g->error);
    if (atomic_load_explicit(&g->ends, memory_order_relaxed))
        return fl_fail(FLEET_ESTATE, "the group of ranks has ended");
    return FLEET_OK;
}

fleet_status fl_comm_base_fail(fl_comm_base *g, fleet_status code, bool report)
{
    bool is_first;

    pthread_mutex_lock(&g->lock);
    is_first = !atomic_load(&g->failed);
    if (is_first) {
        fl_error_take(&g->error, code);
        atomic_store(&g->failed, true);
    }
    pthread_mutex_unlock(&g->lock);
    if (is_first && report)
        g->transport->report(g, &g->error);
    return fl_error_raise(&g->error);
}

/* --- order --------------------------------------------------------------- */

static bool is_message(const fl_work *w)
{
    return w->call.kind == FL_CALL_SEND || w->call.kind == FL_CALL_RECV;
}

void fl_comm_base_finish(fl_comm_base *g, fl_work *w, fleet_status status)
{
    w->status = status;
    if (!w->is_queued) {
        atomic_store(&w->done, true);
        return;
    }
    pthread_mutex_lock(&g->lock);
    g->n_queued--;
    atomic_store(&w->done, true);
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

/* What fails a call fails the communicator. */
static fleet_status fail_all(fl_comm_base *g, fleet_status status)
{
    return status == FLEET_OK ? status : fl_comm_base_fail(g, status, true);
}

static fleet_status run_call(fl_comm_base *g, fl_work *w)
{
    fleet_status status = fl_comm_base_check(g);

    if (status == FLEET_OK)
        status = g->transport->run(g, w);
    return fail_all(g, status);
}

/* Nothing is in progress: the caller does it. */
static fleet_status run_by_caller(fl_comm_base *g, fl_work *w)
{
    fleet_status status;

    if (!is_message(w))
        return run_call(g, w);
    atomic_store(&w->is_awaited, true);
    fl_p2p_start(g, w, FL_CHANNEL_USER);
    status = fl_p2p_drive(g, w);
    if (status != FLEET_OK)
        fl_p2p_drop(g, status);
    return status;
}

/* The next of the queue; NULL if it is empty and messages still move. */
static bool take_next(fl_comm_base *g, fl_work **next)
{
    pthread_mutex_lock(&g->lock);
    g->is_busy = false;
    pthread_cond_broadcast(&g->changed);
    while (g->n_queued == 0 && !atomic_load(&g->ends))
        pthread_cond_wait(&g->changed, &g->lock);
    g->is_busy = true;
    *next = g->queue;
    if (g->queue)
        g->queue = g->queue->next;
    if (!g->queue)
        g->queue_end = &g->queue;
    pthread_mutex_unlock(&g->lock);
    return !atomic_load(&g->ends);
}

static void *do_calls(void *arg)
{
    fl_comm_base *g = arg;
    fleet_status status;
    fl_work *w;

    while (take_next(g, &w)) {
        if (w && is_message(w))
            fl_p2p_start(g, w, FL_CHANNEL_USER);
        else if (w)
            fl_comm_base_finish(g, w, run_call(g, w));
        else if ((status = fl_p2p_drive(g, NULL)) != FLEET_OK)
            fl_p2p_drop(g, status);
    }
    return NULL;
}

/* End transport->rest(), if it can be ended. */
static void end_rest(fl_comm_base *g)
{
    if (g->transport->wake)
        g->transport->wake(g);
}

static fleet_status queue_work(fl_comm_base *g, fl_work *w)
{
    if (!g->has_thread) {
        FL_TRY(fl_thread_start(&g->thread, do_calls, g, "a group of ranks"));
        g->has_thread = true;
    }
    w->is_queued = true;
    w->next = NULL;
    pthread_mutex_lock(&g->lock);
    g->n_queued++;
    *g->queue_end = w;
    g->queue_end = &w->next;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    end_rest(g);
    return FLEET_OK;
}

static fleet_status wait_for(fl_comm_base *g, fl_work *w)
{
    int64_t until = fl_now_ns() + SPIN_NS;

    atomic_store(&w->is_awaited, true);
    while (!atomic_load(&w->done) && fl_now_ns() < until)
        ;
    pthread_mutex_lock(&g->lock);
    while (!atomic_load(&w->done))
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
    return w->status == FLEET_OK ? FLEET_OK : fl_comm_base_check(g);
}

static fleet_status do_now(fl_comm_base *g, fl_work *w)
{
    bool is_idle;

    pthread_mutex_lock(&g->lock);
    while (g->n_queued == 0 && g->is_busy)
        pthread_cond_wait(&g->changed, &g->lock);
    is_idle = g->n_queued == 0;
    pthread_mutex_unlock(&g->lock);
    if (is_idle)
        return run_by_caller(g, w);
    FL_TRY(queue_work(g, w));
    return wait_for(g, w);
}

/* The counts are copied: they may be on the caller's stack. */
static fleet_status do_later(fl_comm_base *g, const fl_work *made,
                             fl_work **work)
{
    size_t n = made->to ? (size_t)g->comm.size : 0;
    fl_work *w;
    int64_t *counts;

    FL_TRY(FL_NEW(&w, sizeof *w + 2 * n * sizeof *counts));
    *w = *made;
    counts = (int64_t *)(w + 1);
    if (n > 0) {
        w->to = memcpy(counts, made->to, n * sizeof *counts);
        w->from = memcpy(counts + n, made->from, n * sizeof *counts);
    }
    w->previous = g->made;
    g->made = w;
    if (g->transport->begin)
        FL_TRY(fail_all(g, g->transport->begin(g, w, &w->is_begun)));
    *work = w;
    return w->is_begun ? FLEET_OK : queue_work(g, w);
}

static fleet_status submit_call(fl_comm *p, fl_work *w, fl_work **work)
{
    fl_comm_base *g = (fl_comm_base *)p;

    if (work)
        *work = NULL;
    FL_TRY(fl_comm_base_check(g));
    w->after = g->after;
    g->after = NULL;
    return work ? do_later(g, w, work) : do_now(g, w);
}

static void remove_made(fl_comm_base *g, const fl_work *w)
{
    fl_work **at = &g->made;

    while (*at && *at != w)
        at = &(*at)->previous;
    if (*at)
        *at = w->previous;
}

static fleet_status base_wait(fl_comm *p, fl_work **work)
{
    fl_comm_base *g = (fl_comm_base *)p;
    fleet_status status;

    if (!*work)
        return FLEET_OK;
    if (!(*work)->is_begun)
        status = wait_for(g, *work);
    else if ((status = fl_comm_base_check(g)) == FLEET_OK)
        status = fail_all(g, g->transport->end(g, *work));
    remove_made(g, *work);
    fl_free(*work);
    *work = NULL;
    return status;
}

/* --- the calls ----------------------------------------------------------- */

static fleet_status submit_reduce(fl_comm *p, fl_call_kind kind, fl_reduce how,
                                  fl_wire_type type, const void *in, void *out,
                                  int64_t n, fl_work **work)
{
    const char *name =
        kind == FL_CALL_ALL_REDUCE ? "all_reduce" : "reduce_scatter";
    fl_work w = {.in = in,
                 .out = out,
                 .call = {.kind = (int32_t)kind,
                          .how = (int32_t)how,
                          .type = (int32_t)type,
                          .n = n}};

    FL_TRY(fl_check_reduce(name, how, type, n));
    return submit_call(p, &w, work);
}

static fleet_status all_reduce(fl_comm *p, fl_reduce how, fl_wire_type type,
                               const void *in, void *out, int64_t n,
                               fl_work **work)
{
    return submit_reduce(p, FL_CALL_ALL_REDUCE, how, type, in, out, n, work);
}

static fleet_status reduce_scatter(fl_comm *p, fl_reduce how, fl_wire_type type,
                                   const void *in, void *out, int64_t n,
                                   fl_work **work)
{
    return submit_reduce(p, FL_CALL_REDUCE_SCATTER, how, type, in, out, n,
                         work);
}

static fleet_status all_gather(fl_comm *p, const void *in, void *out,
                               int64_t bytes, fl_work **work)
{
    fl_work w = {
        .in = in, .out = out, .call = {.kind = FL_CALL_ALL_GATHER, .n = bytes}};

    FL_TRY(fl_check_bytes("all_gather", bytes));
    return submit_call(p, &w, work);
}

static fleet_status all_to_all_v(fl_comm *p, const void *in,
                                 const int64_t *to_bytes, void *out,
                                 const int64_t *from_bytes, fl_work **work)
{
    fl_work w = {.in = in,
                 .out = out,
                 .to = to_bytes,
                 .from = from_bytes,
                 .call = {.kind = FL_CALL_ALL_TO_ALL}};

    FL_TRY(fl_check_counts(to_bytes, from_bytes, p->size));
    return submit_call(p, &w, work);
}

static fleet_status base_broadcast(fl_comm *p, void *data, int64_t bytes,
                                   int root, fl_work **work)
{
    fl_work w = {.in = data,
                 .out = data,
                 .call = {.kind = FL_CALL_BROADCAST, .n = bytes, .root = root}};

    FL_TRY(fl_check_bytes("broadcast", bytes));
    FL_TRY(fl_check_rank("broadcast", "root", root, p->size));
    return submit_call(p, &w, work);
}

static fleet_status base_send(fl_comm *p, const void *data, int64_t bytes,
                              int to, fl_work **work)
{
    fl_work w = {.in = data,
                 .call = {.kind = FL_CALL_SEND, .n = bytes, .root = to}};

    FL_TRY(fl_check_bytes("send", bytes));
    FL_TRY(fl_check_rank("send", "receiver", to, p->size));
    return submit_call(p, &w, work);
}

static fleet_status base_recv(fl_comm *p, void *data, int64_t bytes, int from,
                              fl_work **work)
{
    fl_work w = {.out = data,
                 .call = {.kind = FL_CALL_RECV, .n = bytes, .root = from}};

    FL_TRY(fl_check_bytes("recv", bytes));
    FL_TRY(fl_check_rank("recv", "sender", from, p->size));
    return submit_call(p, &w, work);
}

static fleet_status base_barrier(fl_comm *p)
{
    fl_work w = {.call = {.kind = FL_CALL_BARRIER}};

    return submit_call(p, &w, NULL);
}

static fleet_status base_split(fl_comm *p, int color, int key, fl_comm **child)
{
    fl_work w = {.out = child, .call = {.kind = FL_CALL_SPLIT}};

    *child = NULL;
    if (color < -1)
        return fl_fail(FLEET_EINVAL, "split: the color is %d, not -1 or more",
                       color);
    w.call.extra[0] = color;
    w.call.extra[1] = key;
    return submit_call(p, &w, NULL);
}

static fleet_status get_memory(fl_comm *p, int64_t bytes, void **memory)
{
    fl_work w = {.out = memory, .call = {.kind = FL_CALL_MEMORY, .n = bytes}};

    *memory = NULL;
    FL_TRY(fl_check_bytes("get_memory", bytes));
    return submit_call(p, &w, NULL);
}

static void free_memory(fl_comm *p, void *memory)
{
    fl_comm_base *g = (fl_comm_base *)p;

    if (memory)
        g->transport->free_memory(g, memory);
}

static void give_up(fl_comm *p, const char *why)
{
    fl_comm_base *g = (fl_comm_base *)p;

    fl_fail(FLEET_EPEER, "rank %d gave up: %.400s", p->rank, why);
    fl_comm_base_fail(g, FLEET_EPEER, true);
    end_rest(g);
}

/* --- life ------------------------------------------------------------ */

static void base_destroy(fl_comm *p)
{
    fl_comm_base *g = (fl_comm_base *)p;
    fl_work *previous;

    if (!g)
        return;
    pthread_mutex_lock(&g->lock);
    atomic_store(&g->ends, true);
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    end_rest(g);
    if (g->has_thread)
        pthread_join(g->thread, NULL);
    for (fl_work *w = g->made; w; w = previous) {
        previous = w->previous;
        fl_free(w);
    }
    g->transport->destroy(g);
}

static const fl_comm_class methods = {
    .all_reduce = all_reduce,
    .reduce_scatter = reduce_scatter,
    .all_gather = all_gather,
    .all_to_all_v = all_to_all_v,
    .broadcast = base_broadcast,
    .send = base_send,
    .recv = base_recv,
    .barrier = base_barrier,
    .wait = base_wait,
    .split = base_split,
    .get_memory = get_memory,
    .free_memory = free_memory,
    .abort = give_up,
    .destroy = base_destroy,
};

fleet_status fl_comm_base_init(fl_comm_base *g, const fl_transport *transport,
                               const char *name, const fl_comm_options *options,
                               int rank, int size)
{
    g->class = methods;
    g->class.name = name;
    g->comm = (fl_comm){.methods = &g->class,
                        .rank = rank,
                        .size = size,
                        .ordered = options->ordered,
                        .deadline_ms = options->deadline_ms};
    g->transport = transport;
    g->log = options->log;
    g->queue_end = &g->queue;
    FL_TRY(FL_NEW(&g->flow, (size_t)size * sizeof *g->flow));
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    return FLEET_OK;
}

fl_comm_options fl_comm_base_options(const fl_comm_base *g)
{
    return (fl_comm_options){.ordered = g->comm.ordered,
                             .deadline_ms = g->comm.deadline_ms,
                             .log = g->log};
}

void fl_comm_base_done(fl_comm_base *g)
{
    if (!g->flow)
        return; /* it never began */
    pthread_mutex_destroy(&g->lock);
    pthread_cond_destroy(&g->changed);
    fl_free(g->flow);
}
