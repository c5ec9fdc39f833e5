/* triangle.cu - the CUDA half of triangle.c: a thread has an element of the
 * square. */
#include "ops/shape/triangle.h"

#include "runtime/device/cuda/cuda.h"

enum { OUT, IN };

__global__ static void take_lower(float *out, const float *x, int64_t n,
                                  fl_triangle_config c)
{
    FL_EACH(i, n)
    {
        int64_t row = i / (c.n * c.n), at = i / c.n % c.n, col = i % c.n;

        if (col < at + c.diagonal)
            out[row * fl_triangle_at(&c, c.n) + fl_triangle_at(&c, at) + col] =
                x[i];
    }
}

__global__ static void put_lower(float *dx, const float *g, int64_t n,
                                 fl_triangle_config c)
{
    FL_EACH(i, n)
    {
        int64_t row = i / (c.n * c.n), at = i / c.n % c.n, col = i % c.n;

        dx[i] = col < at + c.diagonal ? g[row * fl_triangle_at(&c, c.n) +
                                          fl_triangle_at(&c, at) + col]
                                      : 0.0f;
    }
}

static fleet_status lower(fl_device *, fl_queue *q, const fl_device_step *s)
{
    int64_t n = fl_step_count(s, IN);

    return FL_LAUNCH_EACH(take_lower, n, q, fl_step_f32(s, OUT),
                          fl_step_f32(s, IN), n,
                          *static_cast<const fl_triangle_config *>(s->config));
}

static fleet_status lower_grad(fl_device *, fl_queue *q,
                               const fl_device_step *s)
{
    int64_t n = fl_step_count(s, OUT);

    return FL_LAUNCH_EACH(put_lower, n, q, fl_step_f32(s, OUT),
                          fl_step_f32(s, IN), n,
                          *static_cast<const fl_triangle_config *>(s->config));
}

extern const fl_device_kernel fl_cuda_triangle[];
const fl_device_kernel fl_cuda_triangle[] = {
    FL_KERNEL("lower_triangle", lower),
    FL_KERNEL("lower_triangle.grad", lower_grad),
    FL_KERNEL_END,
};
