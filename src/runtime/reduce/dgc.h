/* dgc.h - deep gradient compression: ranks exchange only the largest elements
 * of their gradients; the rest is added to the gradients of later updates. */
#pragma once

#include "runtime/reduce/bucket_layout.h"

/* The part of a parameter that an update sends, after `updates` earlier
 * updates; 0: all of the parameter is reduced. */
double fl_dgc_density(const fl_training *t, int64_t updates);

/* Does dgc compress the parameter? */
bool fl_dgc_takes(const fl_lowering *l, const fl_param *p);

/* The exchange of a bucket that is one parameter. */
fl_bucket_emitter fl_emit_dgc;
