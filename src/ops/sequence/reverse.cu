/* reverse.cu - the CUDA half of reverse.c: a thread for each number. */
#include "ops/sequence/reverse.h"

#include "runtime/device/cuda/cuda.h"

enum { OUT, IN, MASK };

__global__ static void reverse_each(float *out, const float *x,
                                    const float *mask, int64_t n, fl_reverse c)
{
    FL_EACH(i, n)
    {
        int64_t row = i / c.cols / c.len, t = i / c.cols % c.len;
        int64_t values =
            fl_reverse_count(&c, mask ? mask + row * c.len : nullptr);

        out[i] =
            x[(row * c.len + fl_reverse_from(t, values)) * c.cols + i % c.cols];
    }
}

static fleet_status run(fl_device *, fl_queue *q, const fl_device_step *s)
{
    int64_t n = fl_step_count(s, OUT);

    return FL_LAUNCH_EACH(reverse_each, n, q, fl_step_f32(s, OUT),
                          fl_step_f32(s, IN), fl_step_f32(s, MASK), n,
                          *static_cast<const fl_reverse *>(s->config));
}

extern const fl_device_kernel fl_cuda_reverse[];
const fl_device_kernel fl_cuda_reverse[] = {
    FL_KERNEL("sequence_reverse", run),
    FL_KERNEL_END,
};
