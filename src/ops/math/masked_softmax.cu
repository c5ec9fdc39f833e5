/* masked_softmax.cu - the CUDA half of masked_softmax.c: a warp has a line. */
#include "ops/math/masked_softmax.h"

#include "runtime/device/cuda/block.h"

#define EACH_OF(j, n)                                                          \
    for (int64_t j = threadIdx.x % FL_WARP; j < (n); j += FL_WARP)

struct line {
    const float *mask; /* NULL: none */
    int64_t seen;      /* numbers behind these do not count */
    __device__ bool counts(int64_t j) const
    {
        return j < seen && (!mask || mask[j] != 0.0f);
    }
};

__global__ static void masked_lines(float *y, const float *x, const float *mask,
                                    int64_t ld, int64_t lines,
                                    fl_masked_softmax c)
{
    FL_EACH_ROW(r, lines)
    {
        line of = {mask ? mask + (c.batched ? r / c.lines * ld : 0) +
                              fl_mask_at(&c, r % c.lines)
                        : nullptr,
                   c.causal ? r % c.lines % c.classes + 1 : c.classes};
        int64_t at = r * c.classes;
        float most = -INFINITY, sum = 0.0f;

        EACH_OF(j, c.classes)
        if (of.counts(j))
            most = max(most, x[at + j]);
        most = fl_warp_max(most);
        EACH_OF(j, c.classes)
        sum += y[at + j] = of.counts(j) ? expf(x[at + j] - most) : 0.0f;
        sum = fl_warp_sum(sum);
        EACH_OF(j, c.classes)
        if (of.counts(j))
            y[at + j] /= sum;
    }
}

static fleet_status masked(fl_device *, fl_queue *q, const fl_device_step *s)
{
    const fl_masked_softmax *c =
        static_cast<const fl_masked_softmax *>(s->config);
    int64_t lines = fl_step_rows(s, 0) * c->lines;

    return FL_LAUNCH(masked_lines, fl_row_blocks(lines), FL_THREADS, 0, q,
                     fl_step_f32(s, 0), fl_step_f32(s, 1), fl_step_f32(s, 2),
                     s->arg[2].ld, lines, *c);
}

extern const fl_device_kernel fl_cuda_masked_softmax[];
const fl_device_kernel fl_cuda_masked_softmax[] = {
    FL_KERNEL("masked_softmax", masked),
    FL_KERNEL_END,
};
