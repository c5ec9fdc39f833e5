/* train.h - a pass over a dataset without training, whose batches an observer
 * sees. */
#pragma once

#include "fleet/job/dataset.h"

/* Called after a batch's iteration, while the batch and its results exist. A
 * failure ends the pass. */
typedef fleet_status fl_observer(void *arg, fleet_executor *e,
                                 const fl_batch *b);

fleet_status fl_infer_pass(fleet_executor *e, fleet_dataset *d,
                           const fleet_train_options *options,
                           fl_observer *observer, void *arg);
