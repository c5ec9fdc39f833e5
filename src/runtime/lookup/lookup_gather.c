/* lookup_gather.c - the last forward step of a lookup on the host: rows become
 * outputs. */
#include "runtime/lookup/lookup.h"

#include <string.h>

#include "runtime/lookup/lookup_data.h"
#include "runtime/simd/simd.h"

/* --- rows.gather --------------------------------------------------------- */

static fleet_status gather_prepare(fl_instance *in)
{
    const fl_lookup_config *c = in->step->config;

    in->scratch_size =
        (size_t)c->n_feature * (sizeof(float *) + sizeof(int64_t));
    return FLEET_OK;
}

/* The n rows of a cell, from a position on. */
typedef struct cell_rows {
    const fl_lookup *k;
    int64_t at, n;
    bool weighted;
} cell_rows;

static void sum_rows(const cell_rows *c, float *out)
{
    const fl_simd *simd = fl_simd_best();
    const float *const *row = c->k->row + c->at;
    const float *w = c->weighted ? c->k->weight + c->at : NULL;
    int64_t dim = c->k->rows->dim;

    if (w)
        simd->scale(out, row[0], w[0], 0.0f, dim);
    else
        memcpy(out, row[0], (size_t)dim * sizeof *out);
    for (int64_t i = 1; i < c->n; i++) {
        if (w)
            simd->add_scaled(out, row[i], w[i], 0.0f, dim);
        else
            simd->add(out, out, row[i], dim);
    }
}

/* Of equal numbers the first wins. */
static void max_rows(const cell_rows *c, float *out, uint32_t *winner)
{
    int64_t dim = c->k->rows->dim;

    for (int64_t i = 0; i < c->n; i++) {
        const float *row = c->k->row[c->at + i];
        const float w = c->weighted ? c->k->weight[c->at + i] : 1.0f;

        for (int64_t j = 0; j < dim; j++) {
            float x = w * row[j];
            bool wins = i == 0 || x > out[j];

            out[j] = wins ? x : out[j];
            winner[j] = wins ? (uint32_t)(c->at + i) : winner[j];
        }
    }
}

/* winner: of a maximum. */
static void combine_rows(const cell_rows *c, fleet_combiner combiner,
                         float *out, uint32_t *winner)
{
    int64_t dim = c->k->rows->dim;
    float factor = fl_combiner_factor(combiner, c->n);

    if (c->n == 0) {
        memset(out, 0, (size_t)dim * sizeof *out);
        return;
    }
    if (combiner == FLEET_MAX)
        max_rows(c, out, winner);
    else
        sum_rows(c, out);
    if (factor != 1.0f)
        fl_simd_best()->scale(out, out, factor, 0.0f, dim);
}

/* Side by side, then zeros. */
static void pad_rows(const cell_rows *c, int64_t most, float *out)
{
    int64_t dim = c->k->rows->dim;
    cell_rows one = *c;

    one.n = 1;
    for (int64_t i = 0; i < c->n; i++, one.at++, out += dim)
        sum_rows(&one, out);
    memset(out, 0, (size_t)((most - c->n) * dim) * sizeof *out);
}

static void gather_ragged(const fl_instance *in, const fl_range *r,
                          float *const *out, const int64_t *ld)
{
    const fl_lookup_config *c = in->step->config;
    const fl_lookup *k = fl_lookup_of(in);
    cell_rows cell = {.k = k, .at = fl_lookup_position(k, c, r->begin)};

    for (int64_t row = r->begin; row < r->end; row++)
        for (int i = 0; i < c->n_feature; i++) {
            const fl_feature *f = &c->feature[i];
            int64_t nth = row * c->n_max + f->nth_max;
            float *to;

            cell.weighted = f->weights > 0;
            cell.n =
                f->ragged ? k->offsets[i][row + 1] - k->offsets[i][row] : 1;
            to = out[i] + (row - r->begin) * ld[i];
            if (f->most > 0)
                pad_rows(&cell, f->most, to);
            else
                combine_rows(&cell, f->combiner, to,
                             c->n_max ? k->winner + nth * k->rows->dim : NULL);
            cell.at += cell.n;
        }
}

static fleet_status gather_run(const fl_instance *in, const fl_range *r)
{
    const fl_lookup_config *c = in->step->config;
    const fl_lookup *k = fl_lookup_of(in);
    float **out = r->scratch;
    int64_t *ld = (int64_t *)(void *)(out + c->n_feature);

    for (int i = 0; i < c->n_feature; i++) { /* where its part begins */
        out[i] =
            fl_rows_f32(in, c->feature[i].out, r) + c->feature[i].out_column;
        ld[i] = in->arg[c->feature[i].out].ld;
    }
    if (c->ragged)
        gather_ragged(in, r, out, ld);
    else
        fl_simd_best()->gather(&(fl_gather_args){
            .out = out,
            .ld = ld,
            .row = k->row + r->begin * c->n_feature,
            .n = r->end - r->begin,
            .n_feature = c->n_feature,
            .dim = k->rows->dim,
        });
    return FLEET_OK;
}

const fl_kernel fl_kernel_rows_gather = {
    .name = "rows.gather",
    .on_host = true,
    .split = FL_SPLIT_ROWS,
    .prepare = gather_prepare,
    .run = gather_run,
};
