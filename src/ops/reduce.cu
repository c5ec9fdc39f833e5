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
                                int64_t n, int64_t inner)
{
    FL_EACH(i, total)
    {
        const float *from = x + i / inner * n * inner + i % inner;
        float sum = 0.0f;

        for (int64_t j = 0; j < n; j++)
            sum += from[j * inner];
        out[i] = sum;
    }
}

__global__ static void spread_axis(float *dx, const float *g, int64_t total,
                                   int64_t n, int64_t inner)
{
    FL_EACH(i, total)
    dx[i] = g[i / (n * inner) * inner + i % inner];
}

static fleet_status sum(fl_device *, fl_queue *q, const fl_device_step *s)
{
    const fl_sum_config *c = config_of(s);
    int64_t n = fl_step_rows(s, OUT) * c->outer * c->inner;

    return FL_LAUNCH_EACH(sum_axis, n, q, fl_step_f32(s, OUT),
                          fl_step_f32(s, IN), n, c->n, c->inner);
}

static fleet_status sum_grad(fl_device *, fl_queue *q, const fl_device_step *s)
{
    const fl_sum_config *c = config_of(s);
    int64_t n = fl_step_rows(s, OUT) * c->outer * c->n * c->inner;

    return FL_LAUNCH_EACH(spread_axis, n, q, fl_step_f32(s, OUT),
                          fl_step_f32(s, IN), n, c->n, c->inner);
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

extern const fl_device_kernel fl_cuda_reduce[];
const fl_device_kernel fl_cuda_reduce[] = {
    FL_KERNEL("reduce_sum", sum),
    FL_KERNEL("reduce_sum.grad", sum_grad),
    FL_KERNEL_WITH("mean", 0, mean_prepare, nullptr, mean),
    FL_KERNEL("mean.grad", mean_grad),
    FL_KERNEL_END,
};
