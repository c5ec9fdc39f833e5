/* lookup_norm.cu - lookup.norm and lookup.check: what passes want to know of
 * the sums of a lookup; lookup.clip, which scales them. */
#include "runtime/store/lookup_kernels.h"

#include "runtime/device/cuda/block.h"
#include "runtime/optim/update_gpu.h"

static const fl_device_lookup *config_of(const fl_device_step *s)
{
    return static_cast<const fl_device_lookup *>(s->config);
}

/* --- lookup.norm --------------------------------------------------------- */

__global__ static void norm_of_sums(double *launch_norm,
                                    const fl_device_update *now,
                                    const float *sum, const int64_t *n,
                                    int64_t dim)
{
    double total = 0;

    FL_EACH(i, *n * dim)
    {
        double x = (double)(sum[i] * now->u.scale);

        total += x * x;
    }
    total = fl_block_sum(total);
    if (threadIdx.x == 0)
        launch_norm[blockIdx.x] = total;
}

static fleet_status launch_norm(fl_device *, fl_queue *q,
                                const fl_device_step *s)
{
    return FL_LAUNCH(norm_of_sums, FL_LOOKUP_NORMS, FL_THREADS, 0, q,
                     fl_step_ptr<double>(s, FL_NORM),
                     fl_step_ptr<fl_device_update>(s, FL_NORM_UPDATE),
                     fl_step_f32(s, FL_NORM_SUM),
                     fl_step_ptr<int64_t>(s, FL_NORM_COUNT), config_of(s)->dim);
}

/* --- lookup.clip --------------------------------------------------------- */

/* Each thread adds up the few sums. */
__global__ static void clip_sums(float *sum, const double *square,
                                 const fl_device_update *now, const int64_t *n,
                                 int64_t dim)
{
    double all = 0;

    for (int i = 0; i < FL_LOOKUP_NORMS; i++)
        all += square[i];
    float factor = fl_clip_factor(all, now->norm_clip);
    FL_EACH(i, *n * dim)
    sum[i] *= factor;
}

static fleet_status launch_clip(fl_device *, fl_queue *q,
                                const fl_device_step *s)
{
    return FL_LAUNCH(clip_sums, FL_LOOKUP_NORMS, FL_THREADS, 0, q,
                     fl_step_f32(s, FL_NORM_SUM),
                     fl_step_ptr<double>(s, FL_NORM),
                     fl_step_ptr<fl_device_update>(s, FL_NORM_UPDATE),
                     fl_step_ptr<int64_t>(s, FL_NORM_COUNT), config_of(s)->dim);
}

/* --- lookup.check -------------------------------------------------------- */

__global__ static void check_sums(float *found, const float *sum,
                                  const int64_t *n, int64_t dim)
{
    int bad = 0;

    FL_EACH(i, *n * dim)
    bad |= !(sum[i] - sum[i] == 0.0f);
    bad = fl_block_sum(bad);
    if (threadIdx.x == 0)
        found[blockIdx.x] = bad ? 1.0f : 0.0f;
}

static fleet_status launch_check(fl_device *, fl_queue *q,
                                 const fl_device_step *s)
{
    return FL_LAUNCH(check_sums, FL_LOOKUP_CHECKS, FL_THREADS, 0, q,
                     fl_step_f32(s, FL_CHECK), fl_step_f32(s, FL_CHECK_SUM),
                     fl_step_ptr<int64_t>(s, FL_CHECK_COUNT),
                     config_of(s)->dim);
}

extern const fl_device_kernel fl_cuda_lookup_norm[];
const fl_device_kernel fl_cuda_lookup_norm[] = {
    FL_KERNEL("lookup.norm", launch_norm),
    FL_KERNEL("lookup.clip", launch_clip),
    FL_KERNEL("lookup.check", launch_check),
    FL_KERNEL_END,
};
