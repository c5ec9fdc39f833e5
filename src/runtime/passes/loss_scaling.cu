/* loss_scaling.cu - the CUDA half of loss_scaling.c: the GPU finds
 * whether an update is skipped, and skips it; the host learns of it later. */
#include "runtime/device/cuda/block.h"
#include "runtime/plan/loss_scale.h"
#include "runtime/optim/update_gpu.h"

__global__ static void scale_loss(float *gradient, const fl_scaling *s)
{
    *gradient = s->scale;
}

static fleet_status launch_scale(fl_device *, fl_queue *q,
                                 const fl_device_step *s)
{
    return FL_LAUNCH(scale_loss, 1, 1, 0, q, fl_step_f32(s, 0),
                     fl_step_ptr<fl_scaling>(s, 1));
}

/* --- scaling.check: found, gradient; a block has its numbers ------------- */

__global__ static void check_blocks(float *found, const float *g, int64_t n)
{
    int64_t at = (int64_t)blockIdx.x * FL_SCALING_BLOCK;
    int64_t end = at + FL_SCALING_BLOCK < n ? at + FL_SCALING_BLOCK : n;
    int bad = 0;

    for (int64_t i = at + threadIdx.x; i < end; i += blockDim.x)
        bad |= !(g[i] - g[i] == 0.0f);
    bad = fl_block_sum(bad);
    if (threadIdx.x == 0)
        found[blockIdx.x] = bad ? 1.0f : 0.0f;
}

static fleet_status launch_check(fl_device *, fl_queue *q,
                                 const fl_device_step *s)
{
    int64_t n = fl_step_count(s, 1);

    return FL_LAUNCH(check_blocks, (unsigned)fl_step_count(s, 0), FL_THREADS, 0,
                     q, fl_step_f32(s, 0), fl_step_f32(s, 1), n);
}

/* --- scaling.decide: update, scaling, all found -------------------------- */

__global__ static void gather_found(int *any, const float *found, int n)
{
    int bad = 0;

    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
        bad |= found[i] != 0.0f;
    bad = fl_block_sum(bad);
    if (threadIdx.x == 0 && bad)
        *any = 1;
}

/* Updates that were skipped behind the host's back do not count. */
__device__ static void catch_up(fl_device_update *now, const fl_scaling *s)
{
    int64_t most = FL_MOST_UNKNOWN, more = s->skipped - now->known_skips;
    fl_device_rates r;

    more = more < most ? more : most;
    r = now->after[more];
    now->more = (int32_t)more;
    now->u.lr = r.lr;
    now->u.correct_a = r.correct_a;
    now->u.correct_b = r.correct_b;
    now->u.version -= (uint64_t)more;
}

__global__ static void decide_on(fl_device_update *now, fl_scaling *s,
                                 const int *any, fl_scaling_rules rules)
{
    if (now->stop && *now->stop)
        return;
    catch_up(now, s);
    now->u.scale /= s->scale;
    now->u.mean /= s->scale;
    now->skip = *any;
    if (*any)
        fl_scaling_shrink(&rules, s);
    else
        fl_scaling_grow(&rules, s);
}

static fleet_status decide_prepare(fl_device *, fl_queue *, fl_device_step *s)
{
    s->scratch_size = sizeof(int);
    return FLEET_OK;
}

static fleet_status decide(fl_device *d, fl_queue *q, const fl_device_step *s)
{
    const fl_scaling_config *c =
        static_cast<const fl_scaling_config *>(s->config);
    int *any = static_cast<int *>(s->scratch);

    FL_TRY(d->methods->fill(d, q, any, 0, sizeof *any));
    for (int i = 2; i < s->n_arg; i++)
        FL_TRY(FL_LAUNCH(gather_found, 1, FL_THREADS, 0, q, any,
                         fl_step_f32(s, i), c->count[i - 2]));
    return FL_LAUNCH(decide_on, 1, 1, 0, q, fl_step_ptr<fl_device_update>(s, 0),
                     fl_step_ptr<fl_scaling>(s, 1), any, c->rules);
}

extern const fl_device_kernel fl_cuda_scaling[];
const fl_device_kernel fl_cuda_scaling[] = {
    FL_KERNEL("loss.scale", launch_scale),
    FL_KERNEL("scaling.check", launch_check),
    FL_KERNEL_WITH("scaling.decide", 0, decide_prepare, nullptr, decide),
    FL_KERNEL_END,
};
