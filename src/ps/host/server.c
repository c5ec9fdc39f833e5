/* server.c - the threads of a server: one per lane, which works its socket. */
#define _GNU_SOURCE
#include "ps/host/server.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/json/json_write.h"
#include "base/memory.h"
#include "net/limits.h"
#include "ps/control/lane_move.h"
#include "ps/locality.h"
#include "ps/server/lane_counters.h"
#include "ps/host/server_internal.h"
#include "ps/worker/handshake.h"
#include "runtime/plan/job_signature.h"

enum {
    IDLE_BYTES = 256 << 20, /* buffers that are kept for the next answers */
    LINGER_MS = 2000,       /* for the last answers to go out */
    ABORT_LINGER_MS = 500,  /* after a failure: some workers may be gone */
    GATHERED = 256,         /* packets, at most, until all else has its turn */
    LOOK_MS = 1             /* for rows that a table has out of memory */
};

/* --- a lane's thread ------------------------------------------------------ */

static void send_packet(void *arg, const fl_peer *to, fl_packet *p)
{
    fl_lane_runner *r = arg;

    fl_socket_send(r->socket, to,
                   p); /* a deadline notices a worker that is gone */
}

/* The thread looks at its socket: how long ago has it done so before? */
static void look_at_socket(fl_lane_runner *r)
{
    int64_t now = fl_now_ns();

    if (now - r->looked_ns > r->away_ns)
        r->away_ns = now - r->looked_ns;
    r->looked_ns = now;
}

static void wait_for_messages(fl_lane_runner *r, int ms)
{
    fl_socket *const both[] = {r->socket, r->leader};

    look_at_socket(r);
    fl_socket_wait(both, r->leader ? 2 : 1, &r->wakeup, ms);
    r->looked_ns = fl_now_ns();
}

/* Where each commit is a flush, steps that have come by now are flushed
 * together. */
static void receive_all(fl_lane_runner *r)
{
    bool gathers = fl_server_log_flushes(r->server);
    fl_packet *p;
    fl_peer from;
    int n = 0;

    fl_lane_gather(r->lane, gathers);
    while (n++ < GATHERED) {
        if (fl_socket_receive(r->socket, &from, &p) != FLEET_OK || !p)
            break;
        fl_lane_receive(r->lane, &from, p, fl_now_ms());
        fl_packet_drop(p);
        look_at_socket(r);
    }
    fl_lane_gather(r->lane, false);
}

/* What was refused is taken, too, or ZeroMQ keeps an event of each. */
static void note_socket(fl_lane_runner *r)
{
    fl_lane_note_socket(r->lane, fl_socket_refused(r->socket),
                        (uint64_t)r->away_ns / 1000);
}

void fl_server_ring(fl_server *s)
{
    for (int i = 0; i < s->n_runner; i++)
        if (s->runner[i].wakeup.fd >= 0)
            fl_wakeup_ring(&s->runner[i].wakeup);
}

/* The first lane that fails says why; the other lanes end with the same
 * words. */
static void record_failure(fl_server *s, const fl_error *error, bool loads)
{
    bool first;

    pthread_mutex_lock(&s->lock);
    first = s->failed.code == FLEET_OK;
    if (first) {
        s->failed = *error;
        s->failed_to_load = loads;
        atomic_store(&s->is_over, true);
    }
    pthread_mutex_unlock(&s->lock);
    if (first)
        fl_server_ring(s);
}

void fl_server_fail(fl_server *s, const fl_error *error)
{
    record_failure(s, error, false);
}

/* It does not serve yet: workers are told as they come. */
static bool begins(const fl_lane_runner *r)
{
    return atomic_load(&r->loads) || atomic_load(&r->replays) ||
           atomic_load(&r->server->identity.unfollowed) > 0;
}

/* Reasons to end that are not this lane's: another lane's failure, a signal. */
static void check_stop(fl_lane_runner *r)
{
    const fl_server *around = r->server->o.host;
    const char *stop;
    bool loads;
    fl_error failed;
    char why[200];

    if (fl_lane_error(r->lane)->code != FLEET_OK)
        record_failure(r->server, fl_lane_error(r->lane), begins(r));
    pthread_mutex_lock(&r->server->lock);
    failed = r->server->failed;
    loads = r->server->failed_to_load;
    pthread_mutex_unlock(&r->server->lock);
    stop = atomic_load(&r->server->stop); /* which another lane may have seen */
    if (!stop && around)
        stop = atomic_load(&around->stop);
    if (around && atomic_load(&around->is_over))
        fl_lane_seek_no_more(r->lane);
    if (failed.code != FLEET_OK && loads && !stop)
        fl_lane_doom(r->lane, failed.code, failed.text);
    else if (failed.code != FLEET_OK)
        fl_lane_abort(r->lane, failed.code, failed.text);
    if (!stop)
        return;
    snprintf(why, sizeof why, "%sserver %d has ended: %s",
             r->server->o.follows && !around ? "the replica of " : "",
             around ? around->o.index : r->server->o.index, stop);
    fl_lane_abort(r->lane, FLEET_EPEER, why);
}

static void report_strangers(const fl_lane_runner *r)
{
    const fl_server *s = r->server;
    fl_lane_counts n = fl_lane_counted(r->lane);

    if (s->guard)
        fl_lane_counts_log_refused(&n, &s->o.context->log, s->o.index,
                                   r->number);
    fl_lane_counts_log_strays(&n, &s->o.context->log, s->o.index, r->number,
                              fl_socket_dropped(r->socket));
}

/* All workers have left it, and so the job. */
static void note_end(const fl_lane_runner *r)
{
    if (fl_lane_state_of(r->lane) == FL_LANE_LEFT &&
        fl_lane_replica(r->lane) == FL_NO_REPLICA)
        atomic_store(&r->server->is_over, true);
}

/* A path that is gone is connected to in vain, and that is answered by tcp. */
static void leave_ipc(fl_server *s)
{
    for (int i = 0; i < s->n_runner; i++)
        if (*s->runner[i].ipc)
            unlink(s->runner[i].ipc);
    fl_lane_offer(s->runner[0].lane, s->tcp_address);
}

/* By lane 0, which tells workers the addresses. */
static void watch_descriptors(const fl_lane_runner *r)
{
    fl_server *s = r->server;
    bool was = s->descriptors.scarce;

    if (r->number > 0 || fl_server_is_inproc(s) ||
        (s->o.follows && !s->o.replica))
        return; /* another server of this process looks for both */
    fl_descriptors_watch(&s->descriptors, fl_now_ms());
    if (s->descriptors.scarce && !was)
        leave_ipc(s);
}

/* How long it may wait for messages. */
static int nap_ms(fl_lane_runner *r, int64_t tick_ms)
{
    int ms = fl_lane_resume(r->lane, fl_now_ms());

    if (fl_runner_reads(r))
        return 0;
    if (ms < 0 || ms > tick_ms)
        ms = (int)tick_ms;
    return fl_lane_looks_again(r->lane) && ms > LOOK_MS ? LOOK_MS : ms;
}

/* Each look costs a few system calls per lane of the job, perhaps on a file
 * system that is far away: once a second. */
static void look_for_guests(const fl_lane_runner *r, int64_t *next_ms)
{
    int64_t now_ms = fl_now_ms();

    if (r->number != 0 || now_ms < *next_ms)
        return;
    *next_ms = now_ms + 1000;
    fl_server_find_guests(r->server);
}

static void *run_lane(void *arg)
{
    fl_lane_runner *r = arg;
    bool failed;
    int64_t tick_ms = r->server->o.peer_ms / 10, next_ms = 0, home_ms = 0;

    tick_ms = tick_ms < 10 ? 10 : tick_ms > 500 ? 500 : tick_ms;
    r->looked_ns = fl_now_ns();
    if (atomic_load(&r->loads) && !r->server->comes_back &&
        fl_runner_begin_load(r) != FLEET_OK)
        fl_lane_abort(r->lane, fl_last_code(), fleet_last_error());
    while (fl_lane_state_of(r->lane) == FL_LANE_RUNS || r->has_command ||
           r->cuts || r->copy || fl_runner_awaits_guests(r)) {
        wait_for_messages(r, nap_ms(r, tick_ms));
        fl_runner_hear_leader(r);
        fl_runner_come_home(r);
        receive_all(r);
        fl_lane_look_again(r->lane, fl_now_ms());
        fl_runner_end_command(r);
        fl_runner_replay(r);
        fl_runner_cut(r);
        fl_runner_copy(r);
        check_stop(r);
        if (atomic_load(&r->server->first_ended))
            fl_lane_leave_gone(r->lane);
        if (fl_now_ms() < next_ms)
            continue; /* a tick looks at all workers: not with each message */
        next_ms = fl_now_ms() + tick_ms;
        fl_lane_tick(r->lane, fl_now_ms());
        note_end(r);
        note_socket(r);
        watch_descriptors(r);
        look_for_guests(r, &home_ms);
    }
    failed = fl_lane_state_of(r->lane) == FL_LANE_FAILED;
    if (failed)
        record_failure(r->server, fl_lane_error(r->lane), begins(r));
    note_socket(r);
    report_strangers(r);
    fl_socket_close(r->leader, 0);
    r->leader = NULL;
    fl_socket_close(r->socket, failed ? ABORT_LINGER_MS : LINGER_MS);
    r->socket = NULL;
    atomic_fetch_add(&r->server->n_ended, r->number > 0);
    if (r->number == 0) {
        atomic_store(&r->server->first_ended, true);
        fl_server_ring(r->server);
    }
    return NULL;
}

/* --- making it ------------------------------------------------------------ */

fleet_status fl_server_make_lane(fl_server *s, fl_lane_runner *r)
{
    const fl_lane_options options = {
        .layout = &r->layout,
        .map = &s->map,
        .identity = &s->identity,
        .server = s->o.index,
        .lane = r->number,
        .n_lane = s->o.n_lane,
        .n_stream = s->o.n_worker,
        .n_heter = s->o.n_heter,
        .sync = s->o.sync,
        .bounds_staleness = s->o.bounds_staleness,
        .max_staleness = (uint64_t)s->o.max_staleness,
        .scaled = s->o.scaled,
        .live_hash = s->o.live_hash,
        .job = s->o.job,
        .mode = s->o.mode,
        .program = s->program,
        .address = s->address,
        .connect_ms = s->o.connect_ms,
        .peer_ms = s->o.peer_ms,
        .step_ms = s->o.step_ms,
        .restart_ms = s->o.restart_ms,
        .no_restart = s->o.no_restart,
        .n_also = fl_server_copies(s),
        .replica = s->o.follows   ? FL_REPLICA_FOLLOWS
                   : s->o.joins   ? FL_REPLICA_GONE
                   : s->o.replica ? FL_REPLICA_LEADS
                                  : FL_NO_REPLICA,
        .process = s->process,
        .seeks = s->o.seeks_copies && r->number == 0,
        .comes_again = s->o.comes_again,
        .no_move = s->o.no_move,
        .log_goes = s->o.log.level != FL_NO_LOG,
        .signpost = s->o.log.level != FL_NO_LOG && !s->o.host,
        .journal = fl_runner_journal(r),
        .pool = s->pool,
        .log = &s->o.context->log};
    const fl_lane_host host = {r,
                               send_packet,
                               fl_runner_begin_command,
                               fl_runner_progress,
                               fl_runner_is_loading,
                               fl_runner_ask_leader,
                               fl_runner_begin_copy,
                               fl_runner_ring,
                               s->o.host ? NULL : fl_runner_take_guest,
                               s->o.host ? NULL : fl_runner_tell_guest,
                               s->o.host ? NULL : fl_runner_know_joined,
                               s->o.host ? NULL : fl_runner_tell_joined,
                               fl_runner_count_move,
                               fl_runner_leave,
                               fl_runner_home};

    FL_TRY(fl_lane_create(&r->lane, &options, &host, fl_now_ms()));
    return r->gone_view ? fl_lane_begin_gone(r->lane, r->gone_view) : FLEET_OK;
}

/* Runs of one job are told apart, and put in order, by the time at which they
 * began: milliseconds, which come around after 49 days. */
void fl_server_draw_identity(fl_server *s)
{
    struct timespec now;

    do {
        clock_gettime(CLOCK_REALTIME, &now);
        s->identity.nonce = (uint32_t)fl_nonce();
        if (s->o.index == 0)
            s->identity.run =
                (uint32_t)(now.tv_sec * 1000ll + now.tv_nsec / 1000000);
    } while (s->identity.nonce == 0 ||
             (s->o.index == 0 && s->identity.run == 0));
}

fleet_status fl_server_set_load(fl_server *s)
{
    fl_free(s->load);
    s->load = s->o.load ? fl_strdup(s->o.load) : NULL;
    return s->o.load && !s->load ? FLEET_ENOMEM : FLEET_OK;
}

static fleet_status make_all(fl_server *s)
{
    FL_TRY(fl_server_make_runners(s));
    FL_TRY(fl_server_set_load(s));
    for (int i = 1; s->o.lane_port && i < s->o.n_lane; i++)
        s->port[i] = s->o.lane_port[i];
    FL_TRY(fl_server_make_addresses(s));
    s->descriptors.files = s->o.log.level == FL_NO_LOG ? 0 : s->o.n_lane;
    if (!fl_server_is_inproc(s))
        FL_TRY(fl_descriptors_begin(&s->descriptors, s->n_runner,
                                    !s->o.keep_limit));
    FL_TRY(fl_packet_pool_create(&s->pool, IDLE_BYTES));
    s->mark = (uint32_t)fl_nonce();
    s->process = (uint32_t)fl_nonce() | 1;
    if (!s->o.follows)
        fl_server_draw_identity(s);
    FL_TRY(fl_server_log_open(s));
    if (!fl_server_is_inproc(s) && !*s->folder.path)
        FL_TRY(fl_ipc_folder_open(&s->folder));
    if (s->o.keys && !fl_server_is_inproc(s))
        FL_TRY(fl_guard_create(&s->guard, s->o.keys));
    fl_server_let_in(s);
    for (int i = 0; i < s->n_runner; i++) {
        FL_TRY(fl_server_bind_lane(s, &s->runner[i]));
        FL_TRY(fl_server_make_store(s, &s->runner[i]));
    }
    s->program = fl_job_signature_text(s->runner[0].store);
    if (!s->program)
        return FLEET_ENOMEM;
    FL_TRY(fl_server_log_begin(s));
    FL_TRY(fl_server_find_homes(s));
    for (int i = 0; i < s->n_runner; i++)
        FL_TRY(fl_server_make_lane(s, &s->runner[i]));
    if (s->o.follows)
        FL_TRY(fl_server_find_leader(s));
    if (!fl_server_is_inproc(s))
        FL_TRY(fl_descriptors_check(&s->descriptors, s->o.n_worker,
                                    s->n_runner + fl_server_copies(s)));
    return FLEET_OK;
}

fleet_status fl_server_create(fl_server **server, const fl_server_options *o)
{
    fleet_status status;
    fl_error error;

    FL_TRY(fl_server_begin(server, o));
    status = make_all(*server);
    fl_error_take(&error, status);
    if (status != FLEET_OK) {
        fl_server_destroy(*server);
        *server = NULL;
    }
    return fl_error_raise(&error);
}

bool fl_server_has_led(const fl_server *s)
{
    bool any = !s->o.follows;

    for (int i = 0; i < s->n_runner; i++)
        any = any || fl_lane_replica(s->runner[i].lane) == FL_REPLICA_ALONE ||
              fl_lane_replica(s->runner[i].lane) == FL_REPLICA_LEADS;
    return any;
}

/* Copies that have never led have nothing to say of their own. */
static void log_counts(const fl_server *s)
{
    fl_lane_counts all = {0};

    if (!fl_server_has_led(s))
        return;
    for (int i = 0; i < s->n_runner; i++) {
        fl_lane_counts one = fl_lane_counted(s->runner[i].lane);

        fl_lane_counts_add(&all, &one);
    }
    fl_lane_counts_log(&all, &s->o.context->log, s->o.index);
}

bool fl_server_count(const fl_server *s, int lane, const char *name,
                     uint64_t *value)
{
    fl_lane_counts counts = fl_lane_counted(s->runner[lane].lane);

    return fl_lane_counts_find(&counts, name, value);
}

static void begin_replay(fl_server *s)
{
    int n = 0;

    for (int i = 0; i < s->n_runner; i++)
        n += !s->runner[i].gone_view;
    atomic_store(&s->n_reading, n);
    for (int i = 0; i < s->n_runner; i++)
        if (s->runner[i].gone_view)
            fl_runner_begin_gone(&s->runner[i]);
        else
            fl_runner_begin_replay(&s->runner[i]);
}

/* Of a server that joins, to which no lane has come. One that has come
 * back may have been drained, and killed then. Of one of which the job was
 * told the job waits for nothing: fleetctl may have been ended. */
static fleet_status end_without_lane(fl_server *s)
{
    const double seconds = (double)s->o.connect_ms / 1000;

    if (s->comes_back)
        return FLEET_OK;
    if (!*s->joined[s->o.index])
        return fl_fail(FLEET_ETIMEDOUT,
                       "server %d, which joins: no lane has come to it within "
                       "%.1f s (connect deadline): expected `fleetctl add %s`",
                       s->o.index, seconds, fl_address_text(s->o.address));
    FL_WARN(&s->o.context->log,
            "server %d, which has joined: no lane has come to it within %.1f s "
            "(connect deadline), so it ends",
            s->o.index, seconds);
    return FLEET_OK;
}

fleet_status fl_server_run(fl_server *s)
{
    fleet_status status = FLEET_OK;

    s->began_ms = s->guest_ms = fl_now_ms();
    if (s->o.follows)
        fl_server_begin_follow(s);
    if (s->comes_back)
        begin_replay(s);
    for (int i = 0; i < s->n_runner && status == FLEET_OK; i++) {
        fl_lane_runner *r = &s->runner[i];

        status = fl_thread_start(&r->thread, run_lane, r, "a lane");
        r->has_thread = status == FLEET_OK;
    }
    if (status != FLEET_OK) {
        fl_error error;

        fl_error_take(&error, status);
        record_failure(s, &error, s->comes_back);
    }
    for (int i = 0; i < s->n_runner; i++)
        if (s->runner[i].has_thread)
            pthread_join(s->runner[i].thread, NULL);
    fl_server_join_guests(s);
    log_counts(s);
    fl_server_log_end(s);
    if (atomic_load(&s->stop))
        return FLEET_OK;
    if (s->o.joins && s->failed.code == FLEET_OK && !atomic_load(&s->had))
        return end_without_lane(s);
    return fl_error_raise(&s->failed);
}

const char *fl_server_stopped(const fl_server *s)
{
    return atomic_load(&s->stop);
}

void fl_server_stop(fl_server *const *s, int n, const char *why)
{
    for (int i = 0; i < n; i++)
        atomic_store(&s[i]->stop, why);
    for (int i = 0; i < n; i++)
        fl_server_ring(s[i]);
}

void fl_runner_done(fl_lane_runner *r)
{
    fl_lane_destroy(r->lane);
    fl_socket_close(r->socket, 0);
    fl_socket_close(r->leader, 0);
    fl_partition_done(&r->layout);
    fl_store_destroy(r->store);
    if (r->wakeup.fd >= 0)
        fl_wakeup_destroy(&r->wakeup);
    fl_runner_log_done(r);
    if (*r->ipc)
        unlink(r->ipc);
    fl_free(r->address);
    fl_free(r->tcp_address);
}

void fl_server_destroy(fl_server *s)
{
    if (!s)
        return;
    for (int i = 0; s->runner && i < s->n_runner; i++)
        fl_runner_done(&s->runner[i]);
    fl_server_forget_guests(s);
    fl_guard_destroy(s->guard);
    fl_packet_pool_destroy(s->pool);
    fl_ipc_folder_close(&s->folder);
    fl_descriptors_end(&s->descriptors);
    fl_free(s->runner);
    fl_free(s->address);
    fl_free(s->tcp_address);
    for (int i = 0; i < FL_MOST_LANE; i++)
        fl_free(s->leader_text[i]);
    fl_free(s->program);
    fl_free(s->load);
    fl_journal_folder_close(&s->home);
    pthread_mutex_destroy(&s->lock);
    fl_free(s);
}
