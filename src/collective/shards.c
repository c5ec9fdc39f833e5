/* shards.c - see shards.h. */
#include "collective/shards.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "runtime/lookup_data.h"
#include "runtime/norm.h"
#include "runtime/simd.h"

enum { CHUNK = 1024 };

/* For each rank so many bytes, side by side in rank order. */
typedef struct parcels {
    int64_t *bytes; /* by rank */
    int64_t *at;    /* by rank, then table: where its keys begin */
    char *data;
    size_t capacity;
} parcels;

/* A pull that was asked for, and the rows that came. */
typedef struct request {
    fl_pull_rows *table;
    int n_table;
    size_t table_capacity;
    parcels rows;
} request;

/* The ranks' gradients of a table, by key. */
typedef struct sums {
    fl_key_set set;
    float **grad;
    size_t capacity;
} sums;

struct fl_shards {
    fl_exchange exchange; /* first */
    const fl_rounds *rounds;
    fl_store *store;
    int n_table, n_rank;
    fl_rows **table; /* by name */
    request slot[FL_N_SLOT];

    /* of the round that is under way: by rank, then table */
    int64_t *to, *from; /* keys that go out, that came in */
    int64_t *done;      /* that have been dealt with */
    parcels to_keys, from_keys, to_rows, from_rows;

    /* of the update */
    sums *sum;      /* by table */
    bool is_summed; /* a clip was first */
    double *square; /* by table, then bucket */
    fl_norm_row *sorted;
    float **row;
    size_t square_capacity, sorted_capacity, row_capacity;
};

static fl_shards *shards_of(fl_exchange *x)
{
    return (fl_shards *)(void *)x;
}

int fl_shards_first_bucket(int rank, int size)
{
    return (rank * FL_N_BUCKET + size - 1) / size;
}

static int owner_of(const fl_shards *s, uint64_t key)
{
    return fl_bucket_of(fl_mix(key)) * s->n_rank / FL_N_BUCKET;
}

/* --- sharing out --------------------------------------------------------- */

static int number_of(const fl_shards *s, const fl_rows *rows)
{
    for (int t = 0; t < s->n_table; t++)
        if (s->table[t] == rows)
            return t;
    return -1; /* the store had all tables when this was made */
}

/* Bytes of each rank's part: each key of table t takes size_of(t). */
typedef int64_t item_size(const fl_shards *s, int table);

static int64_t key_size(const fl_shards *s, int table)
{
    (void)s;
    (void)table;
    return (int64_t)sizeof(uint64_t);
}

static int64_t row_size(const fl_shards *s, int table)
{
    return s->table[table]->dim * (int64_t)sizeof(float);
}

static fleet_status make_room(const fl_shards *s, parcels *p,
                              const int64_t *count, item_size *size_of)
{
    int64_t all = 0;

    for (int r = 0; r < s->n_rank; r++) {
        int64_t begin = all;

        for (int t = 0; t < s->n_table; t++) {
            p->at[r * s->n_table + t] = all;
            all += count[r * s->n_table + t] * size_of(s, t);
        }
        p->bytes[r] = all - begin;
    }
    return fl_grow(&p->data, &p->capacity, (size_t)all + 1, 1);
}

/* Key i of a table in a rank's part, or what belongs to it. */
static void *item(const fl_shards *s, const parcels *p, int rank, int table,
                  int64_t i, item_size *size_of)
{
    return p->data + p->at[rank * s->n_table + table] + i * size_of(s, table);
}

static fleet_status tell_counts(fl_shards *s)
{
    fl_peers *p = s->rounds->peers;
    int64_t each = s->n_table * (int64_t)sizeof *s->to;
    int64_t *bytes = s->to_keys.bytes;

    for (int r = 0; r < s->n_rank; r++)
        bytes[r] = each;
    return p->methods->all_to_all_v(p, s->to, bytes, s->from, bytes, NULL);
}

static fleet_status swap(fl_shards *s, const parcels *to, const parcels *from)
{
    fl_peers *p = s->rounds->peers;

    return p->methods->all_to_all_v(p, to->data, to->bytes, from->data,
                                    from->bytes, NULL);
}

/* Counts and keys; both sides know then what else travels. */
static fleet_status swap_keys(fl_shards *s)
{
    FL_TRY(make_room(s, &s->from_keys, s->from, key_size));
    return swap(s, &s->to_keys, &s->from_keys);
}

static void count_again(fl_shards *s)
{
    memset(s->done, 0, (size_t)(s->n_rank * s->n_table) * sizeof *s->done);
}

/* --- fetching ------------------------------------------------------------ */

typedef void key_visitor(fl_shards *s, const request *q, int owner, int table,
                         fl_pull_part *part, int64_t i);

static void each_key(fl_shards *s, const request *q, key_visitor *visit)
{
    count_again(s);
    for (int i = 0; i < q->n_table; i++) {
        int t = number_of(s, q->table[i].rows);

        for (int p = 0; p < FL_N_PART; p++) {
            fl_pull_part *part = &q->table[i].part[p];

            for (int64_t k = 0; k < part->n; k++)
                visit(s, q, owner_of(s, part->key[k]), t, part, k);
        }
    }
}

static void count_key(fl_shards *s, const request *q, int owner, int table,
                      fl_pull_part *part, int64_t i)
{
    (void)q;
    (void)part;
    (void)i;
    s->to[owner * s->n_table + table]++;
}

static void put_key(fl_shards *s, const request *q, int owner, int table,
                    fl_pull_part *part, int64_t i)
{
    int64_t j = s->done[owner * s->n_table + table]++;

    (void)q;
    memcpy(item(s, &s->to_keys, owner, table, j, key_size), &part->key[i],
           sizeof part->key[i]);
}

static void take_row(fl_shards *s, const request *q, int owner, int table,
                     fl_pull_part *part, int64_t i)
{
    int64_t j = s->done[owner * s->n_table + table]++;

    part->row[i] = item(s, &q->rows, owner, table, j, row_size);
}

/* Rows that nobody has made read as their first values. */
static fleet_status read_chunk(fl_rows *rows, const uint64_t *key, int64_t n,
                               float *out)
{
    float *row[CHUNK];

    FL_TRY(rows->methods->find(rows, key, n, row));
    for (int64_t i = 0; i < n; i++, out += rows->dim)
        if (row[i])
            memcpy(out, row[i], (size_t)rows->dim * sizeof *out);
        else
            fl_filler_row(&rows->filler, key[i], out, rows->dim);
    return FLEET_OK;
}

static fleet_status answer(fl_shards *s, int rank, int table)
{
    const uint64_t *key = item(s, &s->from_keys, rank, table, 0, key_size);
    float *out = item(s, &s->to_rows, rank, table, 0, row_size);
    int64_t n = s->from[rank * s->n_table + table];
    fl_rows *rows = s->table[table];

    for (int64_t i = 0; i < n; i += CHUNK)
        FL_TRY(read_chunk(rows, key + i, n - i < CHUNK ? n - i : CHUNK,
                          out + i * rows->dim));
    return FLEET_OK;
}

static fleet_status answer_all(fl_shards *s)
{
    FL_TRY(make_room(s, &s->to_rows, s->from, row_size));
    for (int r = 0; r < s->n_rank; r++)
        for (int t = 0; t < s->n_table; t++)
            FL_TRY(answer(s, r, t));
    return FLEET_OK;
}

/* All ranks do it at once, some of them for nothing but the others. */
static fleet_status fetch(fl_shards *s, request *q)
{
    memset(s->to, 0, (size_t)(s->n_rank * s->n_table) * sizeof *s->to);
    each_key(s, q, count_key);
    FL_TRY(tell_counts(s));
    FL_TRY(make_room(s, &s->to_keys, s->to, key_size));
    each_key(s, q, put_key);
    FL_TRY(swap_keys(s));
    FL_TRY(answer_all(s));
    FL_TRY(make_room(s, &q->rows, s->to, row_size));
    FL_TRY(swap(s, &s->to_rows, &q->rows));
    each_key(s, q, take_row);
    return FLEET_OK;
}

fleet_status fl_shards_serve(fl_shards *s)
{
    request nothing = {.rows = s->from_rows};
    fleet_status status = fetch(s, &nothing);

    s->from_rows = nothing.rows; /* it may have moved */
    return status;
}

/* --- bringing back ------------------------------------------------------- */

static uint64_t key_at(const fl_push_part *p, int64_t i)
{
    return p->key[p->which ? p->which[i] : i];
}

static void count_part(fl_shards *s, int table, const fl_push_part *part)
{
    for (int64_t i = 0; i < part->n; i++)
        s->to[owner_of(s, key_at(part, i)) * s->n_table + table]++;
}

static void put_part(fl_shards *s, int table, const fl_push_part *part)
{
    for (int64_t i = 0; i < part->n; i++) {
        uint64_t key = key_at(part, i);
        int owner = owner_of(s, key);
        int64_t j = s->done[owner * s->n_table + table]++;

        memcpy(item(s, &s->to_keys, owner, table, j, key_size), &key,
               sizeof key);
        memcpy(item(s, &s->to_rows, owner, table, j, row_size), part->grad[i],
               (size_t)row_size(s, table));
    }
}

typedef void part_visitor(fl_shards *s, int table, const fl_push_part *part);

static void each_part(fl_shards *s, const fl_push *p, part_visitor *visit)
{
    count_again(s);
    for (int i = 0; i < p->n_table; i++)
        for (int j = 0; j < FL_N_PART; j++)
            visit(s, number_of(s, p->table[i].rows), &p->table[i].part[j]);
}

static fleet_status swap_gradients(fl_shards *s, const fl_push *p)
{
    memset(s->to, 0, (size_t)(s->n_rank * s->n_table) * sizeof *s->to);
    each_part(s, p, count_part);
    FL_TRY(tell_counts(s));
    FL_TRY(make_room(s, &s->to_keys, s->to, key_size));
    FL_TRY(make_room(s, &s->to_rows, s->to, row_size));
    each_part(s, p, put_part);
    FL_TRY(swap_keys(s));
    FL_TRY(make_room(s, &s->from_rows, s->from, row_size));
    return swap(s, &s->to_rows, &s->from_rows);
}

/* A rank's gradients of a table: the first of a key stays where it is, others
 * are added to it. */
static void add_rank(fl_shards *s, int rank, int table)
{
    const uint64_t *key = item(s, &s->from_keys, rank, table, 0, key_size);
    sums *to = &s->sum[table];
    float *grad = item(s, &s->from_rows, rank, table, 0, row_size);
    int64_t n = s->from[rank * s->n_table + table], dim = s->table[table]->dim;

    for (int64_t i = 0; i < n; i++, grad += dim) {
        bool is_new;
        uint32_t at = fl_key_set_add(&to->set, key[i], &is_new);

        if (is_new)
            to->grad[at] = grad;
        else
            fl_simd_best()->add(to->grad[at], to->grad[at], grad, dim);
    }
}

static int64_t count_of(const fl_shards *s, int table)
{
    int64_t n = 0;

    for (int r = 0; r < s->n_rank; r++)
        n += s->from[r * s->n_table + table];
    return n;
}

static fleet_status sum_table(fl_shards *s, int table)
{
    int64_t n = count_of(s, table);
    sums *to = &s->sum[table];

    FL_TRY(fl_key_set_begin(&to->set, n));
    FL_TRY(fl_grow(&to->grad, &to->capacity, (size_t)n, sizeof *to->grad));
    for (int r = 0; r < s->n_rank; r++)
        add_rank(s, r, table);
    return FLEET_OK;
}

static fleet_status sum_up(fl_shards *s, const fl_push *p)
{
    FL_TRY(swap_gradients(s, p));
    for (int t = 0; t < s->n_table; t++)
        FL_TRY(sum_table(s, t));
    return FLEET_OK;
}

static fleet_status update_table(fl_shards *s, int table, const fl_update *all)
{
    const sums *from = &s->sum[table];
    fl_rows *rows = s->table[table];
    fl_update u = fl_update_with(all, &rows->attr);

    FL_TRY(fl_grow(&s->row, &s->row_capacity, CHUNK, sizeof *s->row));
    for (int64_t i = 0; i < from->set.n; i += CHUNK) {
        int64_t most = from->set.n - i < CHUNK ? from->set.n - i : CHUNK;

        FL_TRY(rows->methods->make(rows, from->set.key + i, most, s->row));
        fl_optimizer_rows(s->store->optimizer)(
            &u, s->row, (const float *const *)(void *)(from->grad + i), most,
            rows->dim);
    }
    return FLEET_OK;
}

/* --- clip by global norm: in the order of runtime/clip.c ----------------- */

/* Of this rank's buckets; the others' stay zero. */
static fleet_status square_table(fl_shards *s, int table, float scale)
{
    const sums *from = &s->sum[table];
    double *square = s->square + (size_t)table * FL_N_BUCKET;
    int64_t n = from->set.n;

    FL_TRY(
        fl_grow(&s->sorted, &s->sorted_capacity, (size_t)n, sizeof *s->sorted));
    for (int64_t i = 0; i < n; i++)
        s->sorted[i] = fl_norm_row_of(from->set.key[i], from->grad[i]);
    fl_norm_sort(s->sorted, n);
    for (int64_t i = 0; i < n; i++)
        square[s->sorted[i].bucket] +=
            fl_square_sum(s->sorted[i].grad, s->table[table]->dim, scale);
    return FLEET_OK;
}

/* A bucket's sum is one rank's: with the others' zeros it is the same in any
 * order. */
static fleet_status shards_clip(fl_exchange *x, const fl_push *p,
                                double squares, float *factor)
{
    fl_shards *s = shards_of(x);
    fl_peers *peers = s->rounds->peers;
    int64_t n = (int64_t)s->n_table * FL_N_BUCKET;

    s->is_summed = false;
    FL_TRY(
        fl_grow(&s->square, &s->square_capacity, (size_t)n, sizeof *s->square));
    memset(s->square, 0, (size_t)n * sizeof *s->square);
    FL_TRY(sum_up(s, p));
    for (int t = 0; t < s->n_table; t++)
        FL_TRY(square_table(s, t, p->update->scale));
    FL_TRY(peers->methods->all_reduce(peers, FL_ALL_SUM, FL_WIRE_F64, s->square,
                                      s->square, n, NULL));
    for (int64_t i = 0; i < n; i++)
        squares += s->square[i];
    *factor = fl_clip_factor(squares, s->store->optimizer->clip_norm);
    s->is_summed = true;
    return FLEET_OK;
}

/* --- the exchange -------------------------------------------------------- */

/* Keys stay where they are until arrive(). */
static fleet_status shards_pull(fl_exchange *x, int slot,
                                const fl_pull_rows *table, int n_table,
                                bool dense, bool ahead, bool now)
{
    request *q = &shards_of(x)->slot[slot];

    (void)dense;
    (void)ahead;
    (void)now;
    q->n_table = 0;
    FL_TRY(fl_grow(&q->table, &q->table_capacity, (size_t)n_table,
                   sizeof *q->table));
    if (n_table > 0)
        memcpy(q->table, table, (size_t)n_table * sizeof *table);
    q->n_table = n_table;
    return FLEET_OK;
}

static fleet_status shards_arrive(fl_exchange *x, int slot)
{
    fl_shards *s = shards_of(x);
    fl_round round;

    FL_TRY(fl_round_begin(s->rounds, FL_WISH_ROWS, 0, &round));
    return fetch(s, &s->slot[slot]);
}

static void shards_drop(fl_exchange *x, int slot)
{
    shards_of(x)->slot[slot].n_table = 0;
}

/* In the round of the update, which all ranks are in. */
static fleet_status shards_push(fl_exchange *x, const fl_push *p)
{
    fl_shards *s = shards_of(x);

    if (!s->is_summed)
        FL_TRY(sum_up(s, p));
    s->is_summed = false;
    for (int t = 0; t < s->n_table; t++)
        FL_TRY(update_table(s, t, p->update));
    return FLEET_OK;
}

static fleet_status shards_settle(fl_exchange *x)
{
    x->updates++;
    return FLEET_OK;
}

/* Rounds have seen to it that all are here. */
static fleet_status shards_end_pass(fl_exchange *x, double *totals, int n)
{
    fl_peers *p = shards_of(x)->rounds->peers;

    return p->methods->all_reduce(p, FL_ALL_SUM, FL_WIRE_F64, totals, totals, n,
                                  NULL);
}

static fleet_status shards_refresh(fl_exchange *x)
{
    (void)x;
    return FLEET_OK;
}

static const fl_exchange_class methods = {
    .pull = shards_pull,
    .arrive = shards_arrive,
    .drop = shards_drop,
    .clip = shards_clip,
    .push = shards_push,
    .settle = shards_settle,
    .end_pass = shards_end_pass,
    .refresh = shards_refresh,
};

fl_exchange *fl_shards_exchange(fl_shards *s)
{
    return &s->exchange;
}

/* --- life ---------------------------------------------------------------- */

static parcels *all_parcels(fl_shards *s, int i)
{
    parcels *fixed[] = {&s->to_keys, &s->from_keys, &s->to_rows, &s->from_rows};

    return i < 4 ? fixed[i] : &s->slot[i - 4].rows;
}

enum { N_PARCELS = 4 + FL_N_SLOT };

/* All ranks number them alike. */
static fleet_status list_tables(fl_shards *s)
{
    fl_map_entry *sorted = fl_map_sorted(&s->store->tables);
    int n = 0;

    if (!sorted)
        return FLEET_ENOMEM;
    for (size_t i = 0; i < s->store->tables.n; i++) {
        fl_rows *rows = sorted[i].value;

        if (!rows->away)
            s->table[n++] = rows;
    }
    fl_free(sorted);
    return FLEET_OK;
}

static fleet_status make_arrays(fl_shards *s)
{
    size_t n = (size_t)(s->n_rank * s->n_table) + 1;

    FL_TRY(FL_NEW(&s->table, ((size_t)s->n_table + 1) * sizeof *s->table));
    FL_TRY(FL_NEW(&s->sum, ((size_t)s->n_table + 1) * sizeof *s->sum));
    FL_TRY(FL_NEW(&s->to, n * sizeof *s->to));
    FL_TRY(FL_NEW(&s->from, n * sizeof *s->from));
    FL_TRY(FL_NEW(&s->done, n * sizeof *s->done));
    for (int i = 0; i < N_PARCELS; i++)
        FL_TRY(FL_NEW(&all_parcels(s, i)->bytes,
                      ((size_t)s->n_rank + n) * sizeof(int64_t)));
    for (int i = 0; i < N_PARCELS; i++)
        all_parcels(s, i)->at = all_parcels(s, i)->bytes + s->n_rank;
    return list_tables(s);
}

fleet_status fl_shards_create(fl_shards **out, fl_store *store,
                              const fl_rounds *rounds)
{
    fleet_status status;
    fl_shards *s;

    FL_TRY(FL_NEW(&s, sizeof *s));
    s->exchange = (fl_exchange){
        .methods = &methods, .sync = true, .updates = store->updates};
    s->rounds = rounds;
    s->store = store;
    s->n_table = fl_store_own_tables(store);
    s->n_rank = rounds->peers->size;
    status = make_arrays(s);
    if (status != FLEET_OK) {
        fl_shards_destroy(s);
        return status;
    }
    *out = s;
    return FLEET_OK;
}

void fl_shards_destroy(fl_shards *s)
{
    if (!s)
        return;
    for (int i = 0; i < N_PARCELS; i++) {
        fl_free(all_parcels(s, i)->bytes);
        fl_free(all_parcels(s, i)->data);
    }
    for (int i = 0; i < FL_N_SLOT; i++)
        fl_free(s->slot[i].table);
    for (int t = 0; s->sum && t < s->n_table; t++) {
        fl_key_set_done(&s->sum[t].set);
        fl_free(s->sum[t].grad);
    }
    fl_free(s->sum);
    fl_free(s->square);
    fl_free(s->sorted);
    fl_free(s->row);
    fl_free(s->table);
    fl_free(s->to);
    fl_free(s->from);
    fl_free(s->done);
    fl_free(s);
}
