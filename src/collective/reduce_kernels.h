/* reduce_kernels.h - the elements of several ranks become one: ((x0 + x1) + x2)
 * ..., in the order of the sources, with the same bits on every instruction
 * set. */
#pragma once

#include "runtime/device/comm.h"

/* n elements of each source, reduced, to each destination, which may be one of
 * the sources, never overlap one otherwise. */
typedef struct fl_reduce_args {
    fl_reduce how;
    fl_wire_type type;
    const void *const *in;
    int n_in;
    void *const *out;
    int n_out;
    bool is_nontemporal; /* all but out[0] bypass the caches (stream_copy.h) */
    int64_t n;
} fl_reduce_args;

typedef void fl_reduce_kernel(const fl_reduce_args *f);

void fl_reduce_run(const fl_reduce_args *f);

/* All that this processor runs, for tests; NULL ends the list. */
fl_reduce_kernel *const *fl_reduce_all(void);
