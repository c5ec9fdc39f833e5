/* lookup_forward.c - the forward steps of a lookup on the host, up to where its
 * rows are known; lookup_gather.c has the last one. */
#include "runtime/lookup/lookup.h"

#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/lookup/lookup_data.h"
#include "runtime/lookup/unknown_row.h"
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

/* Offsets of the ids as they were fed. */
static const int64_t *fed_offsets(const fl_instance *in, const fl_feature *f)
{
    return (const int64_t *)(const void *)in->arg[f->ids].base[1];
}

static void keep_most(int64_t *kept, const int64_t *fed, int64_t most,
                      int64_t batch)
{
    kept[0] = 0;
    for (int64_t i = 0; i < batch; i++) {
        int64_t n = fed[i + 1] - fed[i];

        kept[i + 1] = kept[i] + (n < most ? n : most);
    }
}

/* The features' ids in this batch; what padded ones keep of them. */
static fleet_status count_ids(const fl_instance *in, int64_t batch)
{
    const fl_lookup_config *c = in->step->config;
    fl_lookup *k = fl_lookup_of(in);
    int64_t *kept;

    FL_TRY(fl_grow(&k->kept, &k->kept_capacity,
                   (size_t)(c->n_padded * (batch + 1)), sizeof *k->kept));
    kept = k->kept;
    k->n = 0;
    for (int i = 0; i < c->n_feature; i++) {
        const fl_feature *f = &c->feature[i];

        if (f->ragged)
            k->offsets[i] = fed_offsets(in, f);
        if (f->most > 0) {
            keep_most(kept, k->offsets[i], f->most, batch);
            k->offsets[i] = kept;
            kept += batch + 1;
        }
        k->n += f->ragged ? k->offsets[i][batch] : batch;
    }
    return FLEET_OK;
}

static fleet_status split_begin(const fl_instance *in, int64_t batch)
{
    const fl_lookup_config *c = in->step->config;
    fl_lookup *k = fl_lookup_of(in);

    FL_TRY(count_ids(in, batch));
    if (k->n > INT32_MAX || batch * c->n_feature > INT32_MAX)
        return fl_fail(FLEET_EINVAL, "table \"%s\": too many ids in a batch",
                       c->table->name);
    if (c->ragged)
        FL_TRY(fl_grow(&k->cell, &k->cell_capacity, (size_t)k->n,
                       sizeof *k->cell));
    if (c->weighted)
        FL_TRY(fl_grow(&k->weight, &k->weight_capacity, (size_t)k->n,
                       sizeof *k->weight));
    if (c->n_padded > 0)
        FL_TRY(fl_grow(&k->place, &k->place_capacity, (size_t)k->n,
                       sizeof *k->place));
    if (c->n_max > 0)
        FL_TRY(fl_grow(&k->winner, &k->winner_capacity,
                       (size_t)(batch * c->n_max * c->table->shape.dim[1]),
                       sizeof *k->winner));
    return position_room(k, k->n);
}

/* Where feature i has its ids of a sample: [first, last). */
static int64_t first_id(const fl_instance *in, int i, int64_t row,
                        int64_t *last)
{
    const fl_lookup_config *c = in->step->config;
    const fl_feature *f = &c->feature[i];
    int64_t first = row * in->arg[f->ids].ld + f->column;

    if (f->ragged) {
        const int64_t *offsets = fl_lookup_of(in)->offsets[i] + row;
        int64_t n = offsets[1] - offsets[0];

        first = offsets[0];
        if (f->most > 0)
            first = f->keep_last ? fed_offsets(in, f)[row + 1] - n
                                 : fed_offsets(in, f)[row];
        *last = first + n;
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
            *key = fl_key_of_id(k->rows, *id);
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
    int64_t at = fl_lookup_position(k, c, r->begin);

    for (int64_t row = r->begin; row < r->end; row++)
        for (int i = 0; i < c->n_feature; i++) {
            const fl_feature *feature = &c->feature[i];
            const uint64_t *id = (const uint64_t *)fl_ptr(in, feature->ids);
            int64_t last, first = first_id(in, i, row, &last);

            if (c->weighted)
                put_weights(in, feature, first, last - first, k->weight + at);
            for (int64_t j = 0; c->n_padded > 0 && j < last - first; j++)
                k->place[at + j] = (uint32_t)j;
            for (; first < last; first++, at++) {
                k->key[at] = fl_key_of_id(k->rows, id[first]);
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
    sort_by_part(k, fl_lookup_position(k, c, r->begin),
                 fl_lookup_position(k, c, r->end),
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
static fleet_status read_unknown(const fl_lookup_config *c, fl_rows *rows,
                                 uint64_t key, float *out)
{
    if (c->predicts)
        return fl_unknown_row(&c->table->ids, rows, key, out);
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
            FL_TRY(read_unknown(c, k->rows, p->keys.key[u], fresh));
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
