/* custom_swish.cu - functions of a custom operator on a GPU, as a user writes
 * them: test/ops/custom_op_test.c gets them from the emulated plug-in. */
#include <fleet/custom_op.h>

#include "runtime/device/cuda/cuda.h"

#pragma GCC visibility push(default)
extern "C" fleet_status custom_swish_forward(const fleet_custom_call *c);
extern "C" fleet_status custom_swish_backward(const fleet_custom_call *c);
#pragma GCC visibility pop

static int64_t count_of(const fleet_custom_tensor *t)
{
    int64_t n = 1;

    for (int i = 0; i < t->n_dim; i++)
        n *= t->dims[i];
    return n;
}

/* y = x s with s = sigmoid(w x), w a number that is trained; s is saved. */
__global__ static void forward(float *y, float *s, const float *x,
                               const float *w, int64_t n)
{
    FL_EACH(i, n)
    {
        s[i] = 1.0f / (1.0f + expf(-w[0] * x[i]));
        y[i] = x[i] * s[i];
    }
}

/* One thread sums dw up. */
__global__ static void backward(float *dx, float *dw, const float *g,
                                const float *s, const float *x, const float *w,
                                int64_t n)
{
    float sum = 0.0f;

    if (blockIdx.x > 0 || threadIdx.x > 0)
        return;
    for (int64_t i = 0; i < n; i++) {
        float slope = s[i] * (1.0f - s[i]);

        if (dx)
            dx[i] = g[i] * (s[i] + w[0] * x[i] * slope);
        sum += g[i] * x[i] * x[i] * slope;
    }
    if (dw)
        dw[0] = sum;
}

static fl_queue *queue_of(const fleet_custom_call *c)
{
    return static_cast<fl_queue *>(c->stream);
}

fleet_status custom_swish_forward(const fleet_custom_call *c)
{
    int64_t n = count_of(&c->in[0]);

    return FL_LAUNCH_EACH(forward, n, queue_of(c),
                          static_cast<float *>(c->out[0].data), c->saved,
                          static_cast<float *>(c->in[0].data),
                          static_cast<float *>(c->in[1].data), n);
}

fleet_status custom_swish_backward(const fleet_custom_call *c)
{
    return FL_LAUNCH(backward, 1, FL_THREADS, 0, queue_of(c),
                     static_cast<float *>(c->in_grad[0].data),
                     static_cast<float *>(c->in_grad[1].data),
                     static_cast<float *>(c->out_grad[0].data), c->saved,
                     static_cast<float *>(c->in[0].data),
                     static_cast<float *>(c->in[1].data), count_of(&c->in[0]));
}
