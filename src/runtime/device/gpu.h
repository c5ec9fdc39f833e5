/* gpu.h - GPUs that are in use in this process: each is opened once, at the
 * first request, and shared by all programs and executors that run there.
 *
 * All that a process does on a GPU is queued on one stream, `queue`, in the
 * order in which it comes; copies of feeds, and of rows that come ahead, run
 * beside it on `copies`. Whoever queues holds the lock, which the same thread
 * may take again.
 *
 * Threads: all of this from any; the device's own calls under the lock.
 */
#ifndef FL_RUNTIME_DEVICE_GPU_H
#define FL_RUNTIME_DEVICE_GPU_H

#include <pthread.h>

#include "base/error.h"
#include "runtime/device/device.h"

typedef struct fl_gpu {
    fl_device *d;
    const fl_device_class *m; /* d's */
    fl_device_options options;
    fl_queue *queue, *copies;
    fl_event *crossed;   /* after the last copy between the two memories */
    bool crossing;       /* one may be under way */
    int64_t deadline_ms; /* of a wait for what is queued */
    pthread_mutex_t lock;
    bool said_no_graphs; /* command_graph.c, in the log */
    int users;
    uint64_t fork_generation; /* a child has none of its parent's */
    struct fl_gpu *next;
} fl_gpu;

/* FLEET_ENODEVICE, with what is missing: the plug-in, a driver, a GPU, that
 * one, a newer one. */
fleet_status fl_gpu_open(int ordinal, const fl_device_options *options,
                         fl_gpu **gpu);
fl_gpu *fl_gpu_share(fl_gpu *g); /* one user more; NULL is fine */
void fl_gpu_close(fl_gpu *g);    /* one less; NULL is fine */

/* Not in a child of the process that opened it. */
bool fl_gpu_is_ours(const fl_gpu *g);

void fl_gpu_lock(fl_gpu *g); /* NULL is fine */
void fl_gpu_unlock(fl_gpu *g);

/* Zeroed memory of the host, from and to which copies run beside all else;
 * without a GPU it is any other. */
fleet_status fl_gpu_host_alloc(fl_gpu *g, size_t bytes, char **p);
void fl_gpu_host_free(fl_gpu *g, char *p); /* once its copies are done */

/* Until all that is queued is done. */
fleet_status fl_gpu_wait(fl_gpu *g);

/* A copy between the two memories was queued. */
fleet_status fl_gpu_crossed(fl_gpu *g);

/* Before the host reads what was copied to it, or writes what is copied. */
fleet_status fl_gpu_arrived(fl_gpu *g);

/* Rows of so many bytes, whose starts lie ld_to and ld_from bytes apart. */
typedef struct fl_gpu_rows {
    void *to;
    const void *from;
    size_t ld_to, ld_from, bytes, n;
    fl_copy kind;
} fl_gpu_rows;
fleet_status fl_gpu_copy(fl_gpu *g, const fl_gpu_rows *rows);
fleet_status fl_gpu_copy_on(fl_gpu *g, fl_queue *q, const fl_gpu_rows *rows);

#endif
