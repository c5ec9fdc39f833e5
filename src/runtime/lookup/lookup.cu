/* lookup.cu - the steps of lookup_kernels.h, but for what passes want to know
 * of sums (lookup_norm.cu). Every sum has the order of (sample, feature,
 * place): the sort by key is stable, and each sum is the work of one thread. */
#include "runtime/store/lookup_kernels.h"

#include "runtime/device/cuda/sort.h"
#include "runtime/optim/update_gpu.h"
#include "runtime/store/table_cuda.h"
#include "runtime/device/cuda/warp_rows.h"

static const fl_device_lookup *config_of(const fl_device_step *s)
{
    return static_cast<const fl_device_lookup *>(s->config);
}

/* --- features, with the addresses of their operands ----------------------- */

struct slot {
    const uint64_t *ids; /* the feature's first */
    int64_t ld;
    const int64_t *offsets; /* ragged: by sample */
    float *out;             /* NULL: not wanted, or without a gradient */
    int64_t out_ld;
    fleet_combiner combiner;
    const float *weights; /* NULL: none; as ids and offsets are */
    int nth_max;
};

struct features {
    const slot *feature;
    int n, ragged; /* ragged: at least one is */
    int64_t batch;
    uint32_t *winners; /* NULL: no feature is of FLEET_MAX */
    int n_max;
};

/* How many ids the feature has in that sample. */
__device__ static int64_t length_of(const slot &l, int64_t sample)
{
    return l.offsets ? l.offsets[sample + 1] - l.offsets[sample] : 1;
}

/* The position of the first id of a cell: ids of all samples before, and of
 * this one's features before. */
__device__ static int64_t position_of(const features &all, int64_t sample,
                                      int at)
{
    int64_t n = 0;

    if (!all.ragged)
        return sample * all.n + at;
    for (int i = 0; i < all.n; i++) {
        const slot &l = all.feature[i];
        int64_t upto = i < at ? sample + 1 : sample;

        n += l.offsets ? l.offsets[upto] : upto;
    }
    return n;
}

/* Of a feature of FLEET_MAX: which places of the sample have won. */
__device__ static uint32_t *winners_of(const features &all, const slot &l,
                                       int64_t sample, int64_t dim)
{
    return all.winners + (sample * all.n_max + l.nth_max) * dim;
}

struct state {
    slot *copy; /* in device memory */
    slot *host;
};

static state *state_of(const fl_device_step *s)
{
    return static_cast<state *>(s->state);
}

static slot launch_resolve(const fl_device_step *s, const fl_feature *from)
{
    const fl_device_arg *ids = &s->arg[from->ids];
    const fl_device_arg *out = from->out >= 0 ? &s->arg[from->out] : nullptr;
    slot l = {static_cast<const uint64_t *>(ids->data),
              ids->ld,
              from->ragged ? ids->offsets : nullptr,
              nullptr,
              0,
              from->combiner,
              nullptr,
              from->nth_max};

    if (!from->ragged)
        l.ids += from->column;
    if (from->weights)
        l.weights = static_cast<const float *>(s->arg[from->weights].data);
    if (out && out->data) {
        l.out = static_cast<float *>(out->data) + from->out_column;
        l.out_ld = out->ld;
    }
    return l;
}

static void features_finish(fl_device *d, fl_device_step *s)
{
    d->methods->free(d, nullptr, state_of(s)->copy);
    fl_free(state_of(s)->host);
    *state_of(s) = {};
}

static fleet_status features_prepare(fl_device *d, fl_queue *q,
                                     fl_device_step *s)
{
    const fl_device_lookup *c = config_of(s);
    size_t bytes = (size_t)c->n_feature * sizeof(slot);
    state *st = state_of(s);
    void *copy = nullptr;

    st->host = static_cast<slot *>(fl_alloc(bytes));
    if (!st->host)
        return FLEET_ENOMEM;
    for (int i = 0; i < c->n_feature; i++)
        st->host[i] = launch_resolve(s, &c->feature[i]);
    FL_TRY(d->methods->alloc(d, q, bytes, &copy));
    st->copy = static_cast<slot *>(copy);
    return d->methods->copy(d, q, copy, st->host, bytes, FL_TO_DEVICE);
}

static features features_of(const fl_device_step *s)
{
    const fl_device_lookup *c = config_of(s);
    features all = {state_of(s)->copy, c->n_feature, 0,
                    s->batch,          nullptr,      c->n_max};

    for (int i = 0; i < c->n_feature; i++)
        all.ragged |= c->feature[i].ragged;
    if (c->winners)
        all.winners = fl_step_ptr<uint32_t>(s, c->winners);
    return all;
}

/* May every feature's rows be read and written V floats at a time? */
template <int V> static bool features_fit(const fl_device_step *s)
{
    const fl_device_lookup *c = config_of(s);

    for (int i = 0; i < c->n_feature; i++) {
        const slot &l = state_of(s)->host[i];

        if (l.out && !fl_fits_pack<V>(l.out, l.out_ld))
            return false;
    }
    return c->dim % V == 0;
}

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
                          (uint64_t)config_of(s)->modulo,
                          config_of(s)->check ? s->fault : nullptr);
}

/* --- lookup.unique ------------------------------------------------------- */

__device__ static bool is_first(const fl_sorted &by, int64_t rank, int64_t n)
{
    return rank < n && (rank == 0 || by.key[rank] != by.key[rank - 1]);
}

__global__ static void mark_first(uint32_t *first, fl_sorted by,
                                  const int64_t *n, int64_t most)
{
    FL_EACH(i, most)
    first[i] = is_first(by, i, *n);
}

struct unique {
    uint64_t *key;
    uint32_t *start, *position, *which;
};

/* before[rank]: how many keys begin before that rank. */
__global__ static void number_keys(unique out, const uint32_t *before,
                                   fl_sorted by, const int64_t *n,
                                   const int64_t *n_unique, int64_t most)
{
    FL_EACH(i, most)
    {
        bool first = is_first(by, i, *n);
        uint32_t number = before[i] + first - 1;

        if (i == 0)
            out.start[*n_unique] = (uint32_t)*n;
        if (i >= *n)
            continue;
        out.position[i] = by.position[i];
        out.which[by.position[i]] = number;
        if (first) {
            out.key[number] = by.key[i];
            out.start[number] = (uint32_t)i;
        }
    }
}

static fleet_status unique_prepare(fl_device *, fl_queue *, fl_device_step *s)
{
    int64_t most = config_of(s)->capacity;

    s->scratch_size = fl_sort_scratch(most) + (size_t)most * sizeof(uint32_t);
    return FLEET_OK;
}

static fleet_status find_unique(fl_device *, fl_queue *q,
                                const fl_device_step *s)
{
    const fl_device_lookup *c = config_of(s);
    const int64_t *n = fl_step_ptr<int64_t>(s, FL_UNIQUE_OF_COUNT);
    int64_t *n_unique = fl_step_ptr<int64_t>(s, FL_UNIQUE_COUNT);
    uint32_t *first = reinterpret_cast<uint32_t *>(
        static_cast<char *>(s->scratch) + fl_sort_scratch(c->capacity));
    unique out = {fl_step_ptr<uint64_t>(s, FL_UNIQUE_KEY),
                  fl_step_ptr<uint32_t>(s, FL_UNIQUE_START),
                  fl_step_ptr<uint32_t>(s, FL_UNIQUE_POSITION),
                  fl_step_ptr<uint32_t>(s, FL_UNIQUE_WHICH)};
    fl_sorted by;

    FL_TRY(fl_sort(q, fl_step_ptr<uint64_t>(s, FL_UNIQUE_OF), n, c->capacity,
                   c->bits, s->scratch, &by));
    FL_TRY(
        FL_LAUNCH_EACH(mark_first, c->capacity, q, first, by, n, c->capacity));
    FL_TRY(fl_scan(q, first, c->capacity, n_unique));
    return FL_LAUNCH_EACH(number_keys, c->capacity, q, out,
                          static_cast<const uint32_t *>(first), by, n,
                          static_cast<const int64_t *>(n_unique), c->capacity);
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

template <int V>
static fleet_status gather_by(fl_queue *q, const fl_device_step *s)
{
    features all = features_of(s);
    int64_t dim = config_of(s)->dim, cells = all.batch * all.n;
    int share = fl_warp_rows_share(dim, V);
    rows from = {fl_step_ptr<fl_device_rows>(s, FL_GATHER_TABLE),
                 fl_step_ptr<int64_t>(s, FL_GATHER_SLOT),
                 fl_step_f32(s, FL_GATHER_FRESH), dim};

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

/* A team has a number. A sum begins with -0, to which whatever is added stays
 * what it is. */
template <int V>
__global__ static void sum_shares(float *sum, features all, uses of,
                                  int64_t dim, int share)
{
    FL_EACH_TEAM(number, *of.n, share)
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
            *reinterpret_cast<fl_pack<V> *>(sum + number * dim + column) =
                total;
        }
    }
}

template <int V>
static fleet_status sum_by(fl_queue *q, const fl_device_step *s)
{
    const fl_device_lookup *c = config_of(s);
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
    if (config_of(s)->capacity == 0)
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
    const fl_device_lookup *c = config_of(s);
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

#define OF_FEATURES(name, run)                                                 \
    FL_KERNEL_WITH(name, sizeof(state), features_prepare, features_finish, run)

extern const fl_device_kernel fl_cuda_lookup[];
const fl_device_kernel fl_cuda_lookup[] = {
    OF_FEATURES("lookup.keys", keys),
    FL_KERNEL_WITH("lookup.unique", 0, unique_prepare, nullptr, find_unique),
    OF_FEATURES("lookup.gather", launch_gather),
    OF_FEATURES("lookup.sum", sum),
    FL_KERNEL("lookup.append", append),
    FL_KERNEL_END,
};
