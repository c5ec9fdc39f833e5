/* command_graph.h - commands for a GPU that are gathered first and then queued
 * together, so that a list that is queued again is one launch of a CUDA graph.
 *
 * The first time the commands of a list are queued one by one, while memory is
 * allocated and choices are made. The second time they are captured, and from
 * then on launched. Lists are the same if all that a graph keeps is the same:
 * the kernels, the steps that they run, which do not change once they are
 * prepared, and the addresses that are copied. So a graph that is out of date
 * cannot be launched: its list is never queued again.
 *
 * Threads: under the GPU's lock.
 */
#pragma once

#include "base/log.h"
#include "runtime/device/gpu.h"

/* A kernel's step, a fill, or a copy. */
typedef struct fl_gpu_command {
    const fl_device_kernel *kernel;
    const fl_device_step *step; /* as long as the graphs of its owner */
    void *filled;               /* with 0xff */
    size_t bytes;
    fl_gpu_rows rows; /* of memory of the host only what is pinned */
} fl_gpu_command;

typedef struct fl_gpu_commands {
    fl_gpu_command *work;
    size_t n, capacity;
} fl_gpu_commands;

fleet_status fl_gpu_commands_add(fl_gpu_commands *all,
                                 const fl_gpu_command *work);
void fl_gpu_commands_done(fl_gpu_commands *all);

/* Queue one command. */
fleet_status fl_gpu_command_queue(fl_gpu *g, const fl_gpu_command *work);

/* The lists that were queued before with the steps of one owner, which drops
 * them before the memory of the steps goes. */
typedef struct fl_command_graph fl_command_graph;

/* A list whose capture fails is queued command by command, and captured again a
 * few times, after longer and longer pauses; the first failure on a GPU is
 * logged, with the reason. */
fleet_status fl_command_graph_queue(fl_gpu *g, fl_command_graph **known,
                                    const fl_gpu_commands *all, fl_log *log);

/* Once all that was queued is done. */
void fl_command_graphs_drop(fl_gpu *g, fl_command_graph **known);
