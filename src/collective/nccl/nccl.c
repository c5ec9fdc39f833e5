/* nccl.c - communicators of ranks on GPUs: how they are opened, agree on calls,
 * move messages, and end. */
#include "collective/nccl/nccl_end.h"
#include "collective/nccl/nccl_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"

enum {
    SPIN_NS = 200000,
    PAUSE_NS = 20000,
    LOOK_NS = 1000000, /* at NCCL's own errors */
    REST_MS = 20
};

/* --- errors -------------------------------------------------------------- */

fleet_status fl_nccl_cuda(fl_nccl *n, int result, const char *call)
{
    if (result == 0)
        return FLEET_OK;
    return fl_fail(FLEET_EIO, "nccl: rank %d on device %d: %.60s: %s",
                   n->base.comm.rank, n->device, call, fl_cu_text(result));
}

static fleet_status fail_nccl(fl_nccl *n, int result, const char *call)
{
    const char *more = n->comm ? n->lib->GetLastError(n->comm) : "";

    return fl_fail(result == FL_NCCL_REMOTE ? FLEET_EPEER : FLEET_EIO,
                   "nccl: rank %d: %s: %s%s%.300s", n->base.comm.rank, call,
                   n->lib->GetErrorString(result), more && *more ? ": " : "",
                   more ? more : "");
}

/* NCCL's error, if it has met one since. */
static fleet_status check_nccl(fl_nccl *n, const char *call, int *state)
{
    int code = n->lib->CommGetAsyncError(n->comm, state);

    if (code != FL_NCCL_OK)
        return fail_nccl(n, code, call);
    if (*state != FL_NCCL_OK && *state != FL_NCCL_IN_PROGRESS)
        return fail_nccl(n, *state, call);
    return FLEET_OK;
}

/* --- frames ------------------------------------------------------------- */

/* Begin a message that both ranks have posted. */
static fleet_status begin_message(fl_nccl *n, fl_post p)
{
    fl_comm_base *g = &n->base;
    fl_nccl_message *m;
    const fl_work *w, *in;

    if (p.way < 0 || p.way >= FL_N_WAY || p.rank < 0 ||
        p.rank >= g->comm.size || !n->message[p.rank][p.way].is_posted)
        return fl_fail(FLEET_EPEER, "rank 0 talks nonsense");
    if (!n->comm) /* it was aborted */
        return fl_comm_base_check(g);
    m = &n->message[p.rank][p.way];
    w = &m->staging.work;
    in = &n->message[p.rank][FL_IN].staging.work;
    if (p.rank == g->comm.rank && p.way == FL_OUT)
        FL_NCCL_CUDA(n, fl_cu_copy(n->queue, in->out, w->in, p.n));
    else if (p.rank != g->comm.rank && p.n > 0 && p.way == FL_OUT)
        FL_NCCL_CALL(n, Send, w->in, (size_t)p.n, FL_NCCL_U8, p.rank, n->comm,
                     n->queue);
    else if (p.rank != g->comm.rank && p.n > 0)
        FL_NCCL_CALL(n, Recv, w->out, (size_t)p.n, FL_NCCL_U8, p.rank, n->comm,
                     n->queue);
    m->is_matched = true;
    FL_NCCL_CUDA(n, fl_cu_record(m->done, n->queue));
    return FLEET_OK;
}

static fleet_status take_frame(fl_nccl *n, const fl_rendezvous_frame *f,
                               const char *bytes)
{
    fl_post p = {.way = -1};

    switch (f->kind) {
    case FL_RENDEZVOUS_MATCHED:
        if (f->bytes == sizeof p)
            memcpy(&p, bytes, sizeof p);
        fl_rendezvous_client_drop(n->client, f);
        return begin_message(n, p);
    case FL_RENDEZVOUS_CALLS:
        memcpy(n->all, bytes, f->bytes);
        n->n_all = f->bytes;
        fl_rendezvous_client_drop(n->client, f);
        return FLEET_OK;
    case FL_RENDEZVOUS_FAILURE:
        return fl_comm_base_fail(&n->base,
                                 fl_rendezvous_failure(bytes, f->bytes), false);
    default:
        return fl_fail(FLEET_EPEER, "rank 0 talks nonsense");
    }
}

/* Take the frames that have come, and begin messages that are matched. After
 * CALLS nothing more: what comes behind it is done after the call. */
static fleet_status receive_frames(fl_nccl *n)
{
    const char *bytes;
    fl_rendezvous_frame f;

    while (n->n_all == 0) {
        FL_TRY(fl_rendezvous_client_next(n->client, &f, &bytes));
        if (f.kind == FL_RENDEZVOUS_NONE)
            break;
        FL_TRY(take_frame(n, &f, bytes));
    }
    return FLEET_OK;
}

/* --- waiting ------------------------------------------------------------- */

static void pause_since(int64_t began_ns)
{
    const struct timespec pause = {0, PAUSE_NS};

    if (fl_now_ns() - began_ns > SPIN_NS)
        nanosleep(&pause, NULL);
}

static fleet_status fail_late(fl_nccl *n, const char *call)
{
    return fl_fail(FLEET_ETIMEDOUT,
                   "nccl: %s of rank %d was not done within %" PRId64
                   " ms: another rank does not go on, or a GPU",
                   call, n->base.comm.rank, n->base.comm.deadline_ms);
}

/* NCCL's calls may go on after they have returned: until they are over. */
static fleet_status wait_for_nccl(fl_nccl *n, const char *call)
{
    fl_wait wait = fl_wait_for(n->base.comm.deadline_ms);
    int64_t began = fl_now_ns();
    int state;

    for (;;) {
        FL_TRY(check_nccl(n, call, &state));
        if (state == FL_NCCL_OK)
            return FLEET_OK;
        FL_TRY(fl_comm_base_check(&n->base));
        FL_TRY(fl_rendezvous_client_failure(n->client));
        if (fl_wait_left(&wait) == 0)
            return fail_late(n, call);
        pause_since(began);
    }
}

fleet_status fl_nccl_check(fl_nccl *n, int result, const char *call)
{
    if (result == FL_NCCL_OK)
        return FLEET_OK;
    if (result == FL_NCCL_IN_PROGRESS)
        return wait_for_nccl(n, call);
    return fail_nccl(n, result, call);
}

fleet_status fl_nccl_finish(fl_nccl *n, const fl_call *call)
{
    fl_wait wait = fl_wait_for(n->base.comm.deadline_ms);
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
        FL_TRY(receive_frames(n));
        FL_TRY(fl_p2p_advance(&n->base, &moved));
        if (fl_now_ns() - looked > LOOK_NS) {
            FL_TRY(check_nccl(n, text, &state));
            looked = fl_now_ns();
        }
        if (fl_wait_left(&wait) == 0)
            return fail_late(n, text);
        pause_since(began);
    }
}

/* --- calls of all ranks -------------------------------------------------- */

/* What a rank has sent with its call; NULL: what came is not whole. */
const char *fl_nccl_data_of(const fl_nccl *n, int rank)
{
    size_t at = 0;
    uint32_t bytes;

    for (int r = 0;; r++) {
        if (n->n_all - at < sizeof bytes)
            return NULL;
        memcpy(&bytes, n->all + at, sizeof bytes);
        at += sizeof bytes;
        if (bytes != n->n_call || bytes > n->n_all - at)
            return NULL;
        if (r == rank)
            return n->all + at + sizeof(fl_call);
        at += bytes;
    }
}

static fleet_status wait_for_all(fl_nccl *n, const fl_call *call)
{
    fl_wait wait = fl_wait_for(n->base.comm.deadline_ms + FL_NCCL_LEAVE_MS);
    bool moved;

    while (n->n_all == 0) {
        FL_TRY(fl_comm_base_check(&n->base));
        FL_TRY(receive_frames(n));
        if (n->n_all > 0)
            break;
        FL_TRY(fl_p2p_advance(&n->base, &moved));
        FL_TRY(fl_rendezvous_client_check(n->client));
        /* the server names the missing rank, unless that is rank 0 itself */
        if (fl_wait_left(&wait) == 0)
            return fl_call_timed_out(0, n->base.comm.deadline_ms,
                                     n->base.comm.rank, call);
        fl_rendezvous_client_wait(n->client, n->base.n_flowing ? 1 : REST_MS);
    }
    return FLEET_OK;
}

fleet_status fl_nccl_match(fl_nccl *n, const fl_call *call, const void *more,
                           size_t bytes)
{
    n->n_all = 0;
    n->n_call = sizeof *call + bytes;
    FL_TRY(fl_rendezvous_client_check(n->client));
    fl_rendezvous_client_send(n->client, FL_RENDEZVOUS_CALL, call, sizeof *call,
                              more, bytes);
    FL_TRY(wait_for_all(n, call));
    return fl_nccl_data_of(n, n->base.comm.size - 1)
               ? FLEET_OK
               : fl_fail(FLEET_EPEER, "rank 0 talks nonsense");
}

/* --- messages ------------------------------------------------------------ */

static fleet_status move_message(fl_comm_base *g, fl_work *w, bool *moved)
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
        FL_TRY(fl_nccl_stage(n, w, &m->staging));
        m->is_posted = *moved = true;
        fl_rendezvous_client_send(n->client, FL_RENDEZVOUS_POST, &p, sizeof p,
                                  NULL, 0);
        return FLEET_OK;
    }
    if (!m->is_matched) /* it never will be, if the server has ended */
        return fl_rendezvous_client_check(n->client);
    result = fl_cu_look(m->done);
    if (result == FL_CU_NOT_READY)
        return FLEET_OK;
    FL_TRY(
        fl_nccl_unstage(n, &m->staging, fl_nccl_cuda(n, result, "a message")));
    m->is_posted = m->is_matched = false;
    w->head_moved = (int64_t)sizeof w->head;
    w->moved = w->call.n;
    *moved = true;
    return FLEET_OK;
}

static fleet_status message(fl_comm_base *g, fl_work *w, bool *moved)
{
    fleet_status status = move_message(g, w, moved);

    return status == FLEET_OK ? status : fl_comm_base_fail(g, status, true);
}

/* Messages in progress are polled more often. */
static fleet_status nccl_rest(fl_comm_base *g, uint32_t seen)
{
    fl_nccl *n = fl_nccl_of(g);
    fleet_status status;
    bool is_matched = false;

    (void)seen;
    for (int r = 0; r < g->comm.size; r++)
        is_matched |=
            n->message[r][FL_OUT].is_matched || n->message[r][FL_IN].is_matched;
    status = fl_cu_enter(n->device) ? FLEET_OK : receive_frames(n);
    if (status != FLEET_OK)
        return fl_comm_base_fail(g, status, true);
    if (is_matched)
        pause_since(0);
    else
        fl_rendezvous_client_wait(n->client, REST_MS);
    return FLEET_OK;
}

/* On the GPU a message would wait for the other rank for ever, and so would all
 * that waits for the GPU. */
static void nccl_drop(fl_comm_base *g)
{
    fl_nccl_abort(fl_nccl_of(g));
}

static void nccl_wake(fl_comm_base *g)
{
    fl_rendezvous_client_wake(fl_nccl_of(g)->client);
}

/* --- life ---------------------------------------------------------------- */

static void nccl_report(fl_comm_base *g, const fl_error *e)
{
    int32_t code = (int32_t)e->code;
    size_t n = strnlen(e->text, FL_RENDEZVOUS_TEXT - 100);

    fl_rendezvous_client_send(fl_nccl_of(g)->client, FL_RENDEZVOUS_FAILURE,
                              &code, sizeof code, e->text, n);
}

static fleet_status nccl_run(fl_comm_base *g, fl_work *w)
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
    fl_nccl_abort_call(n);
    return fl_error_raise(&e);
}

static void free_memory(fl_comm_base *g, void *memory)
{
    fl_nccl *n = fl_nccl_of(g);

    if (fl_cu_enter(n->device) == 0)
        fl_cu_free(n->queue, memory);
}

static void free_events(fl_nccl *n)
{
    fl_cu_event_destroy(n->done);
    fl_cu_event_destroy(n->copied);
    for (int i = 0; i < FL_NCCL_AFTER; i++)
        fl_cu_event_destroy(n->after[i]);
    for (int r = 0; n->message && r < n->base.comm.size; r++)
        for (int way = 0; way < FL_N_WAY; way++) {
            fl_cu_event_destroy(n->message[r][way].done);
            fl_nccl_unstage(n, &n->message[r][way].staging, FLEET_EPEER);
        }
}

static void close_comm(fl_nccl *n)
{
    bool has_device = n->queue && fl_cu_enter(n->device) == 0;

    if (n->comm && atomic_load(&n->base.failed))
        fl_nccl_abort(n);
    else if (n->comm)
        fl_nccl_leave(n);
    fl_rendezvous_client_close(n->client);
    if (has_device) {
        fl_cu_free(n->queue, n->room);
        free_events(n);
        fl_cu_stream_destroy(n->queue);
        fl_cu_stream_destroy(n->copies);
    }
    fl_comm_base_done(&n->base);
    explicit_bzero(n->keys.secret, sizeof n->keys.secret);
    fl_free(n->keys.of);
    fl_free(n->message);
    fl_free(n->all);
    fl_free(n);
}

static void nccl_destroy(fl_comm_base *g)
{
    close_comm(fl_nccl_of(g));
}

static const fl_transport transport = {
    .run = nccl_run,
    .message = message,
    .rest = nccl_rest,
    .wake = nccl_wake,
    .drop = nccl_drop,
    .report = nccl_report,
    .free_memory = free_memory,
    .destroy = nccl_destroy,
};

/* --- the caller's streams ----------------------------------------------- */

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
    FL_NCCL_CUDA(n, fl_cu_stream_create(&n->copies));
    FL_NCCL_CUDA(n, fl_cu_event_create(&n->copied));
    for (int i = 0; i < FL_NCCL_AFTER; i++)
        FL_NCCL_CUDA(n, fl_cu_event_create(&n->after[i]));
    for (int r = 0; r < n->base.comm.size; r++)
        for (int way = 0; way < FL_N_WAY; way++)
            FL_NCCL_CUDA(n, fl_cu_event_create(&n->message[r][way].done));
    return FLEET_OK;
}

/* NCCL takes it for more than what its caller asks for. */
static fleet_status check_environment(void)
{
    const char *blocking = getenv("NCCL_COMM_BLOCKING");

    if (!blocking || strcmp(blocking, "1") != 0)
        return FLEET_OK;
    return fl_fail(FLEET_EUNSUPPORTED,
                   "NCCL_COMM_BLOCKING=1 in the environment: NCCL's calls "
                   "would wait without a deadline; expected it to be unset");
}

/* Rank 0's id goes to all ranks by the rendezvous server. */
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
    memcpy(&id, fl_nccl_data_of(n, 0), sizeof id);
    n->n_all = 0;
    FL_NCCL_CALL(n, CommInitRankConfig, &n->comm, size, id, rank, &config);
    call.n = 0; /* no rank goes on before all have opened NCCL */
    FL_TRY(fl_nccl_match(n, &call, NULL, 0));
    n->n_all = 0;
    return FLEET_OK;
}

/* The rendezvous has them as long as the communicator lives. */
static fleet_status copy_keys(fl_nccl *n)
{
    const fl_rank_keys *given = n->rendezvous.keys;
    size_t bytes = (size_t)n->rendezvous.own.size * sizeof *given->of;

    if (!given)
        return FLEET_OK;
    FL_TRY(FL_NEW(&n->keys.of, bytes));
    memcpy(n->keys.secret, given->secret, sizeof n->keys.secret);
    memcpy(n->keys.of, given->of, bytes);
    n->rendezvous.keys = &n->keys;
    return FLEET_OK;
}

static fleet_status make_comm(fl_nccl *n, const fl_comm_options *o)
{
    int size = n->rendezvous.own.size, rank = n->rendezvous.own.rank;
    size_t all =
        (size_t)size * (sizeof(uint32_t) + fl_rendezvous_most_call(size));

    FL_TRY(fl_comm_base_init(&n->base, &transport, "nccl", o, rank, size));
    n->base.class.after = after;
    FL_TRY(copy_keys(n));
    FL_TRY(FL_NEW(&n->message, (size_t)size * sizeof *n->message));
    FL_TRY(FL_NEW(&n->all, all + FL_RENDEZVOUS_TEXT));
    FL_TRY(check_environment());
    FL_TRY(fl_nccl_lib_open(&n->lib));
    FL_NCCL_CUDA(n, fl_cu_enter(n->device));
    return make_events(n);
}

fleet_status fl_nccl_join(const fl_rendezvous_options *r,
                          const fl_comm_options *options, fl_comm **comm)
{
    fleet_status status;
    fl_nccl *n;
    fl_error e;

    *comm = NULL;
    FL_TRY(FL_NEW(&n, sizeof *n));
    n->rendezvous = *r;
    n->device = options->device;
    status = make_comm(n, options);
    if (status == FLEET_OK)
        status = fl_rendezvous_client_open(&n->client, r);
    else if (r->listener > 0)
        close(r->listener); /* it would be the communicator's */
    if (status == FLEET_OK && (status = open_nccl(n)) != FLEET_OK)
        fl_comm_base_fail(&n->base, status, true);
    if (status == FLEET_OK) {
        *comm = &n->base.comm;
        return status;
    }
    fl_error_take(&e, status);
    close_comm(n);
    return fl_error_raise(&e);
}
