/* lookup_forward.c - the forward steps of a lookup on the host. */
#include "runtime/lookup/lookup.h"

#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/lookup/lookup_data.h"
#include "runtime/simd/simd.h"
#include "runtime/store/table.h"

/* Operands: the lookup first. */
enum { THE_LOOKUP, THE_TABLE, FIRST_IDS = 1 };

/* --- rows.split ---------------------------------------------------------- */

static fleet_status split_prepare(fl_instance *in)
{
    const fl_lookup_config *c = in->step->config;
    fl_lookup *k = fl_lookup_of(in);

    k->n_slice = (in->batch + in->slice - 1) / in->slice;
    if (c->ragged)
        FL_TRY(FL_NEW(&k->offsets, (size_t)c->n_feature * sizeof *k->offsets));
    return fl_grow(&k->bound, &k->bound_capacity,
                   (size_t)k->n_slice * (FL_N_PART + 1), sizeof *k->bound);
}

static void split_finish(fl_instance *in)
{
    fl_lookup_done(fl_lookup_of(in));
}

/* Room for n positions; several arrays share a capacity. */
static fleet_status position_room(fl_lookup *k, int64_t n)
{
    size_t capacity[4] = {k->capacity, k->capacity, k->capacity, k->capacity};

    FL_TRY(fl_grow(&k->key, &capacity[0], (size_t)n, sizeof *k->key));
    FL_TRY(fl_grow(&k->next, &capacity[1], (size_t)n, sizeof *k->next));
    FL_TRY(fl_grow(&k->order, &capacity[2], (size_t)n, sizeof *k->order));
    FL_TRY(fl_grow(&k->row, &capacity[3], (size_t)n, sizeof *k->row));
    k->capacity = capacity[0];
    return FLEET_OK;
}

static fleet_status split_begin(const fl_instance *in, int64_t batch)
{
    const fl_lookup_config *c = in->step->config;
    fl_lookup *k = fl_lookup_of(in);

    k->n = 0;
    for (int i = 0; i < c->n_feature; i++) {
        const fl_feature *feature = &c->feature[i];
        int64_t n = batch;

        if (feature->ragged) {
            k->offsets[i] =
                (const int64_t *)(const void *)in->arg[feature->ids].base[1];
            n = k->offsets[i][batch];
        }
        k->n += n;
    }
    if (k->n > INT32_MAX || batch * c->n_feature > INT32_MAX)
        return fl_fail(FLEET_EINVAL, "table \"%s\": too many ids in a batch",
                       c->table->name);
    if (c->ragged)
        FL_TRY(fl_grow(&k->cell, &k->cell_capacity, (size_t)k->n,
                       sizeof *k->cell));
    if (c->weighted)
        FL_TRY(fl_grow(&k->weight, &k->weight_capacity, (size_t)k->n,
                       sizeof *k->weight));
    if (c->n_max > 0)
        FL_TRY(fl_grow(&k->winner, &k->winner_capacity,
                       (size_t)(batch * c->n_max * c->table->shape.dim[1]),
                       sizeof *k->winner));
    return position_room(k, k->n);
}

/* The position of a sample's first id. */
static int64_t position_of(const fl_lookup *k, const fl_lookup_config *c,
                           int64_t sample)
{
    int64_t n = sample * c->n_feature;

    if (!c->ragged)
        return n;
    for (int i = 0; i < c->n_feature; i++)
        if (c->feature[i].ragged)
            n += k->offsets[i][sample] - sample;
    return n;
}

static uint64_t key_of(const fl_rows *rows, uint64_t id)
{
    return rows->modulo ? id % (uint64_t)rows->modulo : id;
}

/* Where feature i has its ids of a sample: [first, last). */
static int64_t first_id(const fl_instance *in, int i, int64_t row,
                        int64_t *last)
{
    const fl_lookup_config *c = in->step->config;
    const fl_feature *f = &c->feature[i];
    int64_t first = row * in->arg[f->ids].ld + f->column;

    if (f->ragged) {
        const int64_t *offsets = fl_lookup_of(in)->offsets[i];

        first = offsets[row];
        *last = offsets[row + 1];
    } else {
        *last = first + 1;
    }
    return first;
}

/* Ids that are checked are below the table's rows. */
static fleet_status check_ids(const fl_instance *in, const fl_range *r, int i)
{
    const fl_lookup_config *c = in->step->config;
    const fl_feature *f = &c->feature[i];
    const int64_t *id = (const int64_t *)fl_ptr(in, f->ids);
    int64_t rows = fl_lookup_of(in)->rows->modulo, last;

    for (int64_t row = r->begin; row < r->end; row++)
        for (int64_t j = first_id(in, i, row, &last); j < last; j++)
            if ((uint64_t)id[j] >= (uint64_t)rows)
                return fl_fail(
                    FLEET_EINVAL,
                    "table \"%s\": id %" PRId64 " of \"%s\" in row %" PRId64
                    " of the batch is not in [0, %" PRId64 ")",
                    c->table->name, id[j],
                    c->slot[f->ids - FIRST_IDS].ids->name, row, rows);
    return FLEET_OK;
}

/* The keys of rows [begin, end) of dense features, by position. */
static void keys_of_dense(const fl_instance *in, const fl_range *r)
{
    const fl_lookup_config *c = in->step->config;
    fl_lookup *k = fl_lookup_of(in);

    for (int i = 0; i < c->n_feature; i++) {
        const fl_arg *a = &in->arg[c->feature[i].ids];
        const uint64_t *id = (const uint64_t *)fl_ptr(in, c->feature[i].ids);
        uint64_t *key = k->key + r->begin * c->n_feature + i;

        id += r->begin * a->ld + c->feature[i].column;
        for (int64_t row = r->begin; row < r->end; row++) {
            *key = key_of(k->rows, *id);
            key += c->n_feature;
            id += a->ld;
        }
    }
}

/* Of a feature's n ids, from the first on. */
static void put_weights(const fl_instance *in, const fl_feature *f,
                        int64_t first, int64_t n, float *weight)
{
    const float *from =
        f->weights ? (const float *)fl_ptr(in, f->weights) + first : NULL;

    for (int64_t i = 0; i < n; i++)
        weight[i] = from ? from[i] : 1.0f;
}

static void keys_of_any(const fl_instance *in, const fl_range *r)
{
    const fl_lookup_config *c = in->step->config;
    fl_lookup *k = fl_lookup_of(in);
    int64_t at = position_of(k, c, r->begin);

    for (int64_t row = r->begin; row < r->end; row++)
        for (int i = 0; i < c->n_feature; i++) {
            const fl_feature *feature = &c->feature[i];
            const uint64_t *id = (const uint64_t *)fl_ptr(in, feature->ids);
            int64_t last, first = first_id(in, i, row, &last);

            if (c->weighted)
                put_weights(in, feature, first, last - first, k->weight + at);
            for (; first < last; first++, at++) {
                k->key[at] = key_of(k->rows, id[first]);
                k->cell[at] = (uint32_t)(row * c->n_feature + i);
            }
        }
}

/* Sort the slice's positions by part, keeping their order inside one. */
static void sort_by_part(fl_lookup *k, int64_t begin, int64_t end,
                         uint32_t *bound)
{
    uint32_t count[FL_N_PART] = {0}, at[FL_N_PART];

    for (int64_t i = begin; i < end; i++)
        count[fl_part_of(fl_mix(k->key[i]))]++;
    bound[0] = (uint32_t)begin;
    for (int p = 0; p < FL_N_PART; p++) {
        at[p] = bound[p];
        bound[p + 1] = bound[p] + count[p];
    }
    for (int64_t i = begin; i < end; i++)
        k->order[at[fl_part_of(fl_mix(k->key[i]))]++] = (uint32_t)i;
}

static fleet_status split_run(const fl_instance *in, const fl_range *r)
{
    const fl_lookup_config *c = in->step->config;
    fl_lookup *k = fl_lookup_of(in);

    for (int i = 0; c->table->ids.check && i < c->n_feature; i++)
        FL_TRY(check_ids(in, r, i));
    if (c->ragged)
        keys_of_any(in, r);
    else
        keys_of_dense(in, r);
    sort_by_part(k, position_of(k, c, r->begin), position_of(k, c, r->end),
                 k->bound + r->slice * (FL_N_PART + 1));
    return FLEET_OK;
}

const fl_kernel fl_kernel_rows_split = {
    .name = "rows.split",
    .on_host = true,
    .split = FL_SPLIT_ROWS,
    .prepare = split_prepare,
    .finish = split_finish,
    .begin = split_begin,
    .run = split_run,
};

/* --- rows.find; or rows.unique, and rows.place when they have come ------- */

static fleet_status find_prepare(fl_instance *in)
{
    fl_lookup *k = fl_lookup_of(in);

    k->rows = fl_ptr(in, THE_TABLE);
    return FLEET_OK;
}

static fleet_status part_room(fl_lookup_part *p, int64_t n)
{
    size_t capacity[4] = {p->capacity, p->capacity, p->capacity, p->capacity};

    FL_TRY(fl_grow(&p->head, &capacity[0], (size_t)n, sizeof *p->head));
    FL_TRY(fl_grow(&p->tail, &capacity[1], (size_t)n, sizeof *p->tail));
    FL_TRY(fl_grow(&p->row, &capacity[2], (size_t)n, sizeof *p->row));
    FL_TRY(fl_grow(&p->value, &capacity[3], (size_t)n, sizeof *p->value));
    p->capacity = capacity[0];
    return FLEET_OK;
}

/* Number the keys, and chain the positions of each in their order. */
static void chain_keys(fl_lookup *k, fl_lookup_part *p, int part,
                       int64_t n_slice)
{
    for (int64_t s = 0; s < n_slice; s++) {
        const uint32_t *bound = k->bound + s * (FL_N_PART + 1) + part;

        for (uint32_t i = bound[0]; i < bound[1]; i++) {
            uint32_t at = k->order[i], u;
            bool is_new;

            u = fl_key_set_add(&p->keys, k->key[at], &is_new);
            if (is_new)
                p->head[u] = at;
            else
                k->next[p->tail[u]] = at + 1;
            p->tail[u] = at;
            k->next[at] = 0;
        }
    }
}

/* What an unknown row reads as: its initial value, but in a predictor whose
 * table says otherwise. */
static fleet_status unknown_row(const fl_lookup_config *c, fl_rows *rows,
                                uint64_t key, float *out)
{
    const fl_table_ids *ids = &c->table->ids;
    fleet_fresh fresh = c->predicts ? ids->fresh : FLEET_FRESH_INITIAL;
    float *row = NULL;

    if (fresh == FLEET_FRESH_ZEROS) {
        memset(out, 0, (size_t)rows->dim * sizeof *out);
        return FLEET_OK;
    }
    if (fresh == FLEET_FRESH_ROW) {
        key = key_of(rows, (uint64_t)ids->default_id);
        FL_TRY(rows->methods->find(rows, &key, 1, &row));
    }
    if (row)
        fl_rows_read(rows, out, row);
    else
        fl_rows_unknown(rows, key, out);
    return FLEET_OK;
}

static fleet_status fill_unknown(const fl_lookup_config *c, fl_lookup *k,
                                 fl_lookup_part *p)
{
    int64_t dim = k->rows->dim;
    bool in_place = fl_rows_are_floats(k->rows) && !k->lock;
    size_t n = 0;

    for (int64_t u = 0; u < p->keys.n; u++)
        n += !in_place || p->row[u] == NULL;
    FL_TRY(fl_grow(&p->fresh, &p->fresh_capacity, n * (size_t)dim,
                   sizeof *p->fresh));
    n = 0;
    for (int64_t u = 0; u < p->keys.n; u++) {
        p->value[u] = p->row[u];
        if (in_place && p->row[u])
            continue;
        float *fresh = p->fresh + (int64_t)n++ * dim;
        if (p->row[u])
            fl_rows_read(k->rows, fresh, p->row[u]);
        else
            FL_TRY(unknown_row(c, k->rows, p->keys.key[u], fresh));
        p->value[u] = fresh;
    }
    return FLEET_OK;
}

static void point_positions(fl_lookup *k, const fl_lookup_part *p)
{
    for (int64_t u = 0; u < p->keys.n; u++) {
        uint32_t at = p->head[u] + 1;

        while (at) {
            k->row[at - 1] = p->value[u];
            at = k->next[at - 1];
        }
    }
}

static fleet_status unique_run(const fl_instance *in, const fl_range *r)
{
    fl_lookup *k = fl_lookup_of(in);
    int part = (int)r->begin;
    fl_lookup_part *p = &k->part[part];
    int64_t n_slice = (r->batch + in->slice - 1) / in->slice, n = 0;

    for (int64_t s = 0; s < n_slice; s++) {
        const uint32_t *bound = k->bound + s * (FL_N_PART + 1) + part;

        n += bound[1] - bound[0];
    }
    FL_TRY(fl_key_set_begin(&p->keys, n));
    FL_TRY(part_room(p, n));
    chain_keys(k, p, part, n_slice);
    return FLEET_OK;
}

const fl_kernel fl_kernel_rows_unique = {
    .name = "rows.unique",
    .on_host = true,
    .split = FL_SPLIT_PARTS,
    .n_part = FL_N_PART,
    .prepare = find_prepare,
    .run = unique_run,
};

/* The rows of a part, and what is read of them. */
static fleet_status find_values(const fl_lookup_config *c, fl_lookup *k,
                                fl_lookup_part *p)
{
    FL_TRY(fl_rows_bring(&p->wanted, k->rows, p->keys.key, p->keys.n));
    FL_TRY(fl_lookup_find(k, p));
    return fill_unknown(c, k, p);
}

static fleet_status find_run(const fl_instance *in, const fl_range *r)
{
    fl_lookup *k = fl_lookup_of(in);
    fl_lookup_part *p = &k->part[r->begin];
    fleet_status status;

    fl_wanted_rows_done(&p->wanted);
    FL_TRY(unique_run(in, r));
    fl_lookup_lock(k, (int)r->begin);
    status = find_values(in->step->config, k, p);
    fl_lookup_unlock(k, (int)r->begin);
    FL_TRY(status);
    point_positions(k, p);
    return FLEET_OK;
}

const fl_kernel fl_kernel_rows_find = {
    .name = "rows.find",
    .on_host = true,
    .split = FL_SPLIT_PARTS,
    .n_part = FL_N_PART,
    .prepare = find_prepare,
    .run = find_run,
};

static fleet_status place_run(const fl_instance *in, const fl_range *r)
{
    fl_lookup *k = fl_lookup_of(in);

    point_positions(k, &k->part[r->begin]);
    return FLEET_OK;
}

const fl_kernel fl_kernel_rows_place = {
    .name = "rows.place",
    .on_host = true,
    .split = FL_SPLIT_PARTS,
    .n_part = FL_N_PART,
    .run = place_run,
};

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

static void gather_ragged(const fl_instance *in, const fl_range *r,
                          float *const *out, const int64_t *ld)
{
    const fl_lookup_config *c = in->step->config;
    const fl_lookup *k = fl_lookup_of(in);
    cell_rows cell = {.k = k, .at = position_of(k, c, r->begin)};

    for (int64_t row = r->begin; row < r->end; row++)
        for (int i = 0; i < c->n_feature; i++) {
            const fl_feature *f = &c->feature[i];
            int64_t nth = row * c->n_max + f->nth_max;

            cell.weighted = f->weights > 0;
            cell.n =
                f->ragged ? k->offsets[i][row + 1] - k->offsets[i][row] : 1;
            combine_rows(&cell, f->combiner, out[i] + (row - r->begin) * ld[i],
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
