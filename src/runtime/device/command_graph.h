/* command_graph.h - work for a GPU that is gathered first and then queued in one go,
 * so that what comes again is one launch of a CUDA graph.
 *
 * The first time a list of work is queued piece by piece: memory and choices
 * settle. The second time that is captured, and from then on launched. Lists
 * are the same if all that a graph keeps is the same: the kernels, the steps
 * that they run, which nobody changes once they are prepared, and the addresses
 * that are copied. So a graph that is out of date cannot be launched: its list
 * is not asked for any more.
 *
 * Threads: under the GPU's lock.
 */
#ifndef FL_RUNTIME_GRAPHS_H
#define FL_RUNTIME_GRAPHS_H

#include "base/log.h"
#include "runtime/device/gpu.h"

/* One of three: a kernel's step, a fill, or a copy. */
typedef struct fl_work {
    const fl_device_kernel *kernel;
    const fl_device_step *step; /* as long as the graphs of its owner */
    void *filled;               /* with 0xff */
    size_t bytes;
    fl_gpu_rows rows; /* of memory of the host only what is pinned */
} fl_work;

typedef struct fl_works {
    fl_work *work;
    size_t n, capacity;
} fl_works;

fleet_status fl_works_add(fl_works *all, const fl_work *work);
void fl_works_done(fl_works *all);

/* Queue one piece. */
fleet_status fl_work_queue(fl_gpu *g, const fl_work *work);

/* The lists of one owner that were queued before: of whoever has the memory of
 * the steps, and drops the lists before that goes. */
typedef struct fl_sequence fl_sequence;

/* A list whose capture fails is queued piece by piece, and captured again a few
 * times, after longer and longer pauses; the first failure of a GPU's is told
 * to the log, with the reason. */
fleet_status fl_sequence_queue(fl_gpu *g, fl_sequence **known,
                               const fl_works *all, fl_log *log);

/* Once all that was queued is done. */
void fl_sequences_drop(fl_gpu *g, fl_sequence **known);

#endif
