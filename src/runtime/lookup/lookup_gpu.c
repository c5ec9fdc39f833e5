/* lookup_gpu.c - the steps of lookups on a GPU are put into a plan. */
#include "runtime/lookup/lookup_gpu.h"

#include "runtime/graph/table_options.h"
#include "runtime/plan/copy_steps.h"

/* Operands of features come behind the step's own. */
enum { FIRST_FEATURE = 5 };

#define FL_GPU_STEP(id, step)                                                  \
    static const fl_kernel id = {.name = "lookup." step,                       \
                                 .split = FL_SPLIT_PARTS,                      \
                                 .run = fl_run_on_gpu_only,                    \
                                 .on_gpu = true}
FL_GPU_STEP(kernel_keys, "keys");
FL_GPU_STEP(kernel_unique, "unique");
FL_GPU_STEP(kernel_find, "find");
FL_GPU_STEP(kernel_gather, "gather");
FL_GPU_STEP(kernel_sum, "sum");
FL_GPU_STEP(kernel_append, "append");
FL_GPU_STEP(kernel_check, "check");
FL_GPU_STEP(kernel_norm, "norm");
FL_GPU_STEP(kernel_clip, "clip");
FL_GPU_STEP(kernel_insert, "insert");
FL_GPU_STEP(kernel_update, "update");

/* --- which tables -------------------------------------------------------- */

bool fl_table_fits_gpu(const fleet_program *p, const fl_place *at,
                       const fleet_var *table)
{
    if (!at->gpu || fl_table_has_life(&table->ids.life))
        return false;
    for (size_t i = 0; i < p->n_node; i++) {
        const fl_node *n = p->node[i];

        if ((n->op->traits & FL_OP_LOOKUP) && n->in[0] == table &&
            (!fl_place_is_gpu(at, n->place) || fl_lookup_slot_of(n).most > 0))
            return false;
    }
    return true;
}

/* In passes a GPU has rows for plans that train alone. */
bool fl_table_on_gpu(const fl_lowering *l, const fleet_var *table)
{
    const fl_store *s = l->plan->store;

    if (fl_store_is_shared(s) ||
        (s->gpu_passes ? !l->plan->training : table->cap.bytes > 0))
        return false;
    return fl_table_fits_gpu(l->program, l->plan->place, table);
}

/* --- values -------------------------------------------------------------- */

/* An array of `cols` elements for each position, and for one more. */
static int array_of(fl_lowering *l, const fl_numbered *k, fl_value_kind kind,
                    const char *name, fleet_dtype dtype, int64_t cols)
{
    fl_value like = {.name = name,
                     .kind = kind,
                     .dtype = dtype,
                     .shape = fl_shape_2(k->config.capacity + 1, cols),
                     .root = -1,
                     .ld = cols,
                     .positions = &k->config};

    return fl_value_like(l, &like);
}

static int count_of(fl_lowering *l, fl_value_kind kind)
{
    fl_value like = {.name = "count",
                     .kind = kind,
                     .dtype = FLEET_INT64,
                     .shape = fl_shape_1(1),
                     .root = -1,
                     .ld = 1};

    return fl_value_like(l, &like);
}

/* What is merged lasts from batch to batch. */
static void make_values(fl_lowering *l, fl_numbered *k)
{
    fl_value_kind kind = k->of ? FL_VALUE_PERSISTENT : FL_VALUE_TEMP;

    k->key = array_of(l, k, kind, "keys", FLEET_INT64, 1);
    k->cell = array_of(l, k, kind, "cells", FLEET_INT32, 1);
    k->n = count_of(l, kind);
    k->unique = array_of(l, k, FL_VALUE_TEMP, "unique keys", FLEET_INT64, 1);
    k->start = array_of(l, k, FL_VALUE_TEMP, "starts", FLEET_INT32, 1);
    k->position = array_of(l, k, FL_VALUE_TEMP, "positions", FLEET_INT32, 1);
    k->which = array_of(l, k, FL_VALUE_TEMP, "numbers", FLEET_INT32, 1);
    k->n_unique = count_of(l, FL_VALUE_TEMP);
    k->row = array_of(l, k, FL_VALUE_TEMP, "rows", FLEET_INT64, 1);
}

/* --- configurations ------------------------------------------------------ */

/* Bits in which keys differ. */
static int bits_of(int64_t modulo)
{
    return modulo == 0   ? 64
           : modulo == 1 ? 0
                         : 64 - __builtin_clzll((uint64_t)modulo - 1);
}

static fl_device_lookup config_of(const fl_lowering *l, const fleet_var *table)
{
    const fleet_optimizer *all = l->plan->store->optimizer, *o = all;
    int own = all ? 1 + fl_optimizer_own_number(all, table->name, false) : 0;
    fl_rule_kind rule;
    int64_t modulo = table->shape.dim[0];

    if (own > 0)
        o = fl_optimizer_own_of(all, own - 1);
    rule = o ? o->kind : FL_RULE_SGD;
    return (fl_device_lookup){.dim = table->shape.dim[1],
                              .modulo = modulo,
                              .check = table->ids.check,
                              .bits = bits_of(modulo),
                              .rule = rule,
                              .rates = fl_update_rates_of(&table->attr),
                              .own = own,
                              .whole_rows = fl_rule_of(rule)->n_row > 0,
                              .bounds = o && o->bounds,
                              .low = o ? o->low : 0,
                              .high = o ? o->high : 0};
}

static fl_numbered *new_numbered(fl_lowering *l, const fleet_var *table,
                                 int n_feature, fl_feature **feature)
{
    fl_numbered *k = fl_arena_alloc(&l->plan->arena, sizeof *k);

    *feature =
        fl_arena_alloc(&l->plan->arena, (size_t)n_feature * sizeof **feature);
    if (!k || !*feature) {
        l->status = FLEET_ENOMEM;
        return NULL;
    }
    k->table = table;
    k->config = config_of(l, table);
    k->config.feature = *feature;
    k->config.n_feature = n_feature;
    k->times = 1;
    k->next = l->plan->numbered;
    l->plan->numbered = k;
    return k;
}

/* Until batches show how many they are, ragged ids count as one each. */
static fl_numbered *number_slots(fl_lowering *l, const fleet_var *table,
                                 const fl_lookup_slot *slot, int n_slot)
{
    const fl_lookup_places at = {FIRST_FEATURE, FIRST_FEATURE + n_slot,
                                 FIRST_FEATURE + 2 * n_slot};
    fl_feature *feature;
    fl_numbered *k;
    int n_feature = 0;

    for (int i = 0; i < n_slot; i++)
        n_feature += fl_lookup_features(&slot[i]);
    k = new_numbered(l, table, n_feature, &feature);
    if (!k)
        return NULL;
    k->slot = slot;
    k->n_slot = n_slot;
    k->config.capacity = n_feature * l->plan->batch;
    fl_lookup_fill_features(feature, slot, n_slot, k->config.dim, &at);
    k->config.n_max = fl_lookup_count_max(slot, n_slot);
    if (k->config.n_max > 0)
        k->config.winners = at.weights + fl_lookup_count_weighted(slot, n_slot);
    make_values(l, k);
    return k;
}

/* One feature, whose gradient is what was merged. */
static fl_numbered *number_merged(fl_lowering *l, const fleet_var *table,
                                  fl_numbered *of)
{
    fl_feature *feature;
    fl_numbered *k = new_numbered(l, table, 1, &feature);

    if (!k)
        return NULL;
    *feature = (fl_feature){.ids = FIRST_FEATURE, .out = FIRST_FEATURE + 1};
    k->of = of;
    k->times = l->plan->group;
    k->config.capacity = k->times * of->config.capacity;
    make_values(l, k);
    return k;
}

/* --- steps --------------------------------------------------------------- */

/* A step's own operands, at most FIRST_FEATURE of them, then ids and outputs,
 * or their gradients, of the slots, their weights, and the winners if any is of
 * FLEET_MAX. */
static void emit_features(fl_lowering *l, const fl_kernel *kernel,
                          const fl_node *n, const fl_numbered *k,
                          const fl_operand *own, int n_own,
                          const fl_operand *out, fl_operand winners)
{
    int all = FIRST_FEATURE + 2 * k->n_slot;
    fl_operand *o = fl_lookup_operands(l, all + k->n_slot + 1);

    if (!o)
        return;
    for (int i = 0; i < FIRST_FEATURE; i++)
        o[i] = i < n_own ? own[i] : (fl_operand)FL_R(-1);
    for (int i = 0; i < k->n_slot; i++) {
        o[FIRST_FEATURE + i] = (fl_operand)FL_R(fl_value_of(l, k->slot[i].ids));
        o[FIRST_FEATURE + k->n_slot + i] = out ? out[i] : (fl_operand)FL_R(-1);
        if (k->slot[i].weights)
            o[all++] = (fl_operand)FL_R(fl_value_of(l, k->slot[i].weights));
    }
    if (k->config.winners > 0)
        o[all++] = winners;
    fl_emit(l, kernel, n, &k->config, o, all);
}

#define FL_OWN(...)                                                            \
    (const fl_operand[]){__VA_ARGS__},                                         \
        (int)(sizeof((fl_operand[]){__VA_ARGS__}) / sizeof(fl_operand))

static void emit_unique(fl_lowering *l, const fl_node *n, const fl_numbered *k)
{
    FL_EMIT(l, &kernel_unique, n, &k->config, FL_W(k->unique), FL_W(k->start),
            FL_W(k->position), FL_W(k->which), FL_W(k->n_unique), FL_R(k->key),
            FL_R(k->n));
}

static void emit_find(fl_lowering *l, const fl_node *n, const fl_lookup_gpu *x,
                      const fl_numbered *k, int fresh)
{
    FL_EMIT(l, &kernel_find, n, &k->config, FL_W(k->row), FL_W(fresh),
            FL_R(x->rows), FL_R(k->unique), FL_R(k->n_unique));
}

static void emit_keys(fl_lowering *l, const fl_node *n, const fl_numbered *k)
{
    emit_features(l, &kernel_keys, n, k,
                  FL_OWN(FL_W(k->key), FL_W(k->cell), FL_W(k->n)), NULL,
                  (fl_operand)FL_R(-1));
    emit_unique(l, n, k);
}

static void emit_gather(fl_lowering *l, const fl_node *n,
                        const fl_lookup_gpu *x, int fresh)
{
    const fl_numbered *k = x->all;
    fl_operand *out = fl_lookup_operands(l, k->n_slot);

    if (!out)
        return;
    for (int i = 0; i < k->n_slot; i++)
        out[i] = (fl_operand)FL_W(fl_value_of(l, k->slot[i].out));
    emit_features(
        l, &kernel_gather, n, k,
        FL_OWN(FL_R(x->rows), FL_R(k->row), FL_R(fresh), FL_R(k->which)), out,
        (fl_operand)FL_W(x->winners));
}

/* Places in the sample, by (sample, slot of FLEET_MAX) and column. */
static int winners_of(fl_lowering *l, const fl_numbered *k)
{
    const fl_shape shape = fl_shape_2(-k->config.n_max, k->config.dim);

    return k->config.n_max > 0 ? fl_temp(l, "winners", FLEET_INT32, &shape)
                               : -1;
}

void fl_lookup_gpu_forward(fl_lowering *l, const fl_node *n,
                           const fleet_var *table, const fl_lookup_slot *slot,
                           int n_slot)
{
    fl_lookup_gpu *x = fl_arena_alloc(&l->plan->arena, sizeof *x);
    int fresh;

    if (!x) {
        l->status = FLEET_ENOMEM;
        return;
    }
    x->table = table;
    x->rows = fl_value_of(l, table);
    x->all = number_slots(l, table, slot, n_slot);
    if (!x->all)
        return;
    fresh = array_of(l, x->all, FL_VALUE_TEMP, "first values", FLEET_FLOAT32,
                     x->all->config.dim);
    x->winners = winners_of(l, x->all);
    emit_keys(l, n, x->all);
    emit_find(l, n, x, x->all, fresh);
    emit_gather(l, n, x, fresh);
    x->next = l->plan->lookups;
    l->plan->lookups = x;
}

/* Slots whose output got no gradient change no row. */
static fl_numbered *number_trained(fl_lowering *l, const fl_node *n,
                                   const fl_lookup_gpu *x,
                                   const fl_lookup_slot *slot, int n_slot)
{
    fl_lookup_slot *with =
        fl_arena_alloc(&l->plan->arena, (size_t)n_slot * sizeof *with);
    fl_numbered *k;
    int n_with = 0;

    if (!with) {
        l->status = FLEET_ENOMEM;
        return NULL;
    }
    for (int i = 0; i < n_slot; i++)
        if (fl_gradient_of(l, slot[i].out) >= 0)
            with[n_with++] = slot[i];
    if (n_with == n_slot)
        return x->all;
    k = number_slots(l, x->table, with, n_with);
    if (!k)
        return NULL;
    k->config.n_max = x->all->config.n_max; /* winners are by all slots */
    emit_keys(l, n, k);
    emit_find(l, n, x, k, -1);
    return k;
}

void fl_lookup_gpu_gradient(fl_lowering *l, const fl_node *n,
                            const fleet_var *table, fl_sparse *s,
                            const fl_lookup_slot *slot, int n_slot)
{
    fl_lookup_gpu *x = l->plan->lookups;
    fl_operand *o = fl_lookup_operands(l, n_slot);

    while (x && x->table != table)
        x = x->next;
    if (!x || !o)
        return;
    x->trained = number_trained(l, n, x, slot, n_slot);
    if (!x->trained)
        return;
    for (int i = 0; i < x->trained->n_slot; i++)
        o[i] = (fl_operand)FL_R(fl_gradient_of(l, x->trained->slot[i].out));
    x->sum = array_of(l, x->trained, FL_VALUE_TEMP, "sums", FLEET_FLOAT32,
                      x->trained->config.dim);
    emit_features(l, &kernel_sum, n, x->trained,
                  FL_OWN(FL_W(x->sum), FL_R(x->trained->start),
                         FL_R(x->trained->position), FL_R(x->trained->cell),
                         FL_R(x->trained->n_unique)),
                  o, (fl_operand)FL_R(x->winners));
    x->changed = x->trained;
    x->changed_sum = x->sum;
    s->gpu = x;
    s->gradient = o;
    s->n_gradient = x->trained->n_slot;
}

/* --- for the passes ------------------------------------------------------ */

void fl_lookup_gpu_merge(fl_lowering *l, fl_lookup_gpu *x)
{
    const fl_numbered *one = x->trained;
    fl_numbered *all = number_merged(l, x->table, x->trained);

    if (!all)
        return;
    x->changed = all;
    x->changed_sum = array_of(l, all, FL_VALUE_PERSISTENT, "merged sums",
                              FLEET_FLOAT32, all->config.dim);
    FL_EMIT(l, &kernel_append, NULL, &one->config, FL_RW(all->key),
            FL_RW(all->cell), FL_RW(x->changed_sum), FL_RW(all->n),
            FL_R(l->plan->update), FL_R(one->unique), FL_R(x->sum),
            FL_R(one->n_unique));
}

/* What was merged is numbered, and added up, when the group ends. */
static void make_ready(fl_lowering *l, fl_lookup_gpu *x)
{
    const fl_numbered *k = x->changed;
    int merged = x->changed_sum;

    if (x->is_ready)
        return;
    x->is_ready = true;
    if (!k->of)
        return;
    x->changed_sum =
        array_of(l, k, FL_VALUE_TEMP, "sums", FLEET_FLOAT32, k->config.dim);
    emit_unique(l, NULL, k);
    FL_EMIT(l, &kernel_sum, NULL, &k->config, FL_W(x->changed_sum),
            FL_R(k->start), FL_R(k->position), FL_R(k->cell), FL_R(k->n_unique),
            FL_R(-1), FL_R(merged));
    emit_find(l, NULL, x, k, -1);
}

int fl_lookup_gpu_check(fl_lowering *l, fl_lookup_gpu *x, int *n)
{
    const fl_shape shape = fl_shape_1(FL_LOOKUP_CHECKS);
    int found = fl_temp(l, "found", FLEET_FLOAT32, &shape);

    *n = FL_LOOKUP_CHECKS;
    make_ready(l, x);
    FL_EMIT(l, &kernel_check, NULL, &x->changed->config, FL_W(found),
            FL_R(x->changed_sum), FL_R(x->changed->n_unique));
    return found;
}

int fl_lookup_gpu_norm(fl_lowering *l, fl_lookup_gpu *x, int *n)
{
    int norms = fl_object(l, "norms", FL_LOOKUP_NORMS * sizeof(double));

    *n = FL_LOOKUP_NORMS;
    make_ready(l, x);
    FL_EMIT(l, &kernel_norm, NULL, &x->changed->config, FL_W(norms),
            FL_R(l->plan->update), FL_R(x->changed_sum),
            FL_R(x->changed->n_unique));
    return norms;
}

void fl_lookup_gpu_clip(fl_lowering *l, fl_lookup_gpu *x, int norms)
{
    FL_EMIT(l, &kernel_clip, NULL, &x->changed->config, FL_R(norms),
            FL_R(l->plan->update), FL_RW(x->changed_sum),
            FL_R(x->changed->n_unique));
}

void fl_lookup_gpu_update(fl_lowering *l, fl_lookup_gpu *x)
{
    const fl_numbered *k = x->changed;

    make_ready(l, x);
    FL_EMIT(l, &kernel_insert, NULL, &k->config, FL_RW(x->rows), FL_RW(k->row),
            FL_R(l->plan->update), FL_R(k->unique), FL_R(k->n_unique));
    FL_EMIT(l, &kernel_update, NULL, &k->config, FL_RW(x->rows),
            FL_R(l->plan->update), FL_R(x->changed_sum), FL_R(k->row),
            FL_R(k->n_unique));
}
