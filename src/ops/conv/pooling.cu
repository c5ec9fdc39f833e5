/* pooling.cu - the CUDA half of pooling.c: a thread for each number that is
 * computed. A gradient is gathered from all windows that a number is in. */
#include "ops/conv/pooling.h"

#include "runtime/device/cuda/cuda.h"

static const fl_pooling *config_of(const fl_device_step *s)
{
    return static_cast<const fl_pooling *>(s->config);
}

/* --- forward -------------------------------------------------------------- */

enum { F_OUT, F_X };

__device__ static float mean_of(const fl_pooling &c, const float *plane,
                                const fl_pooling_window &w)
{
    float sum = 0.0f;

    for (int64_t i = w.first[0]; i < w.end[0]; i++)
        for (int64_t j = w.first[1]; j < w.end[1]; j++)
            sum += plane[i * c.x[1] + j];
    return sum / fl_pooling_count(&c, &w);
}

__global__ static void pool_each(float *out, const float *x, int64_t n,
                                 fl_pooling c, bool mean)
{
    FL_EACH(at, n)
    {
        int64_t size = c.y[0] * c.y[1];
        const float *plane = x + at / size * c.x[0] * c.x[1];
        fl_pooling_window w =
            fl_pooling_window_at(&c, at % size / c.y[1], at % c.y[1]);

        out[at] = mean ? mean_of(c, plane, w)
                       : plane[fl_pooling_largest(&c, plane, &w)];
    }
}

static fleet_status pool(fl_queue *q, const fl_device_step *s, bool mean)
{
    int64_t n = fl_step_count(s, F_OUT);

    return FL_LAUNCH_EACH(pool_each, n, q, fl_step_f32(s, F_OUT),
                          fl_step_f32(s, F_X), n, *config_of(s), mean);
}

static fleet_status largest(fl_device *, fl_queue *q, const fl_device_step *s)
{
    return pool(q, s, false);
}

static fleet_status average(fl_device *, fl_queue *q, const fl_device_step *s)
{
    return pool(q, s, true);
}

/* --- gradients ------------------------------------------------------------ */

enum { D_DX, D_G, D_X };

/* The first window, and the one behind the last, that a place is in. */
__device__ static void windows_of(const fl_pooling &c, int d, int64_t at,
                                  int64_t *first, int64_t *end)
{
    int64_t behind = at + c.padding[d] - c.size[d] + 1;

    *first = behind > 0 ? (behind + c.stride[d] - 1) / c.stride[d] : 0;
    *end = (at + c.padding[d]) / c.stride[d] + 1;
    if (*end > c.y[d])
        *end = c.y[d];
}

/* x nullptr: of means. */
__device__ static float from_window(const fl_pooling &c, float g,
                                    const float *x, int64_t at,
                                    const fl_pooling_window &w)
{
    if (!x)
        return g / fl_pooling_count(&c, &w);
    return fl_pooling_largest(&c, x, &w) == at ? g : 0.0f;
}

__global__ static void grad_each(float *dx, const float *g, const float *x,
                                 int64_t n, fl_pooling c)
{
    FL_EACH(at, n)
    {
        int64_t size = c.x[0] * c.x[1], place = at % size;
        const float *gs = g + at / size * c.y[0] * c.y[1];
        const float *plane = x ? x + at / size * size : nullptr;
        int64_t first[2], end[2];
        float sum = 0.0f;

        windows_of(c, 0, place / c.x[1], &first[0], &end[0]);
        windows_of(c, 1, place % c.x[1], &first[1], &end[1]);
        for (int64_t i = first[0]; i < end[0]; i++)
            for (int64_t j = first[1]; j < end[1]; j++)
                sum += from_window(c, gs[i * c.y[1] + j], plane, place,
                                   fl_pooling_window_at(&c, i, j));
        dx[at] = sum;
    }
}

static fleet_status grad(fl_queue *q, const fl_device_step *s, const float *x)
{
    int64_t n = fl_step_count(s, D_DX);

    return FL_LAUNCH_EACH(grad_each, n, q, fl_step_f32(s, D_DX),
                          fl_step_f32(s, D_G), x, n, *config_of(s));
}

static fleet_status largest_grad(fl_device *, fl_queue *q,
                                 const fl_device_step *s)
{
    return grad(q, s, fl_step_f32(s, D_X));
}

static fleet_status average_grad(fl_device *, fl_queue *q,
                                 const fl_device_step *s)
{
    return grad(q, s, nullptr);
}

extern const fl_device_kernel fl_cuda_pooling[];
const fl_device_kernel fl_cuda_pooling[] = {
    FL_KERNEL("pool.max", largest),
    FL_KERNEL("pool.max.grad", largest_grad),
    FL_KERNEL("pool.average", average),
    FL_KERNEL("pool.average.grad", average_grad),
    FL_KERNEL_END,
};
