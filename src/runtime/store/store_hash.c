/* store_hash.c - params_hash: one number for all that was trained. */
#include <string.h>

#include "base/memory.h"
#include "runtime/store/store.h"
#include "runtime/store/store_check.h"
#include "runtime/store/store_hash.h"

static void hash_param(fl_hasher *h, const fl_param *p)
{
    uint32_t rank = (uint32_t)p->shape.n_dim;

    fl_hasher_add(h, p->name, strlen(p->name) + 1);
    fl_hasher_add(h, &rank, sizeof rank);
    fl_hasher_add(h, p->shape.dim, rank * sizeof p->shape.dim[0]);
    fl_hasher_add(h, p->flat->weight + p->offset, (size_t)p->n * sizeof(float));
}

typedef struct row_sum {
    uint64_t sum;
    const fl_rows *rows;
} row_sum;

static fleet_status add_row(void *arg, int bucket, uint64_t key,
                            const float *row)
{
    row_sum *s = arg;
    const float *shown =
        fl_rows_has_accessor(s->rows) ? fl_rows_shown(s->rows, row) : NULL;
    float w[FL_MOST_NARROW_DIM];
    fl_hasher h;

    (void)bucket;
    fl_hasher_init(&h, 0);
    fl_hasher_add(&h, &key, sizeof key);
    if (!fl_rows_are_floats(s->rows)) {
        fl_rows_read(s->rows, w, row);
        row = w;
    }
    fl_hasher_add(&h, row, (size_t)s->rows->dim * sizeof *row);
    if (shown)
        fl_hasher_add(&h, shown, FL_N_ACCESSOR * sizeof *shown);
    s->sum += fl_hasher_end(&h);
    return FLEET_OK;
}

fleet_status fl_store_hash_rows(const fl_rows *r, uint64_t *sum)
{
    row_sum s = {0, r};
    fleet_status status = r->methods->each(r, add_row, &s);

    *sum = s.sum;
    return status;
}

static fleet_status hash_all(fl_store *s, const fl_map_entry *params,
                             const fl_map_entry *tables,
                             fl_rows_hasher *hash_rows, void *arg,
                             uint64_t *hash)
{
    fl_hasher h;

    FL_TRY(fl_store_whole(s));
    FL_TRY(fl_store_check_weights(s));
    FL_TRY(fl_store_to_host(s));
    fl_hasher_init(&h, 0);
    for (size_t i = 0; i < s->params.n; i++)
        hash_param(&h, params[i].value);
    for (size_t i = 0; i < s->tables.n; i++) {
        const fl_rows *r = tables[i].value;
        uint64_t sum;

        FL_TRY(hash_rows ? hash_rows(arg, r, &sum)
                         : fl_store_hash_rows(r, &sum));
        fl_hasher_add(&h, r->name, strlen(r->name) + 1);
        fl_hasher_add(&h, &sum, sizeof sum);
    }
    *hash = fl_hasher_end(&h);
    return FLEET_OK;
}

fleet_status fl_store_hash(fl_store *s, fl_rows_hasher *hash_rows, void *arg,
                           uint64_t *hash)
{
    fl_map_entry *params, *tables;
    fleet_status status = FLEET_ENOMEM;

    params = fl_map_sorted(&s->params);
    tables = fl_map_sorted(&s->tables);
    if (params && tables)
        status = hash_all(s, params, tables, hash_rows, arg, hash);
    fl_free(params);
    fl_free(tables);
    return status;
}
