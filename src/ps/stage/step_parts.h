/* step_parts.h - a heter worker's connections to its servers: steps of
 * several parts, and what the process before it has begun. worker.h's, under
 * the lock. */
#pragma once

#include "ps/worker/worker_io.h"

/* Of a heter worker, whose pushes are parts of a step. */
fleet_status fl_worker_io_end_step(fl_worker_io *l);

/* Where it stands: the steps and updates behind it; and its last part. By the
 * thread that pushes. */
uint64_t fl_worker_io_steps(const fl_worker_io *l);
const fl_trail_packets *fl_worker_io_last_part(const fl_worker_io *l,
                                               fl_update_settings *settings);

/* As worker.h has it, before anything else. */
fleet_status fl_worker_io_stand(fl_worker_io *l, uint64_t step,
                                int64_t updates);
fleet_status fl_worker_io_part_again(fl_worker_io *l, uint64_t step, int lane,
                                     const fl_packet *p);
fleet_status fl_worker_io_end_part_again(fl_worker_io *l, uint64_t step,
                                         const fl_update_settings *settings);

/* The folder of its trail, which this process has locked, and the number that
 * all processes of that have; NULL: it leaves none. */
const char *fl_worker_io_trail(const fl_worker_io *l, uint64_t *nonce);
