/* sim.c - see sim.h: random numbers, events, stores, a run. */
#define SUITE sim_kit
#include "sim_feed.h"
#include "sim_internal.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "fleet/job/handle.h"
#include "runtime/store/store_hash.h"
#include "runtime/store/table.h"

enum { LEAST_PAUSE_MS = 20, MOST_PAUSE_MS = 300 };

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

void sim_say(const sim *s, const char *what, int worker, int lane,
             const fl_packet *p)
{
    static fl_msg msg;

    if (!s->trace)
        return;
    fprintf(stderr, "%7lld %-10s worker %d lane %d", (long long)s->now_ms, what,
            worker, lane);
    if (p && fl_msg_decode(p, &msg) == FLEET_OK)
        fprintf(stderr,
                " kind %d status %d step %llu piece %d flags %d request %llx",
                msg.head.kind, msg.head.status,
                (unsigned long long)msg.head.step, msg.head.piece,
                msg.head.flags, (unsigned long long)msg.head.request);
    fprintf(stderr, "\n");
}

/* --- stores --------------------------------------------------------------- */

fl_store *sim_store(const sim_model *m, fl_rows_maker *make_rows)
{
    return sim_store_of(m, make_rows, (fl_block_filter){0}, false);
}

fl_store *sim_store_of(const sim_model *m, fl_rows_maker *make_rows,
                       fl_block_filter filter, bool sums)
{
    fl_store *s;

    CHECK_OK(fl_store_create(&m->f->context, make_rows, &s));
    s->filter = filter;
    s->sums = sums;
    CHECK_OK(fl_store_add(s, m->p));
    CHECK_OK(fl_store_train(s, m->o));
    return s;
}

uint64_t sim_rows_hash(const fl_store *s, const char *table, uint64_t *rows)
{
    const fl_rows *r = fl_store_rows(s, table);
    uint64_t sum = 0;

    CHECK_OK(fl_store_hash_rows(r, &sum));
    *rows += (uint64_t)r->methods->count(r);
    return sum;
}

/* --- a run ---------------------------------------------------------------- */

static void begin_servers(sim *s)
{
    int n_lane[FL_MOST_SERVER];
    int n_copy = s->o.replicas || s->o.moves > 0 ? SIM_MOST_COPY : 1;

    s->all_servers = n_copy * s->o.n_server;
    for (int i = 0; i < s->o.n_server; i++) {
        n_lane[i] = s->o.n_lane;
        snprintf(s->address[i], sizeof s->address[i], "inproc://sim/%d", i);
    }
    for (int i = 0; i < s->all_servers; i++)
        sim_post(s, (sim_event){.at_ms = (int64_t)sim_random(
                                    s, (uint64_t)s->o.servers_ms + 1),
                                .kind = SIM_SERVER_COMES,
                                .server = i});
    fl_bucket_map_begin(&s->map, s->o.n_server, n_lane);
    s->n_lane = s->o.n_server * s->o.n_lane;
    s->all_lanes = n_copy * s->n_lane;
    for (int i = 0; i < s->all_lanes; i++)
        s->lane[i] = (sim_lane){.s = s,
                                .number = i,
                                .server = i / s->o.n_lane,
                                .lane = i % s->o.n_lane};
}

void sim_open(sim *s, const sim_options *o, fleet_status (*body)(sim_worker *w),
              void *own)
{
    const char *trace = getenv("FLEET_SIM_TRACE");

    memset(s, 0, sizeof *s);
    s->o = *o;
    s->body = body;
    s->own = own;
    s->random = o->seed;
    s->trace = trace && *trace == '1';
    CHECK_OK(fl_packet_pool_create(&s->pool, 8 << 20));
    begin_servers(s);
    s->n_process = o->n_worker + (o->twin > 0);
    for (int i = 0; i < s->n_process; i++) {
        s->worker[i] = (sim_worker){.s = s,
                                    .process = i,
                                    .index = i < o->n_worker ? i : o->twin - 1,
                                    .own = own};
        sim_post(s, (sim_event){.at_ms = (int64_t)sim_random(
                                    s, (uint64_t)o->workers_ms + 1),
                                .kind = SIM_WORKER_COMES,
                                .worker = i});
    }
    if (o->subscriber)
        sim_feed_open(s);
    if (o->moves > 0)
        sim_post(s, (sim_event){.at_ms = o->move_ms, .kind = SIM_LANE_MOVES});
}

/* The whole job does not run for a while: all that is under way happens
 * later. */
static void stop(sim *s)
{
    if (s->has_stopped || s->o.all_stop_ms == 0 ||
        s->now_ms < s->o.all_stop_at_ms)
        return;
    s->has_stopped = true;
    for (size_t i = 0; i < s->n_event; i++)
        s->event[i].at_ms += s->o.all_stop_ms;
    s->now_ms += s->o.all_stop_ms;
}

int sim_server_of(const sim *s, const sim_event *e)
{
    int follower = sim_follower_of(s, e);

    if (follower >= 0)
        return s->lane[follower].server;
    return e->kind != SIM_TO_WORKER && e->kind <= SIM_COMMAND_ENDS ? e->server
                                                                   : SIM_NOBODY;
}

/* Does the event happen now? A process that pauses is not there for it yet. */
static bool is_due(sim *s, const sim_event *e)
{
    int server = sim_server_of(s, e);
    int64_t *until = server >= 0 ? &s->server[server].paused_until
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
    if (e->kind == SIM_LANE_MOVES) {
        sim_move(s);
        return;
    }
    if (!is_due(s, e))
        return;
    if (sim_server_of(s, e) >= 0)
        sim_server_event(s, e);
    else if (e->worker == SIM_SUBSCRIBER)
        sim_feed_event(s, e);
    else
        sim_worker_event(s, e);
    fl_packet_drop(e->packet);
    sim_fault_strike(s);
}

/* Processes that are still to come are no reason to wait if all that there are
 * have ended: they would wait for what is gone. */
static bool is_over(const sim *s)
{
    for (int i = 0; i < s->n_process; i++)
        if (s->worker[i].phase != SIM_ENDED && !sim_is_stuck(s, i) &&
            (s->worker[i].phase != SIM_ABSENT || s->worker[i].life == 0))
            return false;
    for (int i = 0; i < s->all_servers; i++)
        if (!sim_server_is_over(s, i))
            return false;
    return true;
}

void sim_run(sim *s, int64_t limit_ms)
{
    while (s->n_event > 0 && !is_over(s) && !s->crashed) {
        sim_event e = next_event(s);

        if (e.at_ms > limit_ms) {
            sim_post(s, e);
            return;
        }
        s->now_ms = e.at_ms;
        stop(s);
        happen(s, &e);
    }
}

void sim_close(sim *s)
{
    sim_feed_close(s);
    for (int i = 0; i < s->n_process; i++)
        sim_worker_close(&s->worker[i]);
    for (int i = 0; i < s->all_servers; i++)
        sim_server_dies(s, i);
    for (size_t i = 0; i < s->n_event; i++)
        fl_packet_drop(s->event[i].packet);
    free(s->event);
    fl_packet_pool_destroy(s->pool);
}
