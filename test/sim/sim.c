/* sim.c - see sim.h: clock, lanes, fibers, workers. Links are in
 * sim_links.c. */
#define SUITE sim_kit
#include "sim_internal.h"
#include "test.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "fleet/job/handle.h"
#include "ps/worker/remote_table.h"
#include "runtime/store/table.h"
#include "runtime/store/store_hash.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#else
#define __sanitizer_start_switch_fiber(save, bottom, size)                     \
    ((void)(save), (void)(bottom), (void)(size))
#define __sanitizer_finish_switch_fiber(fake, bottom, size)                    \
    ((void)(fake), (void)(bottom), (void)(size))
#endif

enum { STACK_BYTES = 256 << 10, LEAST_PAUSE_MS = 20, MOST_PAUSE_MS = 300 };

/* --- random numbers ------------------------------------------------------- */

uint64_t sim_hash(uint64_t seed, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    uint64_t h = fl_mix(seed + 0x9E3779B97F4A7C15);

    h = fl_mix(h + a + 0x9E3779B97F4A7C15);
    h = fl_mix(h + b + 0x9E3779B97F4A7C15);
    h = fl_mix(h + c + 0x9E3779B97F4A7C15);
    return fl_mix(h + d);
}

uint64_t sim_random(sim *s, uint64_t n)
{
    s->random += 0x9E3779B97F4A7C15;
    return (fl_mix(s->random) >> 16) % n;
}

bool sim_happens(sim *s, int of_1000)
{
    return of_1000 > 0 && sim_random(s, 1000) < (uint64_t)of_1000;
}

/* --- events --------------------------------------------------------------- */

static bool before(const sim_event *a, const sim_event *b)
{
    return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : a->number < b->number;
}

static void swap(sim_event *a, sim_event *b)
{
    sim_event c = *a;

    *a = *b;
    *b = c;
}

void sim_post(sim *s, sim_event e)
{
    size_t i = s->n_event++;

    if (s->n_event > s->event_capacity) {
        s->event_capacity = 2 * s->n_event;
        s->event = realloc(s->event, s->event_capacity * sizeof *s->event);
        CHECK(s->event != NULL);
    }
    e.number = s->events++;
    s->event[i] = e;
    for (; i > 0 && before(&s->event[i], &s->event[(i - 1) / 2]);
         i = (i - 1) / 2)
        swap(&s->event[i], &s->event[(i - 1) / 2]);
}

static sim_event next_event(sim *s)
{
    sim_event first = s->event[0];
    size_t i = 0, child;

    s->event[0] = s->event[--s->n_event];
    while ((child = 2 * i + 1) < s->n_event) {
        if (child + 1 < s->n_event &&
            before(&s->event[child + 1], &s->event[child]))
            child++;
        if (!before(&s->event[child], &s->event[i]))
            break;
        swap(&s->event[child], &s->event[i]);
        i = child;
    }
    return first;
}

/* --- lanes ---------------------------------------------------------------- */

static void lane_sends(void *arg, const fl_peer *to, fl_packet *p)
{
    sim_lane *l = arg;

    if (to->id[0] < l->s->o.n_worker && !l->dead)
        sim_carry(l->s,
                  (sim_event){.kind = SIM_TO_WORKER,
                              .worker = to->id[0],
                              .lane = l->number},
                  p);
}

static fleet_status lane_begins(void *arg, const fl_lane_command *command)
{
    sim_lane *l = arg;

    l->command = *command;
    sim_post(l->s,
             (sim_event){.at_ms = l->s->now_ms + (int64_t)sim_random(l->s, 400),
                         .kind = SIM_ACT_ENDS,
                         .lane = l->number});
    return FLEET_OK;
}

uint64_t sim_rows_hash(const fl_store *s, const char *table, uint64_t *rows)
{
    const fl_rows *r = fl_store_rows(s, table);
    uint64_t sum = 0;

    CHECK_OK(fl_store_hash_rows(r, &sum));
    *rows += (uint64_t)r->methods->count(r);
    return sum;
}

static void hash_ends(sim *s, sim_lane *l)
{
    const fl_rows *rows = l->layout.table[l->command.table];
    uint64_t sum = 0;
    fleet_status status = fl_store_hash_rows(rows, &sum);

    fl_lane_command_done(l->core, status,
                         status == FLEET_OK ? NULL : fleet_last_error(), sum,
                         (uint64_t)rows->methods->count(rows), s->now_ms);
}

/* A save says what it saw; the text "full LANE" is for a disk that is full
 * there. */
static void command_ends(sim *s, sim_lane *l)
{
    char text[100];
    int full;

    snprintf(text, sizeof text, "%lld", (long long)l->store->updates);
    if (l->command.kind == FL_COMMAND_HASH)
        hash_ends(s, l);
    else if (sscanf(l->command.text, "full %d", &full) == 1 &&
             full == l->number)
        fl_lane_command_done(l->core, FLEET_EIO, "the disk is full", 0, 0,
                             s->now_ms);
    else
        fl_lane_command_done(l->core, FLEET_OK, text, 0, 0, s->now_ms);
}

static void to_lane(sim *s, sim_lane *l, const sim_event *e)
{
    fl_peer from = {.size = 1,
                    .id = {(uint8_t)(e->worker < 0 ? 255 : e->worker)}};

    sim_say(s, "receives", e->worker, e->lane, e->packet);
    fl_lane_receive(l->core, &from, e->packet, s->now_ms);
}

/* A lane that has failed tells so for a while, as its socket lingers; one that
 * all have left is gone. */
static bool is_deaf(const sim *s, const sim_lane *l)
{
    return l->dead || fl_lane_state_of(l->core) == FL_LANE_LEFT ||
           (l->failed_ms >= 0 && s->now_ms - l->failed_ms > s->o.peer_ms);
}

/* The lanes of a server end together: the first that fails tells the others. */
static void heed_siblings(sim *s, sim_lane *l)
{
    for (int i = 0; i < s->n_lane; i++) {
        const sim_lane *other = &s->lane[i];

        if (other->server == l->server && !other->dead &&
            fl_lane_state_of(other->core) == FL_LANE_FAILED)
            fl_lane_abort(l->core, fl_lane_error(other->core)->code,
                          fl_lane_error(other->core)->text);
    }
}

static void lane_event(sim *s, sim_lane *l, const sim_event *e)
{
    if (is_deaf(s, l))
        return;
    if (e->kind == SIM_TO_LANE)
        to_lane(s, l, e);
    else if (e->kind == SIM_ACT_ENDS)
        command_ends(s, l);
    else {
        heed_siblings(s, l);
        fl_lane_tick(l->core, s->now_ms);
    }
    if (l->failed_ms < 0 && fl_lane_state_of(l->core) == FL_LANE_FAILED) {
        l->failed_ms = s->now_ms;
        sim_say(s, fl_lane_error(l->core)->text, SIM_NOBODY, l->number, NULL);
    }
    if (e->kind == SIM_LANE_TICK)
        sim_post(s, (sim_event){.at_ms = s->now_ms + s->o.peer_ms / 10,
                                .kind = SIM_LANE_TICK,
                                .lane = l->number});
}

static void open_lane(sim *s, int server, int lane)
{
    sim_lane *l = &s->lane[s->n_lane];
    const fl_lane_options options = {.layout = &l->layout,
                                     .map = &s->map,
                                     .identity = &l->identity,
                                     .server = server,
                                     .lane = lane,
                                     .n_lane = s->o.n_lane,
                                     .n_stream = s->o.n_worker,
                                     .sync = s->o.sync,
                                     .job = "sim",
                                     .connect_ms = s->o.connect_ms,
                                     .peer_ms = s->o.peer_ms,
                                     .step_ms = s->o.step_ms,
                                     .most_open = s->o.most_open,
                                     .most_parked = s->o.most_parked,
                                     .most_unread = s->o.most_unread,
                                     .pool = s->pool};
    const fl_lane_host host = {l, lane_sends, lane_begins, NULL};

    *l = (sim_lane){
        .s = s,
        .server = server,
        .lane = lane,
        .number = s->n_lane++,
        .identity = {.nonce = SIM_NONCE + (uint32_t)server, .run = SIM_RUN},
        .failed_ms = -1};
    l->own = fl_bucket_map_own(&s->map, server, lane);
    l->store = sim_store_of(s->o.model, fl_table_make,
                            (fl_block_filter){fl_lane_keeps_block, &l->own});
    CHECK_OK(fl_partition_make(&l->layout, l->store, s->o.n_server));
    CHECK_OK(fl_lane_create(&l->core, &options, &host, 0));
    sim_post(s, (sim_event){.at_ms = (int64_t)sim_random(s, 50),
                            .kind = SIM_LANE_TICK,
                            .lane = l->number});
}

/* --- fibers --------------------------------------------------------------- */

static void *stacks[SIM_MOST_WORKER]; /* kept from run to run */

/* Let the worker run until it waits, sleeps or ends. */
static void resume(sim_worker *w)
{
    sim *s = w->s;

    __sanitizer_start_switch_fiber(&s->main_fake, w->stack, STACK_BYTES);
    CHECK(swapcontext(&s->main, &w->context) == 0);
    __sanitizer_finish_switch_fiber(s->main_fake, NULL, NULL);
}

static void leave_fiber(sim_worker *w)
{
    sim *s = w->s;

    __sanitizer_start_switch_fiber(w->ended ? NULL : &w->fake_stack,
                                   s->main_bottom, s->main_size);
    swapcontext(&w->context, &s->main);
    __sanitizer_finish_switch_fiber(w->fake_stack, &s->main_bottom,
                                    &s->main_size);
}

/* As fl_worker_io_destroy() does it. */
static void give_up(sim_worker *w)
{
    char why[1100];

    snprintf(w->text, sizeof w->text, "%s", fleet_last_error());
    snprintf(why, sizeof why, "worker %d has given up: %s", w->index, w->text);
    fl_client_fail(w->client, FLEET_EPEER, why, true);
}

static void fiber(unsigned high, unsigned low)
{
    sim_worker *w = (sim_worker *)((uintptr_t)high << 32 | low);
    sim *s = w->s;

    __sanitizer_finish_switch_fiber(NULL, &s->main_bottom, &s->main_size);
    w->status = s->body(w);
    if (w->status != FLEET_OK)
        give_up(w);
    w->ended = true;
    w->ended_ms = s->now_ms;
    sim_say(s, *w->text ? w->text : "ends", w->index, -1, NULL);
    leave_fiber(w);
}

static void make_fiber(sim_worker *w)
{
    uintptr_t p = (uintptr_t)w;

    if (!stacks[w->index])
        stacks[w->index] = malloc(STACK_BYTES);
    w->stack = stacks[w->index];
    CHECK(w->stack != NULL && getcontext(&w->context) == 0);
    w->context.uc_stack.ss_sp = w->stack;
    w->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&w->context, (void (*)(void))fiber, 2, (unsigned)(p >> 32),
                (unsigned)p);
}

void sim_compute(sim_worker *w, int64_t ms)
{
    if (w->dead)
        return;
    sim_post(w->s, (sim_event){.at_ms = w->s->now_ms + ms,
                               .kind = SIM_WORKER_WAKES,
                               .worker = w->index});
    w->asleep = true;
    leave_fiber(w);
    w->asleep = false;
}

void sim_note(sim_worker *w, const char *format, ...)
{
    size_t used = strlen(w->log);
    va_list args;

    va_start(args, format);
    vsnprintf(w->log + used, sizeof w->log - used, format, args);
    va_end(args);
}

/* --- workers -------------------------------------------------------------- */

static void worker_sends(void *arg, int lane, fl_packet *p)
{
    sim_worker *w = arg;

    if (!w->dead)
        sim_carry(
            w->s,
            (sim_event){.kind = SIM_TO_LANE, .worker = w->index, .lane = lane},
            p);
}

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
        leave_fiber(w);
        w->waiting = false;
        read_inbox(w);
    }
    fl_client_tick(w->client, w->s->now_ms);
}

static int64_t worker_now(void *arg)
{
    return ((sim_worker *)arg)->s->now_ms;
}

static void to_worker(sim *s, sim_worker *w, sim_event *e)
{
    sim_say(s, "hears", e->worker, e->lane, e->packet);
    sim_arrives(e->packet);
    if (w->n_inbox == (int)(sizeof w->inbox / sizeof *w->inbox))
        return; /* its socket is full */
    w->from[w->n_inbox] = (uint16_t)e->lane;
    w->inbox[w->n_inbox++] = e->packet;
    e->packet = NULL;
    if (w->waiting)
        resume(w);
}

/* As the thread of worker_io.c does it. */
static void worker_tick(sim *s, sim_worker *w)
{
    if (w->waiting)
        resume(w);
    else {
        read_inbox(w);
        fl_client_tick(w->client, s->now_ms);
    }
    if (!w->ended)
        sim_post(s, (sim_event){.at_ms = s->now_ms + s->o.heartbeat_ms / 2,
                                .kind = SIM_WORKER_TICK,
                                .worker = w->index});
}

static void worker_event(sim *s, sim_worker *w, sim_event *e)
{
    if (w->dead || w->ended)
        return;
    if (e->kind == SIM_TO_WORKER)
        to_worker(s, w, e);
    else if (e->kind == SIM_WORKER_TICK)
        worker_tick(s, w);
    else
        resume(w);
}

static void add_lanes(sim *s, sim_worker *w)
{
    for (int i = 0; i < s->n_lane; i++) {
        char name[40];

        snprintf(name, sizeof name, "server %d at sim:%d", s->lane[i].server,
                 i);
        CHECK_OK(fl_client_add_lane(w->client, name, s->now_ms));
        fl_client_set_peer(w->client, i, s->lane[i].identity.nonce);
    }
}

static void open_worker(sim *s, int index)
{
    sim_worker *w = &s->worker[index];
    const fl_client_options options = {.job = "sim",
                                       .stream = (uint32_t)index,
                                       .request_ms = s->o.request_ms,
                                       .peer_ms = s->o.peer_ms,
                                       .step_ms = s->o.step_ms + s->o.peer_ms,
                                       .heartbeat_ms = s->o.heartbeat_ms,
                                       .whole_sums = s->o.strange > 0,
                                       .window = s->o.window,
                                       .pool = s->pool};
    const fl_client_host client_host = {w, worker_sends};
    const fl_worker_host host = {w, worker_waits, worker_now};
    int lanes[SIM_MOST_SERVER];

    for (int i = 0; i < s->o.n_server; i++)
        lanes[i] = s->o.n_lane;
    *w = (sim_worker){.s = s, .index = index};
    w->store = sim_store(s->o.model, fl_remote_rows_make);
    CHECK_OK(fl_client_create(&w->client, &options, &client_host));
    fl_client_set_incarnation(w->client, SIM_INCARNATION);
    fl_client_set_run(w->client, SIM_RUN);
    add_lanes(s, w);
    CHECK_OK(fl_worker_init(&w->core, w->client, &host, w->store, s->o.n_server,
                            lanes, s->o.sync));
    w->core.piece_bytes = s->o.piece_bytes;
    make_fiber(w);
    fl_client_watch(w->client, true, 0);
    sim_post(s, (sim_event){.at_ms = (int64_t)sim_random(s, 100),
                            .kind = SIM_WORKER_WAKES,
                            .worker = index});
    sim_post(s, (sim_event){.kind = SIM_WORKER_TICK, .worker = index});
}

/* --- a run ---------------------------------------------------------------- */

fl_store *sim_store(const sim_model *m, fl_rows_maker *make_rows)
{
    return sim_store_of(m, make_rows, (fl_block_filter){0});
}

fl_store *sim_store_of(const sim_model *m, fl_rows_maker *make_rows,
                       fl_block_filter filter)
{
    fl_store *s;

    CHECK_OK(fl_store_create(&m->f->context, make_rows, &s));
    s->filter = filter;
    CHECK_OK(fl_store_add(s, m->p));
    CHECK_OK(fl_store_train(s, m->o));
    return s;
}

void sim_open(sim *s, const sim_options *o, fleet_status (*body)(sim_worker *w))
{
    const char *trace = getenv("FLEET_SIM_TRACE");
    int n_lane[FL_MOST_SERVER];

    memset(s, 0, sizeof *s);
    s->o = *o;
    s->body = body;
    s->random = o->seed;
    s->trace = trace && *trace == '1';
    CHECK_OK(fl_packet_pool_create(&s->pool, 8 << 20));
    for (int i = 0; i < o->n_server; i++)
        n_lane[i] = o->n_lane;
    fl_bucket_map_begin(&s->map, o->n_server, n_lane);
    for (int i = 0; i < o->n_server; i++)
        for (int j = 0; j < o->n_lane; j++)
            open_lane(s, i, j);
    for (int i = 0; i < o->n_worker; i++)
        open_worker(s, i);
}

/* The worker, or the whole job, does not run for a while: what is under way to
 * it, or in the whole job, happens later. */
static void stop(sim *s)
{
    if (s->has_stopped || s->o.stop_ms == 0 || s->now_ms < s->o.stop_at_ms)
        return;
    s->has_stopped = true;
    if (s->o.stopped_worker > 0)
        s->worker[s->o.stopped_worker - 1].paused_until =
            s->now_ms + s->o.stop_ms;
    if (!s->o.all_stop)
        return;
    for (size_t i = 0; i < s->n_event; i++)
        s->event[i].at_ms += s->o.stop_ms;
    s->now_ms += s->o.stop_ms;
}

/* Who is to fall silent does. */
static void bury(sim *s)
{
    if (s->now_ms < s->o.dead_ms)
        return;
    if (s->o.dead_worker >= 0 && !s->worker[s->o.dead_worker].ended)
        s->worker[s->o.dead_worker].dead = true;
    for (int i = 0; i < s->n_lane; i++)
        if (s->lane[i].server == s->o.dead_server)
            s->lane[i].dead = true;
}

static bool is_of_lane(const sim_event *e)
{
    return e->kind == SIM_TO_LANE || e->kind == SIM_LANE_TICK ||
           e->kind == SIM_ACT_ENDS;
}

/* Does the event happen now? Who pauses is not there for it yet. */
static bool is_due(sim *s, const sim_event *e)
{
    int64_t *until = is_of_lane(e) ? &s->lane[e->lane].paused_until
                                   : &s->worker[e->worker].paused_until;
    sim_event later = *e;

    if (*until <= s->now_ms && sim_happens(s, s->o.slow))
        *until = s->now_ms + (int64_t)(sim_random(s, 4)
                                           ? sim_random(s, LEAST_PAUSE_MS)
                                           : sim_random(s, MOST_PAUSE_MS));
    if (*until <= s->now_ms)
        return true;
    later.at_ms = *until;
    sim_post(s, later);
    return false;
}

static void happen(sim *s, sim_event *e)
{
    if (!is_due(s, e))
        return;
    if (is_of_lane(e))
        lane_event(s, &s->lane[e->lane], e);
    else
        worker_event(s, &s->worker[e->worker], e);
    fl_packet_drop(e->packet);
}

static bool is_over(const sim *s)
{
    for (int i = 0; i < s->o.n_worker; i++)
        if (!s->worker[i].ended && !s->worker[i].dead && i != s->o.stuck_worker)
            return false;
    for (int i = 0; i < s->n_lane; i++)
        if (!s->lane[i].dead &&
            fl_lane_state_of(s->lane[i].core) == FL_LANE_RUNS)
            return false;
    return true;
}

void sim_run(sim *s, int64_t limit_ms)
{
    while (s->n_event > 0 && !is_over(s)) {
        sim_event e = next_event(s);

        if (e.at_ms > limit_ms) {
            sim_post(s, e);
            return;
        }
        s->now_ms = e.at_ms;
        stop(s);
        bury(s);
        happen(s, &e);
    }
}

/* A fiber that has not ended goes home, so that nothing is lost. */
static void close_worker(sim_worker *w)
{
    w->dead = true;
    fl_client_fail(w->client, FLEET_ESTATE, "the run is over", false);
    while (!w->ended)
        resume(w);
    for (int i = 0; i < w->n_inbox; i++)
        fl_packet_drop(w->inbox[i]);
    fl_worker_done(&w->core);
    fl_client_destroy(w->client);
    fl_store_destroy(w->store);
}

void sim_close(sim *s)
{
    for (int i = 0; i < s->o.n_worker; i++)
        close_worker(&s->worker[i]);
    for (int i = 0; i < s->n_lane; i++) {
        fl_lane_destroy(s->lane[i].core);
        fl_partition_done(&s->lane[i].layout);
        fl_store_destroy(s->lane[i].store);
    }
    for (size_t i = 0; i < s->n_event; i++)
        fl_packet_drop(s->event[i].packet);
    free(s->event);
    fl_packet_pool_destroy(s->pool);
}
