/* strided.cu - the CUDA half of strided.c: a thread has an element. */
#include "ops/shape/strided.h"

#include "runtime/device/cuda/cuda.h"

enum { OUT, IN };

__global__ static void fill_all(float *to, int64_t n, float fill)
{
    FL_EACH(i, n)
    to[i] = fill;
}

__global__ static void copy_strided(float *to, const float *from, int64_t n,
                                    fl_strided_config c)
{
    FL_EACH(i, n)
    {
        int64_t row = i / c.count, at = i % c.count;

        to[row * c.to.size + fl_strided_at(&c, &c.to, at)] =
            from[row * c.from.size + fl_strided_at(&c, &c.from, at)];
    }
}

static fleet_status strided(fl_device *, fl_queue *q, const fl_device_step *s)
{
    const fl_strided_config *c =
        static_cast<const fl_strided_config *>(s->config);
    int64_t rows = s->arg[OUT].factor ? fl_step_rows(s, OUT) : 1;
    int64_t n = rows * c->count, all = rows * c->to.size;

    if (c->fills)
        FL_TRY(FL_LAUNCH_EACH(fill_all, all, q, fl_step_f32(s, OUT), all,
                              c->fill));
    return FL_LAUNCH_EACH(copy_strided, n, q, fl_step_f32(s, OUT),
                          fl_step_f32(s, IN), n, *c);
}

extern const fl_device_kernel fl_cuda_strided[];
const fl_device_kernel fl_cuda_strided[] = {
    FL_KERNEL("strided", strided),
    FL_KERNEL_END,
};
