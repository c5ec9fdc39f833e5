/* staged_rows.c - rows of the next part of a pass, copied beside training. */
#include "runtime/working_set/staged_rows.h"

#include "base/memory.h"
#include "runtime/lookup/wanted_rows.h"

static int64_t some_of(int64_t n)
{
    return n < FL_ROWS_AT_ONCE ? n : FL_ROWS_AT_ONCE;
}

static fleet_status visit_found(fl_rows *rows, const uint64_t *key, int64_t n,
                                fl_row_visitor *visit, void *arg)
{
    float *row[FL_ROWS_AT_ONCE];

    FL_TRY(rows->methods->find(rows, key, n, row));
    for (int64_t i = 0; i < n; i++)
        if (row[i])
            FL_TRY(visit(arg, fl_bucket_of(fl_mix(key[i])), key[i], row[i]));
    return FLEET_OK;
}

fleet_status fl_rows_visit_first(fl_rows *rows, const uint64_t *key, int64_t n,
                                 fl_row_visitor *visit, void *arg)
{
    int64_t now = some_of(n), next = some_of(n - now);
    fl_wanted_rows w = {0};
    fleet_status status = fl_rows_bring(&w, rows, key, now);

    if (status == FLEET_OK) {
        if (rows->methods->expect && next > 0)
            rows->methods->expect(rows, key + now, next);
        status = visit_found(rows, key, now, visit, arg);
    }
    fl_wanted_rows_done(&w);
    return status;
}

/* --- staging -------------------------------------------------------------- */

/* Keys that the GPU has rows of, or will make, go to the end. */
static fleet_status sort_keys(fl_staged_rows *n, const fl_pass_keys *now)
{
    int64_t all = fl_pass_keys_count(&n->keys), end = all;

    FL_TRY(fl_grow(&n->key, &n->key_capacity, (size_t)all, sizeof *n->key));
    n->n_fresh = 0;
    for (int p = 0; p < FL_N_PART; p++) {
        const fl_key_set *set = &n->keys.part[p];

        for (int64_t i = 0; i < set->n; i++) {
            bool is_shared = fl_key_set_has(&now->part[p], set->key[i]);

            n->key[is_shared ? --end : n->n_fresh++] = set->key[i];
        }
    }
    n->n_shared = all - n->n_fresh;
    return FLEET_OK;
}

typedef struct staging {
    fl_staged_rows *to;
    const fl_rows *rows;
    int64_t stride;
} staging;

static fleet_status stage_row(void *arg, int bucket, uint64_t key,
                              const float *weights)
{
    staging *s = arg;
    fl_staged_rows *n = s->to;

    (void)bucket;
    fl_table_gpu_write_row(s->rows, n->staged + n->n_staged * s->stride, key,
                           weights);
    n->n_staged++;
    return FLEET_OK;
}

static fleet_status stage_rows(fl_staged_rows *n, fl_store *s, fl_rows *rows,
                               const atomic_bool *stop)
{
    staging to = {n, rows, fl_table_gpu_stride(rows)};
    fleet_status status = FLEET_OK;

    for (int64_t i = 0; i < n->n_fresh && status == FLEET_OK;
         i += FL_ROWS_AT_ONCE) {
        if (atomic_load(stop))
            return FLEET_OK;
        pthread_rwlock_wrlock(&s->lock);
        status = fl_rows_visit_first(rows, n->key + i, n->n_fresh - i,
                                     stage_row, &to);
        pthread_rwlock_unlock(&s->lock);
    }
    n->is_staged = status == FLEET_OK;
    return status;
}

fleet_status fl_staged_rows_stage(fl_staged_rows *n, const fl_pass_keys *now,
                                  fl_store *s, fl_rows *rows,
                                  const atomic_bool *stop)
{
    n->is_staged = false;
    n->n_staged = 0;
    n->written = fl_store_times_written(s);
    FL_TRY(sort_keys(n, now));
    FL_TRY(fl_grow(&n->staged, &n->staged_capacity,
                   (size_t)(n->n_fresh * fl_table_gpu_stride(rows)), 1));
    return stage_rows(n, s, rows, stop);
}

void fl_staged_rows_done(fl_staged_rows *n)
{
    fl_pass_keys_done(&n->keys);
    fl_free(n->key);
    fl_free(n->staged);
    *n = (fl_staged_rows){0};
}
