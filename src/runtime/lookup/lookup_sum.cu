/* lookup_sum.cu - gradients of rows are added up by key, and kept for a merge
 * group (lookup_kernels.h). */
#include "runtime/lookup/lookup_features.h"

#include "runtime/optim/update_gpu.h"

/* --- lookup.sum ---------------------------------------------------------- */

struct uses {
    const uint32_t *start, *position, *cell;
    const int64_t *n;
};

/* Add what a position gives to its key's gradient, if it gives any: of a
 * maximum only columns that it has won. */
template <int V>
__device__ static void add_share(fl_pack<V> *sum, const features &all,
                                 uint32_t position, uint32_t cell, int64_t dim,
                                 int64_t column)
{
    int64_t sample = cell / (uint32_t)all.n, place = 0;
    int at = (int)(cell % (uint32_t)all.n);
    const slot &l = all.feature[at];
    float factor = 1.0f;
    fl_pack<V> g = {};

    if (l.combiner != FLEET_SUM)
        factor = fl_combiner_factor(l.combiner, length_of(l, sample));
    if (l.weights || l.combiner == FLEET_MAX)
        place = position - position_of(all, sample, at);
    if (l.weights)
        factor *= l.weights[l.offsets[sample] + place];
    if (l.out)
        g = *reinterpret_cast<const fl_pack<V> *>(l.out + sample * l.out_ld +
                                                  column);
    for (int k = 0; k < V; k++) {
        bool won = l.combiner != FLEET_MAX ||
                   winners_of(all, l, sample, dim)[column + k] == place;

        sum->x[k] += won ? factor * g.x[k] : 0.0f;
    }
}

/* A key with more uses than HOT is a block's: CHUNK shares at a time, of
 * COLUMNS columns, are loaded side by side, and added up in their order. */
enum { HOT = 32, CHUNK = 64, COLUMNS = 32 };

__device__ static void sum_chunk(float *total, const features &all,
                                 const uses &of, int64_t dim, uint32_t rank,
                                 uint32_t n, int64_t column, int width)
{
    __shared__ float share[CHUNK][COLUMNS];

    for (int i = (int)threadIdx.x; i < (int)n * width; i += FL_THREADS) {
        uint32_t position = of.position[rank + (uint32_t)(i / width)];
        fl_pack<1> one = {{-0.0f}};

        add_share<1>(&one, all, position, of.cell[position], dim,
                     column + i % width);
        share[i / width][i % width] = one.x[0];
    }
    __syncthreads();
    if ((int)threadIdx.x < width)
        for (uint32_t i = 0; i < n; i++)
            *total += share[i][threadIdx.x];
    __syncthreads();
}

__device__ static void sum_hot(float *sum, const features &all, const uses &of,
                               int64_t dim, int64_t number)
{
    uint32_t first = of.start[number], end = of.start[number + 1];

    for (int64_t column = 0; column < dim; column += COLUMNS) {
        int width = dim - column < COLUMNS ? (int)(dim - column) : COLUMNS;
        float total = -0.0f;

        for (uint32_t rank = first; rank < end; rank += CHUNK)
            sum_chunk(&total, all, of, dim, rank,
                      end - rank < CHUNK ? end - rank : (uint32_t)CHUNK, column,
                      width);
        if ((int)threadIdx.x < width)
            sum[number * dim + column + threadIdx.x] = total;
    }
}

/* By a team. A sum begins with -0, to which whatever is added stays what it
 * is. */
template <int V>
__device__ static void sum_few(float *sum, const features &all, const uses &of,
                               int64_t dim, int share, int64_t number)
{
    uint32_t end = of.start[number + 1];

    FL_EACH_PACK(column, dim, V, share)
    {
        fl_pack<V> total;

        for (int k = 0; k < V; k++)
            total.x[k] = -0.0f;
        for (uint32_t rank = of.start[number]; rank < end; rank++)
            add_share<V>(&total, all, of.position[rank],
                         of.cell[of.position[rank]], dim, column);
        *reinterpret_cast<fl_pack<V> *>(sum + number * dim + column) = total;
    }
}

/* A team has a number, and the block, after that, the hot ones of its teams. */
template <int V>
__global__ static void sum_shares(float *sum, features all, uses of,
                                  int64_t dim, int share)
{
    __shared__ int hot[FL_THREADS], n_hot;
    int64_t teams = blockDim.x >> share, team = threadIdx.x >> share;

    for (int64_t base = (int64_t)blockIdx.x * teams; base < *of.n;
         base += (int64_t)gridDim.x * teams) {
        int64_t number = base + team;
        bool is_one = number < *of.n;
        bool is_hot = is_one && of.start[number + 1] - of.start[number] > HOT;

        if (threadIdx.x == 0)
            n_hot = 0;
        __syncthreads();
        if (is_hot && fl_warp_rows_first(share))
            hot[atomicAdd(&n_hot, 1)] = (int)team;
        if (is_one && !is_hot)
            sum_few<V>(sum, all, of, dim, share, number);
        __syncthreads();
        for (int i = 0; i < n_hot; i++)
            sum_hot(sum, all, of, dim, base + hot[i]);
        __syncthreads();
    }
}

template <int V>
static fleet_status sum_by(fl_queue *q, const fl_device_step *s)
{
    const fl_device_lookup *c = fl_lookup_of(s);
    int share = fl_warp_rows_share(c->dim, V);
    uses of = {fl_step_ptr<uint32_t>(s, FL_SUM_START),
               fl_step_ptr<uint32_t>(s, FL_SUM_POSITION),
               fl_step_ptr<uint32_t>(s, FL_SUM_CELL),
               fl_step_ptr<int64_t>(s, FL_SUM_COUNT)};

    return FL_LAUNCH(sum_shares<V>, fl_warp_rows_blocks(c->capacity, share),
                     FL_THREADS, 0, q, fl_step_f32(s, FL_SUM), features_of(s),
                     of, c->dim, share);
}

static fleet_status sum(fl_device *, fl_queue *q, const fl_device_step *s)
{
    if (fl_lookup_of(s)->capacity == 0)
        return FLEET_OK;
    if (features_fit<4>(s) && fl_fits_pack<4>(s->arg[FL_SUM].data, 0))
        return sum_by<4>(q, s);
    return sum_by<1>(q, s);
}

/* --- lookup.append: sums of a merge group, batch after batch ------------- */

struct merged {
    uint64_t *key;
    uint32_t *cell;
    float *sum;
    int64_t *count;
};

/* How many there are already. */
__device__ static int64_t merged_before(const merged &to,
                                        const fl_device_update *now)
{
    return now->micro == 0 ? 0 : *to.count;
}

__global__ static void append_sums(merged to, const fl_device_update *now,
                                   const uint64_t *key, const float *sum,
                                   const int64_t *n, int64_t dim)
{
    int64_t before = merged_before(to, now);

    FL_EACH(i, *n * dim)
    {
        int64_t at = before + i / dim;

        to.sum[before * dim + i] = sum[i];
        if (i % dim != 0)
            continue;
        to.key[at] = key[i / dim];
        to.cell[at] = (uint32_t)at;
    }
}

__global__ static void append_count(merged to, const fl_device_update *now,
                                    const int64_t *n)
{
    *to.count = merged_before(to, now) + *n;
}

static fleet_status append(fl_device *, fl_queue *q, const fl_device_step *s)
{
    const fl_device_lookup *c = fl_lookup_of(s);
    const fl_device_update *now =
        fl_step_ptr<fl_device_update>(s, FL_APPEND_UPDATE);
    const int64_t *n = fl_step_ptr<int64_t>(s, FL_APPEND_OF_COUNT);
    merged to = {fl_step_ptr<uint64_t>(s, FL_APPEND_KEY),
                 fl_step_ptr<uint32_t>(s, FL_APPEND_CELL),
                 fl_step_f32(s, FL_APPEND_SUM),
                 fl_step_ptr<int64_t>(s, FL_APPEND_COUNT)};

    FL_TRY(FL_LAUNCH_EACH(append_sums, c->capacity * c->dim, q, to, now,
                          fl_step_ptr<uint64_t>(s, FL_APPEND_OF),
                          fl_step_f32(s, FL_APPEND_OF_SUM), n, c->dim));
    return FL_LAUNCH(append_count, 1, 1, 0, q, to, now, n);
}

extern const fl_device_kernel fl_cuda_lookup_sum[];
const fl_device_kernel fl_cuda_lookup_sum[] = {
    FL_OF_FEATURES("lookup.sum", sum),
    FL_KERNEL("lookup.append", append),
    FL_KERNEL_END,
};
