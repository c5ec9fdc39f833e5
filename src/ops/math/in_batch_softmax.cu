/* in_batch_softmax.cu - the CUDA half of in_batch_softmax.c: a warp has a
 * sample's scores, a thread a number of a gradient. */
#include "ops/math/in_batch_softmax.h"

#include "runtime/device/cuda/block.h"

static const fl_in_batch *config_of(const fl_device_step *s)
{
    return static_cast<const fl_in_batch *>(s->config);
}

__global__ static void transpose(float *to, const float *v, int64_t batch,
                                 fl_in_batch c)
{
    FL_EACH(i, batch * c.dim)
    to[i % c.dim * c.most + i / c.dim] = v[i];
}

static fleet_status items(fl_device *, fl_queue *q, const fl_device_step *s)
{
    const fl_in_batch *c = config_of(s);

    return FL_LAUNCH_EACH(transpose, s->batch * c->dim, q, fl_step_f32(s, 0),
                          fl_step_f32(s, 1), s->batch, *c);
}

/* --- in_batch_softmax ----------------------------------------------------- */

struct scores {
    const float *users, *items;
    const int64_t *ids; /* NULL: no item is another's */
    const float *log_q; /* NULL: not corrected */
    int64_t batch;
    fl_in_batch c;
};

__device__ static bool is_hit(const scores &of, int64_t i, int64_t j)
{
    return of.ids && i != j && of.ids[i] == of.ids[j];
}

__device__ static float score(const scores &of, int64_t i, int64_t j)
{
    float s = 0.0f;

    for (int64_t d = 0; d < of.c.dim; d++)
        s += of.c.scale * of.users[i * of.c.dim + d] *
             of.items[d * of.c.most + j];
    return of.log_q ? s - of.log_q[j] : s;
}

#define EACH_ITEM(j, of)                                                       \
    for (int64_t j = threadIdx.x % FL_WARP; j < (of).batch; j += FL_WARP)

__global__ static void softmax_rows(float *loss, float *p, scores of)
{
    FL_EACH_ROW(i, of.batch)
    {
        float *row = p + i * of.c.most, most = -INFINITY, sum = 0.0f,
              own = score(of, i, i);

        EACH_ITEM(j, of)
        if (!is_hit(of, i, j))
            most = max(most, row[j] = score(of, i, j));
        most = fl_warp_max(most);
        EACH_ITEM(j, of)
        sum += row[j] = is_hit(of, i, j) ? 0.0f : expf(row[j] - most);
        sum = fl_warp_sum(sum);
        EACH_ITEM(j, of)
        row[j] /= sum;
        if (threadIdx.x % FL_WARP == 0)
            loss[i] = logf(sum) - (own - most);
    }
}

static fleet_status softmax(fl_device *, fl_queue *q, const fl_device_step *s)
{
    scores of = {
        fl_step_f32(s, 2), fl_step_f32(s, 3), fl_step_ptr<int64_t>(s, 4),
        fl_step_f32(s, 5), s->batch,          *config_of(s)};

    return FL_LAUNCH(softmax_rows, fl_row_blocks(s->batch), FL_THREADS, 0, q,
                     fl_step_f32(s, 0), fl_step_f32(s, 1), of);
}

/* --- gradients ------------------------------------------------------------ */

__global__ static void gradient_all(float *out, const float *g, const float *p,
                                    const float *other, int64_t batch,
                                    fl_in_batch c, bool of_items)
{
    FL_EACH(at, batch * c.dim)
    {
        int64_t i = at / c.dim, d = at % c.dim;
        float sum = 0.0f;

        for (int64_t j = 0; j < batch; j++) {
            int64_t user = of_items ? j : i, item = of_items ? i : j;

            sum += c.scale * g[user] *
                   (p[user * c.most + item] - (i == j ? 1.0f : 0.0f)) *
                   other[j * c.dim + d];
        }
        out[at] = sum;
    }
}

static fleet_status gradient(fl_queue *q, const fl_device_step *s,
                             bool of_items)
{
    const fl_in_batch *c = config_of(s);

    return FL_LAUNCH_EACH(gradient_all, s->batch * c->dim, q, fl_step_f32(s, 0),
                          fl_step_f32(s, 1), fl_step_f32(s, 2),
                          fl_step_f32(s, 3), s->batch, *c, of_items);
}

static fleet_status users_grad(fl_device *, fl_queue *q,
                               const fl_device_step *s)
{
    return gradient(q, s, false);
}

static fleet_status items_grad(fl_device *, fl_queue *q,
                               const fl_device_step *s)
{
    return gradient(q, s, true);
}

extern const fl_device_kernel fl_cuda_in_batch_softmax[];
const fl_device_kernel fl_cuda_in_batch_softmax[] = {
    FL_KERNEL("in_batch.items", items),
    FL_KERNEL("in_batch_softmax", softmax),
    FL_KERNEL("in_batch_softmax.users", users_grad),
    FL_KERNEL("in_batch_softmax.items", items_grad),
    FL_KERNEL_END,
};
