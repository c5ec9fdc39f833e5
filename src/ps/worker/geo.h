/* geo.h - a worker in geo mode (a_sync_configs.k_steps): it trains copies of
 * its own, with its own optimizer, and every k updates it exchanges with the
 * servers what has changed.
 *
 *   copy     the dense weights of the worker's store, and a row of each key
 *            that the worker has looked up
 *   base     of each copy: what servers and worker had in common last
 *   push     (copy - base) / workers, of the dense weights and of the rows that
 *            were updated since the last push; from then on base is the copy
 *   pull     the dense weights, and the rows that have changed on the servers
 *            since the version that this worker has of them. Of each that comes
 *            copy += it - base, base = it
 *
 * So the servers add up means over workers, and a copy that was not updated
 * since the push is the servers' to the bit. An exchange is under way while the
 * worker goes on; the next one waits for it. docs/adr/0047 has the reasons.
 *
 * Whatever needs all updates on the servers pushes first (fl_geo_flush()): the
 * end of a pass, a barrier, a save, a hash, a test, leaving. */
#pragma once

#include "ps/worker/worker.h"

typedef struct fl_geo fl_geo;

/* From now on, of a worker in async that has made no step: an exchange after
 * `every` updates, in a job of n_worker. fl_worker_done() ends it. */
fleet_status fl_geo_begin(fl_worker *w, int64_t every, int n_worker);
void fl_geo_done(fl_worker *w);

/* Every update that this worker has made is on the servers, applied. */
fleet_status fl_geo_flush(fl_worker *w);

/* The copies are forgotten, and updates that were not pushed: the servers load.
 * Nothing that was sent before is under way after it. */
fleet_status fl_geo_forget(fl_worker *w);

/* A block of dense weights has come. */
void fl_geo_take_block(fl_worker *w, uint64_t key, const float *values);
