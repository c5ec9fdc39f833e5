/* mirror.h - what the store keeps, in a GPU's memory: the one place that knows
 * which of the two copies is the true one.
 *
 * Each array of the store that a plan uses on a GPU has a mirror. Who iterates
 * asks for it on its side, and says whether it will change it; whoever else
 * reads the store's memory calls fl_store_here() before, and who writes to it
 * fl_store_written() afterwards: saves, loads, hashes, fetches, metrics.
 *
 * Threads: under the store's lock, held as for the store's own memory.
 */
#ifndef FL_RUNTIME_MIRROR_H
#define FL_RUNTIME_MIRROR_H

#include "runtime/gpu.h"

struct fl_store;

typedef struct fl_mirror {
    fl_gpu *gpu;
    void *here, *there;
    size_t bytes;
    bool here_is_old, there_is_old; /* never both */
    struct fl_mirror *next;
} fl_mirror;

/* The mirror of so many bytes of the store's; made if there is none. Under the
 * store's lock, at least for reading. FLEET_EUNSUPPORTED: it is on another
 * GPU. */
fleet_status fl_mirror_make(struct fl_store *s, fl_gpu *gpu, void *here,
                            size_t bytes, fl_mirror **mirror);

/* The store's array for a side that reads it, and perhaps writes it. One that
 * no GPU has used has nothing to do. */
fleet_status fl_mirror_use(struct fl_store *s, const void *here, bool there,
                           bool writes);

fleet_status fl_store_here(struct fl_store *s);
void fl_store_written(struct fl_store *s);

void fl_mirrors_destroy(struct fl_store *s);

#endif
