/* nccl.c - groups of GPUs: how they are opened, tell each other what they do,
 * and end. See nccl.h. */
#include "collective/nccl/nccl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "collective/wire_type.h"

enum {
    SPIN_NS = 200000,
    PAUSE_NS = 20000,
    LOOK_NS = 1000000, /* at NCCL's own errors */
    REST_MS = 20,
    LEAVE_MS = 2000
};

/* --- errors -------------------------------------------------------------- */

fleet_status fl_nccl_cuda(fl_nccl *n, int result, const char *call)
{
    if (result == 0)
        return FLEET_OK;
    return fl_fail(FLEET_EIO, "nccl: rank %d on device %d: %.60s: %s",
                   n->base.comm.rank, n->device, call, fl_cu_text(result));
}

static fleet_status nccl_error(fl_nccl *n, int result, const char *call)
{
    const char *more = n->comm ? n->lib->GetLastError(n->comm) : "";

    return fl_fail(result == FL_NCCL_REMOTE ? FLEET_EPEER : FLEET_EIO,
                   "nccl: rank %d: %s: %s%s%.300s", n->base.comm.rank, call,
                   n->lib->GetErrorString(result), more && *more ? ": " : "",
                   more ? more : "");
}

fleet_status fl_nccl_check(fl_nccl *n, int result, const char *call)
{
    if (result == FL_NCCL_OK)
        return FLEET_OK;
    if (result == FL_NCCL_IN_PROGRESS)
        return fl_nccl_synchronize(n, call);
    return nccl_error(n, result, call);
}

/* NCCL's error, if it has met one since. */
static fleet_status look_at_nccl(fl_nccl *n, const char *call, int *state)
{
    int code = n->lib->CommGetAsyncError(n->comm, state);

    if (code != FL_NCCL_OK)
        return nccl_error(n, code, call);
    if (*state != FL_NCCL_OK && *state != FL_NCCL_IN_PROGRESS)
        return nccl_error(n, *state, call);
    return FLEET_OK;
}

/* --- waiting ------------------------------------------------------------- */

static void pause_since(int64_t began_ns)
{
    const struct timespec pause = {0, PAUSE_NS};

    if (fl_now_ns() - began_ns > SPIN_NS)
        nanosleep(&pause, NULL);
}

static fleet_status too_late(fl_nccl *n, const char *call)
{
    return fl_fail(FLEET_ETIMEDOUT,
                   "nccl: %s of rank %d was not done within %" PRId64
                   " ms: another rank does not go on, or a GPU",
                   call, n->base.comm.rank, n->base.comm.deadline_ms);
}

static bool is_late(const fl_nccl *n, int64_t began_ns)
{
    return fl_now_ns() - began_ns > n->base.comm.deadline_ms * 1000000;
}

fleet_status fl_nccl_synchronize(fl_nccl *n, const char *call)
{
    int64_t began = fl_now_ns();
    int state;

    for (;;) {
        FL_TRY(look_at_nccl(n, call, &state));
        if (state == FL_NCCL_OK)
            return FLEET_OK;
        FL_TRY(fl_comm_base_check(&n->base));
        FL_TRY(fl_rendezvous_client_failure(n->client));
        if (is_late(n, began))
            return too_late(n, call);
        pause_since(began);
    }
}

fleet_status fl_nccl_finish(fl_nccl *n, const fl_call *call)
{
    int64_t began = fl_now_ns(), looked = began;
    char text[FL_CALL_TEXT];
    bool moved;
    int state;

    fl_call_text(call, text);
    FL_NCCL_CUDA(n, fl_cu_record(n->done, n->queue));
    n->n_all = 0; /* messages behind the call may go */
    for (;;) {
        int result = fl_cu_look(n->done);

        if (result != FL_CU_NOT_READY)
            return fl_nccl_cuda(n, result, text);
        FL_TRY(fl_comm_base_check(&n->base));
        FL_TRY(fl_nccl_hear(n));
        FL_TRY(fl_p2p_advance(&n->base, &moved));
        if (fl_now_ns() - looked > LOOK_NS) {
            FL_TRY(look_at_nccl(n, text, &state));
            looked = fl_now_ns();
        }
        if (is_late(n, began))
            return too_late(n, text);
        pause_since(began);
    }
}

/* --- what ranks tell each other ------------------------------------------ */

/* A message of this pair and way that both have posted. */
static fleet_status let_go(fl_nccl *n, fl_post p)
{
    fl_comm_base *g = &n->base;
    fl_nccl_message *m;
    const fl_work *w, *in;

    if (p.way < 0 || p.way >= FL_N_WAY || p.rank < 0 ||
        p.rank >= g->comm.size || !n->message[p.rank][p.way].is_posted)
        return fl_fail(FLEET_EPEER, "rank 0 talks nonsense");
    m = &n->message[p.rank][p.way];
    w = &m->visit.work;
    in = &n->message[p.rank][FL_IN].visit.work;
    if (p.rank == g->comm.rank && p.way == FL_OUT)
        FL_NCCL_CUDA(n, fl_cu_copy(n->queue, in->out, w->in, p.n));
    else if (p.rank != g->comm.rank && p.n > 0 && p.way == FL_OUT)
        FL_NCCL_CALL(n, Send, w->in, (size_t)p.n, FL_NCCL_U8, p.rank, n->comm,
                     n->queue);
    else if (p.rank != g->comm.rank && p.n > 0)
        FL_NCCL_CALL(n, Recv, w->out, (size_t)p.n, FL_NCCL_U8, p.rank, n->comm,
                     n->queue);
    m->is_going = true;
    FL_NCCL_CUDA(n, fl_cu_record(m->done, n->queue));
    return FLEET_OK;
}

static fleet_status take(fl_nccl *n, const fl_rendezvous_frame *f,
                         const char *bytes)
{
    fl_post p = {.way = -1};

    switch (f->word) {
    case FL_WORD_GO:
        if (f->bytes == sizeof p)
            memcpy(&p, bytes, sizeof p);
        fl_rendezvous_client_drop(n->client, f);
        return let_go(n, p);
    case FL_WORD_ALL:
        memcpy(n->all, bytes, f->bytes);
        n->n_all = f->bytes;
        fl_rendezvous_client_drop(n->client, f);
        return FLEET_OK;
    case FL_WORD_FAIL:
        return fl_comm_base_fail(&n->base,
                                 fl_rendezvous_failure(bytes, f->bytes), false);
    default:
        return fl_fail(FLEET_EPEER, "rank 0 talks nonsense");
    }
}

/* After ALL nothing more: what comes behind it is to be done after the call. */
fleet_status fl_nccl_hear(fl_nccl *n)
{
    const char *bytes;
    fl_rendezvous_frame f;

    while (n->n_all == 0) {
        FL_TRY(fl_rendezvous_client_next(n->client, &f, &bytes));
        if (f.word == FL_WORD_NONE)
            break;
        FL_TRY(take(n, &f, bytes));
    }
    return FLEET_OK;
}

/* Where a rank's call begins in `all`; NULL: what came is not whole. */
static const char *find_call(const fl_nccl *n, int rank, uint32_t *bytes)
{
    size_t at = 0;

    for (int r = 0;; r++) {
        if (n->n_all - at < sizeof *bytes)
            return NULL;
        memcpy(bytes, n->all + at, sizeof *bytes);
        at += sizeof *bytes;
        if (*bytes < sizeof(fl_call) || *bytes > n->n_all - at)
            return NULL;
        if (r == rank)
            return n->all + at;
        at += *bytes;
    }
}

const char *fl_nccl_said(const fl_nccl *n, int rank)
{
    uint32_t bytes;

    return find_call(n, rank, &bytes) + sizeof(fl_call);
}

static fleet_status compare(fl_nccl *n, size_t want)
{
    fl_call first = {0}, other;
    int short_of = -1; /* a rank that has not said all there is to say */

    for (int r = 0; r < n->base.comm.size; r++) {
        uint32_t bytes;
        const char *at = find_call(n, r, &bytes);

        if (!at)
            return fl_fail(FLEET_EPEER, "rank 0 talks nonsense");
        memcpy(&other, at, sizeof other);
        if (other.kind < 0 || other.kind > FL_CALL_RECV)
            return fl_fail(FLEET_EPEER, "rank %d talks nonsense", r);
        if (r == 0)
            first = other;
        else if (!fl_call_matches(&first, &other)) {
            fl_call_differs(0, &first, r, &other);
            return fl_comm_base_fail(&n->base, FLEET_EINVAL, false);
        }
        if (bytes != want)
            short_of = r;
    }
    return short_of < 0
               ? FLEET_OK
               : fl_fail(FLEET_EPEER, "rank %d talks nonsense", short_of);
}

static fleet_status wait_for_all(fl_nccl *n, const fl_call *call)
{
    int64_t began = fl_now_ns();
    char text[FL_CALL_TEXT];
    bool moved;

    while (n->n_all == 0) {
        FL_TRY(fl_comm_base_check(&n->base));
        FL_TRY(fl_nccl_hear(n));
        if (n->n_all > 0)
            break;
        FL_TRY(fl_p2p_advance(&n->base, &moved));
        FL_TRY(fl_rendezvous_client_check(n->client));
        /* rank 0 says who is late, unless it is that one itself */
        if (is_late(n, began + LEAVE_MS * INT64_C(1000000))) {
            fl_call_text(call, text);
            return fl_fail(FLEET_ETIMEDOUT,
                           "rank 0 did not come within %" PRId64
                           " ms: rank %d waits in %s",
                           n->base.comm.deadline_ms, n->base.comm.rank, text);
        }
        fl_rendezvous_client_rest(n->client, n->base.n_streaming ? 1 : REST_MS);
    }
    return FLEET_OK;
}

/* fl_call differs in `extra` alone, which is for the rank itself. */
fleet_status fl_nccl_match(fl_nccl *n, const fl_call *call, const void *more,
                           size_t bytes)
{
    n->n_all = 0;
    FL_TRY(fl_rendezvous_client_check(n->client));
    fl_rendezvous_client_send(n->client, FL_WORD_CALL, call, sizeof *call, more,
                              bytes);
    FL_TRY(wait_for_all(n, call));
    return compare(n, sizeof *call + bytes);
}

/* --- messages ------------------------------------------------------------ */

static fleet_status step(fl_comm_base *g, fl_work *w, bool *moved)
{
    fl_nccl *n = fl_nccl_of(g);
    int way = w->call.kind == FL_CALL_SEND ? FL_OUT : FL_IN;
    fl_nccl_message *m = &n->message[w->call.root][way];
    fl_post p = {.way = way, .rank = w->call.root, .n = w->call.n};
    int result;

    if (!m->is_posted) {
        FL_TRY(fl_rendezvous_client_check(n->client));
        FL_NCCL_CUDA(n, fl_cu_enter(n->device));
        if (w->after)
            FL_NCCL_CUDA(n, fl_cu_after(n->queue, w->after));
        FL_TRY(fl_nccl_bring(n, w, &m->visit));
        m->is_posted = *moved = true;
        fl_rendezvous_client_send(n->client, FL_WORD_POST, &p, sizeof p, NULL,
                                  0);
        return FLEET_OK;
    }
    result = m->is_going ? fl_cu_look(m->done) : FL_CU_NOT_READY;
    if (result == FL_CU_NOT_READY)
        return FLEET_OK;
    FL_TRY(
        fl_nccl_take_back(n, &m->visit, fl_nccl_cuda(n, result, "a message")));
    m->is_posted = m->is_going = false;
    w->head_moved = (int64_t)sizeof w->head;
    w->moved = w->call.n;
    *moved = true;
    return FLEET_OK;
}

static fleet_status message(fl_comm_base *g, fl_work *w, bool *moved)
{
    fleet_status status = step(g, w, moved);

    return status == FLEET_OK ? status : fl_comm_base_fail(g, status, true);
}

static uint32_t look(fl_comm_base *g)
{
    (void)g;
    return 0;
}

/* Messages that are under way are looked after more often. */
static fleet_status rest(fl_comm_base *g, uint32_t seen)
{
    fl_nccl *n = fl_nccl_of(g);
    fleet_status status;
    bool is_going = false;

    (void)seen;
    for (int r = 0; r < g->comm.size; r++)
        is_going |=
            n->message[r][FL_OUT].is_going || n->message[r][FL_IN].is_going;
    status = fl_cu_enter(n->device) ? FLEET_OK : fl_nccl_hear(n);
    if (status != FLEET_OK)
        return fl_comm_base_fail(g, status, true);
    if (is_going)
        pause_since(0);
    else
        fl_rendezvous_client_rest(n->client, REST_MS);
    return FLEET_OK;
}

static void wake(fl_comm_base *g)
{
    fl_rendezvous_client_ring(fl_nccl_of(g)->client);
}

/* --- its life ------------------------------------------------------------ */

static void tell(fl_comm_base *g, const fl_error *e)
{
    int32_t code = (int32_t)e->code;
    size_t n = strnlen(e->text, FL_RENDEZVOUS_TEXT - 100);

    fl_rendezvous_client_send(fl_nccl_of(g)->client, FL_WORD_FAIL, &code,
                              sizeof code, e->text, n);
}

/* What NCCL has under way ends at once. */
static void abort_nccl(fl_nccl *n)
{
    if (n->comm)
        n->lib->CommAbort(n->comm);
    n->comm = NULL;
}

static fleet_status run(fl_comm_base *g, fl_work *w)
{
    fl_nccl *n = fl_nccl_of(g);
    fleet_status status;
    fl_error e;

    FL_NCCL_CUDA(n, fl_cu_enter(n->device));
    status = fl_nccl_run(n, w);
    n->n_all = 0;
    if (status == FLEET_OK)
        return status;
    fl_error_take(&e, status);
    abort_nccl(n);
    return fl_error_raise(&e);
}

static void free_memory(fl_comm_base *g, void *memory)
{
    fl_nccl *n = fl_nccl_of(g);

    if (fl_cu_enter(n->device) == 0)
        fl_cu_free(n->queue, memory);
}

/* Others may still read from this GPU's memory what it has sent: NCCL ends in
 * good order, if it does soon. */
static void leave_nccl(fl_nccl *n)
{
    int64_t until = fl_now_ms() + LEAVE_MS;
    int state = n->lib->CommFinalize(n->comm), code = FL_NCCL_OK;

    while (state == FL_NCCL_IN_PROGRESS && code == FL_NCCL_OK &&
           fl_now_ms() < until) {
        pause_since(0);
        code = n->lib->CommGetAsyncError(n->comm, &state);
    }
    if (state != FL_NCCL_OK || code != FL_NCCL_OK) {
        abort_nccl(n);
        return;
    }
    n->lib->CommDestroy(n->comm);
    n->comm = NULL;
}

static void free_events(fl_nccl *n)
{
    fl_cu_event_destroy(n->done);
    for (int i = 0; i < FL_NCCL_AFTER; i++)
        fl_cu_event_destroy(n->after[i]);
    for (int r = 0; n->message && r < n->base.comm.size; r++)
        for (int way = 0; way < FL_N_WAY; way++) {
            fl_cu_event_destroy(n->message[r][way].done);
            fl_nccl_take_back(n, &n->message[r][way].visit, FLEET_EPEER);
        }
}

static void close_group(fl_nccl *n)
{
    bool has_device = n->queue && fl_cu_enter(n->device) == 0;

    if (n->comm && atomic_load(&n->base.failed))
        abort_nccl(n);
    else if (n->comm)
        leave_nccl(n);
    fl_rendezvous_client_close(n->client);
    if (has_device) {
        fl_cu_free(n->queue, n->room);
        free_events(n);
        fl_cu_stream_destroy(n->queue);
    }
    fl_comm_base_done(&n->base);
    fl_free(n->message);
    fl_free(n->all);
    fl_free(n);
}

static void destroy(fl_comm_base *g)
{
    close_group(fl_nccl_of(g));
}

static const fl_transport carrier = {
    .run = run,
    .message = message,
    .look = look,
    .rest = rest,
    .wake = wake,
    .report = tell,
    .free_memory = free_memory,
    .destroy = destroy,
};

/* --- streams of the caller's --------------------------------------------- */

static fleet_status after(fl_comm *p, fl_queue *q)
{
    fl_nccl *n = fl_nccl_of((fl_comm_base *)p);
    fl_event *e = n->after[n->n_after++ % FL_NCCL_AFTER];

    FL_TRY(fl_comm_base_check(&n->base));
    FL_NCCL_CUDA(n, fl_cu_enter(n->device));
    FL_NCCL_CUDA(n, fl_cu_record(e, q));
    n->base.after = e;
    return FLEET_OK;
}

/* --- opening ------------------------------------------------------------- */

static fleet_status make_events(fl_nccl *n)
{
    FL_NCCL_CUDA(n, fl_cu_stream_create(&n->queue));
    FL_NCCL_CUDA(n, fl_cu_event_create(&n->done));
    for (int i = 0; i < FL_NCCL_AFTER; i++)
        FL_NCCL_CUDA(n, fl_cu_event_create(&n->after[i]));
    for (int r = 0; r < n->base.comm.size; r++)
        for (int way = 0; way < FL_N_WAY; way++)
            FL_NCCL_CUDA(n, fl_cu_event_create(&n->message[r][way].done));
    return FLEET_OK;
}

/* Rank 0's id goes to all over the line. A failure of a rank that has opened
 * its group is not one of a rank's that opens it. */
static fleet_status open_nccl(fl_nccl *n)
{
    int size = n->base.comm.size, rank = n->base.comm.rank;
    fl_nccl_config config = {sizeof config, (unsigned)FL_NCCL_MAGIC,
                             FL_NCCL_LEAST, 0};
    fl_nccl_id id = {{0}};
    fl_call call = {.kind = FL_CALL_BROADCAST, .n = sizeof id};

    if (rank == 0)
        FL_NCCL_CALL(n, GetUniqueId, &id);
    FL_TRY(fl_nccl_match(n, &call, &id, sizeof id));
    memcpy(&id, fl_nccl_said(n, 0), sizeof id);
    n->n_all = 0;
    FL_NCCL_CALL(n, CommInitRankConfig, &n->comm, size, id, rank, &config);
    call.n = 0; /* nobody goes on before all are there */
    FL_TRY(fl_nccl_match(n, &call, NULL, 0));
    n->n_all = 0;
    return FLEET_OK;
}

static fleet_status make(fl_nccl *n, const fl_comm_options *o)
{
    int size = n->rendezvous.own.size, rank = n->rendezvous.own.rank;
    size_t all =
        (size_t)size * (sizeof(uint32_t) + fl_rendezvous_most_call(size));

    FL_TRY(fl_comm_base_init(&n->base, &carrier, "nccl", o, rank, size));
    n->base.class.after = after;
    FL_TRY(FL_NEW(&n->message, (size_t)size * sizeof *n->message));
    FL_TRY(FL_NEW(&n->all, all + FL_RENDEZVOUS_TEXT));
    FL_TRY(fl_nccl_lib_open(&n->lib));
    FL_NCCL_CUDA(n, fl_cu_enter(n->device));
    return make_events(n);
}

fleet_status fl_nccl_meet(const fl_rendezvous *m,
                          const fl_comm_options *options, fl_comm **peers)
{
    fleet_status status;
    fl_nccl *n;
    fl_error e;

    *peers = NULL;
    FL_TRY(FL_NEW(&n, sizeof *n));
    n->rendezvous = *m;
    n->device = options->device;
    status = make(n, options);
    if (status == FLEET_OK)
        status = fl_rendezvous_client_open(&n->client, m);
    else if (m->listener > 0)
        close(m->listener); /* it is the group's, which will not be */
    if (status == FLEET_OK && (status = open_nccl(n)) != FLEET_OK)
        fl_comm_base_fail(&n->base, status, true);
    if (status == FLEET_OK) {
        *peers = &n->base.comm;
        return status;
    }
    fl_error_take(&e, status);
    close_group(n);
    return fl_error_raise(&e);
}
