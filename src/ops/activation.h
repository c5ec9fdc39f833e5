/* activation.h - what the kernels of activation.c are told. */
#ifndef FL_OPS_ACTIVATION_H
#define FL_OPS_ACTIVATION_H

/* NAME         out <- in
 * NAME.grad    dx <- dy, out (square: in) */
typedef struct fl_scale_config {
    float scale, bias;
} fl_scale_config;

#endif
