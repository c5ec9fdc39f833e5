/* table.cu - rows of a table in device memory: found, made, changed; see
 * lookup_kernels.h. */
#include "runtime/store/table_cuda.h"

#include "base/hash.h"
#include "base/rng_draw.h"
#include "runtime/optim/rule_cuda.h"
#include "runtime/device/cuda/scan_cuda.h"
#include "runtime/device/cuda/sort.h"
#include "runtime/device/cuda/warp_rows.h"
#include "runtime/graph/initializer.h"

static const fl_device_lookup *config_of(const fl_device_step *s)
{
    return static_cast<const fl_device_lookup *>(s->config);
}

/* --- the index ----------------------------------------------------------- */

__device__ static uint64_t place_of(const fl_device_rows &t, uint64_t key)
{
    return fl_mix_with(fl_mix(key), t.secret[0], t.secret[1]) & t.mask;
}

/* -1: the table has none. */
__device__ static int64_t find(const fl_device_rows &t, uint64_t key)
{
    uint64_t i = place_of(t, key);

    for (uint64_t left = t.n > 0 ? t.mask + 1 : 0; left > 0; left--) {
        fl_device_entry e = t.index[i];

        if (e.number == 0 || e.key == key)
            return (int64_t)e.number - 1;
        i = (i + 1) & t.mask;
    }
    return -1;
}

/* A key that the index does not have: which free place it gets depends on the
 * other threads, what is found does not. An index without a free place has been
 * written over. */
__device__ static void put(fl_device_rows *table, const fl_device_rows &t,
                           uint64_t key, int64_t number)
{
    uint64_t i = place_of(t, key);

    for (uint64_t left = t.mask + 1; left > 0; left--) {
        if (atomicCAS(
                reinterpret_cast<unsigned long long *>(&t.index[i].number),
                0ULL, (unsigned long long)number + 1) == 0) {
            t.index[i].key = key;
            return;
        }
        i = (i + 1) & t.mask;
    }
    table->spoilt = 1;
}

__global__ static void index_rows(fl_device_rows *table)
{
    fl_device_rows t = *table;

    FL_EACH(i, t.n)
    put(table, t, *fl_key_at(t, i), i);
}

enum { THE_TABLE };

/* As many rows as the operand says; the index is empty. */
static fleet_status index_all(fl_device *, fl_queue *q, const fl_device_step *s)
{
    return FL_LAUNCH_EACH(index_rows, fl_step_rows(s, THE_TABLE), q,
                          fl_step_ptr<fl_device_rows>(s, THE_TABLE));
}

/* --- lookup.move --------------------------------------------------------- */

enum { MOVE_THREADS = 8 }; /* of a row; each takes more if it is long */

/* Threads beside each other have neighbouring 16 bytes of a row. */
__global__ static void move_rows(fl_pack<4> *to, const fl_device_rows *table,
                                 const int64_t *slot, int64_t n)
{
    const char *row = table->row;
    int64_t packs = table->stride / (int64_t)sizeof *to;

    FL_EACH(i, n * packs)
    {
        int64_t r = fl_quotient(i, packs);

        to[i] = reinterpret_cast<const fl_pack<4> *>(
            row + slot[r] * table->stride)[i - r * packs];
    }
}

static fleet_status move_all(fl_device *, fl_queue *q, const fl_device_step *s)
{
    int64_t n = fl_step_rows(s, FL_MOVE_TO);

    return FL_LAUNCH_EACH(move_rows, n * MOVE_THREADS, q,
                          fl_step_ptr<fl_pack<4>>(s, FL_MOVE_TO),
                          fl_step_ptr<fl_device_rows>(s, FL_MOVE_TABLE),
                          fl_step_ptr<int64_t>(s, FL_MOVE_SLOT), n);
}

/* --- first values -------------------------------------------------------- */

/* Four neighbours of a row's, from column 4 block on. */
__device__ static void fill_four(const fl_device_rows &t, uint64_t key,
                                 uint64_t block, float out[4])
{
    if (t.kind == FLEET_INIT_UNIFORM)
        fl_rng_four_uniform(t.seed, key, block, t.a, t.b, out);
    else if (t.kind == FLEET_INIT_NORMAL)
        fl_rng_four_normal(t.seed, key, block, t.a, t.b, out);
    else if (t.kind == FLEET_INIT_TRUNCATED_NORMAL)
        fl_rng_four_cut_normal(t.seed, key, block, t.a, t.b, out);
    else
        for (int i = 0; i < 4; i++)
            out[i] = t.a;
}

/* By a team. */
__device__ static void fill_row(const fl_device_rows &t, uint64_t key,
                                float *row, int64_t dim, int share)
{
    FL_EACH_PACK(column, dim, 4, share)
    {
        float four[4];

        fill_four(t, key, (uint64_t)column / 4, four);
        for (int64_t i = column; i < dim && i < column + 4; i++)
            row[i] = four[i - column];
    }
}

/* --- lookup.find --------------------------------------------------------- */

__global__ static void find_rows(int64_t *slot, float *fresh,
                                 const fl_device_rows *table,
                                 const uint64_t *key, const int64_t *n,
                                 int64_t dim, int share, uint64_t *fault)
{
    fl_device_rows t = *table;

    if (t.spoilt && fault && blockIdx.x == 0 && threadIdx.x == 0)
        fl_fault(fault, 0);
    FL_EACH_TEAM(r, *n, share)
    {
        int64_t at = find(t, key[r]);

        if (fl_warp_rows_first(share))
            slot[r] = at;
        if (at < 0 && fresh)
            fill_row(t, key[r], fresh + r * dim, dim, share);
    }
}

static fleet_status find_all(fl_device *, fl_queue *q, const fl_device_step *s)
{
    const fl_device_lookup *c = config_of(s);
    int share = fl_warp_rows_share(c->dim, 4);

    return FL_LAUNCH(
        find_rows, fl_warp_rows_blocks(c->capacity, share), FL_THREADS, 0, q,
        fl_step_ptr<int64_t>(s, FL_FIND_SLOT), fl_step_f32(s, FL_FIND_FRESH),
        fl_step_ptr<fl_device_rows>(s, FL_FIND_TABLE),
        fl_step_ptr<uint64_t>(s, FL_FIND_KEY),
        fl_step_ptr<int64_t>(s, FL_FIND_COUNT), c->dim, share, s->fault);
}

/* --- lookup.insert ------------------------------------------------------- */

/* Is a row to be made for the i-th key? before[i]: for how many before it. */
struct missing_row {
    const int64_t *slot, *n;
    const fl_device_update *now;
    fl_device_rows *table;
    uint32_t *before;
    __device__ uint32_t operator()(int64_t i) const
    {
        return i < *n && slot[i] < 0 && !fl_update_is_off(now);
    }
    __device__ void put(int64_t i, uint32_t sum, uint32_t) const
    {
        before[i] = sum;
    }
    __device__ void finish(int64_t all) const
    {
        table->n += all;
    }
};

__device__ static void make_row(fl_device_rows *table, const fl_device_rows &t,
                                uint64_t key, int64_t number, int64_t dim,
                                int share)
{
    float *w = fl_weights_at(t, number);

    if (fl_warp_rows_first(share)) {
        *fl_head_at(t, number) = {0, 0, 0};
        *fl_key_at(t, number) = key;
        put(table, t, key, number);
    }
    fill_row(t, key, w, dim, share);
    FL_EACH_PACK(i, t.n_float, 1, share)
    w[dim + i] = t.state;
}

/* before[i]: how many keys before the i-th are missing; *all of n are, and the
 * table's count has them. A team has a key. */
__global__ static void make_rows(fl_device_rows *table, int64_t *slot,
                                 const uint32_t *before, const int64_t *all,
                                 const uint64_t *key, const int64_t *n,
                                 int64_t dim, int share)
{
    fl_device_rows t = *table;

    if (*all == 0)
        return;
    FL_EACH_TEAM_TOGETHER(r, *n, share)
    {
        bool is_missing = r < *n && slot[r] < 0;

        __syncwarp(); /* before one of a team writes its slot */
        if (!is_missing)
            continue;
        int64_t number = t.n - *all + before[r];

        make_row(table, t, key[r], number, dim, share);
        if (fl_warp_rows_first(share))
            slot[r] = number;
    }
}

static fleet_status insert_prepare(fl_device *, fl_queue *, fl_device_step *s)
{
    int64_t most = config_of(s)->capacity;

    s->scratch_size = fl_padded(sizeof(int64_t)) +
                      fl_padded((size_t)most * sizeof(uint32_t)) +
                      fl_scan_scratch(most);
    return FLEET_OK;
}

static fleet_status insert(fl_device *, fl_queue *q, const fl_device_step *s)
{
    const fl_device_lookup *c = config_of(s);
    fl_device_rows *table = fl_step_ptr<fl_device_rows>(s, FL_INSERT_TABLE);
    int64_t *slot = fl_step_ptr<int64_t>(s, FL_INSERT_SLOT);
    const int64_t *n = fl_step_ptr<int64_t>(s, FL_INSERT_COUNT);
    int64_t *all = static_cast<int64_t *>(s->scratch);
    char *behind = static_cast<char *>(s->scratch) + fl_padded(sizeof *all);
    uint32_t *before = reinterpret_cast<uint32_t *>(behind);
    missing_row is_missing = {
        slot, n, fl_step_ptr<fl_device_update>(s, FL_INSERT_UPDATE), table,
        before};
    int share = fl_warp_rows_share(c->dim, 4);

    FL_TRY(fl_scan(q, is_missing, c->capacity, all,
                   behind + fl_padded((size_t)c->capacity * sizeof *before)));
    return FL_LAUNCH(make_rows, fl_warp_rows_blocks(c->capacity, share),
                     FL_THREADS, 0, q, table, slot,
                     static_cast<const uint32_t *>(before),
                     static_cast<const int64_t *>(all),
                     fl_step_ptr<uint64_t>(s, FL_INSERT_KEY), n, c->dim, share);
}

/* --- lookup.update ------------------------------------------------------- */

/* Count a row's step up; the corrections that go with it. */
__device__ static void count_step(fl_update *u, const fl_row_head *head)
{
    uint32_t t = head->step + 1;

    if (u->n_correct == 0)
        return;
    t = t < u->n_correct ? t : u->n_correct - 1;
    u->correct_a = u->correct_a_at[t];
    u->correct_b = u->correct_b_at[t];
}

struct changes {
    fl_device_rows *table;
    const int64_t *slot, *n;
    const float *sum;
    int64_t dim;
    fl_rule_kind rule;
    fl_update_rates rates;
    int own;
    bool bounds;
    float low, high;
};

/* The table's update: of its own optimizer, if it has one. */
__device__ static fl_update update_of(const changes &c,
                                      const fl_device_update *now)
{
    fl_update u = now->u;

    if (c.own > 0)
        fl_update_take_own(&u, now, c.own);
    fl_update_change(&u, &c.rates);
    return u;
}

__device__ static void count_up(const fl_update &u, fl_row_head *head)
{
    head->step++;
    head->changed_at = u.version;
}

__device__ static float bound(const changes &c, float w)
{
    return c.bounds ? v_min(c.high, v_max(c.low, w)) : w;
}

/* V neighbouring floats, with up to two states each. */
template <int V>
__device__ static void update_part(const changes &c, const fl_update &u,
                                   float *w, const float *g, int n_state)
{
    fl_pack<V> *at[3];
    fl_pack<V> x[3] = {}, sum = *reinterpret_cast<const fl_pack<V> *>(g);

    for (int j = 0; j < 3; j++)
        at[j] = reinterpret_cast<fl_pack<V> *>(w + j * c.dim);
    for (int j = 0; j < 3; j++)
        if (j <= n_state)
            x[j] = *at[j];
    for (int k = 0; k < V; k++) {
        fl_rule_apply(c.rule, u,
                      {&x[0].x[k], &x[1].x[k], &x[2].x[k], sum.x[k]});
        x[0].x[k] = bound(c, x[0].x[k]);
    }
    for (int j = 0; j < 3; j++)
        if (j <= n_state)
            *at[j] = x[j];
}

template <int V>
__global__ static void update_rows(changes c, const fl_device_update *now,
                                   int share)
{
    const fl_device_rows t = *c.table;
    const fl_update same = update_of(c, now); /* but for their corrections */
    const int n_state = (int)(t.n_float / c.dim);
    int64_t n = fl_update_is_off(now) ? 0 : *c.n;

    FL_EACH_TEAM_TOGETHER(r, n, share)
    {
        bool is_one = r < n;
        int64_t slot = is_one ? c.slot[r] : 0;
        float *w = fl_weights_at(t, slot);
        fl_row_head *head = fl_head_at(t, slot);
        fl_update u = same;

        if (is_one)
            count_step(&u, head);
        __syncwarp(); /* before one of a team counts up */
        if (!is_one)
            continue;
        if (fl_warp_rows_first(share))
            count_up(u, head);
        FL_EACH_PACK(i, c.dim, V, share)
        update_part<V>(c, u, w + i, c.sum + r * c.dim + i, n_state);
    }
}

/* A team has some rows, so that an update's numbers are read for several. */
enum { UPDATE_BLOCKS = 1024 };

template <int V>
static fleet_status update_by(fl_queue *q, const changes &all,
                              const fl_device_update *now, int64_t most)
{
    int share = fl_warp_rows_share(all.dim, V);
    unsigned blocks = fl_warp_rows_blocks(most, share);

    return FL_LAUNCH(update_rows<V>,
                     blocks < UPDATE_BLOCKS ? blocks : (unsigned)UPDATE_BLOCKS,
                     FL_THREADS, 0, q, all, now, share);
}

/* Each thread of a row works its numbers out for itself, from what no thread
 * has changed yet. */
__global__ static void update_whole_rows(changes c, const fl_device_update *now,
                                         int share)
{
    fl_device_rows t = *c.table;
    int64_t n = fl_update_is_off(now) ? 0 : *c.n;

    FL_EACH_TEAM_TOGETHER(r, n, share)
    {
        bool is_one = r < n;
        int64_t slot = is_one ? c.slot[r] : 0;
        float *w = fl_weights_at(t, slot);
        const float *g = c.sum + r * c.dim;
        fl_row_head *head = fl_head_at(t, slot);
        fl_update u = update_of(c, now);
        fl_row_numbers x = {};
        int n_row = 0;

        if (is_one)
            count_step(&u, head);
        fl_spread all = fl_spread_of(&u);
        if (is_one)
            n_row = fl_row_rule_numbers(c.rule, all, {w, g, c.dim}, &x);
        __syncwarp(); /* before one of a team writes */
        if (!is_one)
            continue;
        if (fl_warp_rows_first(share)) {
            count_up(u, head);
            for (int j = 0; j < n_row; j++)
                w[c.dim + j] = x.now[j];
        }
        FL_EACH_PACK(i, c.dim, 1, share)
        w[i] = bound(c, fl_row_rule_weight(c.rule, all, x, w[i], g[i]));
    }
}

static fleet_status launch_update(fl_device *, fl_queue *q,
                                  const fl_device_step *s)
{
    const fl_device_lookup *c = config_of(s);
    int share = fl_warp_rows_share(c->dim, 1);
    changes all = {fl_step_ptr<fl_device_rows>(s, FL_ROWS_TABLE),
                   fl_step_ptr<int64_t>(s, FL_ROWS_SLOT),
                   fl_step_ptr<int64_t>(s, FL_ROWS_COUNT),
                   fl_step_f32(s, FL_ROWS_SUM),
                   c->dim,
                   c->rule,
                   c->rates,
                   c->own,
                   c->bounds,
                   c->low,
                   c->high};
    const fl_device_update *now =
        fl_step_ptr<fl_device_update>(s, FL_ROWS_UPDATE);

    if (c->whole_rows)
        return FL_LAUNCH(update_whole_rows,
                         fl_warp_rows_blocks(c->capacity, share), FL_THREADS, 0,
                         q, all, now, share);
    /* rows of tables fit by their layout */
    return c->dim % 4 == 0 && fl_fits_pack<4>(all.sum, 0)
               ? update_by<4>(q, all, now, c->capacity)
               : update_by<1>(q, all, now, c->capacity);
}

extern const fl_device_kernel fl_cuda_table[];
const fl_device_kernel fl_cuda_table[] = {
    FL_KERNEL("lookup.index", index_all),
    FL_KERNEL("lookup.move", move_all),
    FL_KERNEL("lookup.find", find_all),
    FL_KERNEL_WITH("lookup.insert", 0, insert_prepare, nullptr, insert),
    FL_KERNEL("lookup.update", launch_update),
    FL_KERNEL_END,
};
