/* mirror.h - the store's arrays and tables in a GPU's memory, and which of the
 * two copies is up to date.
 *
 * Each array of the store that a plan uses on a GPU has a mirror, and so has
 * each table whose rows are on a GPU (table_gpu.h). An iteration asks for it
 * on its side, and says whether it will change it. Everything else (saves,
 * loads, hashes, fetches, metrics) calls fl_store_to_host() before it reads
 * the store's memory, and fl_store_written() after it has written to it.
 *
 * Threads: under the store's lock, held as for the store's own memory.
 */
#pragma once

#include "runtime/device/gpu.h"

struct fl_store;
typedef struct fl_mirror fl_mirror;

/* How a kind of mirror is copied. */
typedef struct fl_mirror_class {
    /* To the GPU it is queued, behind all that is; to the host it has happened
     * when the call returns. */
    fleet_status (*copy)(fl_mirror *m, bool to_gpu);
    void (*destroy)(fl_mirror *m); /* what it has of the GPU's, and itself */
    /* Give back the GPU's memory of it, if it can do without. NULL: it
     * cannot. */
    void (*leave)(fl_mirror *m);
} fl_mirror_class;

struct fl_mirror {
    const fl_mirror_class *methods;
    fl_gpu *gpu;
    void *host, *on_gpu;          /* on_gpu: for the mirror's life */
    size_t bytes;                 /* of an array */
    bool host_is_old, gpu_is_old; /* never both */
    fl_mirror *next;
};

/* The mirror of `bytes` bytes of the store's; made if it has none. Under the
 * store's lock, at least for reading. FLEET_EUNSUPPORTED: it is on another
 * GPU. */
fleet_status fl_mirror_make(struct fl_store *s, fl_gpu *gpu, void *host,
                            size_t bytes, fl_mirror **mirror);

/* The same for anything else: make() puts one of its kind into *mirror, with
 * methods and on_gpu, under the GPU's lock. */
typedef fleet_status fl_mirror_maker(fl_gpu *gpu, void *host, size_t bytes,
                                     fl_mirror **mirror);
fleet_status fl_mirror_of(struct fl_store *s, fl_gpu *gpu, void *host,
                          size_t bytes, fl_mirror_maker *make,
                          fl_mirror **mirror);

/* The store's array, or table, for a side that reads it, and perhaps writes it.
 * One that no GPU has used has nothing to do. */
fleet_status fl_mirror_use(struct fl_store *s, const void *host, bool on_gpu,
                           bool writes);

/* A table leaves the GPU: its rows come to the host, and their memory on the
 * GPU is free until a plan uses it on the GPU again. lost: what fails to come
 * is given up, and the host's copy counts. */
fleet_status fl_mirror_leave(struct fl_store *s, const void *host, bool lost);

/* Has a GPU used any of it? One that begins to meanwhile has copied nothing
 * yet, and does so under the store's lock. */
bool fl_store_on_gpu(struct fl_store *s);

fleet_status fl_store_to_host(struct fl_store *s);
void fl_store_written(struct fl_store *s);

/* How often it was: a copy of rows is still right while it is as often. */
uint64_t fl_store_times_written(struct fl_store *s);

void fl_mirrors_destroy(struct fl_store *s);
