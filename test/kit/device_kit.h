/* device_kit.h - every kernel of the CUDA plug-in against the CPU's, step by
 * step: an executor's plan is gone through, each step is run on copies of its
 * operands on the (emulated) device and here, and what it wrote is compared.
 */
#pragma once

#include <fleet/fleet.h>

#include "runtime/device/device.h"

enum { DEVICE_KIT_MOST = 512 };

typedef struct device_kit {
    const fl_device_table *table;
    fl_device *d;
    fl_queue *q;
    double tolerance; /* 0: 2e-5, relative to an operand's largest element */
    bool compared[DEVICE_KIT_MOST]; /* kernels, by kernel_at() */
} device_kit;

/* The plug-in's table, with this process as its host: that of the emulated
 * device, or of the plug-in FLEET_TEST_DEVICE, on the GPU that is there. */
const fl_device_table *device_kit_table(void);

bool device_kit_is_emulated(void);

/* Skips a test of so many ranks where there are fewer GPUs, unless two may
 * share one and NCCL is told so; and which GPU a rank has. */
void device_kit_need_gpus(int ranks, bool may_share);
int device_kit_gpu_of(int rank);

/* Processes that there are GPUs for. */
int device_kit_most_ranks(void);

void device_kit_open(device_kit *k, bool strict_fp32);

/* Nothing of the device's memory may be left. */
void device_kit_close(device_kit *k);

/* For kernels by hand: memory of the device with a copy of what is here, a copy
 * of it here, and a step that is prepared, run, waited for and finished. */
void *device_kit_make(device_kit *k, const void *from, size_t bytes);
void device_kit_drop(device_kit *k, void *p);
void *device_kit_fetch(device_kit *k, const void *from, size_t bytes);
void device_kit_run(device_kit *k, const char *name, fl_device_step *step);

/* The steps of the plan that e ran last, on the batch it ran. Fails for a step
 * that has no CUDA half and is not in the list of those, by name. */
void device_kit_compare(device_kit *k, fleet_executor *e);

/* Every kernel there is has been compared. */
void device_kit_check_all(const device_kit *k);

/* Kernels of plans that are known to have no CUDA half; NULL ends them. */
extern const char *const device_kit_without[];
