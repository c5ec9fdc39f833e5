/* sharded_push.c - gradients of rows go to the owners of their buckets, which
 * add them up in rank order and update. */
#include "collective/sharded/sharded_internal.h"

#include <string.h>

#include "base/memory.h"
#include "runtime/life/accessor.h"
#include "runtime/life/life.h"
#include "runtime/simd/simd.h"
#include "runtime/store/table.h"

typedef void run_visitor(fl_sharded_tables *s, int table,
                         const fl_push_part *part, const fl_sharded_run *run);

static void put_run(fl_sharded_tables *s, int table, const fl_push_part *part,
                    const fl_sharded_run *run)
{
    int64_t at = s->done[run->owner * s->n_table + table];
    int64_t width = fl_rows_pushed(s->table[table]);
    uint64_t *key = fl_sharded_item(s, &s->to_keys, run->owner, table, at,
                                    fl_sharded_key_size);
    float *row = fl_sharded_item(s, &s->to_rows, run->owner, table, at,
                                 fl_sharded_grad_size);

    for (int64_t i = run->begin; i < run->end; i++, row += width) {
        *key++ = part->key[part->which ? part->which[i] : i];
        memcpy(row, part->grad[i], (size_t)width * sizeof *row);
    }
}

/* visit NULL: only to count the keys, in s->done. */
static void each_run(fl_sharded_tables *s, const fl_push *p, run_visitor *visit)
{
    fl_sharded_reset_done(s);
    for (int i = 0; i < p->n_table; i++) {
        int t = fl_sharded_number(s, p->table[i].rows);

        for (int j = 0; j < FL_N_PART; j++) {
            const fl_push_part *part = &p->table[i].part[j];
            fl_sharded_run run = {.end = 0};

            while (run.end < part->n) {
                run = fl_sharded_next_run(s, j, part->key, part->which, run.end,
                                          part->n);
                if (visit)
                    visit(s, t, part, &run);
                s->done[run.owner * s->n_table + t] += run.end - run.begin;
            }
        }
    }
}

static fleet_status exchange_gradients(fl_sharded_tables *s, const fl_push *p)
{
    each_run(s, p, NULL);
    memcpy(s->to, s->done, (size_t)(s->n_rank * s->n_table) * sizeof *s->to);
    FL_TRY(fl_sharded_exchange_counts(s));
    FL_TRY(fl_sharded_reserve(s, &s->to_keys, s->to, fl_sharded_key_size));
    FL_TRY(fl_sharded_reserve(s, &s->to_rows, s->to, fl_sharded_grad_size));
    each_run(s, p, put_run);
    FL_TRY(fl_sharded_exchange_keys(s));
    FL_TRY(fl_sharded_reserve(s, &s->from_rows, s->from, fl_sharded_grad_size));
    return fl_sharded_exchange(s, &s->to_rows, &s->from_rows);
}

/* A rank's gradients of a table: the first of a key stays where it is, later
 * ones are added to it. */
static void add_rank(fl_sharded_tables *s, int rank, int table)
{
    bool is_own = rank == fl_sharded_rank(s);
    const uint64_t *key = fl_sharded_keys_of(s, rank, table);
    fl_sharded_sums *to = &s->sum[table];
    float *grad = fl_sharded_item(s, is_own ? &s->to_rows : &s->from_rows, rank,
                                  table, 0, fl_sharded_grad_size);
    const fl_rows *rows = s->table[table];
    int64_t n = s->from[rank * s->n_table + table];

    for (int64_t i = 0; i < n; i++, grad += fl_rows_pushed(rows)) {
        bool is_new;
        uint32_t at = fl_key_set_add(&to->set, key[i], &is_new);

        if (is_new) {
            to->grad[at] = grad;
            continue;
        }
        fl_simd_best()->add(to->grad[at], to->grad[at], grad, rows->dim);
        fl_add_pushed(rows, to->grad[at], to->grad[at], grad);
    }
}

static fleet_status sum_table(fl_sharded_tables *s, int table)
{
    int64_t n = 0;
    fl_sharded_sums *to = &s->sum[table];

    for (int r = 0; r < s->n_rank; r++)
        n += s->from[r * s->n_table + table];
    FL_TRY(fl_key_set_begin(&to->set, n));
    FL_TRY(fl_grow(&to->grad, &to->capacity, (size_t)n, sizeof *to->grad));
    for (int r = 0; r < s->n_rank; r++)
        add_rank(s, r, table);
    return FLEET_OK;
}

static fleet_status sum_up(fl_sharded_tables *s, const fl_push *p)
{
    FL_TRY(exchange_gradients(s, p));
    for (int t = 0; t < s->n_table; t++)
        FL_TRY(sum_table(s, t));
    return FLEET_OK;
}

/* n keys of a table from the i-th on. */
static fleet_status update_chunk(fl_sharded_tables *s, int table,
                                 const fl_update *u, int64_t i, int64_t n)
{
    const fl_sharded_sums *from = &s->sum[table];
    fl_rows *rows = s->table[table];
    fl_wanted_rows wanted = {0};
    fleet_status status = fl_rows_bring(&wanted, rows, from->set.key + i, n);

    if (status == FLEET_OK)
        status = rows->methods->make(rows, from->set.key + i, n, s->row);
    if (status == FLEET_OK)
        fl_rows_change(rows, s->store->optimizer, u, from->set.key + i, s->row,
                       (const float *const *)(void *)(from->grad + i), n);
    fl_wanted_rows_done(&wanted);
    return status;
}

/* A copy of the keys, from which some can be left out, of a table that needs
 * them; else NULL. */
static fleet_status copy_keys(fl_sharded_tables *s, const fl_rows *rows,
                              const fl_key_set *set, uint64_t **key)
{
    *key = NULL;
    if (!fl_rows_need_keys(rows))
        return FLEET_OK;
    FL_TRY(fl_grow(&s->key, &s->key_capacity, (size_t)set->n, sizeof *s->key));
    memcpy(s->key, set->key, (size_t)set->n * sizeof *s->key);
    *key = s->key;
    return FLEET_OK;
}

/* Of a table with a life, all keys at once: some keys without a row become
 * one, the gradients of the rest are dropped. */
static fleet_status update_admitted(fl_sharded_tables *s, int table,
                                    const fl_update *u)
{
    const fl_sharded_sums *from = &s->sum[table];
    const float **grad = (const float **)(void *)from->grad;
    fl_rows *rows = s->table[table];
    const fl_life_update life = {.rows = rows,
                                 .key = from->set.key,
                                 .grad = grad,
                                 .n = from->set.n,
                                 .version = u->version};
    fl_wanted_rows wanted = {0};
    fleet_status status;
    uint64_t *key;
    int64_t n;

    FL_TRY(copy_keys(s, rows, &from->set, &key));
    FL_TRY(fl_grow(&s->row, &s->row_capacity, (size_t)life.n, sizeof *s->row));
    status = fl_rows_bring(&wanted, rows, life.key, life.n);
    if (status == FLEET_OK)
        status = rows->methods->find(rows, life.key, life.n, s->row);
    if (status == FLEET_OK)
        status = fl_life_admit(&life, s->row);
    if (status == FLEET_OK) {
        n = fl_life_keep(s->row, grad, key, life.n);
        fl_rows_change(rows, s->store->optimizer, u, key, s->row, grad, n);
        if (fl_rows_has_accessor(rows))
            fl_accessor_update(rows, key, s->row, grad, n);
    }
    fl_wanted_rows_done(&wanted);
    return status;
}

static fleet_status update_table(fl_sharded_tables *s, int table,
                                 const fl_update *all)
{
    int64_t n = s->sum[table].set.n;
    fl_update u =
        fl_rows_update(s->table[table], all, (int64_t)all->version - 1);

    if (n > 0 && s->table[table]->life)
        return update_admitted(s, table, &u);
    FL_TRY(
        fl_grow(&s->row, &s->row_capacity, FL_SHARDED_CHUNK, sizeof *s->row));
    for (int64_t i = 0; i < n; i += FL_SHARDED_CHUNK)
        FL_TRY(
            update_chunk(s, table, &u, i,
                         n - i < FL_SHARDED_CHUNK ? n - i : FL_SHARDED_CHUNK));
    return FLEET_OK;
}

/* --- clip by global norm -------------------------------------------------
 *
 * In the order of runtime/passes/clip_global_norm.c. */

/* Of this rank's buckets; the other ranks' stay zero. */
static fleet_status square_table(fl_sharded_tables *s, int table, float scale)
{
    const fl_sharded_sums *from = &s->sum[table];
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

/* A bucket's sum is one rank's: with the other ranks' zeros it is the same in
 * any order. */
fleet_status fl_sharded_clip(fl_remote *x, const fl_push *p, fl_norm_list *all,
                             float *factor)
{
    fl_sharded_tables *s = fl_sharded_of(x);
    fl_comm *comm = s->agree->comm;
    int64_t n = (int64_t)s->n_table * FL_N_BUCKET;

    s->is_summed = false;
    FL_TRY(
        fl_grow(&s->square, &s->square_capacity, (size_t)n, sizeof *s->square));
    memset(s->square, 0, (size_t)n * sizeof *s->square);
    FL_TRY(sum_up(s, p));
    for (int t = 0; t < s->n_table; t++)
        FL_TRY(square_table(s, t, p->update->scale));
    FL_TRY(comm->methods->all_reduce(comm, FL_ALL_SUM, FL_WIRE_F64, s->square,
                                     s->square, n, NULL));
    for (int t = 0; t < s->n_table; t++)
        memcpy(fl_norm_list_of(all, s->table[t], &n),
               s->square + (size_t)t * FL_N_BUCKET,
               FL_N_BUCKET * sizeof *s->square);
    *factor = fl_norm_list_clip(all, s->store);
    s->is_summed = true;
    return FLEET_OK;
}

/* When all ranks have agreed on the update. */
fleet_status fl_sharded_push(fl_remote *x, const fl_push *p)
{
    fl_sharded_tables *s = fl_sharded_of(x);

    if (!s->is_summed)
        FL_TRY(sum_up(s, p));
    s->is_summed = false;
    for (int t = 0; t < s->n_table; t++)
        FL_TRY(update_table(s, t, p->update));
    return FLEET_OK;
}
