/* metrics.cu - the CUDA half of metrics.c. Counts are whole numbers, so that
 * their order does not matter. */
#include "ops/metrics.h"

#include "runtime/device/cuda/block.h"

/* --- accuracy: out <- x, label -------------------------------------------- */

__global__ static void count_right(unsigned *right, const float *x, int64_t c,
                                   const void *label, bool is_float,
                                   int64_t rows)
{
    FL_EACH(r, rows)
    if ((double)fl_best_class(x + r * c, c) == fl_number_at(label, is_float, r))
        atomicAdd(right, 1u);
}

__global__ static void share_of(float *out, const unsigned *right, int64_t rows)
{
    *out = (float)*right / (float)rows;
}

static fleet_status accuracy_prepare(fl_device *, fl_queue *, fl_device_step *s)
{
    s->scratch_size = sizeof(unsigned);
    return FLEET_OK;
}

static bool is_float(const fl_device_step *s, int i)
{
    return s->arg[i].dtype == FLEET_FLOAT32;
}

static fleet_status accuracy(fl_device *d, fl_queue *q, const fl_device_step *s)
{
    unsigned *right = static_cast<unsigned *>(s->scratch);
    int64_t rows = fl_step_rows(s, 1);

    FL_TRY(d->methods->fill(d, q, right, 0, sizeof *right));
    FL_TRY(FL_LAUNCH_EACH(
        count_right, rows, q, right, fl_step_f32(s, 1), s->arg[1].cols,
        static_cast<const void *>(s->arg[2].data), is_float(s, 2), rows));
    return FL_LAUNCH(share_of, 1, 1, 0, q, fl_step_f32(s, 0), right, rows);
}

/* --- auc.count: pos, neg <- p, label -------------------------------------- */

struct samples {
    const float *p; /* the last of c */
    int64_t c, rows;
    const void *label;
    bool is_float;
};

__device__ static bool fits(const samples &from, int64_t r)
{
    double x = (double)from.p[r * from.c + from.c - 1];

    return fl_is_probability(x) &&
           fl_is_0_or_1(fl_number_at(from.label, from.is_float, r));
}

__global__ static void check_samples(samples from, uint64_t *fault)
{
    FL_EACH(r, from.rows)
    if (!fits(from, r))
        fl_fault(fault, r);
}

/* All of the batch, or nothing. */
__global__ static void count_samples(unsigned long long *pos,
                                     unsigned long long *neg, int64_t buckets,
                                     samples from, const uint64_t *fault)
{
    if (*fault != FL_NO_FAULT)
        return;
    FL_EACH(r, from.rows)
    {
        double x = (double)from.p[r * from.c + from.c - 1];
        int64_t at = (int64_t)(x * (double)buckets);

        if (at >= buckets)
            at = buckets - 1;
        atomicAdd(fl_number_at(from.label, from.is_float, r) == 1.0 ? &pos[at]
                                                                    : &neg[at],
                  1ull);
    }
}

static fleet_status auc_count(fl_device *, fl_queue *q, const fl_device_step *s)
{
    samples from = {fl_step_f32(s, 2), s->arg[2].cols, fl_step_rows(s, 2),
                    s->arg[3].data, is_float(s, 3)};

    FL_TRY(FL_LAUNCH_EACH(check_samples, from.rows, q, from, s->fault));
    return FL_LAUNCH_EACH(count_samples, from.rows, q,
                          fl_step_ptr<unsigned long long>(s, 0),
                          fl_step_ptr<unsigned long long>(s, 1), s->arg[0].rows,
                          from, static_cast<const uint64_t *>(s->fault));
}

/* --- auc: out <- pos, neg ----------------------------------------------------
 * From the highest bucket down, each thread has a stretch of them. */

enum { AUC_THREADS = 256 };

/* How many there are above each thread's stretch; shared has all sums. */
__device__ static int64_t sum_above(const int64_t *shared, unsigned thread)
{
    int64_t sum = 0;

    for (unsigned i = 0; i < thread; i++)
        sum += shared[i];
    return sum;
}

__global__ static void auc_of(float *out, const int64_t *pos,
                              const int64_t *neg, int64_t n)
{
    __shared__ int64_t all_pos[AUC_THREADS], all_neg[AUC_THREADS];
    int64_t each = (n + AUC_THREADS - 1) / AUC_THREADS;
    int64_t last = n - each * threadIdx.x, first = last - each;
    double area = 0, above;

    first = first < 0 ? 0 : first;
    all_pos[threadIdx.x] = all_neg[threadIdx.x] = 0;
    for (int64_t i = first; i < last; i++) {
        all_pos[threadIdx.x] += pos[i];
        all_neg[threadIdx.x] += neg[i];
    }
    __syncthreads();
    above = (double)sum_above(all_pos, threadIdx.x);
    for (int64_t i = last; i-- > first;) {
        area += (double)neg[i] * (above + (double)pos[i] / 2);
        above += (double)pos[i];
    }
    area = fl_block_sum(area);
    if (threadIdx.x != 0)
        return;
    double p = (double)sum_above(all_pos, AUC_THREADS);
    double q = (double)sum_above(all_neg, AUC_THREADS);
    *out = p > 0 && q > 0 ? (float)(area / (p * q)) : 0.5f;
}

static fleet_status auc(fl_device *, fl_queue *q, const fl_device_step *s)
{
    return FL_LAUNCH(auc_of, 1, AUC_THREADS, 0, q, fl_step_f32(s, 0),
                     fl_step_ptr<int64_t>(s, 1), fl_step_ptr<int64_t>(s, 2),
                     s->arg[1].rows);
}

extern const fl_device_kernel fl_cuda_metrics[];
const fl_device_kernel fl_cuda_metrics[] = {
    FL_KERNEL_WITH("accuracy", 0, accuracy_prepare, nullptr, accuracy),
    FL_KERNEL("auc.count", auc_count),
    FL_KERNEL("auc", auc),
    FL_KERNEL_END,
};
