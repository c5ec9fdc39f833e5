/* sim_fault.c - faults of the simulator: they begin with a message, and end a
 * process, let it sleep, or cut links. */
#define SUITE sim_kit
#include "sim_disk.h"
#include "ps/server/lane_replica.h"
#include "sim_internal.h"
#include "test.h"

#include <string.h>

static bool all_joined(const sim *s)
{
    for (int i = 0; i < s->o.n_worker; i++)
        if (s->worker[i].phase == SIM_ABSENT || s->worker[i].phase == SIM_JOINS)
            return false;
    return true;
}

/* A process that has not come yet, or has ended, cannot be hit. A link may be
 * one between lanes. */
static bool is_alive(const sim *s, const sim_fault *f)
{
    sim_phase phase;

    if (f->kind == SIM_CUT || f->kind == SIM_CRASH)
        return true;
    if (s->o.moves > 0 && f->server != SIM_NOBODY &&
        sim_server_is_over(s, f->server))
        return false;
    phase = f->worker == SIM_NOBODY ? SIM_WORKS : s->worker[f->worker].phase;
    return phase != SIM_ABSENT && phase != SIM_ENDED &&
           (f->server == SIM_NOBODY || s->server[f->server].alive);
}

/* What a lane says to its other place is of either process. */
static bool is_at(const sim *s, const sim_fault *f, int worker, int server)
{
    int lane = worker - SIM_MOST_PROCESS;

    if (f->server == SIM_NOBODY || f->server == server)
        return true;
    return s->o.moves > 0 && lane >= 0 &&
           (s->lane[lane].server == f->server ||
            s->lane[s->n_lane + lane].server == f->server);
}

static bool is_of(const sim *s, const sim_fault *f, int worker, int server,
                  const fl_packet *p)
{
    if (f->kind == SIM_NO_FAULT || worker == SIM_NOBODY)
        return false;
    if (f->worker != SIM_NOBODY && f->worker != worker)
        return false;
    if (!is_at(s, f, worker, server))
        return false;
    if (f->message && f->message != sim_kind_of_packet(p))
        return false;
    return !f->leaving || sim_flags_of_packet(p) & FL_MSG_LEAVE;
}

static bool is_whole(const sim *s, int lane)
{
    const fl_ps_lane *a = s->lane[lane].core;
    const fl_ps_lane *b = s->lane[sim_other_copy(s, lane)].core;

    return a && b && !a->replica->begins && !b->replica->begins &&
           (fl_lane_replica(a) == FL_REPLICA_LEADS ||
            fl_lane_replica(b) == FL_REPLICA_LEADS) &&
           a->replica->view == b->replica->view;
}

/* Each of the server's lanes has been made again. */
static bool is_copied(const sim *s, int server)
{
    if (!s->fault[0].begun)
        return false;
    for (int i = 0; i < s->all_lanes; i++)
        if (s->lane[i].server == server && !is_whole(s, i))
            return false;
    return true;
}

static void begin(sim *s, const sim_fault *f)
{
    if (f->kind == SIM_DIES && f->worker != SIM_NOBODY)
        s->worker[f->worker].dying = true;
    else if (f->kind == SIM_DIES)
        s->server[f->server].dying = true;
    else if (f->kind == SIM_SLEEPS && f->worker != SIM_NOBODY)
        s->worker[f->worker].paused_until = s->now_ms + f->ms;
    else if (f->kind == SIM_SLEEPS)
        s->server[f->server].paused_until = s->now_ms + f->ms;
    else if (f->kind == SIM_CRASH)
        s->crashed = true;
}

void sim_fault_message(sim *s, int worker, int server, const fl_packet *p)
{
    for (int i = 0; i < SIM_MOST_FAULT; i++) {
        const sim_fault *f = &s->o.fault[i];
        sim_fault_state *state = &s->fault[i];

        if (state->begun || !is_of(s, f, worker, server, p) ||
            !is_alive(s, f) || (f->when_copied && !is_copied(s, f->server)) ||
            (f->when_moving && state->seen == 0 &&
             !sim_move_is_under_way(s, f->server)) ||
            state->seen++ < f->count)
            continue;
        state->begun = true;
        state->begun_ms = s->now_ms;
        state->all_joined = all_joined(s);
        sim_say(s, "a fault begins", f->worker, f->server, p);
        begin(s, f);
    }
    if (!s->crashed)
        return;
    for (int i = 0; i < s->n_process; i++)
        s->worker[i].dying = true;
    for (int i = 0; i < s->o.n_server; i++)
        s->server[i].dying = true;
}

bool sim_is_cut(const sim *s, const sim_event *e, int64_t *until_ms,
                bool *holds)
{
    int direction = e->kind == SIM_TO_LANE ? SIM_TO_LANES : SIM_TO_WORKERS;

    for (int i = 0; i < SIM_MOST_FAULT; i++) {
        const sim_fault *f = &s->o.fault[i];

        *until_ms = s->fault[i].begun_ms + f->ms;
        *holds = f->holds;
        if (f->kind == SIM_CUT && s->fault[i].begun && s->now_ms < *until_ms &&
            f->directions & direction &&
            (f->worker == SIM_NOBODY || f->worker == e->worker) &&
            (f->server == SIM_NOBODY || f->server == e->server))
            return true;
    }
    return false;
}

bool sim_is_stuck(const sim *s, int worker)
{
    for (int i = 0; i < SIM_MOST_FAULT; i++)
        if (s->o.fault[i].kind == SIM_STUCK && s->o.fault[i].worker == worker &&
            s->fault[i].begun)
            return true;
    return false;
}

/* Another process may come afterwards. */
static void strike(sim *s, const sim_fault *f)
{
    bool is_worker = f->worker != SIM_NOBODY;
    bool *dying =
        is_worker ? &s->worker[f->worker].dying : &s->server[f->server].dying;

    if (!*dying)
        return;
    if (is_worker)
        sim_worker_dies(s, f->worker);
    else {
        s->lost_lane = s->lost_lane || sim_move_needs(s, f->server);
        sim_server_dies(s, f->server);
    }
    *dying = false;
    if (f->ms >= 0)
        sim_post(s, (sim_event){.at_ms = s->now_ms + f->ms,
                                .kind = is_worker ? SIM_WORKER_COMES
                                                  : SIM_SERVER_COMES,
                                .worker = f->worker,
                                .server = f->server});
}

void sim_fault_strike(sim *s)
{
    s->crashed = s->crashed || sim_disk_is_off();
    for (int i = 0; i < SIM_MOST_FAULT && !s->crashed; i++)
        if (s->fault[i].begun && s->o.fault[i].kind == SIM_DIES)
            strike(s, &s->o.fault[i]);
}
