/* loss.cu - the CUDA half of loss.c. A warp has a row of classes; a loss of one
 * number per sample is a thread's. What no label can be leaves its row in the
 * step's fault, and 0 in the result. */
#include "ops/loss.h"

#include "runtime/device/cuda/block.h"

/* A label, int64 or float32. */
struct label {
    const void *data;
    bool is_float;
    __device__ float operator[](int64_t row) const
    {
        return is_float ? static_cast<const float *>(data)[row]
                        : (float)static_cast<const int64_t *>(data)[row];
    }
};

static label label_of(const fl_device_step *s, int i)
{
    return {s->arg[i].data, s->arg[i].dtype == FLEET_FLOAT32};
}

/* Of a warp's row. */
#define EACH_CLASS(j, c)                                                       \
    for (int64_t j = threadIdx.x % FL_WARP; j < (c); j += FL_WARP)

/* --- softmax -------------------------------------------------------------- */

__device__ static float most_of(const float *x, int64_t c)
{
    float most = -INFINITY;

    EACH_CLASS(j, c)
    most = max(most, x[j]);
    return fl_warp_max(most);
}

/* y = softmax(x); the sum that it was divided by. NaN in x is NaN in all. */
__device__ static float softmax_row(float *y, const float *x, int64_t c,
                                    float most)
{
    float sum = 0.0f;

    EACH_CLASS(j, c)
    sum += y[j] = expf(x[j] - most);
    sum = fl_warp_sum(sum);
    EACH_CLASS(j, c)
    y[j] /= sum;
    return sum;
}

__global__ static void softmax_rows(float *y, const float *x, int64_t rows,
                                    int64_t c)
{
    FL_EACH_ROW(r, rows)
    softmax_row(y + r * c, x + r * c, c, most_of(x + r * c, c));
}

__global__ static void softmax_grad_rows(float *dx, const float *g,
                                         const float *y, int64_t rows,
                                         int64_t c)
{
    FL_EACH_ROW(r, rows)
    {
        int64_t at = r * c;
        float dot = 0.0f;

        EACH_CLASS(j, c)
        dot += g[at + j] * y[at + j];
        dot = fl_warp_sum(dot);
        EACH_CLASS(j, c)
        dx[at + j] = y[at + j] * (g[at + j] - dot);
    }
}

static int64_t classes_of(const fl_device_step *s)
{
    return static_cast<const fl_softmax_config *>(s->config)->classes;
}

static fleet_status softmax(fl_device *, fl_queue *q, const fl_device_step *s)
{
    int64_t c = classes_of(s), rows = fl_step_count(s, 0) / c;

    return FL_LAUNCH(softmax_rows, fl_row_blocks(rows), FL_THREADS, 0, q,
                     fl_step_f32(s, 0), fl_step_f32(s, 1), rows, c);
}

static fleet_status softmax_grad(fl_device *, fl_queue *q,
                                 const fl_device_step *s)
{
    int64_t c = classes_of(s), rows = fl_step_count(s, 0) / c;

    return FL_LAUNCH(softmax_grad_rows, fl_row_blocks(rows), FL_THREADS, 0, q,
                     fl_step_f32(s, 0), fl_step_f32(s, 1), fl_step_f32(s, 2),
                     rows, c);
}

/* --- softmax_ce: loss, y <- x, label; dx <- g, y, label ------------------- */

__global__ static void softmax_ce_rows(float *loss, float *y, const float *x,
                                       const int64_t *label, int64_t rows,
                                       int64_t c, uint64_t *fault)
{
    FL_EACH_ROW(r, rows)
    {
        int64_t at = r * c, k = label[r];
        float most = most_of(x + at, c);
        float sum = softmax_row(y + at, x + at, c, most);
        bool fits = k >= 0 && k < c;

        if (threadIdx.x % FL_WARP != 0)
            continue;
        loss[r] = fits ? logf(sum) - (x[at + k] - most) : 0.0f;
        if (!fits)
            fl_fault(fault, r);
    }
}

__global__ static void softmax_ce_grad_all(float *dx, const float *g,
                                           const float *y, const int64_t *label,
                                           int64_t n, int64_t c)
{
    FL_EACH(i, n)
    {
        int64_t r = i / c;

        dx[i] = i % c == label[r] ? g[r] * (y[i] - 1.0f) : g[r] * y[i];
    }
}

static fleet_status softmax_ce(fl_device *, fl_queue *q,
                               const fl_device_step *s)
{
    int64_t rows = fl_step_rows(s, 0);

    return FL_LAUNCH(softmax_ce_rows, fl_row_blocks(rows), FL_THREADS, 0, q,
                     fl_step_f32(s, 0), fl_step_f32(s, 1), fl_step_f32(s, 2),
                     fl_step_ptr<int64_t>(s, 3), rows, s->arg[2].cols,
                     s->fault);
}

static fleet_status softmax_ce_grad(fl_device *, fl_queue *q,
                                    const fl_device_step *s)
{
    int64_t n = fl_step_count(s, 0);

    return FL_LAUNCH_EACH(softmax_ce_grad_all, n, q, fl_step_f32(s, 0),
                          fl_step_f32(s, 1), fl_step_f32(s, 2),
                          fl_step_ptr<int64_t>(s, 3), n, s->arg[0].cols);
}

/* --- cross_entropy: loss <- p, label; dp <- g, p, label ------------------- */

__global__ static void ce_all(float *loss, const float *p, const int64_t *label,
                              int64_t rows, int64_t c, uint64_t *fault)
{
    FL_EACH(r, rows)
    {
        int64_t k = label[r];
        bool fits = k >= 0 && k < c;

        loss[r] = fits ? -logf(p[r * c + k]) : 0.0f;
        if (!fits)
            fl_fault(fault, r);
    }
}

__global__ static void ce_grad_all(float *dp, const float *g, const float *p,
                                   const int64_t *label, int64_t n, int64_t c)
{
    FL_EACH(i, n)
    dp[i] = i % c == label[i / c] ? -g[i / c] / p[i] : 0.0f;
}

static fleet_status ce(fl_device *, fl_queue *q, const fl_device_step *s)
{
    int64_t rows = fl_step_rows(s, 0);

    return FL_LAUNCH_EACH(ce_all, rows, q, fl_step_f32(s, 0), fl_step_f32(s, 1),
                          fl_step_ptr<int64_t>(s, 2), rows, s->arg[1].cols,
                          s->fault);
}

static fleet_status ce_grad(fl_device *, fl_queue *q, const fl_device_step *s)
{
    int64_t n = fl_step_count(s, 0);

    return FL_LAUNCH_EACH(ce_grad_all, n, q, fl_step_f32(s, 0),
                          fl_step_f32(s, 1), fl_step_f32(s, 2),
                          fl_step_ptr<int64_t>(s, 3), n, s->arg[0].cols);
}

/* --- binary losses: loss <- x, t; dx <- g, x, t --------------------------- */

struct sigmoid_ce {
    __device__ float loss(float x, float t) const
    {
        return fmaxf(x, 0.0f) - x * t + log1pf(expf(-fabsf(x)));
    }
    __device__ float slope(float x, float t) const
    {
        return 1.0f / (1.0f + expf(-x)) - t;
    }
};

struct log_loss {
    float e;
    __device__ float loss(float p, float t) const
    {
        return -t * logf(p + e) - (1.0f - t) * logf(1.0f - p + e);
    }
    __device__ float slope(float p, float t) const
    {
        return (1.0f - t) / (1.0f - p + e) - t / (p + e);
    }
};

template <class F>
__global__ static void binary_all(float *loss, const float *x, label target,
                                  int64_t rows, uint64_t *fault, F f)
{
    FL_EACH(r, rows)
    {
        float t = target[r];
        bool fits = t >= 0.0f && t <= 1.0f;

        loss[r] = fits ? f.loss(x[r], t) : 0.0f;
        if (!fits)
            fl_fault(fault, r);
    }
}

template <class F>
__global__ static void binary_grad_all(float *dx, const float *g,
                                       const float *x, label target,
                                       int64_t rows, F f)
{
    FL_EACH(r, rows)
    dx[r] = g[r] * f.slope(x[r], target[r]);
}

template <class F>
static fleet_status binary(fl_queue *q, const fl_device_step *s, F f)
{
    int64_t rows = fl_step_rows(s, 0);

    return FL_LAUNCH_EACH(binary_all<F>, rows, q, fl_step_f32(s, 0),
                          fl_step_f32(s, 1), label_of(s, 2), rows, s->fault, f);
}

template <class F>
static fleet_status binary_grad(fl_queue *q, const fl_device_step *s, F f)
{
    int64_t rows = fl_step_rows(s, 0);

    return FL_LAUNCH_EACH(binary_grad_all<F>, rows, q, fl_step_f32(s, 0),
                          fl_step_f32(s, 1), fl_step_f32(s, 2), label_of(s, 3),
                          rows, f);
}

static fleet_status run_sigmoid_ce(fl_device *, fl_queue *q,
                                   const fl_device_step *s)
{
    return binary(q, s, sigmoid_ce());
}

static fleet_status run_sigmoid_ce_grad(fl_device *, fl_queue *q,
                                        const fl_device_step *s)
{
    return binary_grad(q, s, sigmoid_ce());
}

static log_loss log_loss_of(const fl_device_step *s)
{
    return {static_cast<const fl_log_loss_config *>(s->config)->epsilon};
}

static fleet_status run_log_loss(fl_device *, fl_queue *q,
                                 const fl_device_step *s)
{
    return binary(q, s, log_loss_of(s));
}

static fleet_status run_log_loss_grad(fl_device *, fl_queue *q,
                                      const fl_device_step *s)
{
    return binary_grad(q, s, log_loss_of(s));
}

extern const fl_device_kernel fl_cuda_loss[];
const fl_device_kernel fl_cuda_loss[] = {
    FL_KERNEL("softmax", softmax),
    FL_KERNEL("softmax.grad", softmax_grad),
    FL_KERNEL("cross_entropy", ce),
    FL_KERNEL("cross_entropy.grad", ce_grad),
    FL_KERNEL("softmax_ce", softmax_ce),
    FL_KERNEL("softmax_ce.grad", softmax_ce_grad),
    FL_KERNEL("sigmoid_ce", run_sigmoid_ce),
    FL_KERNEL("sigmoid_ce.grad", run_sigmoid_ce_grad),
    FL_KERNEL("log_loss", run_log_loss),
    FL_KERNEL("log_loss.grad", run_log_loss_grad),
    FL_KERNEL_END,
};
