/* amp.cu - the CUDA half of amp.c's cast: out <- x. */
#include "runtime/device/cuda/half_float_cuda.h"

template <class T>
__global__ static void cast_all(T *out, int64_t ldo, const float *x,
                                int64_t ldx, int64_t n, int64_t cols)
{
    FL_EACH(i, n)
    {
        int64_t row = fl_quotient(i, cols), col = i - row * cols;

        fl_store(&out[row * ldo + col], x[row * ldx + col]);
    }
}

/* Without gaps, and so without divisions. */
template <class T>
__global__ static void cast_flat(T *out, const float *x, int64_t n)
{
    FL_EACH(i, n)
    fl_store(&out[i], x[i]);
}

template <class T>
static fleet_status launch_cast(fl_device *, fl_queue *q,
                                const fl_device_step *s)
{
    int64_t n = fl_step_count(s, 0), cols = s->arg[0].cols;

    if (s->arg[0].ld == cols && s->arg[1].ld == cols)
        return FL_LAUNCH_EACH(cast_flat<T>, n, q, fl_step_ptr<T>(s, 0),
                              fl_step_f32(s, 1), n);
    return FL_LAUNCH_EACH(cast_all<T>, n, q, fl_step_ptr<T>(s, 0), s->arg[0].ld,
                          fl_step_f32(s, 1), s->arg[1].ld, n, s->arg[0].cols);
}

extern const fl_device_kernel fl_cuda_amp[];
const fl_device_kernel fl_cuda_amp[] = {
    FL_KERNEL_OF(FLEET_BFLOAT16, "cast", launch_cast<fl_bf16>),
    FL_KERNEL_OF(FLEET_FLOAT16, "cast", launch_cast<fl_f16>),
    FL_KERNEL_END,
};
