/* gpu_kit.h - programs on a GPU in the suite: the emulated one, as the plug-in
 * beside the suite, or the one that FLEET_TEST_DEVICE's plug-in finds. */
#pragma once

#include "train_kit.h"

#include "runtime/store/store.h"

/* What a test may ask of the emulated device of the plug-in; control.h. */
typedef struct gpu_kit_asks {
    void (*set_devices)(int n);
    void (*set_major)(int major);
    void (*set_busy)(bool busy);
    void (*set_late)(bool late);
    void (*set_seed)(unsigned long long seed);
    void (*fail_at)(int n);
    bool (*failed)(void);
    void (*refuse_products)(unsigned which);
    void (*set_relu_by_algorithm)(bool by);
    void (*lose_after)(int kernels);
    long (*hangs)(void);
    size_t (*live_bytes)(void);
    long (*launches)(void);
    long (*queued)(void);
    long (*nodes)(void);
} gpu_kit_asks;

/* What the GPU's name begins with. */
const char *gpu_kit_name(void);

/* The folder that has the plug-in. */
const char *gpu_kit_folder(void);

/* From here on this process finds the plug-in. Skips what a real GPU cannot do:
 * gpu_kit_control() is for the emulated one alone. */
void gpu_kit_open(void);
const gpu_kit_asks *gpu_kit_control(void);

/* Another function of the emulated device's plug-in, into *function. */
void gpu_kit_symbol(const char *name, void *function);

/* Nothing of the device's memory may be left. */
void gpu_kit_close(void);

/* A model whose program is on gpu:0, in float32, for batches up to 40 rows. */
kit_model gpu_kit_model(kit_kind kind, kit_options o);

/* Batches of several sizes, and the end of their group. */
void gpu_kit_train(kit_model *m, int batches);

/* x as it is, by an operator whose kernel "kit.copy" no GPU has. */
fleet_var *gpu_kit_copy(fleet_program *p, fleet_var *x);

/* All dense parameters, one after the other; how many. */
enum { GPU_KIT_MOST = 1 << 16 };
int64_t gpu_kit_weights(fl_store *s, float *w);

/* Each as near as other orders of sums leave them. */
void gpu_kit_near(const float *a, const float *b, int64_t n);
