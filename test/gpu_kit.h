/* gpu_kit.h - programs on a GPU in the suite: the emulated one, as the plug-in
 * beside the suite, or the one that FLEET_TEST_DEVICE's plug-in finds. */
#ifndef FL_TEST_GPU_KIT_H
#define FL_TEST_GPU_KIT_H

#include <stdbool.h>
#include <stddef.h>

/* What a test may ask of the emulated device of the plug-in; control.h. */
typedef struct gpu_kit_asks {
    void (*set_devices)(int n);
    void (*set_major)(int major);
    void (*set_busy)(bool busy);
    void (*fail_at)(int n);
    size_t (*live_bytes)(void);
    long (*launches)(void);
} gpu_kit_asks;

/* The folder that has the plug-in. */
const char *gpu_kit_folder(void);

/* From here on this process finds the plug-in. Skips what a real GPU cannot do:
 * gpu_kit_control() is for the emulated one alone. */
void gpu_kit_open(void);
const gpu_kit_asks *gpu_kit_control(void);

/* Nothing of the device's memory may be left. */
void gpu_kit_close(void);

#endif
