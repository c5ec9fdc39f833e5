/* dataset_pass.h - a pass over a dataset with somebody who looks at every batch. */
#ifndef FL_FLEET_DATASET_PASS_H
#define FL_FLEET_DATASET_PASS_H

#include "fleet/datasets.h"

/* Called after a batch's iteration, while the batch and its results are there.
 * A failure ends the pass. */
typedef fleet_status fl_observer(void *arg, fleet_executor *e,
                                 const fl_batch *b);

fleet_status fl_infer_pass(fleet_executor *e, fleet_dataset *d,
                           const fleet_train_options *options,
                           fl_observer *observer, void *arg);

#endif
