/* trail_packets.h - packets in a record of trail_slots.h. */
#pragma once

#include "ps/trail/trail.h"
#include "ps/trail/trail_slots.h"

fleet_status fl_trail_put_packet(fl_trail_slots *s, const fl_packet *p);

/* Of each lane, in their order. */
fleet_status fl_trail_put_packets(fl_trail_slots *s,
                                  const fl_trail_packets *lane, int n_lane);

/* The next packet that was put: *p and the frames are the caller's, what they
 * point to is the record's. FLEET_ECORRUPT, without a text: there is none. */
fleet_status fl_trail_take_packet(const fl_trail_record *r, size_t *at,
                                  fl_frame frame[FL_MOST_FRAME], fl_packet *p);

/* What _put_packets() has put, of n_lane lanes; likewise. */
fleet_status fl_trail_visit_packets(const fl_trail_record *r, size_t *at,
                                    uint64_t step, int n_lane,
                                    fl_trail_visit *visit, void *arg);
