/* line_norm.cu - the CUDA half of line_norm.c: a warp has a line, and a
 * thread a column of the parameters' gradients. */
#include "ops/norm/line_norm.h"

#include "runtime/device/cuda/block.h"

static const fl_line_norm *config_of(const fl_device_step *s)
{
    return static_cast<const fl_line_norm *>(s->config);
}

#define EACH_OF(j, n)                                                          \
    for (int64_t j = threadIdx.x % FL_WARP; j < (n); j += FL_WARP)

/* Of a warp's line. */
__device__ static float dot(const float *a, const float *b, int64_t n)
{
    float sum = 0.0f;

    EACH_OF(j, n)
    sum += a[j] * b[j];
    return fl_warp_sum(sum);
}

__global__ static void l2_lines(float *y, const float *x, int64_t lines,
                                fl_line_norm c)
{
    FL_EACH_ROW(r, lines)
    {
        const float *from = x + r * c.n;
        float sum = dot(from, from, c.n);
        float inverse = 1.0f / sqrtf(sum < c.epsilon ? c.epsilon : sum);

        EACH_OF(j, c.n)
        y[r * c.n + j] = from[j] * inverse;
    }
}

__global__ static void l2_grad_lines(float *dx, const float *g, const float *x,
                                     int64_t lines, fl_line_norm c)
{
    FL_EACH_ROW(r, lines)
    {
        int64_t at = r * c.n;
        float sum = dot(x + at, x + at, c.n), along = dot(g + at, x + at, c.n);
        float inverse = 1.0f / sqrtf(sum < c.epsilon ? c.epsilon : sum);

        along = sum < c.epsilon ? 0.0f : along * inverse * inverse;
        EACH_OF(j, c.n)
        dx[at + j] = inverse * (g[at + j] - along * x[at + j]);
    }
}

__global__ static void layer_lines(float *y, float *stats, const float *x,
                                   const float *w, const float *b,
                                   int64_t lines, fl_line_norm c)
{
    FL_EACH_ROW(r, lines)
    {
        int64_t at = r * c.n;
        float mean = 0.0f, sum = 0.0f, inverse;

        EACH_OF(j, c.n)
        mean += x[at + j];
        mean = fl_warp_sum(mean) / (float)c.n;
        EACH_OF(j, c.n)
        sum += (x[at + j] - mean) * (x[at + j] - mean);
        inverse = 1.0f / sqrtf(fl_warp_sum(sum) / (float)c.n + c.epsilon);
        EACH_OF(j, c.n)
        y[at + j] = (x[at + j] - mean) * inverse * (w ? w[j] : 1.0f) +
                    (b ? b[j] : 0.0f);
        if (threadIdx.x % FL_WARP == 0) {
            stats[2 * r] = mean;
            stats[2 * r + 1] = inverse;
        }
    }
}

__global__ static void layer_grad_lines(float *dx, const float *g,
                                        const float *x, const float *stats,
                                        const float *w, int64_t lines,
                                        fl_line_norm c)
{
    FL_EACH_ROW(r, lines)
    {
        int64_t at = r * c.n;
        float mean = stats[2 * r], inverse = stats[2 * r + 1];
        float h = 0.0f, hz = 0.0f;

        EACH_OF(j, c.n)
        {
            float of = g[at + j] * (w ? w[j] : 1.0f);

            h += of;
            hz += of * ((x[at + j] - mean) * inverse);
        }
        h = fl_warp_sum(h) / (float)c.n;
        hz = fl_warp_sum(hz) / (float)c.n;
        EACH_OF(j, c.n)
        dx[at + j] = inverse * (g[at + j] * (w ? w[j] : 1.0f) - h -
                                (x[at + j] - mean) * inverse * hz);
    }
}

__global__ static void dw_columns(float *dw, const float *g, const float *x,
                                  const float *stats, int64_t lines, int64_t n)
{
    FL_EACH(j, n)
    {
        float sum = 0.0f;

        for (int64_t i = 0; i < lines; i++)
            sum += g[i * n + j] *
                   ((x[i * n + j] - stats[2 * i]) * stats[2 * i + 1]);
        dw[j] = sum;
    }
}

__global__ static void db_columns(float *db, const float *g, int64_t lines,
                                  int64_t n)
{
    FL_EACH(j, n)
    {
        float sum = 0.0f;

        for (int64_t i = 0; i < lines; i++)
            sum += g[i * n + j];
        db[j] = sum;
    }
}

static int64_t lines_of(const fl_device_step *s, int i)
{
    return fl_step_count(s, i) / config_of(s)->n;
}

static fleet_status l2(fl_device *, fl_queue *q, const fl_device_step *s)
{
    int64_t lines = lines_of(s, 0);

    return FL_LAUNCH(l2_lines, fl_row_blocks(lines), FL_THREADS, 0, q,
                     fl_step_f32(s, 0), fl_step_f32(s, 1), lines,
                     *config_of(s));
}

static fleet_status l2_grad(fl_device *, fl_queue *q, const fl_device_step *s)
{
    int64_t lines = lines_of(s, 0);

    return FL_LAUNCH(l2_grad_lines, fl_row_blocks(lines), FL_THREADS, 0, q,
                     fl_step_f32(s, 0), fl_step_f32(s, 1), fl_step_f32(s, 2),
                     lines, *config_of(s));
}

static fleet_status layer(fl_device *, fl_queue *q, const fl_device_step *s)
{
    int64_t lines = lines_of(s, 0);

    return FL_LAUNCH(layer_lines, fl_row_blocks(lines), FL_THREADS, 0, q,
                     fl_step_f32(s, 0), fl_step_f32(s, 1), fl_step_f32(s, 2),
                     fl_step_f32(s, 3), fl_step_f32(s, 4), lines,
                     *config_of(s));
}

static fleet_status layer_grad(fl_device *, fl_queue *q,
                               const fl_device_step *s)
{
    int64_t lines = lines_of(s, 0);

    return FL_LAUNCH(layer_grad_lines, fl_row_blocks(lines), FL_THREADS, 0, q,
                     fl_step_f32(s, 0), fl_step_f32(s, 1), fl_step_f32(s, 2),
                     fl_step_f32(s, 3), fl_step_f32(s, 4), lines,
                     *config_of(s));
}

static fleet_status dw(fl_device *, fl_queue *q, const fl_device_step *s)
{
    int64_t n = config_of(s)->n;

    return FL_LAUNCH_EACH(dw_columns, n, q, fl_step_f32(s, 0),
                          fl_step_f32(s, 1), fl_step_f32(s, 2),
                          fl_step_f32(s, 3), lines_of(s, 1), n);
}

static fleet_status db(fl_device *, fl_queue *q, const fl_device_step *s)
{
    int64_t n = config_of(s)->n;

    return FL_LAUNCH_EACH(db_columns, n, q, fl_step_f32(s, 0),
                          fl_step_f32(s, 1), lines_of(s, 1), n);
}

extern const fl_device_kernel fl_cuda_line_norm[];
const fl_device_kernel fl_cuda_line_norm[] = {
    FL_KERNEL("l2_normalize", l2),
    FL_KERNEL("l2_normalize.grad", l2_grad),
    FL_KERNEL("layer_norm", layer),
    FL_KERNEL("layer_norm.grad", layer_grad),
    FL_KERNEL("layer_norm.dw", dw),
    FL_KERNEL("layer_norm.db", db),
    FL_KERNEL_END,
};
