/* narrow_rows.h - rows whose weights are not float32, changed: read into
 * floats, updated by the rule, and rounded at random. States are float32. */
#pragma once

#include "runtime/optim/optimizer.h"
#include "runtime/simd/row_storage.h"

typedef struct fl_narrow_rows {
    fleet_row_storage storage;
    int64_t dim, n_float; /* floats behind the weights */
    uint64_t seed;        /* of the table */
} fl_narrow_rows;

/* What the bits of a row's rounding are drawn from: the same in one process,
 * and wherever the row is. */
uint64_t fl_rounding_seed(uint64_t table, uint64_t key, uint64_t version);

/* Bring the bounds of weights inward, to numbers that the storage keeps, so
 * that no rounding leaves the bounds. Of 8 bits the numbers are a row's whose
 * largest weight has that size. false: it keeps none within the bounds. */
bool fl_narrow_bounds(fleet_row_storage s, float size, float *low, float *high);

/* n rows, record by record as a table has them, by optimizer o; key[i] is
 * w[i]'s.
 */
void fl_narrow_change(const fl_narrow_rows *rows, const fleet_optimizer *o,
                      const fl_update *u, const uint64_t *key, float *const *w,
                      const float *const *g, int64_t n);
