/* lookup.cu - keys, unique keys and rows of lookup_kernels.h; their sums are in
 * lookup_sum.cu. Every sum has the order of (sample, feature, place): the sort
 * by key is stable, and each sum is the work of one thread. */
#include "runtime/lookup/lookup_features.h"

#include "runtime/device/cuda/scan_cuda.h"
#include "runtime/device/cuda/sort.h"
#include "runtime/device/cuda/warp_rows.h"
#include "runtime/store/table_cuda.h"

/* --- lookup.keys --------------------------------------------------------- */

/* fault: NULL if ids are not checked. */
__global__ static void put_keys(uint64_t *key, uint32_t *cell, int64_t *count,
                                features all, uint64_t modulo, uint64_t *fault)
{
    FL_EACH(i, all.batch * all.n)
    {
        int64_t sample = i / all.n;
        int at = (int)(i % all.n);
        const slot &l = all.feature[at];
        const uint64_t *id =
            l.ids + (l.offsets ? l.offsets[sample] : sample * l.ld);
        int64_t to = position_of(all, sample, at), n = length_of(l, sample);

        for (int64_t j = 0; j < n; j++) {
            key[to + j] = modulo ? id[j] % modulo : id[j];
            cell[to + j] = (uint32_t)i;
            if (fault && id[j] >= modulo)
                fl_fault(fault, sample);
        }
        if (i == all.batch * all.n - 1)
            *count = to + n;
    }
}

static fleet_status keys(fl_device *, fl_queue *q, const fl_device_step *s)
{
    features all = features_of(s);

    return FL_LAUNCH_EACH(put_keys, all.batch * all.n, q,
                          fl_step_ptr<uint64_t>(s, FL_KEYS_KEY),
                          fl_step_ptr<uint32_t>(s, FL_KEYS_CELL),
                          fl_step_ptr<int64_t>(s, FL_KEYS_COUNT), all,
                          (uint64_t)fl_lookup_of(s)->modulo,
                          fl_lookup_of(s)->check ? s->fault : nullptr);
}

/* --- lookup.unique ------------------------------------------------------- */

struct unique {
    uint64_t *key;
    uint32_t *start, *position, *which;
};

/* Does a key begin at that rank? As many as begin before it have numbers. */
struct first_of_key {
    fl_sorted by;
    const int64_t *n;
    unique out;
    __device__ uint32_t operator()(int64_t rank) const
    {
        return rank < *n && (rank == 0 || by.key[rank] != by.key[rank - 1]);
    }
    __device__ void put(int64_t rank, uint32_t before, uint32_t first) const
    {
        uint32_t number = before + first - 1;

        if (rank >= *n)
            return;
        out.position[rank] = by.position[rank];
        out.which[by.position[rank]] = number;
        if (first) {
            out.key[number] = by.key[rank];
            out.start[number] = (uint32_t)rank;
        }
    }
    __device__ void finish(int64_t n_unique) const
    {
        out.start[n_unique] = (uint32_t)*n;
    }
};

static fleet_status unique_prepare(fl_device *, fl_queue *, fl_device_step *s)
{
    int64_t most = fl_lookup_of(s)->capacity;

    s->scratch_size = fl_sort_scratch(most) + fl_scan_scratch(most);
    return FLEET_OK;
}

static fleet_status find_unique(fl_device *, fl_queue *q,
                                const fl_device_step *s)
{
    const fl_device_lookup *c = fl_lookup_of(s);
    const int64_t *n = fl_step_ptr<int64_t>(s, FL_UNIQUE_OF_COUNT);
    unique out = {fl_step_ptr<uint64_t>(s, FL_UNIQUE_KEY),
                  fl_step_ptr<uint32_t>(s, FL_UNIQUE_START),
                  fl_step_ptr<uint32_t>(s, FL_UNIQUE_POSITION),
                  fl_step_ptr<uint32_t>(s, FL_UNIQUE_WHICH)};
    fl_sorted by;

    FL_TRY(fl_sort(q, fl_step_ptr<uint64_t>(s, FL_UNIQUE_OF), n, c->capacity,
                   c->bits, s->scratch, &by));
    return fl_scan(q, first_of_key{by, n, out}, c->capacity,
                   fl_step_ptr<int64_t>(s, FL_UNIQUE_COUNT),
                   static_cast<char *>(s->scratch) +
                       fl_sort_scratch(c->capacity));
}

/* --- lookup.gather ------------------------------------------------------- */

struct rows {
    const fl_device_rows *table;
    const int64_t *slot; /* NULL: all are fresh */
    float *fresh;        /* dim floats each */
    int64_t dim;
};

__device__ static const float *row_at(const rows &all, int64_t number)
{
    int64_t at = all.slot ? all.slot[number] : -1;

    return at < 0 ? all.fresh + number * all.dim
                  : fl_weights_at(*all.table, at);
}

template <int V>
__device__ static fl_pack<V> row_part(const rows &all, int64_t number,
                                      int64_t column)
{
    return *reinterpret_cast<const fl_pack<V> *>(row_at(all, number) + column);
}

/* The rows of a cell's ids, and their weights; NULL: all are 1. */
struct bag {
    const uint32_t *which;
    const float *weight;
    int64_t n;
};

/* A row, times its weight. */
template <int V>
__device__ static fl_pack<V> bag_row(const rows &from, const bag &of, int64_t j,
                                     int64_t column)
{
    fl_pack<V> one = row_part<V>(from, of.which[j], column);

    for (int k = 0; of.weight && k < V; k++)
        one.x[k] = of.weight[j] * one.x[k];
    return one;
}

/* Rows added up in their order. */
template <int V>
__device__ static fl_pack<V> add_rows(const rows &from, const bag &of,
                                      int64_t column)
{
    fl_pack<V> sum = {};

    if (of.n > 0)
        sum = bag_row<V>(from, of, 0, column);
    for (int64_t j = 1; j < of.n; j++) {
        fl_pack<V> one = bag_row<V>(from, of, j, column);

        for (int k = 0; k < V; k++)
            sum.x[k] += one.x[k];
    }
    return sum;
}

/* The largest by column; of equal ones the first wins. */
template <int V>
__device__ static fl_pack<V> max_rows(const rows &from, const bag &of,
                                      int64_t column, uint32_t *winner)
{
    fl_pack<V> most = {};

    for (int64_t j = 0; j < of.n; j++) {
        fl_pack<V> one = bag_row<V>(from, of, j, column);

        for (int k = 0; k < V; k++)
            if (j == 0 || one.x[k] > most.x[k]) {
                most.x[k] = one.x[k];
                winner[column + k] = (uint32_t)j;
            }
    }
    return most;
}

/* A team has a cell. */
template <int V>
__global__ static void combine_rows(features all, rows from,
                                    const uint32_t *which, int64_t dim,
                                    int share)
{
    FL_EACH_TEAM(cell, all.batch * all.n, share)
    {
        int64_t sample = (uint32_t)cell / (uint32_t)all.n; /* as in `cell` */
        int feature = (int)((uint32_t)cell % (uint32_t)all.n);
        const slot &l = all.feature[feature];
        bag of = {which + position_of(all, sample, feature),
                  l.weights ? l.weights + l.offsets[sample] : nullptr,
                  length_of(l, sample)};
        float factor = fl_combiner_factor(l.combiner, of.n);

        if (!l.out)
            continue;
        FL_EACH_PACK(column, dim, V, share)
        {
            fl_pack<V> sum = l.combiner == FLEET_MAX
                                 ? max_rows<V>(from, of, column,
                                               winners_of(all, l, sample, dim))
                                 : add_rows<V>(from, of, column);

            if (factor != 1.0f)
                for (int k = 0; k < V; k++)
                    sum.x[k] = factor * sum.x[k];
            *reinterpret_cast<fl_pack<V> *>(l.out + sample * l.out_ld +
                                            column) = sum;
        }
    }
}

/* A cell of one id without a weight is that row. A team has some cells at a
 * time, so that loads of several rows are under way. */
enum { CELLS = 4 };

template <int V>
__global__ static void copy_rows(features all, rows from, const uint32_t *which,
                                 int64_t dim, int share)
{
    const int64_t cells = all.batch * all.n;
    const int64_t apart = ((int64_t)gridDim.x * blockDim.x) >> share;

    for (int64_t first =
             ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) >> share;
         first < cells; first += apart * CELLS) {
        const float *row[CELLS];
        float *to[CELLS];

        for (int j = 0; j < CELLS; j++) {
            int64_t cell = first + j * apart;
            const slot *l = cell < cells
                                ? &all.feature[(uint32_t)cell % (uint32_t)all.n]
                                : nullptr;

            to[j] = l && l->out
                        ? l->out + (uint32_t)cell / (uint32_t)all.n * l->out_ld
                        : nullptr;
            row[j] = to[j] ? row_at(from, which[cell]) : nullptr;
        }
        FL_EACH_PACK(column, dim, V, share)
        {
            fl_pack<V> x[CELLS];

            for (int j = 0; j < CELLS; j++)
                if (to[j])
                    x[j] =
                        *reinterpret_cast<const fl_pack<V> *>(row[j] + column);
            for (int j = 0; j < CELLS; j++)
                if (to[j])
                    *reinterpret_cast<fl_pack<V> *>(to[j] + column) = x[j];
        }
    }
}

/* Is the cell of every feature one row as it is? */
static bool is_copy(const fl_device_step *s)
{
    const fl_device_lookup *c = fl_lookup_of(s);

    for (int i = 0; i < c->n_feature; i++)
        if (c->feature[i].ragged || c->feature[i].weights ||
            c->feature[i].combiner == FLEET_MAX)
            return false;
    return true;
}

template <int V>
static fleet_status gather_by(fl_queue *q, const fl_device_step *s)
{
    features all = features_of(s);
    int64_t dim = fl_lookup_of(s)->dim, cells = all.batch * all.n;
    int share = fl_warp_rows_share(dim, V);
    rows from = {fl_step_ptr<fl_device_rows>(s, FL_GATHER_TABLE),
                 fl_step_ptr<int64_t>(s, FL_GATHER_SLOT),
                 fl_step_f32(s, FL_GATHER_FRESH), dim};

    if (is_copy(s))
        return FL_LAUNCH(
            copy_rows<V>,
            fl_warp_rows_blocks((cells + CELLS - 1) / CELLS, share), FL_THREADS,
            0, q, all, from, fl_step_ptr<uint32_t>(s, FL_GATHER_WHICH), dim,
            share);
    return FL_LAUNCH(combine_rows<V>, fl_warp_rows_blocks(cells, share),
                     FL_THREADS, 0, q, all, from,
                     fl_step_ptr<uint32_t>(s, FL_GATHER_WHICH), dim, share);
}

static fleet_status launch_gather(fl_device *, fl_queue *q,
                                  const fl_device_step *s)
{
    if (s->batch == 0)
        return FLEET_OK;
    if (features_fit<4>(s) && fl_fits_pack<4>(s->arg[FL_GATHER_FRESH].data, 0))
        return gather_by<4>(q, s); /* rows of tables fit by their layout */
    return gather_by<1>(q, s);
}

extern const fl_device_kernel fl_cuda_lookup[];
const fl_device_kernel fl_cuda_lookup[] = {
    FL_OF_FEATURES("lookup.keys", keys),
    FL_KERNEL_WITH("lookup.unique", 0, unique_prepare, nullptr, find_unique),
    FL_OF_FEATURES("lookup.gather", launch_gather),
    FL_KERNEL_END,
};
