/* gpu_run.h - the work of an iteration on a GPU: inside an iteration commands
 * are gathered until fl_gpu_plan_queue(); outside of one they are queued at
 * once. */
#pragma once

#include "runtime/exec/gpu/gpu_plan.h"
#include "runtime/optim/update_gpu.h"

/* A region; what an iteration begins with; its loss and labels, which may stop
 * the updates; and after an update the loss's scaling. */
fleet_status fl_gpu_plan_run(fl_compiled *c, const fl_region *region,
                             int64_t batch);
fleet_status fl_gpu_plan_begin(fl_compiled *c);
fleet_status fl_gpu_plan_end(fl_compiled *c);
fleet_status fl_gpu_plan_copy_scaling(fl_compiled *c);

/* One command. */
fleet_status fl_gpu_plan_put(fl_gpu_plan *t, const fl_gpu_command *command);

/* Queue what was gathered: before the CPU works meanwhile, or waits. */
fleet_status fl_gpu_plan_queue(fl_compiled *c);

/* Before the CPU reads what was copied to it, or writes what is copied. */
fleet_status fl_gpu_plan_wait_copies(fl_compiled *c);

/* The iteration has failed: what was gathered is not queued. */
void fl_gpu_plan_discard(fl_compiled *c);

/* Before FL_PREFETCH is run: the host's slot, which is that of c, may be
 * written, and copies go to slot `to` of the GPU. They are queued at once,
 * beside what is computed. */
fleet_status fl_gpu_plan_begin_rows(fl_compiled *c, int to);

/* Rows of a value on the GPU, without gaps, to the host; waits. */
fleet_status fl_gpu_plan_read(const fl_compiled *c, int value, int64_t rows,
                              void *to);

/* What the GPU gets to know of the next update, but for `stop`, which the
 * caller sets. */
void fl_fill_device_update(const fl_store *s, const fl_update_now *now,
                           fl_device_update *to);
