/* sim_worker.c - worker processes of the simulator: a handshake, then a fiber
 * that trains, driven as worker_io.c does it. */
#define SUITE sim_kit
#include "sim_internal.h"
#include "sim_trail.h"
#include "test.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "ps/worker/geo.h"
#include "ps/worker/hot_pull.h"
#include "ps/worker/remote_table.h"
#include "ps/worker/worker_group.h"

enum { JOIN_TICK_MS = 100 };

void sim_worker_ends(sim_worker *w)
{
    w->phase = SIM_ENDED;
    w->ended_ms = w->s->now_ms;
    sim_say(w->s, *w->text ? w->text : "ends", w->process, -1, NULL);
}

/* --- sending -------------------------------------------------------------- */

static void send_to(sim_worker *w, int lane, bool joins, fl_packet *p)
{
    int server = lane / w->s->o.n_lane;

    if (w->dying)
        return;
    sim_trail_message(w);
    sim_fault_message(w->s, w->process, server, p);
    if (!w->dying)
        sim_carry(w->s,
                  (sim_event){.kind = SIM_TO_LANE,
                              .worker = w->process,
                              .server = server,
                              .lane = lane,
                              .stay = w->stay[lane],
                              .life = w->life,
                              .joins = joins},
                  p);
}

static void worker_sends(void *arg, int lane, fl_packet *p)
{
    send_to(arg, lane, false, p);
}

static void handshake_sends(void *arg, int server, fl_packet *p)
{
    sim_worker *w = arg;

    send_to(w, server * w->s->o.n_lane, true, p);
}

static fleet_status lane_moved(void *arg, int lane, const char *address,
                               char name[FL_LANE_NAME])
{
    sim_worker *w = arg;

    (void)name;
    w->stay[lane] = sim_move_stay(address);
    return FLEET_OK;
}

static void post_tick(sim_worker *w, int64_t in_ms)
{
    sim_post(w->s, (sim_event){.at_ms = w->s->now_ms + in_ms,
                               .kind = SIM_WORKER_TICK,
                               .worker = w->process,
                               .life = w->life});
}

static void post_wake(sim_worker *w, int64_t in_ms)
{
    sim_post(w->s, (sim_event){.at_ms = w->s->now_ms + in_ms,
                               .kind = SIM_WORKER_WAKES,
                               .worker = w->process,
                               .life = w->life});
}

/* --- the fiber ------------------------------------------------------------ */

static bool read_inbox(sim_worker *w)
{
    bool any = w->n_inbox > 0;

    for (int i = 0; i < w->n_inbox; i++) {
        fl_client_receive(w->client, w->from[i], w->inbox[i], w->s->now_ms);
        fl_packet_drop(w->inbox[i]);
    }
    w->n_inbox = 0;
    return any;
}

/* As worker_io.c does it. */
static void worker_waits(void *arg)
{
    sim_worker *w = arg;

    if (!read_inbox(w)) {
        w->waiting = true;
        sim_fiber_leave(w);
        w->waiting = false;
        read_inbox(w);
    }
    fl_client_tick(w->client, w->s->now_ms);
}

static void worker_looks(void *arg)
{
    read_inbox(arg);
}

static int64_t worker_now(void *arg)
{
    return ((sim_worker *)arg)->s->now_ms;
}

/* As fl_worker_io_destroy() does it. */
static void give_up(sim_worker *w)
{
    char why[1100];

    snprintf(w->text, sizeof w->text, "%s", fleet_last_error());
    snprintf(why, sizeof why, "worker %d has given up: %s", w->index, w->text);
    fl_client_fail(w->client, FLEET_EPEER, why, true);
}

static void fiber(sim_worker *w)
{
    w->status = w->s->body(w);
    if (w->status != FLEET_OK)
        give_up(w);
    sim_worker_ends(w);
}

void sim_compute(sim_worker *w, int64_t ms)
{
    if (w->dying)
        return;
    post_wake(w, w->s->o.slowness > 0 ? w->s->o.slowness * ms : ms);
    sim_fiber_leave(w);
}

void sim_note(sim_worker *w, const char *format, ...)
{
    size_t used = strlen(w->log);
    va_list args;

    va_start(args, format);
    vsnprintf(w->log + used, sizeof w->log - used, format, args);
    va_end(args);
}

/* --- a worker that has joined --------------------------------------------- */

static void add_lanes(sim *s, sim_worker *w)
{
    for (int i = 0; i < w->lanes.n; i++) {
        char name[40], address[60];
        int server = i / s->o.n_lane;

        snprintf(address, sizeof address, "inproc://sim/%d/%d", server,
                 i % s->o.n_lane);
        CHECK_TEXT(w->lanes.lane[i].address, address);
        snprintf(name, sizeof name, "server %d at sim:%d", server, i);
        CHECK_OK(fl_client_add_lane(w->client, name, s->now_ms));
        fl_client_set_peer(w->client, i, w->lanes.lane[i].peer);
    }
}

static void make_client(sim *s, sim_worker *w)
{
    const fl_client_options options = {.job = "sim",
                                       .stream = (uint32_t)w->index,
                                       .request_ms = s->o.request_ms,
                                       .peer_ms = s->o.peer_ms,
                                       .step_ms = s->o.step_ms + s->o.peer_ms,
                                       .heartbeat_ms = s->o.heartbeat_ms,
                                       .whole_sums = s->o.strange > 0,
                                       .replicas = s->o.replicas,
                                       .restart_ms =
                                           s->o.replicas ? 4 * s->o.peer_ms : 0,
                                       .holds_bye = w->trail != NULL,
                                       .window = s->o.window,
                                       .pool = s->pool};
    const fl_client_host host = {
        .arg = w, .send = worker_sends, .moved = lane_moved};

    CHECK_OK(fl_client_create(&w->client, &options, &host));
    fl_client_set_incarnation(w->client, w->lanes.incarnation);
    fl_client_set_run(w->client, w->lanes.run);
    add_lanes(s, w);
}

static void begin_to_work(sim *s, sim_worker *w)
{
    const fl_worker_host host = {w, worker_waits, worker_now, worker_looks};

    make_client(s, w);
    w->store = sim_store_of(s->o.model, fl_remote_rows_make,
                            (fl_block_filter){0}, s->o.geo_every > 0);
    CHECK_OK(fl_worker_init(&w->core, w->client, &host, w->store, s->o.n_server,
                            w->lanes.n_lane, s->o.sync));
    w->core.piece_bytes = s->o.piece_bytes;
    w->core.bounds_staleness = s->o.bounds_staleness;
    if (s->o.half.merged > 0)
        CHECK_OK(fl_worker_use_half_async(&w->core, &s->o.half));
    if (s->o.cache_bytes > 0)
        CHECK_OK(fl_hot_pull_begin(&w->core, s->o.cache_bytes,
                                   s->o.cache_staleness));
    CHECK_OK(fl_worker_use_wire(&w->core, &s->o.wire));
    if (s->o.geo_every > 0)
        CHECK_OK(fl_geo_begin(&w->core, s->o.geo_every, s->o.n_worker));
    sim_trail_enter(w);
    fl_client_watch(w->client, true, s->now_ms);
    sim_fiber_make(w, fiber);
    w->phase = SIM_WORKS;
    post_wake(w, 0);
}

/* --- joining -------------------------------------------------------------- */

static void look_at_handshake(sim *s, sim_worker *w)
{
    if (w->dying || !fl_handshake_is_over(w->handshake))
        return;
    w->status = fl_handshake_result(w->handshake, &w->lanes);
    if (w->status != FLEET_OK)
        snprintf(w->text, sizeof w->text, "%s", fleet_last_error());
    fl_handshake_destroy(w->handshake);
    w->handshake = NULL;
    if (w->status != FLEET_OK)
        sim_worker_ends(w);
    else
        begin_to_work(s, w);
}

void sim_worker_comes(sim *s, int worker)
{
    sim_worker *w = &s->worker[worker];
    const fl_client_host host = {.arg = w, .send = handshake_sends};
    fl_hello_options o = {.address = s->address,
                          .n_server = s->o.n_server,
                          .job = "sim",
                          .mode = s->o.sync ? "sync" : "async",
                          .program = s->o.model->signature,
                          .stream = (uint32_t)w->index,
                          .n_worker = s->o.n_worker,
                          .connect_ms = s->o.connect_ms,
                          .peer_ms = s->o.peer_ms,
                          .pool = s->pool};
    uint32_t life = w->life + 1;

    *w = (sim_worker){.s = s,
                      .process = worker,
                      .index = w->index,
                      .life = life,
                      .phase = SIM_JOINS,
                      .own = s->own};
    snprintf(w->who, sizeof w->who, "sim:%d.%u", worker, (unsigned)life);
    o.who = w->who;
    o.locality = "sim";
    o.nonce = sim_hash(s->o.seed, (uint64_t)worker, life, 0, 0);
    if (!sim_trail_open(w, &o))
        return;
    CHECK_OK(fl_handshake_create(&w->handshake, &o, &host, s->now_ms));
    post_tick(w, JOIN_TICK_MS);
    sim_say(s, "comes", worker, -1, NULL);
}

/* --- events --------------------------------------------------------------- */

static void to_worker(sim *s, sim_worker *w, sim_event *e)
{
    sim_arrives(e->packet);
    if (e->joins != (w->phase == SIM_JOINS) ||
        (!e->joins && e->stay != w->stay[e->lane]))
        return; /* of a connection that is closed */
    sim_fault_message(s, e->worker, e->server, e->packet);
    if (w->dying)
        return;
    sim_say(s, "hears", e->worker, e->lane, e->packet);
    if (w->phase == SIM_JOINS) {
        fl_handshake_receive(w->handshake, e->server, e->packet, s->now_ms);
        look_at_handshake(s, w);
        return;
    }
    if (w->n_inbox == (int)(sizeof w->inbox / sizeof *w->inbox))
        return; /* its socket is full */
    w->from[w->n_inbox] = (uint16_t)e->lane;
    w->inbox[w->n_inbox++] = e->packet;
    e->packet = NULL;
    if (w->waiting)
        sim_fiber_resume(w);
}

/* As the thread of worker_io.c does it. */
static void work_tick(sim *s, sim_worker *w)
{
    if (w->waiting)
        sim_fiber_resume(w);
    else {
        read_inbox(w);
        fl_client_tick(w->client, s->now_ms);
    }
}

static void tick(sim *s, sim_worker *w)
{
    bool joins = w->phase == SIM_JOINS;

    if (joins) {
        fl_handshake_tick(w->handshake, s->now_ms);
        look_at_handshake(s, w);
    } else {
        work_tick(s, w);
    }
    post_tick(w, joins && w->phase == SIM_JOINS ? JOIN_TICK_MS
                                                : s->o.heartbeat_ms / 2);
}

void sim_worker_event(sim *s, sim_event *e)
{
    sim_worker *w = &s->worker[e->worker];

    if (e->kind == SIM_WORKER_COMES)
        sim_worker_comes(s, e->worker);
    else if (e->life != w->life || w->phase == SIM_ABSENT ||
             w->phase == SIM_ENDED)
        return;
    else if (e->kind == SIM_TO_WORKER)
        to_worker(s, w, e);
    else if (e->kind == SIM_WORKER_TICK)
        tick(s, w);
    else if (w->phase == SIM_WORKS)
        sim_fiber_resume(w);
}

/* --- the end -------------------------------------------------------------- */

/* A fiber that has not ended goes home, so that nothing is lost; nobody hears
 * of it. */
static void go_home(sim_worker *w)
{
    w->dying = true;
    if (!w->has_fiber)
        return;
    fl_client_fail(w->client, FLEET_ESTATE, "the process is dead", false);
    while (!w->returned)
        sim_fiber_resume(w);
    w->has_fiber = false;
}

void sim_worker_close(sim_worker *w)
{
    go_home(w);
    fl_handshake_destroy(w->handshake);
    fl_free(w->lanes.lane);
    for (int i = 0; i < w->n_inbox; i++)
        fl_packet_drop(w->inbox[i]);
    if (w->client) {
        fl_worker_done(&w->core);
        fl_client_destroy(w->client);
        fl_store_destroy(w->store);
    }
    fl_trail_close(w->trail);
    w->trail = NULL;
    w->handshake = NULL;
    w->lanes.lane = NULL;
    w->client = NULL;
    w->n_inbox = 0;
}

void sim_worker_dies(sim *s, int worker)
{
    sim_worker *w = &s->worker[worker];

    sim_say(s, "dies", worker, -1, NULL);
    sim_worker_close(w);
    w->phase = SIM_ABSENT;
}
