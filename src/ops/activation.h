/* activation.h - activations as steps have them: operators of their own, and
 * fused into an fc. Configurations of the kernels of activation.c:
 *
 *   NAME, NAME.grad of activations.def    fl_activation
 *   square, square.grad                   none
 *   scale, scale.grad                     fl_scale_config
 */
#pragma once

#include "runtime/device/device.h"
#include "runtime/graph/op.h"

typedef struct fl_activation {
    int kind; /* fleet_activation */
    float alpha;
} fl_activation;

typedef struct fl_scale_config {
    float scale, bias;
} fl_scale_config;

/* The operator of a fleet_activation; NULL: there is none, as of FLEET_LINEAR,
 * which does nothing. */
const fl_op *fl_activation_op(int64_t kind);

/* What a node of such an operator computes. */
fl_activation fl_activation_of(const fl_node *n);

/* For builders: x through the activation; alpha 0: its default. */
fleet_var *fl_activation_add(fleet_program *p, fleet_var *x, int64_t kind,
                             float alpha);

/* --- for other families' CUDA halves (activation.cu) ---------------------- */

/* Operand y becomes its activation, in place; its rows may have gaps. */
fleet_status fl_cuda_activate(fl_queue *q, const fl_device_step *s, int y,
                              const fl_activation *a);

/* Operand g is multiplied by the derivative at operand y. */
fleet_status fl_cuda_activation_mask(fl_queue *q, const fl_device_step *s,
                                     int g, int y, const fl_activation *a);
