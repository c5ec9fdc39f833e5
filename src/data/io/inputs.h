/* inputs.h - the files of a stream, one after the other, each opened when its
 * turn is near. */
#pragma once

#include <stddef.h>

#include "base/error.h"
#include "data/io/read_ahead.h"
#include "data/io/source.h"

typedef struct fl_inputs {
    const char *const *path;
    int n;
    fl_source_options o;
    int n_prefetch; /* how many may be read ahead; 1: none */

    int current; /* the file that is open; -1: none yet */
    fl_source *source;
    fl_read_ahead **prefetch; /* NULL, or per file; few are not NULL */
    int started;
    double share; /* of all files that was read, each of equal weight */
} fl_inputs;

fleet_status fl_inputs_init(fl_inputs *in, const char *const *path, int n,
                            const fl_source_options *o, int n_prefetch);

/* Open the next file; FLEET_EEND after the last. */
fleet_status fl_inputs_next(fl_inputs *in);

/* As fl_source_read(), of the file that is open. */
fleet_status fl_inputs_read(fl_inputs *in, void *to, size_t size, size_t *got);
void fl_inputs_done(fl_inputs *in); /* when the wakeup came, or all was read */
