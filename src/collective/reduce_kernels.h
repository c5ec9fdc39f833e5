/* reduce_kernels.h - the elements of several ranks become one: ((x0 + x1) + x2) ..., in
 * the order of the sources, on every instruction set to the same bits. */
#ifndef FL_COLLECTIVE_FOLD_H
#define FL_COLLECTIVE_FOLD_H

#include "runtime/device/comm.h"

/* n elements of each source, reduced, to each destination, which may be one of
 * the sources, never overlap one otherwise. */
typedef struct fl_fold {
    fl_reduce how;
    fl_wire type;
    const void *const *in;
    int n_in;
    void *const *out;
    int n_out;
    bool is_far; /* all but the first go around the caches (stream_copy.h) */
    int64_t n;
} fl_fold;

typedef void fl_folder(const fl_fold *f);

void fl_fold_run(const fl_fold *f);

/* All that this processor runs, for tests; NULL ends the list. */
fl_folder *const *fl_fold_all(void);

#endif
