/* error_metrics.cu - the CUDA half of error_metrics.c: a block goes through the
 * batch, so that its sums have one order. */
#include "ops/math/error_metrics.h"

#include "runtime/device/cuda/block.h"

enum { SUMS, X, LABEL };
enum { ADD_THREADS = 256 };

struct measured {
    const float *x;
    int64_t step, n, cols; /* the last of each `step` counts, n times */
    const void *label;
    bool is_float;
    fl_error_metric c;
};

__device__ static double x_at(const measured &from, int64_t i)
{
    return (double)from.x[(i + 1) * from.step - 1];
}

__global__ static void check_samples(measured from, uint64_t *fault)
{
    FL_EACH(i, from.n)
    if (!fl_metric_takes(from.c.kind, x_at(from, i),
                         fl_number_at(from.label, from.is_float, i)))
        fl_fault(fault, i * from.step / from.cols);
}

/* All of the batch, or nothing. */
__global__ static void add_samples(double *sums, measured from,
                                   const uint64_t *fault)
{
    double add[FL_METRIC_SUMS] = {0};

    if (*fault != FL_NO_FAULT)
        return;
    for (int64_t i = threadIdx.x; i < from.n; i += blockDim.x) {
        double x = x_at(from, i);
        double label = fl_number_at(from.label, from.is_float, i);

        if (from.c.kind >= FLEET_METRIC_PRECISION) {
            add[fl_metric_cell(x, label, from.c.threshold)]++;
        } else {
            double error = fl_metric_error(from.c.kind, x, label);

            add[0]++;
            add[1] +=
                from.c.kind == FLEET_METRIC_LOG_LOSS ? -log(error) : error;
        }
    }
    for (int i = 0; i < FL_METRIC_SUMS; i++) {
        double all = fl_block_sum(add[i]);

        if (threadIdx.x == 0)
            sums[i] += all;
    }
}

__global__ static void metric_of(float *out, const double *sums, int kind)
{
    *out = (float)fl_metric_of(kind, sums);
}

static const fl_error_metric *config_of(const fl_device_step *s)
{
    return static_cast<const fl_error_metric *>(s->config);
}

static fleet_status add(fl_device *, fl_queue *q, const fl_device_step *s)
{
    const fl_error_metric *c = config_of(s);
    int64_t cols = s->arg[X].cols,
            step = fl_metric_is_binary(c->kind) ? cols : 1;
    measured from = {fl_step_f32(s, X),
                     step,
                     fl_step_rows(s, X) * cols / step,
                     cols,
                     s->arg[LABEL].data,
                     s->arg[LABEL].dtype == FLEET_FLOAT32,
                     *c};

    FL_TRY(FL_LAUNCH_EACH(check_samples, from.n, q, from, s->fault));
    return FL_LAUNCH(add_samples, 1, ADD_THREADS, 0, q,
                     fl_step_ptr<double>(s, SUMS), from,
                     static_cast<const uint64_t *>(s->fault));
}

static fleet_status metric(fl_device *, fl_queue *q, const fl_device_step *s)
{
    return FL_LAUNCH(metric_of, 1, 1, 0, q, fl_step_f32(s, 0),
                     static_cast<const double *>(fl_step_ptr<double>(s, 1)),
                     config_of(s)->kind);
}

extern const fl_device_kernel fl_cuda_error_metrics[];
const fl_device_kernel fl_cuda_error_metrics[] = {
    FL_KERNEL("metric.add", add),
    FL_KERNEL("metric", metric),
    FL_KERNEL_END,
};
