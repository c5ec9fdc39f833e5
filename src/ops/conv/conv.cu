/* conv.cu - the CUDA half of conv.c: a thread for each element of what is
 * computed, which adds its products in one order; sums over a batch have a warp
 * for each. */
#include "ops/conv/conv.h"

#include "runtime/device/cuda/block.h"

static const fl_conv *config_of(const fl_device_step *s)
{
    return static_cast<const fl_conv *>(s->config);
}

/* Where weight (i, j) reads for a result at y, x; false: padding. */
__device__ static bool read_at(const fl_conv_shape &c, int64_t y, int64_t x,
                               int64_t i, int64_t j, int64_t *at)
{
    int64_t row = y * c.stride[0] - c.padding[0] + i * c.dilation[0];
    int64_t col = x * c.stride[1] - c.padding[1] + j * c.dilation[1];

    *at = row * c.x[1] + col;
    return row >= 0 && row < c.x[0] && col >= 0 && col < c.x[1];
}

/* --- conv: out <- x, W, b ------------------------------------------------- */

enum { F_OUT, F_X, F_W, F_B };

__global__ static void forward_each(float *out, const float *x, const float *w,
                                    const float *b, int64_t n, fl_conv_shape c)
{
    FL_EACH(at, n)
    {
        int64_t plane = c.y[0] * c.y[1], in = c.in / c.groups;
        int64_t filter = at / plane % c.out, image = at / plane / c.out;
        int64_t group = filter / (c.out / c.groups), from;
        const float *xs = x + (image * c.in + group * in) * c.x[0] * c.x[1];
        const float *ws = w + filter * in * c.kernel[0] * c.kernel[1];
        float sum = b ? b[filter] : 0.0f;

        for (int64_t k = 0; k < in; k++, xs += c.x[0] * c.x[1])
            for (int64_t i = 0; i < c.kernel[0]; i++)
                for (int64_t j = 0; j < c.kernel[1]; j++, ws++)
                    if (read_at(c, at % plane / c.y[1], at % c.y[1], i, j,
                                &from))
                        sum += xs[from] * *ws;
        out[at] = sum;
    }
}

static fleet_status forward(fl_device *, fl_queue *q, const fl_device_step *s)
{
    const fl_conv *c = config_of(s);
    int64_t n = fl_step_count(s, F_OUT);

    return FL_LAUNCH_EACH(forward_each, n, q, fl_step_f32(s, F_OUT),
                          fl_step_f32(s, F_X), fl_step_f32(s, F_W),
                          c->bias ? fl_step_f32(s, F_B) : nullptr, n, c->shape);
}

/* --- conv.dx: dx <- g, W -------------------------------------------------- */

enum { X_DX, X_G, X_W };

/* The result that reads a place by a weight's row or column; -1: none. */
__device__ static int64_t read_by(int64_t at, int64_t stride, int64_t padding,
                                  int64_t offset, int64_t results)
{
    int64_t from = at + padding - offset;

    return from >= 0 && from % stride == 0 && from / stride < results
               ? from / stride
               : -1;
}

__device__ static float dx_of_filter(const float *g, const float *w,
                                     int64_t row, int64_t col,
                                     const fl_conv_shape &c)
{
    float sum = 0.0f;

    for (int64_t i = 0; i < c.kernel[0]; i++) {
        int64_t y =
            read_by(row, c.stride[0], c.padding[0], i * c.dilation[0], c.y[0]);

        for (int64_t j = 0; y >= 0 && j < c.kernel[1]; j++) {
            int64_t x = read_by(col, c.stride[1], c.padding[1],
                                j * c.dilation[1], c.y[1]);

            if (x >= 0)
                sum += g[y * c.y[1] + x] * w[i * c.kernel[1] + j];
        }
    }
    return sum;
}

__global__ static void dx_each(float *dx, const float *g, const float *w,
                               int64_t n, fl_conv_shape c)
{
    FL_EACH(at, n)
    {
        int64_t plane = c.x[0] * c.x[1], in = c.in / c.groups;
        int64_t channel = at / plane % c.in, image = at / plane / c.in;
        int64_t filters = c.out / c.groups;
        int64_t first = channel / in * filters;
        float sum = 0.0f;

        for (int64_t f = first; f < first + filters; f++)
            sum += dx_of_filter(g + (image * c.out + f) * c.y[0] * c.y[1],
                                w + (f * in + channel % in) * c.kernel[0] *
                                        c.kernel[1],
                                at % plane / c.x[1], at % c.x[1], c);
        dx[at] = sum;
    }
}

static fleet_status dx(fl_device *, fl_queue *q, const fl_device_step *s)
{
    int64_t n = fl_step_count(s, X_DX);

    return FL_LAUNCH_EACH(dx_each, n, q, fl_step_f32(s, X_DX),
                          fl_step_f32(s, X_G), fl_step_f32(s, X_W), n,
                          config_of(s)->shape);
}

/* --- conv.dw: sums <- x, g ------------------------------------------------ */

enum { W_SUMS, W_X, W_G };

/* One image's share of a weight, this lane's part of it. */
__device__ static float dw_of_image(const float *x, const float *g, int64_t i,
                                    int64_t j, const fl_conv_shape &c)
{
    int64_t from;
    float sum = 0.0f;

    for (int64_t at = threadIdx.x % FL_WARP; at < c.y[0] * c.y[1];
         at += FL_WARP)
        if (read_at(c, at / c.y[1], at % c.y[1], i, j, &from))
            sum += x[from] * g[at];
    return sum;
}

__global__ static void dw_each(float *sums, const float *x, const float *g,
                               int64_t n, int64_t images, fl_conv v)
{
    const fl_conv_shape &c = v.shape;
    int64_t kernel = c.kernel[0] * c.kernel[1], in = c.in / c.groups;
    int64_t weights = c.out * in * kernel;

    FL_EACH_ROW(at, n)
    {
        int64_t weight = at % weights, filter = weight / kernel / in;
        int64_t channel =
            filter / (c.out / c.groups) * in + weight / kernel % in;
        int64_t first = at / weights * v.part;
        int64_t end = first + v.part < images ? first + v.part : images;
        float sum = 0.0f;

        for (int64_t i = first; i < end; i++)
            sum += dw_of_image(x + (i * c.in + channel) * c.x[0] * c.x[1],
                               g + (i * c.out + filter) * c.y[0] * c.y[1],
                               weight % kernel / c.kernel[1],
                               weight % c.kernel[1], c);
        sum = fl_warp_sum(sum);
        if (threadIdx.x % FL_WARP == 0)
            sums[at] = sum;
    }
}

static fleet_status dw(fl_device *, fl_queue *q, const fl_device_step *s)
{
    int64_t n = fl_step_count(s, W_SUMS);

    return FL_LAUNCH(dw_each, fl_row_blocks(n), FL_THREADS, 0, q,
                     fl_step_f32(s, W_SUMS), fl_step_f32(s, W_X),
                     fl_step_f32(s, W_G), n, fl_step_rows(s, W_X),
                     *config_of(s));
}

/* --- conv.db: db <- g ----------------------------------------------------- */

enum { B_DB, B_G };

__global__ static void db_each(float *db, const float *g, int64_t images,
                               fl_conv_shape c)
{
    int64_t plane = c.y[0] * c.y[1];

    FL_EACH_ROW(filter, c.out)
    {
        float sum = 0.0f;

        for (int64_t i = 0; i < images; i++)
            for (int64_t at = threadIdx.x % FL_WARP; at < plane; at += FL_WARP)
                sum += g[(i * c.out + filter) * plane + at];
        sum = fl_warp_sum(sum);
        if (threadIdx.x % FL_WARP == 0)
            db[filter] = sum;
    }
}

static fleet_status db(fl_device *, fl_queue *q, const fl_device_step *s)
{
    const fl_conv *c = config_of(s);

    return FL_LAUNCH(db_each, fl_row_blocks(c->shape.out), FL_THREADS, 0, q,
                     fl_step_f32(s, B_DB), fl_step_f32(s, B_G),
                     fl_step_rows(s, B_G), c->shape);
}

extern const fl_device_kernel fl_cuda_conv[];
const fl_device_kernel fl_cuda_conv[] = {
    FL_KERNEL("conv", forward),
    FL_KERNEL("conv.dx", dx),
    FL_KERNEL("conv.dw", dw),
    FL_KERNEL("conv.db", db),
    FL_KERNEL_END,
};
