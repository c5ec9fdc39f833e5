/* lookup.c - the steps of a lookup are put into a plan. */
#include <string.h>

#include "base/memory.h"
#include "runtime/graph/shown_slots.h"
#include "runtime/lookup/lookup.h"
#include "runtime/lookup/lookup_data.h"
#include "runtime/lookup/lookup_gpu.h"

/* Operands: the lookup first, then what the step adds to it. */
enum { THE_LOOKUP, FIRST_IDS = 1, THE_TABLE = 1 };

int fl_lookup_features(const fl_lookup_slot *slot)
{
    return slot->ids->ragged ? 1 : (int)fl_shape_cols(&slot->ids->shape);
}

int fl_lookup_count_weighted(const fl_lookup_slot *slot, int n_slot)
{
    int n = 0;

    for (int i = 0; i < n_slot; i++)
        n += slot[i].weights != NULL;
    return n;
}

int fl_lookup_count_max(const fl_lookup_slot *slot, int n_slot)
{
    int n = 0;

    for (int i = 0; i < n_slot; i++)
        n += fl_lookup_is_max(&slot[i]);
    return n;
}

int fl_lookup_count_padded(const fl_lookup_slot *slot, int n_slot)
{
    int n = 0;

    for (int i = 0; i < n_slot; i++)
        n += slot[i].most > 0;
    return n;
}

/* The first or the last of a sample's rows is a padded slot of one. */
fl_lookup_slot fl_lookup_slot_of(const fl_node *n)
{
    const fl_attr *combiner = fl_node_attr(n, "combiner"),
                  *most = fl_node_attr(n, "max_len");
    fl_lookup_slot s = {.ids = n->in[1],
                        .out = n->out[0],
                        .weights = n->in[1]->weights,
                        .combiner =
                            combiner ? (fleet_combiner)combiner->i : FLEET_SUM};

    if (most) {
        s.most = most->i;
        s.keep_last = fl_node_int(n, "keep_first") == 0;
    } else if (s.combiner == FLEET_FIRST || s.combiner == FLEET_LAST) {
        s.most = 1;
        s.keep_last = s.combiner == FLEET_LAST;
        s.combiner = FLEET_SUM;
    }
    return s;
}

void fl_lookup_fill_features(fl_feature *feature, const fl_lookup_slot *slot,
                             int n_slot, int64_t dim,
                             const fl_lookup_places *at)
{
    int n_weighted = 0;

    for (int i = 0; i < n_slot; i++) {
        const fl_lookup_slot *s = &slot[i];
        fleet_combiner c = s->ids->ragged ? s->combiner : FLEET_SUM;
        int weights = s->weights ? at->weights + n_weighted++ : 0;

        for (int j = 0; j < fl_lookup_features(s); j++)
            *feature++ = (fl_feature){.ids = at->ids + i,
                                      .column = j,
                                      .out = at->out + i,
                                      .out_column = j * dim,
                                      .ragged = s->ids->ragged,
                                      .combiner = c,
                                      .weights = weights,
                                      .nth_max = s->nth_max,
                                      .most = s->most,
                                      .keep_last = s->keep_last};
    }
}

/* Operands of what an accessor counts; 0: none. */
typedef struct shown_operands {
    int show, click;
} shown_operands;

/* n elements in the plan; NULL without memory, which the lowering keeps. */
static void *plan_array(fl_lowering *l, int n, size_t size)
{
    void *array = fl_arena_alloc(&l->plan->arena, (size_t)n * size);

    if (!array && l->status == FLEET_OK)
        l->status = FLEET_ENOMEM;
    return array;
}

static const fl_lookup_config *make_config(fl_lowering *l,
                                           const fleet_var *table,
                                           const fl_lookup_slot *slot,
                                           int n_slot, shown_operands shown)
{
    const fl_lookup_places at = {FIRST_IDS, FL_FIRST_OUT, FIRST_IDS + n_slot};
    fl_lookup_config c = {.table = table,
                          .slot = slot,
                          .predicts = l->program->predicts,
                          .show = shown.show,
                          .click = shown.click};
    fl_feature *feature;

    for (int i = 0; i < n_slot; i++)
        c.n_feature += fl_lookup_features(&slot[i]);
    c.feature = feature = plan_array(l, c.n_feature, sizeof *feature);
    if (!feature)
        return NULL;
    fl_lookup_fill_features(feature, slot, n_slot, table->shape.dim[1], &at);
    c.n_max = fl_lookup_count_max(slot, n_slot);
    c.n_padded = fl_lookup_count_padded(slot, n_slot);
    c.weighted = fl_lookup_count_weighted(slot, n_slot) > 0;
    for (int i = 0; i < n_slot; i++)
        c.ragged = c.ragged || slot[i].ids->ragged;
    c.merged = l->plan->group > 1;
    return fl_config(l, &c, sizeof c);
}

fl_operand *fl_lookup_operands(fl_lowering *l, int n)
{
    return plan_array(l, n, sizeof(fl_operand));
}

/* The keys that a remote is asked for are found in FL_PULL; ps.pull and
 * ps.arrive come between these steps and rows.place. */
static void emit_find(fl_lowering *l, const fl_node *node,
                      const fl_lookup_config *c, const fl_operand *o, int n)
{
    bool remote = l->plan->store->remote != NULL;
    fl_operand lookup = FL_RW(o[THE_LOOKUP].value);
    fl_operand rows = FL_R(fl_value_of(l, c->table));
    fl_phase phase = l->phase;

    if (remote)
        l->phase = FL_PULL;
    fl_emit(l, &fl_kernel_rows_split, node, c, o, n);
    FL_EMIT(l, remote ? &fl_kernel_rows_unique : &fl_kernel_rows_find, node, c,
            lookup, rows);
    l->phase = phase;
    if (remote)
        FL_EMIT(l, &fl_kernel_rows_place, node, c, lookup);
}

/* Of rows.split: the lookup, ids, then weights; returns how many. */
static int put_inputs(fl_lowering *l, fl_operand *o, int lookup,
                      const fl_lookup_slot *slot, int n_slot)
{
    int n = FIRST_IDS + n_slot;

    o[THE_LOOKUP] = (fl_operand)FL_W(lookup);
    for (int i = 0; i < n_slot; i++) {
        o[FIRST_IDS + i] = (fl_operand)FL_R(fl_value_of(l, slot[i].ids));
        if (slot[i].weights)
            o[n++] = (fl_operand)FL_R(fl_value_of(l, slot[i].weights));
    }
    return n;
}

/* Returns the lookup's value. Winners are in it, which rows.gather writes: it
 * is read nevertheless, since nothing else reads them before rows.sum. */
static int emit_forward(fl_lowering *l, const fl_node *n,
                        const fleet_var *table, const fl_lookup_slot *slot,
                        int n_slot)
{
    const fl_lookup_config *c =
        make_config(l, table, slot, n_slot, (shown_operands){0});
    int lookup = (l->plan->store->remote ? fl_object_per_slot : fl_object)(
        l, "lookup", sizeof(fl_lookup));
    int rows = fl_value_of(l, table);
    fl_operand *o = fl_lookup_operands(l, FL_FIRST_OUT + 2 * n_slot);

    if (!c || !o)
        return -1;
    emit_find(l, n, c, o, put_inputs(l, o, lookup, slot, n_slot));
    o[THE_LOOKUP] = (fl_operand)FL_R(lookup);
    o[THE_TABLE] = (fl_operand)FL_R(rows);
    for (int i = 0; i < n_slot; i++)
        o[FL_FIRST_OUT + i] = (fl_operand)FL_W(fl_value_of(l, slot[i].out));
    fl_emit(l, &fl_kernel_rows_gather, n, c, o, FL_FIRST_OUT + n_slot);
    return lookup;
}

int fl_lookup_forward(fl_lowering *l, const fl_node *n, const fleet_var *table,
                      const fl_lookup_slot *slot, int n_slot)
{
    if (!fl_table_on_gpu(l, table))
        return emit_forward(l, n, table, slot, n_slot);
    fl_lookup_gpu_forward(l, n, table, slot, n_slot);
    return -1;
}

/* The slot that an accessor names becomes operand n; returns that, or 0. */
static int put_named(fl_lowering *l, const fleet_var *table, const char *option,
                     const char *name, fl_operand *o, int *n)
{
    const fleet_var *v;
    fleet_status status = fl_shown_slot(l->program, table, option, name, &v);

    if (status != FLEET_OK && l->status == FLEET_OK)
        l->status = status;
    if (!v || l->status != FLEET_OK)
        return 0;
    o[*n] = (fl_operand)FL_R(fl_value_of(l, v));
    return (*n)++;
}

/* The steps, and in *s the values that they write. */
static void emit_sums(fl_lowering *l, const fl_node *n, fl_sparse *s,
                      const fl_lookup_slot *slot, int n_slot)
{
    const fleet_accessor *a = &s->table->ids.life.accessor;
    fl_operand *o = fl_lookup_operands(l, FL_FIRST_OUT + n_slot + 2);
    int n_operand = FL_FIRST_OUT + n_slot;
    const fl_lookup_config *c;
    shown_operands shown;

    if (!o)
        return;
    shown.show = put_named(l, s->table, "show", a->show, o, &n_operand);
    shown.click = put_named(l, s->table, "click", a->click, o, &n_operand);
    c = make_config(l, s->table, slot, n_slot, shown);
    if (!c || l->status != FLEET_OK)
        return;
    o[THE_LOOKUP] = (fl_operand)FL_RW(s->lookup);
    o[THE_TABLE] = (fl_operand){-1, FL_READ};
    for (int i = 0; i < n_slot; i++)
        o[FL_FIRST_OUT + i] = (fl_operand)FL_R(fl_gradient_of(l, slot[i].out));
    fl_emit(l, &fl_kernel_rows_sum, n, c, o, n_operand);
    s->config = c;
    s->gradient = o + FL_FIRST_OUT;
    s->n_gradient = n_slot;
}

void fl_lookup_gradient(fl_lowering *l, const fl_node *n,
                        const fleet_var *table, const fl_lookup_slot *slot,
                        int n_slot, int lookup)
{
    fl_sparse sparse = {.table = table,
                        .norms = -1,
                        .rows = fl_value_of(l, table),
                        .lookup = lookup,
                        .sums = -1};

    if (fl_table_on_gpu(l, table))
        fl_lookup_gpu_gradient(l, n, table, &sparse, slot, n_slot);
    else
        emit_sums(l, n, &sparse, slot, n_slot);
    if (l->status != FLEET_OK)
        return;
    if (fl_grow(&l->plan->sparse, &l->plan->sparse_capacity,
                l->plan->n_sparse + 1, sizeof sparse) != FLEET_OK) {
        l->status = FLEET_ENOMEM;
        return;
    }
    l->plan->sparse[l->plan->n_sparse++] = sparse;
}

/* A step on sums that may lie in the outputs' gradients, whose memory is to
 * stay theirs. */
static void emit_on_sums(fl_lowering *l, const fl_kernel *kernel,
                         const fl_sparse *s, int lookup, fl_operand third)
{
    int n = 3 + s->n_gradient;
    fl_operand *o = fl_lookup_operands(l, n + 1);

    if (!o)
        return;
    o[0] = (fl_operand)FL_RW(lookup);
    o[1] = (fl_operand)FL_R(l->plan->update);
    o[2] = third;
    memcpy(o + 3, s->gradient, (size_t)s->n_gradient * sizeof *o);
    if (kernel == &fl_kernel_rows_update && s->norms >= 0)
        o[n++] = (fl_operand)FL_R(s->norms);
    fl_emit(l, kernel, NULL, s->config, o, n);
}

/* Lookups that take turns, and lookups of a crew, have their merged sums beside
 * them. */
void fl_lookup_merge(fl_lowering *l, fl_sparse *s)
{
    if (s->gpu) {
        fl_lookup_gpu_merge(l, s->gpu);
        return;
    }
    if (l->plan->store->remote || l->plan->crew.n > 1) {
        s->sums = fl_object(l, "sums", sizeof(fl_lookup));
        if (s->sums >= 0)
            l->plan->value[s->sums].merged = true;
    }
    emit_on_sums(l, &fl_kernel_rows_merge, s, s->lookup,
                 (fl_operand){s->sums, FL_READ_WRITE});
}

int fl_lookup_sums(const fl_sparse *s)
{
    return s->sums >= 0 ? s->sums : s->lookup;
}

int fl_lookup_check(fl_lowering *l, const fl_sparse *s, int *n)
{
    const fl_shape shape = fl_shape_1(FL_N_PART);
    int found;

    if (s->gpu)
        return fl_lookup_gpu_check(l, s->gpu, n);
    found = fl_temp(l, "found", FLEET_FLOAT32, &shape);
    *n = FL_N_PART;
    emit_on_sums(l, &fl_kernel_rows_check, s, fl_lookup_sums(s),
                 (fl_operand)FL_W(found));
    return found;
}

int fl_lookup_norm(fl_lowering *l, const fl_sparse *s, int *n)
{
    int norms;

    if (s->gpu)
        return fl_lookup_gpu_norm(l, s->gpu, n);
    norms = fl_object(l, "norms", FL_N_BUCKET * sizeof(double));
    *n = FL_N_BUCKET;
    emit_on_sums(l, &fl_kernel_rows_norm, s, fl_lookup_sums(s),
                 (fl_operand)FL_W(norms));
    return norms;
}

void fl_lookup_clip(fl_lowering *l, fl_sparse *s)
{
    int n;

    s->norms = fl_lookup_norm(l, s, &n);
    if (s->gpu)
        fl_lookup_gpu_clip(l, s->gpu, s->norms);
}

void fl_lookup_update(fl_lowering *l, const fl_sparse *s)
{
    if (s->gpu)
        fl_lookup_gpu_update(l, s->gpu);
    else
        emit_on_sums(l, &fl_kernel_rows_update, s, fl_lookup_sums(s),
                     (fl_operand)FL_RW(s->rows));
}
