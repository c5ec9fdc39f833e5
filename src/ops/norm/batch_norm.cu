/* batch_norm.cu - the CUDA half of batch_norm.c, column_norm.c and data_norm.c:
 * a block of threads has a column where all lines of it are added up, in
 * double. */
#include "ops/norm/batch_norm.h"

#include "runtime/device/cuda/block.h"
#include "runtime/graph/training.h"

static const fl_batch_norm *config_of(const fl_device_step *s)
{
    return static_cast<const fl_batch_norm *>(s->config);
}

static int64_t lines_of(const fl_device_step *s, int i)
{
    return fl_step_count(s, i) / config_of(s)->n;
}

/* The rest of a column's statistics, by one thread. */
__device__ static void finish_stats(float *stats, const float *w, int64_t j,
                                    fl_batch_norm c)
{
    float inverse = 1.0f / sqrtf(stats[FL_NORM_VARIANCE * c.n + j] + c.epsilon);

    stats[FL_NORM_INVERSE * c.n + j] = inverse;
    stats[FL_NORM_SCALE * c.n + j] = w ? inverse * w[j] : inverse;
}

/* --- batch_norm.stats, batch_norm.fixed ---------------------------------- */

__global__ static void stats_columns(float *stats, const float *x,
                                     const float *w, int64_t lines,
                                     fl_batch_norm c)
{
    __shared__ float mean;

    for (int64_t j = blockIdx.x; j < c.n; j += gridDim.x) {
        double sum = 0, square = 0;

        for (int64_t i = threadIdx.x; i < lines; i += blockDim.x)
            sum += (double)x[i * c.n + j];
        sum = fl_block_sum(sum);
        if (threadIdx.x == 0)
            mean = (float)(sum / (double)lines);
        __syncthreads();
        for (int64_t i = threadIdx.x; i < lines; i += blockDim.x) {
            double d = (double)(x[i * c.n + j] - mean);

            square += d * d;
        }
        square = fl_block_sum(square);
        if (threadIdx.x == 0) {
            stats[FL_NORM_MEAN * c.n + j] = mean;
            stats[FL_NORM_VARIANCE * c.n + j] = (float)(square / (double)lines);
            finish_stats(stats, w, j, c);
        }
        __syncthreads();
    }
}

__global__ static void fixed_columns(float *stats, const float *mean,
                                     const float *variance, const float *w,
                                     fl_batch_norm c)
{
    FL_EACH(j, c.n)
    {
        stats[FL_NORM_MEAN * c.n + j] = mean[j];
        stats[FL_NORM_VARIANCE * c.n + j] = variance[j];
        finish_stats(stats, w, j, c);
    }
}

static fleet_status stats(fl_device *, fl_queue *q, const fl_device_step *s)
{
    return FL_LAUNCH(stats_columns, fl_most_blocks(config_of(s)->n), FL_THREADS,
                     0, q, fl_step_f32(s, 0), fl_step_f32(s, 1),
                     fl_step_f32(s, 2), lines_of(s, 1), *config_of(s));
}

static fleet_status fixed(fl_device *, fl_queue *q, const fl_device_step *s)
{
    return FL_LAUNCH_EACH(fixed_columns, config_of(s)->n, q, fl_step_f32(s, 0),
                          fl_step_f32(s, 1), fl_step_f32(s, 2),
                          fl_step_f32(s, 3), *config_of(s));
}

/* --- batch_norm.moments, batch_norm.combined ----------------------------- */

__global__ static void moments_columns(double *moments, const float *x,
                                       int64_t lines, int64_t n)
{
    if (blockIdx.x == 0 && threadIdx.x == 0)
        moments[fl_norm_moments(n) - 1] = (double)lines;
    for (int64_t j = blockIdx.x; j < n; j += gridDim.x) {
        double sum = 0, square = 0;

        for (int64_t i = threadIdx.x; i < lines; i += blockDim.x) {
            double at = (double)x[i * n + j];

            sum += at;
            square += at * at;
        }
        sum = fl_block_sum(sum);
        square = fl_block_sum(square);
        if (threadIdx.x == 0) {
            moments[j] = sum;
            moments[n + j] = square;
        }
    }
}

__global__ static void combine_columns(float *stats, const double *moments,
                                       const float *w, fl_batch_norm c)
{
    const double lines = moments[fl_norm_moments(c.n) - 1];

    FL_EACH(j, c.n)
    {
        double mean = moments[j] / lines;
        double variance = (moments[c.n + j] - mean * moments[j]) / lines;

        stats[FL_NORM_MEAN * c.n + j] = (float)mean;
        stats[FL_NORM_VARIANCE * c.n + j] =
            variance > 0 ? (float)variance : 0.0f;
        finish_stats(stats, w, j, c);
    }
}

static fleet_status moments(fl_device *, fl_queue *q, const fl_device_step *s)
{
    return FL_LAUNCH(moments_columns, fl_most_blocks(config_of(s)->n),
                     FL_THREADS, 0, q, fl_step_ptr<double>(s, 0),
                     fl_step_f32(s, 1), lines_of(s, 1), config_of(s)->n);
}

static fleet_status combined(fl_device *, fl_queue *q, const fl_device_step *s)
{
    return FL_LAUNCH_EACH(combine_columns, config_of(s)->n, q,
                          fl_step_f32(s, 0), fl_step_ptr<double>(s, 1),
                          fl_step_f32(s, 2), *config_of(s));
}

/* --- column_norm ---------------------------------------------------------- */

__global__ static void norm_all(float *y, const float *x, const float *stats,
                                const float *b, int64_t count, fl_batch_norm c)
{
    FL_EACH(i, count)
    {
        int64_t j = i % c.n;

        y[i] = (x[i] - stats[FL_NORM_MEAN * c.n + j]) *
                   stats[FL_NORM_SCALE * c.n + j] +
               (b ? b[j] : 0.0f);
    }
}

static fleet_status norm(fl_device *, fl_queue *q, const fl_device_step *s)
{
    int64_t count = fl_step_count(s, 0);

    return FL_LAUNCH_EACH(norm_all, count, q, fl_step_f32(s, 0),
                          fl_step_f32(s, 1), fl_step_f32(s, 2),
                          fl_step_f32(s, 3), count, *config_of(s));
}

/* --- batch_norm.sums, column_norm.grad ----------------------------------- */

__global__ static void sums_columns(float *sums, float *dw, float *db,
                                    const float *g, const float *x,
                                    const float *stats, int64_t lines,
                                    fl_batch_norm c)
{
    for (int64_t j = blockIdx.x; j < c.n; j += gridDim.x) {
        float mean = stats[FL_NORM_MEAN * c.n + j];
        double of_g = 0, of_gx = 0;

        for (int64_t i = threadIdx.x; i < lines; i += blockDim.x) {
            double at = (double)g[i * c.n + j];

            of_g += at;
            of_gx += at * (double)(x[i * c.n + j] - mean);
        }
        of_g = fl_block_sum(of_g);
        of_gx = fl_block_sum(of_gx);
        if (threadIdx.x == 0) {
            float inverse = stats[FL_NORM_INVERSE * c.n + j];
            float gz = (float)(of_gx * (double)inverse);

            sums[FL_NORM_G * c.n + j] = (float)of_g;
            sums[FL_NORM_GZ * c.n + j] = gz;
            if (dw)
                dw[j] = gz;
            if (db)
                db[j] = (float)of_g;
        }
    }
}

static fleet_status sums(fl_device *, fl_queue *q, const fl_device_step *s)
{
    return FL_LAUNCH(sums_columns, fl_most_blocks(config_of(s)->n), FL_THREADS,
                     0, q, fl_step_f32(s, 0), fl_step_f32(s, 1),
                     fl_step_f32(s, 2), fl_step_f32(s, 3), fl_step_f32(s, 4),
                     fl_step_f32(s, 5), lines_of(s, 3), *config_of(s));
}

/* of: NULL where the statistics are not of this batch; moments: of all
 * ranks. */
__global__ static void grad_all(float *dx, const float *g, const float *x,
                                const float *stats, const float *of,
                                const double *moments, int64_t count,
                                fl_batch_norm c)
{
    float share = moments ? 1.0f / (float)moments[fl_norm_moments(c.n) - 1]
                          : (float)c.n / (float)count;

    FL_EACH(i, count)
    {
        int64_t j = i % c.n;
        float scale = stats[FL_NORM_SCALE * c.n + j], less = 0.0f;

        if (of) {
            float z = (x[i] - stats[FL_NORM_MEAN * c.n + j]) *
                      stats[FL_NORM_INVERSE * c.n + j];

            less = share *
                   (of[FL_NORM_G * c.n + j] + z * of[FL_NORM_GZ * c.n + j]);
        }
        dx[i] = scale * (g[i] - less);
    }
}

static fleet_status grad(fl_device *, fl_queue *q, const fl_device_step *s)
{
    int64_t count = fl_step_count(s, 0);

    return FL_LAUNCH_EACH(grad_all, count, q, fl_step_f32(s, 0),
                          fl_step_f32(s, 1), fl_step_f32(s, 2),
                          fl_step_f32(s, 3), fl_step_f32(s, 4),
                          fl_step_ptr<double>(s, 5), count, *config_of(s));
}

/* --- batch_norm.moving --------------------------------------------------- */

__global__ static void moving_columns(float *dmean, float *dvariance,
                                      const float *stats,
                                      const fl_scaling *scaling, int64_t n)
{
    float scale = scaling ? scaling->scale : 1.0f;

    FL_EACH(j, n)
    {
        dmean[j] = stats[FL_NORM_MEAN * n + j] * scale;
        dvariance[j] = stats[FL_NORM_VARIANCE * n + j] * scale;
    }
}

static fleet_status moving(fl_device *, fl_queue *q, const fl_device_step *s)
{
    return FL_LAUNCH_EACH(moving_columns, config_of(s)->n, q, fl_step_f32(s, 0),
                          fl_step_f32(s, 1), fl_step_f32(s, 2),
                          fl_step_ptr<fl_scaling>(s, 3), config_of(s)->n);
}

/* --- data_norm.stats, data_norm.sums ------------------------------------- */

__global__ static void data_stats(float *stats, const float *size,
                                  const float *sum, const float *squares,
                                  int64_t n)
{
    FL_EACH(j, n)
    {
        float scale = sqrtf(size[j] / squares[j]);

        stats[FL_NORM_MEAN * n + j] = sum[j] / size[j];
        stats[FL_NORM_VARIANCE * n + j] = squares[j] / size[j];
        stats[FL_NORM_INVERSE * n + j] = scale;
        stats[FL_NORM_SCALE * n + j] = scale;
    }
}

__global__ static void data_sums(float *dsize, float *dsum, float *dsquares,
                                 const float *x, const float *stats,
                                 const fl_scaling *scaling, int64_t lines,
                                 fl_batch_norm c)
{
    double scale = scaling ? (double)scaling->scale : 1.0;

    for (int64_t j = blockIdx.x; j < c.n; j += gridDim.x) {
        float mean = stats[FL_NORM_MEAN * c.n + j];
        double sum = 0, squares = 0;

        for (int64_t i = threadIdx.x; i < lines; i += blockDim.x) {
            double d = (double)(x[i * c.n + j] - mean);

            sum += (double)x[i * c.n + j];
            squares += d * d;
        }
        sum = fl_block_sum(sum);
        squares = fl_block_sum(squares);
        if (threadIdx.x == 0) {
            squares += (double)lines * (double)c.epsilon;
            dsize[j] = (float)((double)lines * scale);
            dsum[j] = (float)(sum * scale);
            dsquares[j] = (float)(squares * scale);
        }
    }
}

static fleet_status data_norm_stats(fl_device *, fl_queue *q,
                                    const fl_device_step *s)
{
    return FL_LAUNCH_EACH(data_stats, config_of(s)->n, q, fl_step_f32(s, 0),
                          fl_step_f32(s, 1), fl_step_f32(s, 2),
                          fl_step_f32(s, 3), config_of(s)->n);
}

static fleet_status data_norm_sums(fl_device *, fl_queue *q,
                                   const fl_device_step *s)
{
    return FL_LAUNCH(data_sums, fl_most_blocks(config_of(s)->n), FL_THREADS, 0,
                     q, fl_step_f32(s, 0), fl_step_f32(s, 1), fl_step_f32(s, 2),
                     fl_step_f32(s, 3), fl_step_f32(s, 4),
                     fl_step_ptr<fl_scaling>(s, 5), lines_of(s, 3),
                     *config_of(s));
}

extern const fl_device_kernel fl_cuda_batch_norm[];
const fl_device_kernel fl_cuda_batch_norm[] = {
    FL_KERNEL("batch_norm.stats", stats),
    FL_KERNEL("batch_norm.fixed", fixed),
    FL_KERNEL("batch_norm.moments", moments),
    FL_KERNEL("batch_norm.combined", combined),
    FL_KERNEL("batch_norm.sums", sums),
    FL_KERNEL("batch_norm.moving", moving),
    FL_KERNEL("column_norm", norm),
    FL_KERNEL("column_norm.grad", grad),
    FL_KERNEL("data_norm.stats", data_norm_stats),
    FL_KERNEL("data_norm.sums", data_norm_sums),
    FL_KERNEL_END,
};
