/* unit_apply.c - a unit applied, its norms, and reads; see unit.h. */
#include "ps/unit.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/simd.h"

enum { KEYS = 1, CHUNK = 1024 };

/* --- norms: in the order of runtime/clip.c -------------------------------- */

static double square_sum(const float *grad, int64_t n, float scale)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) {
        double x = (double)(grad[i] * scale);

        sum += x * x;
    }
    return sum;
}

int64_t fl_unit_most_norm(const fl_unit *u)
{
    return u->n_block +
           (int64_t)u->layout->n_table * (u->own.end - u->own.first);
}

typedef struct norm_row {
    uint64_t key;
    const float *grad;
    int bucket;
} norm_row;

static int by_bucket_and_key(const void *a, const void *b)
{
    const norm_row *x = a, *y = b;

    if (x->bucket != y->bucket)
        return x->bucket < y->bucket ? -1 : 1;
    return x->key < y->key ? -1 : x->key > y->key;
}

static norm_row *sorted_rows(const fl_unit_rows *t)
{
    norm_row *row = fl_alloc_array((size_t)t->n + 1, sizeof *row);

    for (int64_t i = 0; row && i < t->n; i++)
        row[i] =
            (norm_row){t->key[i], t->grad[i], fl_bucket_of(fl_mix(t->key[i]))};
    if (row && t->n > 1)
        qsort(row, (size_t)t->n, sizeof *row, by_bucket_and_key);
    return row;
}

static fleet_status table_norms(const fl_unit *u, int table, float scale,
                                uint64_t *key, double *sum, int64_t *n)
{
    const fl_unit_rows *t = &u->table[table];
    int64_t dim = u->layout->table[table]->dim;
    norm_row *row = sorted_rows(t);

    if (!row)
        return FLEET_ENOMEM;
    for (int64_t i = 0; i < t->n; i++) {
        if (i == 0 || row[i].bucket != row[i - 1].bucket) {
            key[*n] = (uint64_t)(u->layout->n_param + table) << 32 |
                      (uint64_t)row[i].bucket;
            sum[(*n)++] = 0;
        }
        sum[*n - 1] += square_sum(row[i].grad, dim, scale);
    }
    fl_free(row);
    return FLEET_OK;
}

fleet_status fl_unit_norms(fl_unit *u, float scale, uint64_t *key, double *sum,
                           int64_t *n)
{
    *n = 0;
    for (int i = 0; i < u->n_block; i++) {
        const fl_unit_block *b = &u->block[i];

        if (!b->grad)
            continue;
        key[*n] = (uint64_t)b->number << 32 | (uint64_t)b->block;
        sum[(*n)++] = square_sum(b->grad, b->n, scale);
    }
    for (int i = 0; i < u->layout->n_table; i++)
        FL_TRY(table_norms(u, i, scale, key, sum, n));
    return FLEET_OK;
}

/* --- applying ------------------------------------------------------------- */

static fl_update with_attr(const fl_update *all, const fleet_param_attr *a)
{
    fl_update u = *all;

    if (a->learning_rate > 0)
        u.lr *= a->learning_rate;
    if (a->l2_decay > 0)
        u.decay = a->l2_decay;
    if (a->no_decay)
        u.decay = 0;
    return u;
}

static void apply_block(const fleet_optimizer *o, const fl_update *all,
                        const fl_unit_block *b)
{
    const fl_param *p = b->param;
    fl_update u = with_attr(all, &p->attr);
    int64_t at = p->offset + b->block * FL_BLOCK;
    float *state[FL_MAX_STATE] = {NULL};

    for (int i = 0; i < FL_MAX_STATE; i++)
        if (p->group->state[i])
            state[i] = p->group->state[i] + at;
    fl_optimizer_dense(o)(&u, p->group->weight + at, b->grad, state, b->n);
}

/* In chunks, so that rows that were found are still near when they change. */
static fleet_status apply_rows(const fleet_optimizer *o, const fl_update *all,
                               fl_unit_rows *t, fl_rows *rows)
{
    fl_update u = with_attr(all, &rows->attr);

    for (int64_t i = 0; i < t->n; i += CHUNK) {
        int64_t n = t->n - i < CHUNK ? t->n - i : CHUNK;

        FL_TRY(rows->methods->make(rows, t->key + i, n, t->target + i));
        fl_optimizer_rows(o)(&u, t->target + i, t->grad + i, n, rows->dim);
    }
    return FLEET_OK;
}

fleet_status fl_unit_apply(fl_unit *u, int64_t done, uint32_t n_batch,
                           float clip)
{
    const fleet_optimizer *o = u->layout->store->optimizer;
    fl_update all = {0};

    fl_optimizer_update(o, done, (int)n_batch, true, &all);
    if (u->has_rate)
        all.lr = u->learning_rate;
    all.clip = clip;
    for (int i = 0; i < u->n_block; i++)
        if (u->block[i].grad)
            apply_block(o, &all, &u->block[i]);
    for (int i = 0; i < u->layout->n_table; i++)
        FL_TRY(apply_rows(o, &all, &u->table[i], u->layout->table[i]));
    return FLEET_OK;
}

/* --- reading -------------------------------------------------------------- */

static uint64_t key_at(const fl_frame *keys, int64_t i)
{
    uint64_t key;

    memcpy(&key, (const char *)keys->data + (size_t)i * sizeof key, sizeof key);
    return key;
}

static fleet_status read_dense(const fl_unit *u, const fl_section *s,
                               const fl_frame *column, fl_msg_writer *w)
{
    size_t bytes = 0;
    char *out;

    for (uint32_t i = 0; i < s->n_key; i++) {
        uint64_t key = key_at(&column[KEYS], i);

        bytes += (size_t)fl_block_size(u->layout->param[key >> 32],
                                       (int64_t)(key & UINT32_MAX)) *
                 sizeof(float);
    }
    out = fl_msg_column(w, FL_COLUMN_VALUES, bytes);
    for (uint32_t i = 0; out && i < s->n_key; i++) {
        uint64_t key = key_at(&column[KEYS], i);
        const fl_param *p = u->layout->param[key >> 32];
        int64_t block = (int64_t)(key & UINT32_MAX);
        size_t n = (size_t)fl_block_size(p, block) * sizeof(float);

        memcpy(out, p->group->weight + p->offset + block * FL_BLOCK, n);
        out += n;
    }
    return w->status;
}

/* Rows of a chunk that nobody has made read as their first values. */
static void copy_rows(const fl_rows *rows, const uint64_t *key,
                      float *const *row, int64_t n, float *out)
{
    enum { AHEAD = 16 };
    size_t bytes = (size_t)rows->dim * sizeof *out;

    for (int64_t i = 0; i < n; i++, out += rows->dim) {
        if (i + AHEAD < n && row[i + AHEAD])
            __builtin_prefetch(row[i + AHEAD]);
        if (row[i])
            memcpy(out, row[i], bytes);
        else
            fl_filler_row(&rows->filler, key[i], out, rows->dim);
    }
}

static fleet_status read_rows(const fl_unit *u, const fl_section *s,
                              const fl_frame *column, fl_msg_writer *w)
{
    fl_rows *rows = u->layout->table[s->table];
    size_t row_bytes = (size_t)rows->dim * sizeof(float);
    uint64_t key[CHUNK / 4];
    float *row[CHUNK / 4];
    char *out = fl_msg_column(w, FL_COLUMN_VALUES, s->n_key * row_bytes);

    for (int64_t i = 0; out && i < s->n_key; i += CHUNK / 4) {
        int64_t n = s->n_key - i < CHUNK / 4 ? s->n_key - i : CHUNK / 4;

        memcpy(key, (const char *)column[KEYS].data + (size_t)i * sizeof *key,
               (size_t)n * sizeof *key);
        FL_TRY(rows->methods->find(rows, key, n, row));
        copy_rows(rows, key, row, n,
                  (float *)(void *)(out + (size_t)i * row_bytes));
    }
    return w->status;
}

fleet_status fl_unit_read(const fl_unit *u, const fl_section *s,
                          const fl_frame *column, fl_msg_writer *w)
{
    fl_section *to = fl_msg_section(w, (fl_msg_op)s->op, s->table);

    if (!to)
        return w->status;
    to->n_key = s->n_key;
    return s->op == FL_OP_DENSE ? read_dense(u, s, column, w)
                                : read_rows(u, s, column, w);
}
