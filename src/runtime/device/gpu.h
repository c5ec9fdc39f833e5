/* gpu.h - GPUs that are in use in this process: each is opened once, at the
 * first request, and shared by all programs and executors that run on it.
 *
 * All kernels of a process on a GPU are on one queue, `queue`, in the order of
 * the calls that queue them; copies of feeds, and of prefetched rows, are on
 * the queue `copies` beside it. A thread that queues work holds the GPU's lock,
 * which is recursive.
 *
 * Threads: these functions from any; the device's own methods under the lock.
 */
#pragma once

#include <pthread.h>

#include "base/error.h"
#include "runtime/device/device.h"

typedef struct fl_gpu {
    fl_device *d;
    const fl_device_class *m; /* d's */
    fl_device_options options;
    fl_queue *queue, *copies;
    fl_event *copied;    /* after the last copy between host and GPU */
    bool copying;        /* such a copy may be under way */
    int64_t deadline_ms; /* of a wait for what is queued */
    pthread_mutex_t lock;
    bool warned_no_graphs; /* by command_graph.c */
    bool warned_given_up;  /* by gpu_plan.c */
    int users;
    uint64_t fork_generation; /* a child has none of its parent's */
    struct fl_gpu *next;
} fl_gpu;

/* FLEET_ENODEVICE says what is missing: the plug-in, a driver, a GPU, the GPU
 * of that number, a newer GPU. */
fleet_status fl_gpu_open(int ordinal, const fl_device_options *options,
                         fl_gpu **gpu);
fl_gpu *fl_gpu_share(fl_gpu *g); /* one user more; NULL is fine */
void fl_gpu_close(fl_gpu *g);    /* one less; NULL is fine */

/* Not in a child of the process that opened it. */
bool fl_gpu_is_ours(const fl_gpu *g);

void fl_gpu_lock(fl_gpu *g); /* NULL is fine */
void fl_gpu_unlock(fl_gpu *g);

/* Zeroed memory of the host, from and to which copies run beside all else; with
 * g NULL it is ordinary memory. */
fleet_status fl_gpu_host_alloc(fl_gpu *g, size_t bytes, char **p);
void fl_gpu_host_free(fl_gpu *g, char *p); /* once its copies are done */

/* Until all that is queued is done. */
fleet_status fl_gpu_wait(fl_gpu *g);

/* A copy between host and GPU was queued. */
fleet_status fl_gpu_copy_queued(fl_gpu *g);

/* Until such copies are done: before the host reads or writes their memory. */
fleet_status fl_gpu_wait_copies(fl_gpu *g);

/* n rows of `bytes`, whose starts lie ld_to and ld_from bytes apart. */
typedef struct fl_gpu_rows {
    void *to;
    const void *from;
    size_t ld_to, ld_from, bytes, n;
    fl_copy kind;
} fl_gpu_rows;
fleet_status fl_gpu_copy(fl_gpu *g, const fl_gpu_rows *rows);
fleet_status fl_gpu_copy_on(fl_gpu *g, fl_queue *q, const fl_gpu_rows *rows);
