/* sim_move.c - lanes of the simulator that go from one process to another, as
 * fleetctl tells them to; see sim.h. */
#define SUITE sim_kit
#include "ps/control/control.h"
#include "ps/server/lane_replica.h"
#include "sim_internal.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TELLS_ONE = 8 /* of so many moves one is told to the lane alone */ };

/* --- where lanes are ------------------------------------------------------ */

void sim_move_address(const sim_lane *l, char address[60])
{
    int n = snprintf(address, 60, "{\"inproc\":\"inproc://sim/%d/%d", l->server,
                     l->lane);

    if (l->stay > 0)
        n += snprintf(address + n, 60 - (size_t)n, "/%u", (unsigned)l->stay);
    snprintf(address + n, 60 - (size_t)n, "\"}");
}

uint32_t sim_move_stay(const char *address)
{
    int server, lane;
    unsigned stay = 0;

    CHECK(sscanf(address, "{\"inproc\":\"inproc://sim/%d/%d/%u", &server, &lane,
                 &stay) >= 2);
    return stay;
}

static bool runs(const sim_lane *l)
{
    return l->core && fl_lane_state_of(l->core) == FL_LANE_RUNS;
}

static bool leads(const sim_lane *l)
{
    fl_replica_role role = l->core ? fl_lane_replica(l->core) : FL_REPLICA_GONE;

    return role != FL_REPLICA_GONE && role != FL_REPLICA_FOLLOWS;
}

/* --- moves ---------------------------------------------------------------- */

static void tell_lane(sim *s, const sim_lane *l, const char *words)
{
    const fl_msg_head head = {.version = FL_MSG_VERSION,
                              .kind = FL_MSG_ADMIN,
                              .flags = FL_MSG_CRC_ALL,
                              .job = fl_msg_job("sim", 0),
                              .stream = FL_CONTROL_STREAM,
                              .request = s->events};
    const fl_peer from = {.size = 6, .id = {SIM_MOST_SENDER}};
    fl_msg_writer w;
    fl_packet *p, *q;

    fl_msg_begin(&w, s->pool, &head);
    fl_msg_text(&w, FL_SECTION_TEXT, words);
    CHECK_OK(fl_msg_end(&w, true, &p));
    q = sim_copy(p, 0);
    fl_lane_receive(l->core, &from, q, s->now_ms);
    fl_packet_drop(p);
    fl_packet_drop(q);
}

/* Whoever has been there before has left. */
static void take(sim *s, sim_lane *to, const sim_lane *from)
{
    if (runs(to) || !s->server[to->server].alive)
        return;
    if (to->core)
        sim_lane_close(to);
    memset(&to->identity, 0, sizeof to->identity);
    to->stay++;
    to->follows = from->stay;
    sim_lane_open(s, to);
    sim_say(s, "takes", SIM_NOBODY, to->number, NULL);
}

static void move_lane(sim *s, sim_lane *from)
{
    sim_lane *to = &s->lane[sim_other_copy(s, from->number)];
    char words[40];

    snprintf(words, sizeof words, "%s%d", FL_CONTROL_GIVE,
             from->server % s->o.n_server);
    tell_lane(s, from, FL_CONTROL_STATUS);
    tell_lane(s, from, words);
    sim_say(s, "is to move", SIM_NOBODY, from->number, NULL);
    if (from->core->replica && from->core->replica->moves &&
        sim_random(s, TELLS_ONE) > 0)
        take(s, to, from);
}

void sim_move(sim *s)
{
    int lane = (int)sim_random(s, (uint64_t)s->n_lane);
    sim_lane *a = &s->lane[lane], *b = &s->lane[sim_other_copy(s, lane)];
    sim_lane *from = leads(a) ? a : b;

    if (leads(from) && runs(from))
        move_lane(s, from);
    if (++s->n_told < s->o.moves)
        sim_post(s, (sim_event){
                        .at_ms = s->now_ms + 1 +
                                 (int64_t)sim_random(s, (uint64_t)s->o.move_ms),
                        .kind = SIM_LANE_MOVES});
}

bool sim_move_is_under_way(const sim *s, int server)
{
    for (int i = 0; i < s->all_lanes; i++) {
        const sim_lane *from = &s->lane[i];
        const sim_lane *to = &s->lane[sim_other_copy(s, i)];

        if ((from->server == server || to->server == server) && runs(from) &&
            leads(from) && runs(to) && from->core->replica &&
            from->core->replica->moves)
            return true;
    }
    return false;
}

/* --- what is lost with a process ------------------------------------------ */

/* What says that the process is there is under way. */
static bool has_asked(const sim *s, const sim_lane *l)
{
    for (size_t i = 0; i < s->n_event; i++)
        if (s->event[i].kind == SIM_TO_LANE &&
            s->event[i].lane == sim_other_copy(s, l->number) &&
            s->event[i].worker >= SIM_MOST_PROCESS)
            return true;
    return false;
}

/* In an epoch that not all know yet either of both may be needed; and a lane
 * goes to a process that has said that it is there. */
static bool needs(const sim *s, const sim_lane *l)
{
    const sim_lane *other = &s->lane[sim_other_copy(s, l->number)];
    fl_replica_role role = fl_lane_replica(l->core);

    if (role == FL_REPLICA_GONE)
        return false;
    if (role == FL_REPLICA_FOLLOWS)
        return !leads(other) ||
               (l->core->replica->view != FL_VIEW_NONE && has_asked(s, l));
    return role != FL_REPLICA_LEADS || l->core->replica->begins || !runs(other);
}

bool sim_move_needs(const sim *s, int server)
{
    for (int i = 0; i < s->all_lanes; i++)
        if (s->lane[i].server == server &&
            (runs(&s->lane[i]) ? needs(s, &s->lane[i]) : leads(&s->lane[i])))
            return true;
    return false;
}
