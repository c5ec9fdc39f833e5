/* sim_internal.h - the simulator's events, between sim.c and sim_links.c. */
#pragma once

#include "sim.h"

typedef enum sim_event_kind {
    SIM_TO_LANE,
    SIM_TO_WORKER,
    SIM_LANE_TICK,
    SIM_WORKER_TICK,
    SIM_WORKER_WAKES,
    SIM_ACT_ENDS
} sim_event_kind;

typedef struct sim_event {
    int64_t at_ms;
    uint64_t number;
    sim_event_kind kind;
    int worker, lane; /* worker SIM_NOBODY: a process that is gone */
    fl_packet *packet;
} sim_event;

/* One more thing that will happen. The packet is the event's. */
void sim_post(sim *s, sim_event e);
bool sim_happens(sim *s, int of_1000); /* by chance */

/* Send a copy of the packet where the event says, as the links do it: late, or
 * not, or more than once. */
void sim_carry(sim *s, sim_event e, const fl_packet *p);

/* With FLEET_SIM_TRACE: what happens to whom. */
void sim_say(const sim *s, const char *what, int worker, int lane,
             const fl_packet *p);
