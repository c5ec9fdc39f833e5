/* lars_lamb.cu - the CUDA half of lars.c, lamb.c and lars_lamb.c: LARS and
 * LAMB, a block of threads to a block of weights, of all layers at once.
 * Operands: layer_blocks.h. */
#include "runtime/device/cuda/block.h"
#include "runtime/device/cuda/device_list.h"
#include "runtime/optim/rule_cuda.h"
#include "runtime/plan/layer_blocks.h"

enum { NOW, GRADIENT, WEIGHT, SQUARES, RATIOS = SQUARES, STATE };

/* Copies of the configuration's lists. */
struct lists {
    fl_device_list layer, block;
};

static const fl_layers *layers_of(const fl_device_step *s)
{
    return static_cast<const fl_layers *>(s->config);
}

static lists *lists_of(const fl_device_step *s)
{
    return static_cast<lists *>(s->state);
}

static fleet_status prepare(fl_device *d, fl_queue *q, fl_device_step *s)
{
    const fl_layers *all = layers_of(s);

    FL_TRY(fl_device_list_make(d, q, &lists_of(s)->layer, all->layer,
                               (size_t)all->n_layer * sizeof *all->layer));
    return fl_device_list_make(d, q, &lists_of(s)->block, all->block,
                               (size_t)all->n_block * sizeof *all->block);
}

static void finish(fl_device *d, fl_device_step *s)
{
    fl_device_list_drop(d, &lists_of(s)->layer);
    fl_device_list_drop(d, &lists_of(s)->block);
}

/* What kernels work on, in device memory. */
struct work {
    const fl_layer *layer;
    const fl_layer_block *block; /* the first that this step works on */
    const fl_device_update *now;
    float *w, *g, *s0, *s1;
    const float *ratio;
    fl_squares *squares;
    int64_t first;    /* of the states */
    int64_t gradient; /* of the gradient */
    int64_t weight;   /* of the weights */
};

static float *pointer_of(const fl_device_step *s, int i)
{
    return i < s->n_arg ? fl_step_f32(s, i) : nullptr;
}

static work work_of(const fl_device_step *s)
{
    const fl_layers *all = layers_of(s);

    return {static_cast<const fl_layer *>(lists_of(s)->layer.copy),
            static_cast<const fl_layer_block *>(lists_of(s)->block.copy) +
                all->begin,
            fl_step_ptr<const fl_device_update>(s, NOW),
            fl_step_f32(s, WEIGHT),
            fl_step_f32(s, GRADIENT),
            pointer_of(s, STATE),
            pointer_of(s, STATE + 1),
            fl_step_f32(s, RATIOS),
            fl_step_ptr<fl_squares>(s, SQUARES) + all->begin,
            all->first,
            all->gradient,
            all->weight};
}

/* Of a float of the group. */
__device__ static float *gradient_at(const work &k, int64_t at)
{
    return k.g + (at - k.gradient);
}

__device__ static float *weight_at(const work &k, int64_t at)
{
    return k.w + (at - k.weight);
}

__device__ static fl_update update_of(const work &k, const fl_layer &l)
{
    fl_update u = k.now->u;

    fl_update_change(&u, &l.rates);
    return u;
}

__device__ static void put_squares(const work &k, double weights, double step)
{
    weights = fl_block_sum(weights);
    step = fl_block_sum(step);
    if (threadIdx.x == 0)
        k.squares[blockIdx.x] = {weights, step};
}

/* --- LARS ---------------------------------------------------------------- */

__global__ static void lars_norms(work k)
{
    fl_layer_block b = k.block[blockIdx.x];
    fl_update u = update_of(k, k.layer[b.layer]);
    fl_spread all = fl_spread_of(&u);
    double weights = 0, step = 0;

    for (int64_t i = threadIdx.x; i < b.n; i += blockDim.x) {
        float w = *weight_at(k, b.offset + i);
        double x = (double)w;
        double y =
            (double)fl_formula_gradient(&all, *gradient_at(k, b.offset + i), w);

        weights += x * x;
        step += y * y;
    }
    put_squares(k, weights, step);
}

__global__ static void lars_update(work k)
{
    fl_layer_block b = k.block[blockIdx.x];
    const fl_layer l = k.layer[b.layer];
    fl_update u = update_of(k, l);

    if (fl_update_is_off(k.now))
        return;
    bool average = l.rates.average > 0;
    if (!average) {
        u.lr *= k.ratio[b.layer];
        u.decay += l.decay;
    }
    fl_spread all = fl_spread_of(&u);
    for (int64_t i = threadIdx.x; i < b.n; i += blockDim.x) {
        int64_t at = b.offset + i, s = at - k.first;
        fl_weight x = {weight_at(k, at), k.s0 + s, nullptr,
                       *gradient_at(k, at)};
        fl_rule_cell c = fl_cell_load(x, 1);

        if (average)
            fl_formula_sgd(&all, &c, x.g);
        else
            fl_formula_lars(&all, &c, x.g);
        fl_cell_store(c, x, 1);
    }
}

/* --- LAMB ---------------------------------------------------------------- */

/* The step takes the place of the gradient. */
__global__ static void lamb_step(work k)
{
    fl_layer_block b = k.block[blockIdx.x];
    const fl_layer l = k.layer[b.layer];
    fl_update u = update_of(k, l);
    double weights = 0, step = 0;

    if (fl_update_is_off(k.now))
        return;
    u.apart = l.decay;
    fl_spread all = fl_spread_of(&u);
    for (int64_t i = threadIdx.x; i < b.n; i += blockDim.x) {
        int64_t at = b.offset + i, s = at - k.first;
        float *g = gradient_at(k, at);

        if (l.rates.average > 0) { /* SGD's step, and no squares */
            *g = fl_formula_gradient(&all, *g, *weight_at(k, at));
            continue;
        }
        float w = *weight_at(k, at), to;
        fl_weight x = {&to, k.s0 + s, k.s1 + s, *g};
        fl_rule_cell c = {w, {k.s0[s], k.s1[s]}};

        fl_formula_lamb(&all, &c, x.g);
        fl_cell_store(c, x, 2);
        *g = to;
        weights += (double)w * (double)w;
        step += (double)to * (double)to;
    }
    put_squares(k, weights, step);
}

__global__ static void lamb_update(work k)
{
    fl_layer_block b = k.block[blockIdx.x];
    float by = -(update_of(k, k.layer[b.layer]).lr * k.ratio[b.layer]);

    if (fl_update_is_off(k.now))
        return;
    for (int64_t i = threadIdx.x; i < b.n; i += blockDim.x)
        *weight_at(k, b.offset + i) += by * *gradient_at(k, b.offset + i);
}

template <void (*kernel)(work)>
static fleet_status launch_layers(fl_device *, fl_queue *q,
                                  const fl_device_step *s)
{
    int n = layers_of(s)->end - layers_of(s)->begin;

    return n > 0 ? FL_LAUNCH(kernel, (unsigned)n, FL_THREADS, 0, q, work_of(s))
                 : FLEET_OK;
}

/* --- layer.ratio: squares, ratios; a block has a layer ------------------- */

__global__ static void layer_ratios(float *ratio, const fl_squares *square,
                                    const fl_layer *layer, fl_layerwise how)
{
    const fl_layer l = layer[blockIdx.x];
    double weights = 0, step = 0;

    for (int i = (int)threadIdx.x; i < l.n; i += (int)blockDim.x) {
        weights += square[l.first + i].weights;
        step += square[l.first + i].step;
    }
    weights = fl_block_sum(weights);
    step = fl_block_sum(step);
    if (threadIdx.x == 0)
        ratio[blockIdx.x] =
            (float)fl_layer_ratio_of(&how, &l, sqrt(weights), sqrt(step));
}

static fleet_status ratios(fl_device *, fl_queue *q, const fl_device_step *s)
{
    const fl_layers *all = layers_of(s);

    if (all->n_layer == 0)
        return FLEET_OK;
    return FL_LAUNCH(layer_ratios, (unsigned)all->n_layer, FL_WARP, 0, q,
                     fl_step_f32(s, 1), fl_step_ptr<fl_squares>(s, 0),
                     static_cast<const fl_layer *>(lists_of(s)->layer.copy),
                     all->how);
}

#define LAYERS(name, launch_layers)                                            \
    FL_KERNEL_WITH(name, sizeof(lists), prepare, finish, launch_layers)

extern const fl_device_kernel fl_cuda_layerwise[];
const fl_device_kernel fl_cuda_layerwise[] = {
    LAYERS("lars.norm", launch_layers<lars_norms>),
    LAYERS("update.lars", launch_layers<lars_update>),
    LAYERS("lamb.step", launch_layers<lamb_step>),
    LAYERS("update.lamb", launch_layers<lamb_update>),
    LAYERS("layer.ratio", ratios),
    FL_KERNEL_END,
};
