/* worker_io.c - a worker's sockets, the lock over them, and the thread of its
 * heartbeats. */
#include "ps/worker/worker_internal.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "net/limits.h"
#include "ps/lane_view.h"
#include "ps/locality.h"
#include "ps/worker/geo.h"
#include "ps/worker/handshake_io.h"
#include "ps/worker/worker_group.h"
#include "runtime/plan/job_signature.h"

enum { IDLE_BYTES = 256 << 20 }; /* buffers that are kept for the next step */

static fl_worker_io *io_of(fl_remote *x)
{
    return (fl_worker_io *)(void *)x;
}

/* --- sockets -------------------------------------------------------------- */

static void send_packet(void *arg, int lane, fl_packet *p)
{
    fl_worker_io *l = arg;

    fl_socket_send(l->socket[lane], NULL, p); /* a lost one is sent again */
}

/* A copy that is made again has a socket of its own, in a process of now. */
static fleet_status reconnect(void *arg, int n, const char *text, char *name)
{
    fl_worker_io *l = arg;

    return fl_hello_reconnect(l->socket, l->n_lane, n, text, l->o.address,
                              l->o.n_server, l->o.keys, l->o.tcp_only, name);
}

/* What has come; true if anything has. */
static bool receive_all(fl_worker_io *l)
{
    bool any = false;

    for (int i = 0; i < l->n_socket; i++) {
        fl_packet *p;

        while (fl_socket_receive(l->socket[i], NULL, &p) == FLEET_OK && p) {
            fl_client_receive(l->client, i, p, fl_now_ms());
            fl_packet_drop(p);
            any = true;
        }
    }
    return any;
}

/* Under the lock, on the thread that waits for an answer. */
static void wait_for_packets(void *arg)
{
    fl_worker_io *l = arg;

    if (!receive_all(l)) {
        if (fl_socket_wait(l->socket, l->n_socket, NULL,
                           (int)l->heartbeat_ms) != FLEET_OK)
            fl_client_fail(l->client, FLEET_EIO, fleet_last_error(), true);
        receive_all(l);
    }
    fl_client_tick(l->client, fl_now_ms());
}

static void look_for_packets(void *arg)
{
    receive_all(arg);
}

static int64_t now_ms(void *arg)
{
    (void)arg;
    return fl_now_ms();
}

/* The thread: while the trainer computes, lanes hear that the worker lives. */
static void *keep_alive(void *arg)
{
    fl_worker_io *l = arg;

    while (!atomic_load(&l->stop)) {
        fl_socket_wait(NULL, 0, &l->wakeup, (int)l->heartbeat_ms / 2);
        pthread_mutex_lock(&l->lock);
        if (!atomic_load(&l->stop)) {
            receive_all(l);
            fl_client_tick(l->client, fl_now_ms());
        }
        pthread_mutex_unlock(&l->lock);
    }
    return NULL;
}

/* --- the worker's methods, under the lock --------------------------------- */

fleet_status fl_worker_io_lock(fl_worker_io *l)
{
    if (l->generation != fl_fork_generation())
        return fl_fail(FLEET_ESTATE, "a connection to servers cannot be used "
                                     "after fork()");
    pthread_mutex_lock(&l->lock);
    if (l->open)
        return FLEET_OK;
    pthread_mutex_unlock(&l->lock);
    return fl_fail(FLEET_ESTATE, l->left ? "this worker has left: "
                                           "fleet_stop_worker() was called"
                                         : "the parameters are on servers: "
                                           "call fleet_init_worker() first");
}

fleet_status fl_worker_io_unlock(fl_worker_io *l, fleet_status status)
{
    l->remote.updates = l->worker.remote.updates;
    l->remote.behind = l->worker.remote.behind;
    pthread_mutex_unlock(&l->lock);
    return status;
}

/* A method of the worker's, locked. */
#define LOCKED(name, parameters, arguments)                                    \
    static fleet_status locked_##name parameters                               \
    {                                                                          \
        fl_worker_io *l = io_of(x);                                            \
        fl_remote *inner = &l->worker.remote;                                  \
                                                                               \
        FL_TRY(fl_worker_io_lock(l));                                          \
        return fl_worker_io_unlock(l, inner->methods->name arguments);         \
    }

LOCKED(pull,
       (fl_remote * x, int slot, const fl_pull_rows *table, int n_table,
        bool dense, bool prefetch, bool now),
       (inner, slot, table, n_table, dense, prefetch, now))
LOCKED(wait_pull, (fl_remote * x, int slot), (inner, slot))
LOCKED(clip,
       (fl_remote * x, const fl_push *p, fl_norm_list *all, float *factor),
       (inner, p, all, factor))
LOCKED(refresh, (fl_remote * x), (inner))

static fleet_status locked_end_pass(fl_remote *x, double *sum, int n)
{
    fl_worker_io *l = io_of(x);

    FL_TRY(fl_worker_io_before_end(l));
    FL_TRY(fl_worker_io_lock(l));
    return fl_worker_io_unlock(
        l, l->worker.remote.methods->end_pass(&l->worker.remote, sum, n));
}

/* The wish to stop goes with it, and the wait for its update brings what became
 * of that: these are the calling thread's, which other threads do not see. */
static fleet_status locked_push(fl_remote *x, const fl_push *p)
{
    fl_worker_io *l = io_of(x);
    fl_remote *inner = &l->worker.remote;

    FL_TRY(fl_worker_io_lock(l));
    inner->wants_stop = x->wants_stop;
    return fl_worker_io_unlock(l, inner->methods->push(inner, p));
}

static fleet_status locked_wait_update(fl_remote *x)
{
    fl_worker_io *l = io_of(x);
    fl_remote *inner = &l->worker.remote;
    fleet_status status;

    FL_TRY(fl_worker_io_lock(l));
    status = inner->methods->wait_update(inner);
    x->stops = inner->stops;
    return fl_worker_io_unlock(l, status);
}

/* wait_pull() reports what has failed. */
static bool locked_came(fl_remote *x, int slot)
{
    fl_worker_io *l = io_of(x);
    fl_remote *inner = &l->worker.remote;
    bool came;

    if (fl_worker_io_lock(l) != FLEET_OK) {
        fl_error_clear();
        return false;
    }
    receive_all(l);
    came = inner->methods->came(inner, slot);
    fl_worker_io_unlock(l, FLEET_OK);
    return came;
}

static void locked_drop(fl_remote *x, int slot)
{
    fl_worker_io *l = io_of(x);
    fl_remote *inner = &l->worker.remote;

    if (l->generation != fl_fork_generation())
        return;
    pthread_mutex_lock(&l->lock);
    if (l->open)
        inner->methods->drop(inner, slot);
    pthread_mutex_unlock(&l->lock);
}

static const fl_remote_class methods = {
    .pull = locked_pull,
    .wait_pull = locked_wait_pull,
    .came = locked_came,
    .drop = locked_drop,
    .clip = locked_clip,
    .push = locked_push,
    .wait_update = locked_wait_update,
    .end_pass = locked_end_pass,
    .refresh = locked_refresh,
};

fl_remote *fl_worker_io_remote(fl_worker_io *l)
{
    return &l->remote;
}

const fl_trail_point *fl_worker_io_from(const fl_worker_io *l)
{
    return l->trail && fl_trail_is_early(l->trail) ? fl_trail_from(l->trail)
                                                   : NULL;
}

/* Whether all workers stop after the update that is made again is known with
 * its answers. */
fleet_status fl_worker_io_go_on(fl_worker_io *l)
{
    fleet_status status;

    FL_TRY(fl_worker_io_lock(l));
    status = fl_worker_go_on(&l->worker);
    l->remote.stops = l->worker.remote.stops;
    return fl_worker_io_unlock(l, status);
}

fleet_status fl_worker_io_barrier(fl_worker_io *l)
{
    FL_TRY(l->remote.sync ? fl_worker_io_before_end(l) : FLEET_OK);
    FL_TRY(fl_worker_io_lock(l));
    return fl_worker_io_unlock(l, fl_worker_barrier(&l->worker));
}

fleet_status fl_worker_io_load(fl_worker_io *l, const char *text)
{
    FL_TRY(l->remote.sync ? fl_worker_io_before_end(l) : FLEET_OK);
    FL_TRY(fl_worker_io_lock(l));
    return fl_worker_io_unlock(l, fl_worker_load(&l->worker, text));
}

uint32_t fl_worker_io_run(const fl_worker_io *l)
{
    return l->place.run;
}

uint32_t fl_worker_io_incarnation(const fl_worker_io *l)
{
    return l->place.incarnation;
}

void fl_worker_io_before_pass_ends(fl_worker_io *l,
                                   fleet_status (*call)(void *), void *arg)
{
    l->before_end = call;
    l->before_arg = arg;
}

/* Before it closes they are its last ones. */
static void keep_counts(fl_worker_io *l)
{
    if (!l->worker.hot)
        return;
    l->cache = fl_hot_pull_counted(&l->worker);
    l->cached = true;
}

bool fl_worker_io_cache(fl_worker_io *l, fl_hot_counts *counts)
{
    bool cached;

    if (l->generation != fl_fork_generation())
        return false;
    pthread_mutex_lock(&l->lock);
    keep_counts(l);
    *counts = l->cache;
    cached = l->cached;
    pthread_mutex_unlock(&l->lock);
    return cached;
}

int fl_worker_io_lanes(const fl_worker_io *l)
{
    return l->n_lane;
}

bool fl_worker_io_is_open(const fl_worker_io *l)
{
    return l->open;
}

fleet_status fl_worker_io_status(fl_worker_io *l)
{
    fleet_status status = FLEET_OK;

    if (l->generation != fl_fork_generation() ||
        pthread_mutex_trylock(&l->lock) != 0)
        return FLEET_OK; /* another call works the sockets, and will see */
    if (l->open)
        status = fl_client_status(l->client);
    pthread_mutex_unlock(&l->lock);
    return status;
}

/* --- life ----------------------------------------------------------------- */

fleet_status fl_worker_io_create(fl_worker_io **io,
                                 const fl_worker_io_options *o)
{
    int64_t ms = o->peer_ms / 5; /* a fifth of the silence that means death */
    fl_worker_io *l;

    FL_TRY(FL_NEW(io, sizeof *l));
    l = *io;
    l->o = *o;
    l->remote.methods = &methods;
    l->generation = fl_fork_generation();
    l->heartbeat_ms = ms < 20 ? 20 : ms > 1000 ? 1000 : ms;
    l->wakeup.fd = -1;
    pthread_mutex_init(&l->lock, NULL);
    return FLEET_OK;
}

static fleet_status make_client(fl_worker_io *l, const fl_worker_mode *how,
                                const fl_job_lanes *lanes)
{
    const fl_client_options options = {
        .job = l->o.job,
        .stream = (uint32_t)l->o.index,
        .n_stream = l->o.n_worker,
        .n_heter = l->o.n_heter,
        .request_ms = l->o.request_ms,
        .peer_ms = l->o.peer_ms,
        .step_ms = l->o.step_ms + l->o.peer_ms,
        .restart_ms = how->replicas ? FL_REPLICA_PATIENCE * l->o.peer_ms
                                    : how->restart_ms,
        .replicas = how->replicas,
        .heartbeat_ms = l->heartbeat_ms,
        .whole_sums = lanes->elsewhere,
        .holds_bye = l->trail != NULL,
        .pool = l->pool,
        .log = &l->o.context->log};
    const fl_client_host host = {l, send_packet, reconnect};

    FL_TRY(fl_client_create(&l->client, &options, &host));
    fl_client_set_incarnation(l->client, lanes->incarnation);
    fl_client_set_run(l->client, lanes->run);
    l->place = (fl_job_place){lanes->run, lanes->incarnation};
    l->n_lane = lanes->n;
    FL_TRY(fl_hello_connect(lanes, l->o.n_server, l->o.keys, &l->socket,
                            &l->n_socket));
    return fl_hello_add_lanes(lanes, l->o.address, l->o.n_server, l->client);
}

static fleet_status say_hello(fl_worker_io *l, fl_store *store,
                              const fl_worker_mode *how, const char *mode,
                              fl_job_lanes *lanes)
{
    fleet_status status;
    fl_hello_options o = {.address = l->o.address,
                          .n_server = l->o.n_server,
                          .job = l->o.job,
                          .mode = mode,
                          .stream = (uint32_t)l->o.index,
                          .n_worker = l->o.n_worker,
                          .connect_ms = l->o.connect_ms,
                          .peer_ms = l->o.peer_ms,
                          .tcp_only = l->o.tcp_only,
                          .replicas = how->replicas,
                          .keys = l->o.keys,
                          .pool = l->pool,
                          .log = &l->o.context->log};
    char *program;

    if (l->trail) {
        o.nonce = fl_trail_nonce(l->trail);
        o.life = fl_trail_life(l->trail);
    }
    o.program = program = fl_job_signature_text(store);
    status = program ? fl_hello(&o, lanes) : FLEET_ENOMEM;
    fl_free(program);
    return status;
}

/* Servers that all workers have left end. */
static fleet_status join_servers(fl_worker_io *l, fl_store *store,
                                 const fl_worker_mode *how, const char *mode,
                                 fl_job_lanes *lanes)
{
    fleet_status status = say_hello(l, store, how, mode, lanes);

    if (status == FLEET_ETIMEDOUT && l->trail)
        FL_TRY(fl_worker_check_trail(l->trail, l->o.index));
    return status;
}

static fleet_status open_all(fl_worker_io *l, fl_store *store,
                             const fl_worker_mode *how, const char *mode,
                             fl_job_lanes *lanes)
{
    const fl_worker_host host = {l, wait_for_packets, now_ms, look_for_packets};

    if (strncmp(l->o.address[0], "inproc://", 9) != 0)
        fl_descriptors_limit(!l->o.keep_limit); /* a socket for each lane */
    FL_TRY(fl_packet_pool_create(&l->pool, IDLE_BYTES));
    if (how->trail)
        FL_TRY(fl_trail_open(&l->trail, how->trail));
    FL_TRY(join_servers(l, store, how, mode, lanes));
    if (l->trail) /* of another run of the job nothing in it counts */
        FL_TRY(fl_trail_enter(l->trail, lanes->run));
    FL_TRY(make_client(l, how, lanes));
    FL_TRY(fl_worker_init(&l->worker, l->client, &host, store, l->o.n_server,
                          lanes->n_lane, how->sync));
    if (l->trail)
        FL_TRY(fl_worker_use_trail(&l->worker, l->trail, &how->trail_host,
                                   l->o.index));
    l->worker.bounds_staleness = how->bounds_staleness;
    l->worker.by_parts = how->by_parts;
    if (how->cache_bytes > 0)
        FL_TRY(fl_hot_pull_begin(&l->worker, how->cache_bytes,
                                 how->cache_staleness));
    if (how->exchange_every > 0)
        FL_TRY(fl_geo_begin(&l->worker, how->exchange_every, l->o.n_worker));
    fl_client_watch(l->client, true, fl_now_ms());
    FL_TRY(fl_wakeup_create(&l->wakeup));
    FL_TRY(fl_thread_start(&l->thread, keep_alive, l, "servers"));
    l->has_thread = true;
    return FLEET_OK;
}

static void close_all(fl_worker_io *l)
{
    atomic_store(&l->stop, true);
    if (l->wakeup.fd >= 0)
        fl_wakeup_ring(&l->wakeup);
    if (l->has_thread)
        pthread_join(l->thread, NULL);
    l->has_thread = false;
    l->open = false;
    if (l->worker.client)
        fl_worker_done(&l->worker);
    for (int i = 0; i < l->n_socket; i++)
        fl_socket_close(l->socket[i],
                        l->heartbeat_ms < 500 ? (int)l->heartbeat_ms : 500);
    fl_free(l->socket);
    l->socket = NULL;
    l->n_lane = l->n_socket = 0;
    fl_client_destroy(l->client);
    l->client = NULL;
    fl_packet_pool_destroy(l->pool);
    l->pool = NULL;
    if (l->wakeup.fd >= 0)
        fl_wakeup_destroy(&l->wakeup);
    l->wakeup.fd = -1;
}

/* Servers that know this worker need not wait until it is missed. */
static void tell_why(fl_worker_io *l, const char *error)
{
    char why[900], name[FL_STREAM_NAME];

    if (!l->client || !l->worker.client)
        return;
    snprintf(
        why, sizeof why, "%s has given up: %.700s",
        fl_stream_name(name, (uint32_t)l->o.index, l->o.n_worker, l->o.n_heter),
        error);
    pthread_mutex_lock(&l->lock);
    fl_client_fail(l->client, FLEET_EPEER, why, true);
    pthread_mutex_unlock(&l->lock);
}

/* Its process before had nothing more to do, and not all lanes may know. */
static fleet_status leave_again(fl_worker_io *l)
{
    char name[FL_STREAM_NAME];

    FL_TRY(fl_worker_io_lock(l));
    FL_TRY(fl_worker_io_unlock(l, fl_worker_leave_again(&l->worker)));
    l->left = true;
    close_all(l);
    return fl_fail(FLEET_EEND,
                   "%s had done its part of the job, and has left it now: "
                   "nothing is to be done",
                   fl_stream_name(name, (uint32_t)l->o.index, l->o.n_worker,
                                  l->o.n_heter));
}

fleet_status fl_worker_io_open(fl_worker_io *l, fl_store *store,
                               const fl_worker_mode *how, const char *mode)
{
    fl_job_lanes lanes = {0};
    fleet_status status;
    fl_error error;

    if (l->open || l->left)
        return fl_fail(FLEET_ESTATE, "fleet_init_worker: was called already");
    atomic_store(&l->stop, false);
    status = open_all(l, store, how, mode, &lanes);
    if (status == FLEET_OK && how->half)
        status = fl_worker_use_half_async(&l->worker, how->half);
    if (status == FLEET_OK)
        status = fl_worker_use_wire(&l->worker, &how->wire);
    fl_error_take(&error, status);
    fl_free(lanes.lane);
    fl_free(lanes.replica);
    if (status != FLEET_OK) {
        tell_why(l, error.text);
        close_all(l);
        fl_worker_close_trail(l);
        return fl_error_raise(&error);
    }
    l->remote.sync = how->sync;
    l->open = true;
    l->log_folder = how->log_folder ? fl_strdup(how->log_folder) : NULL;
    return l->trail && fl_trail_from(l->trail)->state == FL_TRAIL_LEAVING
               ? leave_again(l)
               : FLEET_OK;
}

fleet_status fl_worker_io_leave(fl_worker_io *l)
{
    fleet_status status;
    fl_error error;

    FL_TRY(fl_worker_io_lock(l));
    status = fl_worker_io_unlock(l, fl_worker_leave(&l->worker));
    fl_error_take(&error, status);
    if (status != FLEET_OK)
        return status; /* told, or to be told by fl_worker_io_destroy() */
    keep_counts(l);
    l->left = true;
    close_all(l);
    return fl_error_raise(&error);
}

/* The handle goes, and the job has not been left. If a call has failed, its
 * caller knows why; if none has, the log says it, too. */
static void give_up(fl_worker_io *l)
{
    const char *error = fleet_last_error();
    char why[900], name[FL_STREAM_NAME];

    snprintf(
        why, sizeof why, "%s has given up, without fleet_stop_worker(): %.700s",
        fl_stream_name(name, (uint32_t)l->o.index, l->o.n_worker, l->o.n_heter),
        *error ? error : "none of its calls has failed");
    if (!*error)
        FL_WARN(&l->o.context->log, "fleet_destroy: %s; the job ends", why);
    pthread_mutex_lock(&l->lock);
    fl_client_fail(l->client, FLEET_EPEER, why, true);
    pthread_mutex_unlock(&l->lock);
}

void fl_worker_io_destroy(fl_worker_io *l)
{
    if (!l)
        return;
    if (l->generation != fl_fork_generation()) {
        fl_free(l); /* the rest is the parent's */
        return;
    }
    if (l->open)
        give_up(l);
    close_all(l);
    fl_worker_close_trail(l);
    pthread_mutex_destroy(&l->lock);
    fl_free(l);
}
