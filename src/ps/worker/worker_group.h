/* worker_group.h - half-async: a worker adds up the gradients of several of its
 * batches and pushes the sums as one step (a push group), and pulls the dense
 * weights after some pushes. Rows are pulled for each batch.
 *
 * A group ends when it has its batches, and at whatever other workers or a save
 * may see: all steps that are no contribution, and reads of what is there now.
 */
#pragma once

#include "ps/worker/worker.h"

/* Before the first push. FLEET_ENOMEM. */
fleet_status fl_worker_use_half_async(fl_worker *w, const fl_push_options *how);
void fl_group_done(fl_worker *w);

/* Add what is pushed to the group, all of it or nothing, and push the group if
 * it is full then. One that could not be made is pushed before the next push is
 * added. */
fleet_status fl_group_add(fl_worker *w, const fl_push *p);

/* Push what is gathered; nothing if there is none. */
fleet_status fl_group_flush(fl_worker *w);

/* Will the next push be a step of the worker's, or one of a group's? */
bool fl_group_pushes_next(const fl_worker *w);

/* Before an iteration computes: weights that have been asked for are taken. */
fleet_status fl_group_renew(fl_worker *w);
