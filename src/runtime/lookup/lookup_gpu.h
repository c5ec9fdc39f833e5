/* lookup_gpu.h - lookups whose table has its rows on a GPU (table_gpu.h):
 * their steps are the kernels of lookup_kernels.h, in place of lookup.h's.
 *
 * A table's rows are on a GPU when this process keeps them for itself, and all
 * of the program's lookups in it are placed on the GPU. In passes
 * (fl_store.gpu_passes) these are plans that train alone; plans for test find
 * rows at home, in the host's memory.
 */
#pragma once

#include "runtime/lookup/lookup.h"
#include "runtime/store/lookup_kernels.h"
#include "runtime/store/table_gpu.h"

/* The ids of some slots, or what was merged of them, as keys: by position, and
 * each that differs with a number. Arrays grow with the batches (gpu_ids.c):
 * a value that has `positions` set is one of them. */
typedef struct fl_numbered {
    fl_device_lookup config; /* of its steps, with its capacity */
    const fleet_var *table;
    const fl_lookup_slot *slot;
    int n_slot;
    struct fl_numbered *of; /* merged: batches of this one */
    int times;              /* how many */

    /* values: by position, and their count; by number, the same */
    int key, cell, n;
    int unique, start, position, which, n_unique;
    int row;
    struct fl_numbered *next; /* of the plan's */
} fl_numbered;

typedef struct fl_lookup_gpu {
    const fleet_var *table;
    int rows;             /* value of the table */
    int winners;          /* value: of slots of FLEET_MAX; -1: none */
    fl_numbered *all;     /* of all slots */
    fl_numbered *trained; /* of slots with a gradient; NULL: no training */
    fl_numbered *changed; /* what updates change: trained, or merged */
    int sum, changed_sum; /* values: gradients by number, of trained, changed */
    bool is_ready;        /* the steps before an update are in the plan */
    struct fl_lookup_gpu *next;

    /* of a compiled plan */
    fl_table_gpu *on_gpu;
    int64_t keys; /* offered by the merge group so far */
} fl_lookup_gpu;

/* May all lookups of the program in it be on the GPU? */
bool fl_table_fits_gpu(const fleet_program *p, const fl_place *at,
                       const fleet_var *table);

bool fl_table_on_gpu(const fl_lowering *l, const fleet_var *table);

/* As lookup.h has them. */
void fl_lookup_gpu_forward(fl_lowering *l, const fl_node *n,
                           const fleet_var *table, const fl_lookup_slot *slot,
                           int n_slot);
void fl_lookup_gpu_gradient(fl_lowering *l, const fl_node *n,
                            const fleet_var *table, fl_sparse *s,
                            const fl_lookup_slot *slot, int n_slot);
void fl_lookup_gpu_merge(fl_lowering *l, fl_lookup_gpu *x);
int fl_lookup_gpu_check(fl_lowering *l, fl_lookup_gpu *x, int *n);
int fl_lookup_gpu_norm(fl_lowering *l, fl_lookup_gpu *x, int *n);
void fl_lookup_gpu_clip(fl_lowering *l, fl_lookup_gpu *x, int norms);
void fl_lookup_gpu_update(fl_lowering *l, fl_lookup_gpu *x);
