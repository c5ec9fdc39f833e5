/* sim_internal.h - the simulator's parts: events (sim.c), links
 * (sim_network.c), faults (sim_fault.c), server processes (sim_server.c),
 * worker processes (sim_worker.c) and their stacks (sim_fiber.c). */
#pragma once

#include "sim.h"

/* First what is under way, in either direction, then what is a server's. */
typedef enum sim_event_kind {
    SIM_TO_LANE,
    SIM_TO_WORKER,
    SIM_SERVER_COMES,
    SIM_LANE_TICK,
    SIM_LANE_LOOKS,   /* for rows that were out of memory */
    SIM_LANE_REPLAYS, /* its journal */
    SIM_LANE_CUTS,    /* a snapshot is written, and the journal cut */
    SIM_LANE_COPIES,  /* what it is is written, for a copy */
    SIM_COMMAND_ENDS,
    SIM_WORKER_COMES,
    SIM_WORKER_TICK,
    SIM_WORKER_WAKES,
    SIM_FEED_COMES, /* a subscriber */
    SIM_FEED_TICK,
    SIM_LANE_MOVES /* one of all lanes is told to */
} sim_event_kind;

typedef struct sim_event {
    int64_t at_ms;
    uint64_t number;
    sim_event_kind kind;
    int worker, server, lane; /* worker SIM_NOBODY: a process that is gone */
    uint32_t life; /* which process of its address it is for; TO_LANE: that
                      has sent it */
    uint32_t stay; /* of the lane that the packet is of, or for */
    bool joins;    /* the packet is of a worker's handshake, or for it */
    fl_packet *packet;
} sim_event;

/* Of the processes that a place has had, and of the lanes that have come to it:
 * each has numbers of its own. */
static inline uint32_t sim_life_of(const sim_lane *l)
{
    return l->s->server[l->server].life + (l->stay << 16);
}

/* The other copy of a lane. */
static inline int sim_other_copy(const sim *s, int lane)
{
    return lane < s->n_lane ? lane + s->n_lane : lane - s->n_lane;
}

/* The lane that follows, if the event is an answer to one; SIM_NOBODY. */
static inline int sim_follower_of(const sim *s, const sim_event *e)
{
    return e->kind == SIM_TO_WORKER && e->worker >= SIM_MOST_PROCESS
               ? sim_other_copy(s, e->lane)
               : SIM_NOBODY;
}

/* --- sim.c ---------------------------------------------------------------- */

/* One more thing that will happen. The packet is the event's. */
void sim_post(sim *s, sim_event e);
bool sim_happens(sim *s, int of_1000); /* by chance */

/* The server in whose process the event happens; SIM_NOBODY. */
int sim_server_of(const sim *s, const sim_event *e);

/* With FLEET_SIM_TRACE: what happens to whom. */
void sim_say(const sim *s, const char *what, int worker, int lane,
             const fl_packet *p);

/* --- sim_network.c -------------------------------------------------------- */

/* Send a copy of the packet where the event says, as the links do it: late, or
 * not, or more than once. */
void sim_carry(sim *s, sim_event e, const fl_packet *p);

/* What the head of a packet says. */
int sim_kind_of_packet(const fl_packet *p);
int sim_flags_of_packet(const fl_packet *p);

/* --- sim_fault.c ---------------------------------------------------------- */

/* A message is sent or has come: a fault may begin with it. */
void sim_fault_message(sim *s, int worker, int server, const fl_packet *p);

/* Is that link cut now? Then until_ms is when it is not any more, and holds
 * whether it keeps what is sent until then. */
bool sim_is_cut(const sim *s, const sim_event *e, int64_t *until_ms,
                bool *holds);

/* Is the worker to train no more? */
bool sim_is_stuck(const sim *s, int worker);

/* Processes that were to die do. */
void sim_fault_strike(sim *s);

/* --- sim_server.c --------------------------------------------------------- */

void sim_server_comes(sim *s, int server);
void sim_lane_open(sim *s, sim_lane *l);
void sim_lane_close(sim_lane *l);
void sim_server_dies(sim *s, int server);
void sim_server_event(sim *s, sim_event *e);
bool sim_server_is_over(const sim *s, int server);

/* --- sim_move.c ----------------------------------------------------------- */

/* A lane is told to go, and the other process to take it, or is not, as when
 * fleetctl dies between the two. */
void sim_move(sim *s);

/* Where workers find the lane, as HELLO has it; and its stay of that. */
void sim_move_address(const sim_lane *l, char address[60]);
uint32_t sim_move_stay(const char *address);

/* A lane is between that process and another one. */
bool sim_move_is_under_way(const sim *s, int server);

/* The only place of a lane is in that process, or may be. */
bool sim_move_needs(const sim *s, int server);

/* --- sim_worker.c --------------------------------------------------------- */

void sim_worker_comes(sim *s, int worker);
void sim_worker_dies(sim *s, int worker);
void sim_worker_event(sim *s, sim_event *e);
void sim_worker_close(sim_worker *w);
void sim_worker_ends(sim_worker *w);

/* --- sim_fiber.c ---------------------------------------------------------- */

/* A stack of the worker's own for main(w), which begins with the first
 * resume. */
void sim_fiber_make(sim_worker *w, void (*main)(sim_worker *w));
void sim_fiber_resume(sim_worker *w); /* until it waits, sleeps or ends */
void sim_fiber_leave(sim_worker *w);
