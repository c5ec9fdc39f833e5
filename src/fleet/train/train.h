/* train.h - a pass over a dataset without training, whose batches an observer
 * sees; one that trains, with a look between its batches. */
#pragma once

#include "fleet/job/dataset.h"

/* Called after a batch's iteration, while the batch and its results exist. A
 * failure ends the pass. */
typedef fleet_status fl_observer(void *arg, fleet_executor *e,
                                 const fl_batch *b);

fleet_status fl_infer_pass(fleet_executor *e, fleet_dataset *d,
                           const fleet_train_options *options,
                           fl_observer *observer, void *arg,
                           fleet_train_result *result);

/* Called after every batch, or round of trainer threads, and after on_batch:
 * another executor may run then, and a save be made unless a merge group is
 * under way (executor->micro). A failure ends the pass. */
typedef fleet_status fl_batch_end(void *arg);

/* fleet_train_from_dataset() with it. */
fleet_status fl_train_pass(fleet_executor *e, fleet_dataset *d,
                           const fleet_train_options *options,
                           fl_batch_end *between, void *arg,
                           fleet_train_result *result);
