/* custom.h - operators that a program has registered: what custom.c makes of a
 * fleet_custom_op, and its kernels, of custom_kernels.c. */
#pragma once

#include <fleet/custom_op.h>

#include "base/memory.h"
#include "ops/ops.h"
#include "runtime/device/device.h"

/* A registered operator; it is never freed. */
typedef struct fl_custom {
    fl_op op; /* the first: a node's op is one of these */
    fleet_custom_op spec;
    char *name, *attrs, *grad; /* grad: "<name>.grad" */
    fl_kernel forward, forward_whole, backward, backward_whole;
    fl_device_kernel on_gpu[2]; /* forward, backward */
} fl_custom;

struct fleet_custom_attrs {
    const fl_attr *attr;
    int n;
};

static inline const fl_custom *fl_custom_of(const fl_node *n)
{
    return (const fl_custom *)(const void *)n->op;
}

/* Is it computed in one call, with all rows? Also what has no batch. */
bool fl_custom_is_whole(const fl_node *n);

/* The operator's own function for shapes; out has room for n_out. */
fleet_status fl_custom_shape(const fl_custom *c, const fl_attr *attr,
                             int n_attr, const fleet_custom_tensor *in,
                             fleet_custom_tensor *out, int64_t *saved);

/* The status of a function of the operator, before which fl_error_clear() was
 * called: a failure gets the operator's name in its text. */
fleet_status fl_custom_said(const fl_custom *c, const char *function,
                            fleet_status status);

/* A registered operator, which takes n_in inputs. */
fleet_status fl_custom_find(const char *name, int n_in, const fl_custom **c);

/* The attributes of a node in the operator's order, FLEET_CUSTOM_MOST_ATTR at
 * most; names are in the arena. */
fleet_status fl_custom_attrs_of(fl_arena *arena, const fl_custom *c,
                                const fleet_custom_attr *attr, int n,
                                fl_attr *out, int *n_out);

/* As `shape` has it. */
fleet_custom_tensor fl_custom_tensor_of(const fleet_var *v);
