/* ctr.c - what click models have in common: slots, tables, towers. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "fleet/applications/ctr_internal.h"

#define AT(member) offsetof(fleet_ctr_options, member)
#define BOOL(member)                                                           \
    {                                                                          \
        .name = #member, .type = FL_OPTION_BOOL, .at = AT(member)              \
    }
#define INT(member, least, most)                                               \
    {                                                                          \
        .name = #member, .type = FL_OPTION_INT, .at = AT(member),              \
        .low = least, .high = most                                             \
    }
#define FLOAT(member, least, most)                                             \
    {                                                                          \
        .name = #member, .type = FL_OPTION_FLOAT, .at = AT(member),            \
        .low = least, .high = most                                             \
    }
#define FLOATS(member, least, most)                                            \
    {                                                                          \
        .name = #member, .type = FL_OPTION_FLOATS, .at = AT(member),           \
        .n_at = AT(n_##member), .low = least, .high = most                     \
    }
#define LAYERS(member)                                                         \
    {                                                                          \
        .name = #member, .type = FL_OPTION_LAYERS, .at = AT(member),           \
        .n_at = AT(n_##member)                                                 \
    }

const fl_ctr_option fl_ctr_options[] = {
    INT(embedding_dim, 1, 4096),
    LAYERS(hidden),
    BOOL(wide_ids),
    INT(cross_layers, 1, 64),
    INT(low_rank, 1, 1 << 20),
    INT(experts, 1, 64),
    BOOL(parallel),
    LAYERS(bottom),
    BOOL(self_interaction),
    LAYERS(attention),
    INT(heads, 1, 1024),
    BOOL(no_residual),
    LAYERS(cin),
    INT(expert_units, 1, 4096),
    INT(shared_experts, 1, 64),
    INT(levels, 1, 16),
    INT(blocks, 1, 64),
    INT(ffn_units, 1, 1 << 20),
    BOOL(normalize),
    FLOAT(temperature, 1e-6, 1e6),
    INT(max_len, 1, 1 << 16),
    FLOAT(pos_weight, 1e-6, 1e6),
    FLOATS(class_weights, 1e-6, 1e6),
    {.name = NULL},
};

#undef AT
#undef BOOL
#undef INT
#undef FLOAT
#undef FLOATS
#undef LAYERS

static bool has_own(const fl_ctr_model *m, const char *name)
{
    const char *const *own = m->own;

    while (*own && strcmp(*own, name) != 0)
        own++;
    return *own != NULL;
}

/* `given` is neither 0 nor NULL; wide_ids was never refused. */
static fleet_status check_own(const fl_ctr_model *m, const char *name,
                              bool given)
{
    return !given || has_own(m, name) || strcmp(name, "wide_ids") == 0
               ? FLEET_OK
               : fl_fail(FLEET_EINVAL,
                         "%s: %s: expected nothing, the model has none",
                         m->name, name);
}

static fleet_status check_layers(const fl_ctr_model *m, const char *name,
                                 const int64_t *units, int n)
{
    FL_TRY(check_own(m, name, units || n != 0));
    if (n < 0 || (n > 0 && !units))
        return fl_fail(FLEET_EINVAL, "%s: %s: %d layers%s", m->name, name, n,
                       units ? "" : ", whose units are NULL");
    for (int i = 0; i < n; i++)
        if (units[i] < 1)
            return fl_fail(FLEET_EINVAL,
                           "%s: %s[%d]: expected 1 unit or more, got %lld",
                           m->name, name, i, (long long)units[i]);
    return FLEET_OK;
}

static fleet_status check_number(const fl_ctr_model *m, const fl_ctr_option *o,
                                 double value)
{
    FL_TRY(check_own(m, o->name, value != 0));
    return value >= 0 && value <= o->high
               ? FLEET_OK
               : fl_fail(FLEET_EINVAL, "%s: %s: expected %g to %g, got %g",
                         m->name, o->name, o->low, o->high, value);
}

static fleet_status check_option(const fl_ctr *c, const fl_ctr_model *m,
                                 const fl_ctr_option *o)
{
    const void *at = (const char *)&c->o + o->at;
    const void *n = (const char *)&c->o + o->n_at;

    switch (o->type) {
    case FL_OPTION_LAYERS:
        return check_layers(m, o->name, *(const int64_t *const *)at,
                            *(const int *)n);
    case FL_OPTION_FLOATS: /* of two classes */
        FL_TRY(check_own(m, o->name,
                         *(const float *const *)at || *(const int *)n));
        return fl_model_check_classes(m->name, *(const float *const *)at,
                                      *(const int *)n, 2);
    case FL_OPTION_BOOL:
        return check_own(m, o->name, *(const int *)at != 0);
    case FL_OPTION_INT:
        return check_number(m, o, (double)*(const int64_t *)at);
    case FL_OPTION_FLOAT:
        break;
    }
    return check_number(m, o, (double)*(const float *)at);
}

static void paddle_slots(fl_ctr *c, const fl_ctr_model *m)
{
    if (m->ids) {
        c->o.ids = c->o.n_ids > 0 ? c->o.ids : m->ids;
        c->o.n_ids = c->o.n_ids > 0 ? c->o.n_ids : m->n_ids;
        return;
    }
    if (c->o.n_dense == 0 && c->o.n_ids == 0 && !c->o.no_dense) {
        c->dense =
            (fleet_dense_slot){.name = "dense_input", .dim = FL_PADDLE_DENSE};
        c->o.dense = &c->dense;
        c->o.n_dense = 1;
    }
    if (c->o.n_ids > 0)
        return;
    for (int i = 0; i < FL_PADDLE_IDS; i++) {
        snprintf(c->name[i], sizeof c->name[i], "%d", i + 1);
        c->ids[i] = (fleet_id_slot){.name = c->name[i]};
    }
    c->o.ids = c->ids;
    c->o.n_ids = FL_PADDLE_IDS;
}

static fleet_status bad_option(const char *what, long long got)
{
    return fl_fail(FLEET_EINVAL, "model: %s cannot be %lld", what, got);
}

static fleet_status check_tasks(const fl_ctr *c, const fl_ctr_model *m)
{
    const fleet_task_options *t = c->o.tasks;

    if (m->most_tasks == 0)
        return c->o.n_tasks == 0 && !t
                   ? FLEET_OK
                   : fl_fail(FLEET_EINVAL, "%s: the model has no tasks, got %d",
                             m->name, c->o.n_tasks);
    if (c->o.n_tasks < m->least_tasks || c->o.n_tasks > m->most_tasks || !t)
        return fl_fail(FLEET_EINVAL,
                       "%s: expected %d to %d tasks, each with a label, got %d",
                       m->name, m->least_tasks, m->most_tasks,
                       t ? c->o.n_tasks : 0);
    if (c->o.label || c->o.label_dtype)
        return fl_fail(FLEET_EINVAL,
                       "%s: label: expected nothing, tasks have labels of "
                       "their own",
                       m->name);
    for (int i = 0; i < c->o.n_tasks; i++) {
        if (!t[i].label)
            return fl_fail(FLEET_EINVAL, "%s: tasks[%d].label: NULL", m->name,
                           i);
        if (t[i].weight < 0 || !isfinite(t[i].weight))
            return fl_fail(FLEET_EINVAL,
                           "%s: tasks[%d].weight: expected a finite number "
                           "above 0, got %g",
                           m->name, i, (double)t[i].weight);
        if (t[i].pos_weight < 0 || !isfinite(t[i].pos_weight))
            return fl_fail(FLEET_EINVAL,
                           "%s: tasks[%d].pos_weight: expected a finite number "
                           "above 0, got %g",
                           m->name, i, (double)t[i].pos_weight);
    }
    return FLEET_OK;
}

static fleet_status check_own_flag(const fl_ctr_model *m, const char *name,
                                   bool good)
{
    return good ? FLEET_OK
                : fl_fail(FLEET_EINVAL,
                          "%s: %s: expected nothing, the model has none",
                          m->name, name);
}

static fleet_status check_retrieval(const fl_ctr *c, const fl_ctr_model *m)
{
    FL_TRY(check_own_flag(m, "no_label", m->label_may_lack || !c->o.no_label));
    FL_TRY(check_own_flag(m, "log_q", m->in_batch || !c->o.log_q));
    if (c->o.no_label && c->o.label)
        return fl_fail(FLEET_EINVAL, "%s: label \"%s\" beside no_label",
                       m->name, c->o.label);
    return FLEET_OK;
}

static fleet_status check_ctr(fl_ctr *c, const fl_ctr_model *m)
{
    for (const fl_ctr_option *o = fl_ctr_options; o->name; o++)
        FL_TRY(check_option(c, m, o));
    FL_TRY(check_tasks(c, m));
    FL_TRY(check_retrieval(c, m));
    if (c->o.n_dense < 0 || c->o.n_ids < 0)
        return bad_option("a number of slots", -1);
    if ((c->o.n_dense > 0 && !c->o.dense) || (c->o.n_ids > 0 && !c->o.ids))
        return fl_fail(FLEET_EINVAL,
                       "model: a number of slots, but their array is NULL");
    paddle_slots(c, m);
    if (c->o.n_dense > 0 && m->no_features)
        return fl_fail(FLEET_EINVAL,
                       "%s: %s: expected no numbers, the model has no features",
                       m->name, c->o.dense[0].name);
    for (int i = 0; i < c->o.n_dense; i++) {
        if (c->o.dense[i].dim < -1)
            return bad_option(c->o.dense[i].name, c->o.dense[i].dim);
        c->dense_dim += c->o.dense[i].dim > 0 ? c->o.dense[i].dim : 1;
    }
    for (int i = 0; i < c->o.n_ids; i++) {
        if (c->o.ids[i].dim < -1)
            return bad_option(c->o.ids[i].name, c->o.ids[i].dim);
        if (c->o.ids[i].weighted && c->o.ids[i].dim != -1)
            return fl_fail(FLEET_EINVAL,
                           "model: %s is weighted, so its dim is -1, not %lld",
                           c->o.ids[i].name, (long long)c->o.ids[i].dim);
        FL_TRY(fl_ctr_check_role(m, &c->o.ids[i]));
        c->n_field += c->o.ids[i].dim > 1 ? c->o.ids[i].dim : 1;
    }
    return fl_ctr_check_roles(m, c->o.ids, c->o.n_ids, c->o.n_dense);
}

static fleet_var *dense_slot(fleet_program *p, const fleet_dense_slot *s)
{
    if (s->dim != -1)
        return fl_model_data(p, s->name, FLEET_FLOAT32, s->dim);
    return fleet_sequence_pool(p, fleet_data_ragged_floats(p, s->name),
                               s->combiner);
}

static fleet_var *id_slot(fleet_program *p, const fleet_id_slot *s)
{
    return s->weighted    ? fleet_data_weighted(p, s->name)
           : s->dim == -1 ? fleet_data_ragged(p, s->name)
                          : fl_model_data(p, s->name, FLEET_INT64, s->dim);
}

static fleet_var *label_slot(fl_ctr *c, const char *name, fleet_dtype dtype)
{
    return fl_model_data(c->p, name ? name : "label",
                         dtype ? dtype : FLEET_INT64, 1);
}

static void add_labels(fl_ctr *c, fleet_model *m)
{
    m->n_task = c->o.n_tasks;
    for (int i = 0; i < m->n_task; i++)
        m->task[i].label =
            label_slot(c, c->o.tasks[i].label, c->o.tasks[i].label_dtype);
    if (c->o.no_label)
        return;
    m->label = m->n_task > 0 ? m->task[0].label
                             : label_slot(c, c->o.label, c->o.label_dtype);
}

static fleet_status open_ctr(fl_ctr *c, fleet_program *p,
                             const fleet_ctr_options *options,
                             const fl_ctr_model *model, fleet_model *m)
{
    *c = (fl_ctr){.p = p};
    if (options)
        c->o = *options;
    FL_TRY(check_ctr(c, model));
    if (c->o.embedding_dim == 0)
        c->o.embedding_dim = model->embedding_dim;
    FL_TRY(FL_NEW(&c->part,
                  (size_t)(c->o.n_ids + c->o.n_dense + 1) * sizeof *c->part));
    add_labels(c, m);
    c->weights = (fl_loss_weights){.sample = fl_model_weight(p, c->o.weight),
                                   .pos_weight = c->o.pos_weight,
                                   .classes = c->o.class_weights,
                                   .n_class = c->o.n_class_weights};
    c->log_q = fl_model_weight(p, c->o.log_q);
    for (int i = 0; i < c->o.n_dense; i++)
        c->part[i] = dense_slot(p, &c->o.dense[i]);
    c->numbers = c->o.n_dense > 1 ? fleet_concat(p, c->part, c->o.n_dense, 1)
                                  : c->part[0];
    for (int i = 0; i < c->o.n_ids; i++)
        c->part[i] = id_slot(p, &c->o.ids[i]);
    return FLEET_OK;
}

fleet_sparse_embedding_options fl_ctr_table(fl_ctr *c, const fleet_id_slot *s,
                                            const char *suffix,
                                            fleet_initializer first)
{
    const char *table = fl_arena_format(
        &c->p->arena, "%s%s", s->table ? s->table : "embedding", suffix);

    if (!table)
        fl_program_failed(c->p, FLEET_ENOMEM);
    return (fleet_sparse_embedding_options){
        .table = table,
        .initializer = first,
        .rows = c->o.rows,
        .combiner = s->combiner,
        .check_ids = c->o.check_ids,
        .fresh = c->o.fresh,
        .default_id = c->o.default_id,
        .life = c->o.life,
        .memory_cap_bytes = c->o.memory_cap_bytes,
        .cold_folder = c->o.cold_folder,
        .storage = c->o.storage,
    };
}

fleet_var *fl_ctr_slot_rows(fl_ctr *c, int i, int64_t dim, const char *suffix,
                            fleet_initializer first)
{
    const fleet_sparse_embedding_options o =
        fl_ctr_table(c, &c->o.ids[i], suffix, first);

    return fleet_sparse_embedding(c->p, c->part[i], dim, &o);
}

/* --- inputs and towers --------------------------------------------------- */

int64_t fl_ctr_n_field(const fl_ctr *c)
{
    return c->n_field + (c->numbers ? c->dense_dim : 0);
}

fleet_var *fl_ctr_hidden(fl_ctr *c, fleet_var *x, const int64_t *hidden,
                         int n_hidden)
{
    bool own = c->o.hidden != NULL;

    return fl_model_hidden(c->p, x, "tower", own ? c->o.hidden : hidden,
                           own ? c->o.n_hidden : n_hidden, FLEET_RELU);
}

fleet_var *fl_ctr_tower(fl_ctr *c, fleet_var *x, const int64_t *hidden,
                        int n_hidden, int64_t out)
{
    return fl_model_layer(c->p, fl_ctr_hidden(c, x, hidden, n_hidden),
                          "tower_out", out, FLEET_LINEAR);
}

/* Each number times a vector of its own: [B, n] -> [B, n dim]. */
static fleet_var *number_fields(fl_ctr *c, int64_t dim, const char *name,
                                fleet_initializer first)
{
    int64_t n = c->dense_dim;
    fleet_var *w = fleet_parameter(
        c->p, (int64_t[]){n, dim}, 2,
        &(fleet_param_attr){.name = name, .initializer = first});
    fleet_var *x = fleet_reshape(c->p, c->numbers, (int64_t[]){-1, n, 1}, 3);

    return fleet_reshape(c->p, fleet_mul(c->p, x, w), (int64_t[]){-1, n * dim},
                         2);
}

/* The rows of each slot of a role, n of them, with room for one more; NULL: the
 * program failed. */
static fleet_var **embed_all(fl_ctr *c, fleet_slot_role role, int64_t dim,
                             const char *suffix, fleet_initializer first,
                             int *n)
{
    fleet_var **part = fl_alloc_array((size_t)c->o.n_ids + 1, sizeof *part);

    *n = 0;
    if (!part)
        return fl_program_failed(c->p, FLEET_ENOMEM);
    for (int i = 0; i < c->o.n_ids; i++)
        if (c->o.ids[i].role == role)
            part[(*n)++] = fl_ctr_slot_rows(c, i, dim, suffix, first);
    return part;
}

/* `last`, if it is not NULL, comes behind the n rows. */
static fleet_var *side_by_side(fl_ctr *c, fleet_var **part, int n,
                               fleet_var *last)
{
    fleet_var *all = NULL;

    if (!part)
        return NULL;
    if (last)
        part[n++] = last;
    if (n > 0)
        all = n > 1 ? fleet_concat(c->p, part, n, 1) : part[0];
    fl_free(part);
    return all;
}

fleet_var *fl_ctr_rows_of(fl_ctr *c, fleet_slot_role role, int64_t dim,
                          const char *suffix, fleet_initializer first,
                          fleet_var *last)
{
    int n;
    fleet_var **part = embed_all(c, role, dim, suffix, first, &n);

    return side_by_side(c, part, n, last);
}

fleet_var *fl_ctr_rows(fl_ctr *c, int64_t dim, const char *suffix,
                       fleet_initializer first, fleet_var *last)
{
    return fl_ctr_rows_of(c, FLEET_SLOT_FEATURE, dim, suffix, first, last);
}

fleet_var *fl_ctr_fields(fl_ctr *c, int64_t dim, const char *suffix,
                         const char *numbers, fleet_initializer first)
{
    int n;
    fleet_var **part = embed_all(c, FLEET_SLOT_FEATURE, dim, suffix, first, &n);

    return side_by_side(
        c, part, n, c->numbers ? number_fields(c, dim, numbers, first) : NULL);
}

fleet_var *fl_ctr_input(fl_ctr *c)
{
    fleet_initializer first = {FLEET_INIT_DEFAULT, 0, 0};

    return fl_ctr_rows(c, c->o.embedding_dim, "", first, c->numbers);
}

/* --- a model ------------------------------------------------------------- */

fleet_var *fl_ctr_build(fleet_program *p, const fleet_ctr_options *options,
                        fleet_model *out, const fl_ctr_model *model)
{
    fleet_model m = {.label = NULL};
    fleet_status status;
    fl_ctr c;

    if (!p || !fl_program_ok(p))
        return NULL;
    status = open_ctr(&c, p, options, model, &m);
    if (status != FLEET_OK)
        return fl_program_failed(p, status);
    model->build(&c, &m);
    fl_free(c.part);
    if (out)
        *out = m;
    return m.loss;
}
