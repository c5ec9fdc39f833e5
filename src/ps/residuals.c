/* residuals.c - residuals of blocks in arrays, of rows in tables without
 * states; and the list of what the push that is being made will leave. */
#include "ps/residuals.h"

#include <string.h>

#include "base/memory.h"
#include "runtime/simd/simd.h"
#include "runtime/store/table.h"

/* Numbers of the push that is being made, and where they are kept. */
typedef struct pending {
    float *residual;
    const float *values;
    int64_t n;
} pending;

struct fl_residuals {
    const fl_partition *layout;
    float **param;   /* by the partition: as many as the parameter has */
    fl_rows **table; /* the same: without states */
    pending *pending;
    int64_t n_pending;
    size_t capacity;
    float **row;
    size_t row_capacity;
};

static fleet_status make_param(const fl_param *p, float **residual)
{
    return FL_NEW(residual, (size_t)p->n * sizeof **residual);
}

static fleet_status make_rows(const fl_rows *of, fl_rows **rows)
{
    static const fl_filler zero = {.kind = FLEET_INIT_CONSTANT};

    return fl_table_make(of->name, of->dim, 0, &zero, rows);
}

fleet_status fl_residuals_create(fl_residuals **residuals,
                                 const fl_partition *layout)
{
    fl_residuals *r;
    fleet_status status;

    *residuals = NULL;
    FL_TRY(FL_NEW(&r, sizeof *r));
    r->layout = layout;
    status =
        FL_NEW(&r->param, ((size_t)layout->n_param + 1) * sizeof *r->param);
    if (status == FLEET_OK)
        status =
            FL_NEW(&r->table, ((size_t)layout->n_table + 1) * sizeof *r->table);
    for (int i = 0; i < layout->n_param && status == FLEET_OK; i++)
        status = make_param(layout->param[i], &r->param[i]);
    for (int i = 0; i < layout->n_table && status == FLEET_OK; i++)
        status = make_rows(layout->table[i], &r->table[i]);
    if (status != FLEET_OK) {
        fl_residuals_destroy(r);
        return status;
    }
    *residuals = r;
    return FLEET_OK;
}

void fl_residuals_destroy(fl_residuals *r)
{
    if (!r)
        return;
    for (int i = 0; r->param && i < r->layout->n_param; i++)
        fl_free(r->param[i]);
    for (int i = 0; r->table && i < r->layout->n_table; i++)
        if (r->table[i])
            r->table[i]->methods->destroy(r->table[i]);
    fl_free(r->param);
    fl_free(r->table);
    fl_free(r->pending);
    fl_free(r->row);
    fl_free(r);
}

void fl_residuals_begin(fl_residuals *r)
{
    r->n_pending = 0;
}

/* Room for n more. */
static fleet_status make_room_pending(fl_residuals *r, int64_t n)
{
    return fl_grow(&r->pending, &r->capacity, (size_t)(r->n_pending + n),
                   sizeof *r->pending);
}

static void add_residual(fl_residuals *r, float *residual, float *values,
                         int64_t n)
{
    fl_simd_best()->add(values, values, residual, n);
    r->pending[r->n_pending++] = (pending){residual, values, n};
}

fleet_status fl_residuals_add_block(fl_residuals *r, uint64_t key,
                                    float *values, int64_t n)
{
    int64_t first = (int64_t)(key & UINT32_MAX) * FL_BLOCK;

    FL_TRY(make_room_pending(r, 1));
    add_residual(r, r->param[key >> 32] + first, values, n);
    return FLEET_OK;
}

fleet_status fl_residuals_add_rows(fl_residuals *r, int table,
                                   const uint64_t *key, float *values,
                                   int64_t n)
{
    fl_rows *rows = r->table[table];

    FL_TRY(make_room_pending(r, n));
    FL_TRY(fl_grow(&r->row, &r->row_capacity, (size_t)n, sizeof *r->row));
    FL_TRY(rows->methods->make(rows, key, n, r->row));
    for (int64_t i = 0; i < n; i++)
        add_residual(r, r->row[i], values + i * rows->dim, rows->dim);
    return FLEET_OK;
}

void fl_residuals_keep(fl_residuals *r)
{
    for (int64_t i = 0; i < r->n_pending; i++) {
        const pending *p = &r->pending[i];

        memcpy(p->residual, p->values, (size_t)p->n * sizeof *p->values);
    }
    r->n_pending = 0;
}

void fl_residuals_forget(fl_residuals *r)
{
    if (!r)
        return;
    r->n_pending = 0;
    for (int i = 0; i < r->layout->n_param; i++)
        memset(r->param[i], 0, (size_t)r->layout->param[i]->n * sizeof(float));
    for (int i = 0; i < r->layout->n_table; i++)
        r->table[i]->methods->clear(r->table[i]);
}
