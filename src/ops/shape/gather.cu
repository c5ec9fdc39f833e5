/* gather.cu - the CUDA half of gather.c. An index that cannot be leaves its row
 * in the step's fault, and zeros in the result. */
#include "ops/shape/gather.h"

#include "runtime/device/cuda/block.h"

static const fl_gather_config *config_of(const fl_device_step *s)
{
    return static_cast<const fl_gather_config *>(s->config);
}

__global__ static void gather_all(float *out, const float *x,
                                  const int64_t *index, int64_t total,
                                  fl_gather_config c, uint64_t *fault)
{
    FL_EACH(i, total)
    {
        int64_t row = i / (c.m * c.inner), id = index[i / c.inner];
        bool fits = id >= 0 && id < c.n;

        out[i] = fits ? x[(row * c.n + id) * c.inner + i % c.inner] : 0.0f;
        if (!fits)
            fl_fault(fault, row);
    }
}

/* A thread has a column of a sample, and adds in the order of the indices. */
__global__ static void gather_grad_all(float *dx, const float *g,
                                       const int64_t *index, int64_t total,
                                       fl_gather_config c)
{
    FL_EACH(i, total)
    {
        int64_t row = i / c.inner, k = i % c.inner;
        float *d = dx + row * c.n * c.inner + k;

        for (int64_t j = 0; j < c.n; j++)
            d[j * c.inner] = 0.0f;
        for (int64_t j = 0; j < c.m; j++) {
            int64_t id = index[row * c.m + j];

            if (id >= 0 && id < c.n)
                d[id * c.inner] += g[(row * c.m + j) * c.inner + k];
        }
    }
}

__global__ static void one_hot_all(float *out, const int64_t *ids, int64_t n,
                                   fl_gather_config c, uint64_t *fault)
{
    FL_EACH(i, n)
    {
        int64_t id = ids[i / c.inner];

        out[i] = id == i % c.inner ? 1.0f : 0.0f;
        if (id < 0 || id >= c.inner)
            fl_fault(fault, i / (c.m * c.inner));
    }
}

__global__ static void cast_all(float *out, const int64_t *ids, int64_t n)
{
    FL_EACH(i, n)
    out[i] = (float)ids[i];
}

static fleet_status cast(fl_device *, fl_queue *q, const fl_device_step *s)
{
    int64_t n = fl_step_count(s, 0);

    return FL_LAUNCH_EACH(cast_all, n, q, fl_step_f32(s, 0),
                          fl_step_ptr<int64_t>(s, 1), n);
}

static fleet_status gather(fl_device *, fl_queue *q, const fl_device_step *s)
{
    int64_t n = fl_step_count(s, 0);

    return FL_LAUNCH_EACH(gather_all, n, q, fl_step_f32(s, 0),
                          fl_step_f32(s, 1), fl_step_ptr<int64_t>(s, 2), n,
                          *config_of(s), s->fault);
}

static fleet_status gather_grad(fl_device *, fl_queue *q,
                                const fl_device_step *s)
{
    int64_t n = fl_step_rows(s, 0) * config_of(s)->inner;

    return FL_LAUNCH_EACH(gather_grad_all, n, q, fl_step_f32(s, 0),
                          fl_step_f32(s, 1), fl_step_ptr<int64_t>(s, 2), n,
                          *config_of(s));
}

static fleet_status one_hot(fl_device *, fl_queue *q, const fl_device_step *s)
{
    int64_t n = fl_step_count(s, 0);

    return FL_LAUNCH_EACH(one_hot_all, n, q, fl_step_f32(s, 0),
                          fl_step_ptr<int64_t>(s, 1), n, *config_of(s),
                          s->fault);
}

extern const fl_device_kernel fl_cuda_gather[];
const fl_device_kernel fl_cuda_gather[] = {
    FL_KERNEL("gather", gather),
    FL_KERNEL("gather.grad", gather_grad),
    FL_KERNEL("one_hot", one_hot),
    FL_KERNEL("cast", cast),
    FL_KERNEL_END,
};
