/* prefetch.h - pulls from the remote store: for this iteration, and for the
 * next one while this one runs. */
#pragma once

#include "runtime/exec/executor.h"

/* With a remote store, or a table with a cap: the batch that will follow the
 * next iteration, so that its rows travel, or come from a file, meanwhile. Its
 * memory stays valid until its own iteration is over, or something else was
 * iterated, flushed or failed. The caller may iterate another batch instead;
 * what is wrong with the batch is reported in its own iteration. */
void fl_executor_prefetch(fleet_executor *e, const fl_input *input,
                          int64_t batch);

/* The prefetched batch is not wanted any more: call it before its memory
 * goes. */
void fl_executor_forget(fleet_executor *e);

/* With a remote store or ranks: the pass is over for this worker, after a
 * flush. Returns when it is for all, with sum[] added up over them. Else
 * nothing happens. */
fleet_status fl_executor_end_pass(fleet_executor *e, double *sum, int n);

/* With a remote store: dense weights as they are now. Else nothing. */
fleet_status fl_executor_refresh(fleet_executor *e);

/* The same of an executor for test, whose program may have weights that are
 * behind (remote.h). */
fleet_status fl_executor_catch_up(fleet_executor *e);

/* --- for the executor, under the store's lock ---------------------------- */

/* Pull for this iteration, unless that was done before, and for the next one
 * with its plan, if there is one. The slot of this one is chosen. */
fleet_status fl_executor_pull(fleet_executor *e, fl_compiled *c, int64_t batch,
                              fl_compiled *next);

/* The update is over: in sync pull for the next iteration, and if it was pushed
 * wait until the servers have made it. */
fleet_status fl_executor_finish_update(fleet_executor *e, fl_compiled *next,
                                       bool pushed);

/* The iteration is over, and the next one's pull is the first now. */
void fl_executor_pulled(fleet_executor *e);

/* Forget one pull and its batch; or both. */
void fl_executor_drop_pull(const fleet_executor *e, fl_pulled *p);
void fl_executor_drop(fleet_executor *e);

/* --- for a crew, likewise ------------------------------------------------- */

/* Members pull each into a slot of its own, behind the slots of executors.
 * Without a remote store nothing is done. */

/* Ask for what member i's batch needs, which is bound; the first member's pull
 * brings the dense weights. */
fleet_status fl_member_pull(fleet_executor *e, fl_compiled *c, int64_t batch,
                            int i);

/* It has come. */
fleet_status fl_member_wait_pull(fleet_executor *e, fl_compiled *c,
                                 int64_t batch);

/* It is not used any more, whether it has come or not. */
void fl_member_drop_pull(const fleet_executor *e, const fl_compiled *c, int i);
