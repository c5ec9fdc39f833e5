/* dgc.h - deep gradient compression: ranks exchange the largest elements of
 * what their gradients have added up to. */
#ifndef FL_RUNTIME_REDUCE_DGC_H
#define FL_RUNTIME_REDUCE_DGC_H

#include "runtime/reduce/buckets.h"

/* The part of a parameter that an update sends, after `updates` earlier
 * updates; 0: all of the parameter is reduced. */
double fl_dgc_density(const fl_training *t, int64_t updates);

/* Does dgc compress the parameter? */
bool fl_dgc_takes(const fl_lowering *l, const fl_param *p);

/* The exchange of a bucket that is one parameter. */
fl_bucket_emitter fl_emit_dgc;

#endif
