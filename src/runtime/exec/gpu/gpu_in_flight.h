/* gpu_in_flight.h - the iterations of an executor that are under way on a GPU,
 * two at most (see gpu_plan.h). */
#pragma once

#include "runtime/exec/gpu/gpu_plan.h"

typedef struct fl_in_flight fl_in_flight;

/* An iteration: it is given a slot, perhaps with the failure of an earlier one,
 * and its feeds; its status is looked at when FL_FORWARD is queued; and at its
 * end it is under way. */
fleet_status fl_in_flight_begin(fleet_executor *e, fl_compiled *c,
                                int64_t batch);
fleet_status fl_in_flight_check(fleet_executor *e, fl_compiled *c);
fleet_status fl_in_flight_end(fleet_executor *e, fl_compiled *c, int64_t batch,
                              bool updated);

/* Let what is queued from now on wait for the copies that run beside it. */
fleet_status fl_in_flight_fed(fleet_executor *e, const fl_compiled *c);

/* The slot of the GPU's memory that the next iteration will use, when the
 * iteration before this one has left it. */
fleet_status fl_in_flight_next(fleet_executor *e, int *gpu_slot);

/* In place of an iteration: steps of an update of other ranks follow, which are
 * waited for before anything else is begun. */
fleet_status fl_in_flight_join(fleet_executor *e, fl_compiled *c);

/* Wait for an update that was queued by itself. */
fleet_status fl_in_flight_finish(fleet_executor *e, fl_compiled *c);

/* Wait for all iterations that are under way; the same, and report the failure
 * of the first that failed, once. */
fleet_status fl_in_flight_drain(fleet_executor *e);
fleet_status fl_in_flight_synchronize(fleet_executor *e);

/* Something else has failed: nothing is under way any more. */
void fl_in_flight_abandon(fleet_executor *e);
void fl_in_flight_destroy(fleet_executor *e);
