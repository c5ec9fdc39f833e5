/* update.cu - the CUDA half of update.c, gradient_merge.c, clip_global_norm.c
 * and plan/gradients.c: sums of contributions, gradient merge, norms and the
 * clip, the rules over flat groups. */
#include "runtime/optim/update_ranges.h"
#include "runtime/device/cuda/block.h"
#include "runtime/device/cuda/device_list.h"
#include "runtime/optim/rule_cuda.h"

/* --- gradient.add: total += part; merge.dense: sum <- gradient, update --- */

__global__ static void add_all(float *total, const float *part, int64_t n)
{
    FL_EACH(i, n)
    total[i] += part[i];
}

__global__ static void merge_all(float *sum, const float *g,
                                 const fl_device_update *now, int64_t n)
{
    bool first = now->micro == 0;

    FL_EACH(i, n)
    sum[i] = first ? g[i] : sum[i] + g[i];
}

static fleet_status add(fl_device *, fl_queue *q, const fl_device_step *s)
{
    int64_t n = fl_step_count(s, 0);

    return FL_LAUNCH_EACH(add_all, n, q, fl_step_f32(s, 0), fl_step_f32(s, 1),
                          n);
}

static fleet_status merge(fl_device *, fl_queue *q, const fl_device_step *s)
{
    int64_t n = fl_step_count(s, 0);

    return FL_LAUNCH_EACH(merge_all, n, q, fl_step_f32(s, 0), fl_step_f32(s, 1),
                          fl_step_ptr<fl_device_update>(s, 2), n);
}

/* --- update.dense: update, gradient, weights, states --------------------- */

enum { NOW, GRADIENT, WEIGHT, STATE };

template <class C> static const C *config_of(const fl_device_step *s)
{
    return static_cast<const C *>(s->config);
}

static fl_device_list *list_of(const fl_device_step *s)
{
    return static_cast<fl_device_list *>(s->state);
}

template <class C>
static fleet_status copy_blocks(fl_device *d, fl_queue *q, fl_device_step *s)
{
    const C *c = config_of<C>(s);

    return fl_device_list_make(d, q, list_of(s), c->block,
                               (size_t)c->n * sizeof *c->block);
}

static void drop_list(fl_device *d, fl_device_step *s)
{
    fl_device_list_drop(d, list_of(s));
}

struct group {
    float *w, *s0, *s1;
    const float *g;
    const fl_update_range *piece;
    int64_t first;    /* of the states */
    int64_t gradient; /* of the gradient */
    int64_t weight;   /* of the weights */
};

/* A piece is up to 16 K weights of one kind; blocks have EACH of them at a
 * time. */
enum { EACH = 4 * FL_THREADS };

__global__ static void update_pieces(group all, const fl_device_update *now)
{
    fl_update_range p = all.piece[blockIdx.x];
    fl_update u = now->u;

    if (fl_update_is_off(now))
        return;
    if (p.own > 0)
        fl_update_take_own(&u, now, p.own);
    const fl_rule_kind rule = fl_rule_with(p.rule, &p.rates);
    fl_update_change(&u, &p.rates);
    if (p.dgc && now->dgc) {
        u.scale = 1.0f;
        FL_NUMBER_OF(&u, MOMENTUM, momentum) = 0.0f;
        FL_NUMBER_OF(&u, MOMENTUM, nesterov) = 0.0f;
    }
    for (int64_t i = (int64_t)blockIdx.y * FL_THREADS + threadIdx.x; i < p.n;
         i += (int64_t)gridDim.y * FL_THREADS) {
        int64_t at = p.offset + i, s = at - all.first;

        fl_rule_apply(rule, u,
                      {all.w + (at - all.weight), all.s0 + s, all.s1 + s,
                       all.g[at - all.gradient]});
    }
}

/* For the largest one. */
static unsigned blocks_of_piece(const fl_update_ranges *c)
{
    int64_t most = 1;

    for (int i = 0; i < c->n; i++)
        most = c->block[i].n > most ? c->block[i].n : most;
    return (unsigned)((most + EACH - 1) / EACH);
}

static fleet_status launch_update(fl_device *, fl_queue *q,
                                  const fl_device_step *s)
{
    const fl_update_ranges *c = config_of<fl_update_ranges>(s);
    float *w = fl_step_f32(s, WEIGHT);

    if (c->n == 0)
        return FLEET_OK;
    group all = {w,
                 s->n_arg > STATE ? fl_step_f32(s, STATE) : w,
                 s->n_arg > STATE + 1 ? fl_step_f32(s, STATE + 1) : w,
                 fl_step_f32(s, GRADIENT),
                 static_cast<const fl_update_range *>(list_of(s)->copy),
                 c->first,
                 c->gradient,
                 c->weight};

    return FL_LAUNCH(update_pieces, dim3((unsigned)c->n, blocks_of_piece(c)),
                     FL_THREADS, 0, q, all,
                     fl_step_ptr<fl_device_update>(s, NOW));
}

/* --- clip.norm: update, norms, gradient ---------------------------------- */

__global__ static void norm_of_blocks(double *launch_norm, const float *g,
                                      const fl_norm_block *block,
                                      const fl_device_update *now)
{
    fl_norm_block b = block[blockIdx.x];
    float scale = now->u.scale;
    double sum = 0;

    for (int64_t i = threadIdx.x; i < b.n; i += blockDim.x) {
        double x = (double)(g[b.offset + i] * scale);

        sum += x * x;
    }
    sum = fl_block_sum(sum);
    if (threadIdx.x == 0)
        launch_norm[blockIdx.x] = sum;
}

static fleet_status launch_norm(fl_device *, fl_queue *q,
                                const fl_device_step *s)
{
    const fl_norm_config *c = config_of<fl_norm_config>(s);

    if (c->n == 0) /* this rank's gradient has no block of it */
        return FLEET_OK;
    return FL_LAUNCH(norm_of_blocks, (unsigned)c->n, FL_THREADS, 0, q,
                     fl_step_ptr<double>(s, 1) + c->at, fl_step_f32(s, 2),
                     static_cast<const fl_norm_block *>(list_of(s)->copy),
                     fl_step_ptr<fl_device_update>(s, 0));
}

/* --- clip.own: update, norms, gradient ------------------------------------ */

__global__ static void clip_blocks(float *g, const double *square, int n,
                                   const fl_norm_block *block,
                                   const fl_device_update *now)
{
    __shared__ float factor;
    fl_norm_block b = block[blockIdx.x];
    double sum = 0;

    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
        sum += square[i];
    sum = fl_block_sum(sum);
    if (threadIdx.x == 0)
        factor = fl_clip_factor(sum, now->norm_clip);
    __syncthreads();
    for (int64_t i = threadIdx.x; i < b.n; i += blockDim.x)
        g[b.offset + i] *= factor;
}

static fleet_status launch_own(fl_device *, fl_queue *q,
                               const fl_device_step *s)
{
    const fl_norm_config *c = config_of<fl_norm_config>(s);

    if (c->n == 0)
        return FLEET_OK;
    return FL_LAUNCH(clip_blocks, (unsigned)c->n, FL_THREADS, 0, q,
                     fl_step_f32(s, 2), fl_step_ptr<double>(s, 1), c->all,
                     static_cast<const fl_norm_block *>(list_of(s)->copy),
                     fl_step_ptr<fl_device_update>(s, 0));
}

/* --- clip.factor: update, then all norms --------------------------------- */

__global__ static void add_norms(double *sum, const double *launch_norm, int n)
{
    double part = 0;

    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
        part += launch_norm[i];
    part = fl_block_sum(part);
    if (threadIdx.x == 0)
        *sum += part;
}

__global__ static void set_clip(fl_device_update *now, const double *sum)
{
    now->u.clip = fl_clip_factor(*sum, now->clip_norm);
}

static fleet_status factor_prepare(fl_device *, fl_queue *, fl_device_step *s)
{
    s->scratch_size = sizeof(double);
    return FLEET_OK;
}

static fleet_status factor(fl_device *d, fl_queue *q, const fl_device_step *s)
{
    const int *count = static_cast<const int *>(s->config);
    double *sum = static_cast<double *>(s->scratch);

    FL_TRY(d->methods->fill(d, q, sum, 0, sizeof *sum));
    for (int i = 1; i < s->n_arg; i++)
        FL_TRY(FL_LAUNCH(add_norms, 1, FL_THREADS, 0, q, sum,
                         fl_step_ptr<double>(s, i), count[i - 1]));
    return FL_LAUNCH(set_clip, 1, 1, 0, q, fl_step_ptr<fl_device_update>(s, 0),
                     sum);
}

/* --- all_reduce.idle: what changes no sum, as floats or halves ----------- */

template <class T> __global__ static void set_all(T *x, T value, int64_t n)
{
    FL_EACH(i, n)
    x[i] = value;
}

static fleet_status launch_idle(fl_device *, fl_queue *q,
                                const fl_device_step *s)
{
    int64_t n = s->arg[0].cols;

    if (s->arg[0].dtype == FLEET_FLOAT32)
        return FL_LAUNCH_EACH(set_all<float>, n, q, fl_step_f32(s, 0), -0.0f,
                              n);
    return FL_LAUNCH_EACH(set_all<uint16_t>, n / 2, q,
                          fl_step_ptr<uint16_t>(s, 0), (uint16_t)0x8000, n / 2);
}

extern const fl_device_kernel fl_cuda_update[];
const fl_device_kernel fl_cuda_update[] = {
    FL_KERNEL("all_reduce.idle", launch_idle),
    FL_KERNEL("gradient.add", add),
    FL_KERNEL("merge.dense", merge),
    FL_KERNEL_WITH("update.dense", sizeof(fl_device_list),
                   copy_blocks<fl_update_ranges>, drop_list, launch_update),
    FL_KERNEL_WITH("clip.norm", sizeof(fl_device_list),
                   copy_blocks<fl_norm_config>, drop_list, launch_norm),
    FL_KERNEL_WITH("clip.own", sizeof(fl_device_list),
                   copy_blocks<fl_norm_config>, drop_list, launch_own),
    FL_KERNEL_WITH("clip.factor", 0, factor_prepare, nullptr, factor),
    FL_KERNEL_END,
};
