/* unary.cu - the CUDA half of unary.c: a thread has an element, and the
 * formulas of unaries.def. */
#include "ops/math/unary.h"

#include "runtime/device/cuda/formula_cuda.h"

enum { OUT, IN, OF };

namespace formula
{

#define FL_UNARY(NAME, name, attrs, first, second, FROM, y, dx)                \
    struct name {                                                              \
        float a, b;                                                            \
        __device__ float forward(float x) const                                \
        {                                                                      \
            return y;                                                          \
        }                                                                      \
        __device__ float gradient(float x, float dy) const                     \
        {                                                                      \
            return dx;                                                         \
        }                                                                      \
    };
#include "runtime/simd/unaries.def"
#undef FL_UNARY

} // namespace formula

template <class F>
__global__ static void unary_all(float *y, const float *x, int64_t n, F f)
{
    FL_EACH(i, n)
    y[i] = f.forward(x[i]);
}

template <class F>
__global__ static void unary_grad_all(float *dx, const float *x,
                                      const float *dy, int64_t n, F f)
{
    FL_EACH(i, n)
    dx[i] = f.gradient(x[i], dy[i]);
}

template <class F>
static fleet_status unary(fl_device *, fl_queue *q, const fl_device_step *s)
{
    const fl_unary_config *c = static_cast<const fl_unary_config *>(s->config);
    int64_t n = fl_step_count(s, OUT);

    return FL_LAUNCH_EACH(unary_all<F>, n, q, fl_step_f32(s, OUT),
                          fl_step_f32(s, IN), n, F{c->a, c->b});
}

template <class F>
static fleet_status unary_grad(fl_device *, fl_queue *q,
                               const fl_device_step *s)
{
    const fl_unary_config *c = static_cast<const fl_unary_config *>(s->config);
    int64_t n = fl_step_count(s, OUT);

    return FL_LAUNCH_EACH(unary_grad_all<F>, n, q, fl_step_f32(s, OUT),
                          fl_step_f32(s, OF), fl_step_f32(s, IN), n,
                          F{c->a, c->b});
}

extern const fl_device_kernel fl_cuda_unary[];
const fl_device_kernel fl_cuda_unary[] = {
#define FL_UNARY(NAME, name, ...)                                              \
    FL_KERNEL(#name, unary<formula::name>),                                    \
        FL_KERNEL(#name ".grad", unary_grad<formula::name>),
#include "runtime/simd/unaries.def"
#undef FL_UNARY
    FL_KERNEL_END,
};
