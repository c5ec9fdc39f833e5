/* reduce.cu - the CUDA half of reduce.c. Every sum has one order, which depends
 * on the sizes alone. */
#include "ops/reduce.h"

#include "runtime/device/cuda/block.h"

enum { OUT, IN };

static const fl_sum_config *config_of(const fl_device_step *s)
{
    return static_cast<const fl_sum_config *>(s->config);
}

/* --- reduce_sum ----------------------------------------------------------- */

__global__ static void sum_axis(float *out, const float *x, int64_t total,
                                fl_sum_config c)
{
    FL_EACH(i, total)
    {
        const float *from = x + i / c.inner * c.n * c.inner + i % c.inner;
        float sum = 0.0f;

        for (int64_t j = 0; j < c.n; j++)
            sum += from[j * c.inner];
        out[i] = c.scale * sum;
    }
}

__global__ static void spread_axis(float *dx, const float *g, int64_t total,
                                   fl_sum_config c)
{
    FL_EACH(i, total)
    dx[i] = c.scale * g[i / (c.n * c.inner) * c.inner + i % c.inner];
}

static int64_t results(const fl_device_step *s, int i)
{
    const fl_sum_config *c = config_of(s);

    return fl_step_rows(s, i) * c->outer * c->inner;
}

static fleet_status sum(fl_device *, fl_queue *q, const fl_device_step *s)
{
    int64_t n = results(s, OUT);

    return FL_LAUNCH_EACH(sum_axis, n, q, fl_step_f32(s, OUT),
                          fl_step_f32(s, IN), n, *config_of(s));
}

static fleet_status sum_grad(fl_device *, fl_queue *q, const fl_device_step *s)
{
    int64_t n = results(s, OUT) * config_of(s)->n;

    return FL_LAUNCH_EACH(spread_axis, n, q, fl_step_f32(s, OUT),
                          fl_step_f32(s, IN), n, *config_of(s));
}

/* --- reduce_most ---------------------------------------------------------- */

__global__ static void most_of_axis(float *out, const float *x, int64_t total,
                                    fl_sum_config c)
{
    FL_EACH(i, total)
    {
        const float *from = x + i / c.inner * c.n * c.inner + i % c.inner;
        float most = from[0];

        for (int64_t j = 1; j < c.n; j++) {
            float at = from[j * c.inner];

            if (c.sign * at > c.sign * most || at != at)
                most = at;
        }
        out[i] = most;
    }
}

__global__ static void most_grad_of_axis(float *dx, const float *g,
                                         const float *x, const float *y,
                                         int64_t total, fl_sum_config c)
{
    FL_EACH(i, total)
    {
        int64_t at = i / c.inner * c.n * c.inner + i % c.inner;
        int64_t first = fl_first_most(x + at, &c, y[i]);

        for (int64_t j = 0; j < c.n; j++)
            dx[at + j * c.inner] = j == first ? g[i] : 0.0f;
    }
}

static fleet_status most(fl_device *, fl_queue *q, const fl_device_step *s)
{
    int64_t n = results(s, OUT);

    return FL_LAUNCH_EACH(most_of_axis, n, q, fl_step_f32(s, OUT),
                          fl_step_f32(s, IN), n, *config_of(s));
}

static fleet_status most_grad(fl_device *, fl_queue *q, const fl_device_step *s)
{
    int64_t n = results(s, OUT);

    return FL_LAUNCH_EACH(most_grad_of_axis, n, q, fl_step_f32(s, 0),
                          fl_step_f32(s, 1), fl_step_f32(s, 2),
                          fl_step_f32(s, 3), n, *config_of(s));
}

/* --- mean: sums of blocks, then their sum --------------------------------- */

enum { MEAN_BLOCKS = 128 };

__global__ static void sum_parts(double *part, const float *x, int64_t n)
{
    double sum = 0;

    FL_EACH(i, n)
    sum += (double)x[i];
    sum = fl_block_sum(sum);
    if (threadIdx.x == 0)
        part[blockIdx.x] = sum;
}

__global__ static void mean_of_parts(float *out, const double *part, int parts,
                                     int64_t n)
{
    double sum = 0;

    for (int i = (int)threadIdx.x; i < parts; i += (int)blockDim.x)
        sum += part[i];
    sum = fl_block_sum(sum);
    if (threadIdx.x == 0)
        *out = (float)(sum / (double)n);
}

__global__ static void spread_mean(float *dx, const float *g, int64_t n)
{
    float each = *g / (float)n;

    FL_EACH(i, n)
    dx[i] = each;
}

static fleet_status mean_prepare(fl_device *, fl_queue *, fl_device_step *s)
{
    s->scratch_size = MEAN_BLOCKS * sizeof(double);
    return FLEET_OK;
}

static fleet_status mean(fl_device *, fl_queue *q, const fl_device_step *s)
{
    int64_t n = fl_step_count(s, IN);
    double *part = static_cast<double *>(s->scratch);
    unsigned blocks = fl_blocks(n);

    if (blocks > MEAN_BLOCKS)
        blocks = MEAN_BLOCKS;
    FL_TRY(FL_LAUNCH(sum_parts, blocks, FL_THREADS, 0, q, part,
                     fl_step_f32(s, IN), n));
    return FL_LAUNCH(mean_of_parts, 1, FL_THREADS, 0, q, fl_step_f32(s, OUT),
                     part, (int)blocks, n);
}

static fleet_status mean_grad(fl_device *, fl_queue *q, const fl_device_step *s)
{
    int64_t n = fl_step_count(s, OUT);

    return FL_LAUNCH_EACH(spread_mean, n, q, fl_step_f32(s, OUT),
                          fl_step_f32(s, IN), n);
}

__global__ static void sum_parts_each(float *sum, const float *parts, int64_t n,
                                      int64_t rows)
{
    FL_EACH(i, n)
    {
        float x = 0.0f;

        for (int64_t row = 0; row < rows; row++)
            x += parts[row * n + i];
        sum[i] = x;
    }
}

static fleet_status sum_rows(fl_device *, fl_queue *q, const fl_device_step *s)
{
    int64_t n = fl_step_count(s, OUT);

    return FL_LAUNCH_EACH(sum_parts_each, n, q, fl_step_f32(s, OUT),
                          fl_step_f32(s, IN), n, fl_step_rows(s, IN));
}

extern const fl_device_kernel fl_cuda_reduce[];
const fl_device_kernel fl_cuda_reduce[] = {
    FL_KERNEL("reduce_sum", sum),
    FL_KERNEL("reduce_sum.grad", sum_grad),
    FL_KERNEL("reduce_most", most),
    FL_KERNEL("reduce_most.grad", most_grad),
    FL_KERNEL_WITH("mean", 0, mean_prepare, nullptr, mean),
    FL_KERNEL("mean.grad", mean_grad),
    FL_KERNEL("parts.sum", sum_rows),
    FL_KERNEL_END,
};
