/* update.h - what an update on a GPU is told. */
#ifndef FL_RUNTIME_PASSES_UPDATE_H
#define FL_RUNTIME_PASSES_UPDATE_H

#include "runtime/optim/update_gpu.h"
#include "runtime/plan/plan.h"

/* What the next update is told, but for `stop`, which the caller sets. */
void fl_update_tell(const fl_store *s, const fl_update_now *now,
                    fl_device_update *to);

#endif
