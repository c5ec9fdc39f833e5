/* applications.c - the models of applications.h, made of operators. */
#include <math.h>
#include <stdio.h>

#include <fleet/fleet.h>

#include "base/memory.h"
#include "runtime/graph/program.h"

enum { PADDLE_DENSE = 13, PADDLE_IDS = 26 };

/* Options with PaddleRec's choices filled in. */
typedef struct ctr {
    fleet_program *p;
    fleet_ctr_options o;
    fleet_dense_slot dense;
    fleet_id_slot ids[PADDLE_IDS];
    char name[PADDLE_IDS][12]; /* any int, or compilers see one cut off */
    int64_t dense_dim;         /* numbers of all dense slots */
    int64_t n_field;    /* ids of all id slots; a ragged one counts as one */
    fleet_var *numbers; /* [B, dense_dim], NULL: none */
    fleet_var **part;   /* per id slot */
    fleet_var *weight;  /* of samples; NULL: all have 1 */
} ctr;

static void paddle_slots(ctr *c)
{
    if (c->o.n_dense == 0 && c->o.n_ids == 0 && !c->o.no_dense) {
        c->dense =
            (fleet_dense_slot){.name = "dense_input", .dim = PADDLE_DENSE};
        c->o.dense = &c->dense;
        c->o.n_dense = 1;
    }
    if (c->o.n_ids > 0)
        return;
    for (int i = 0; i < PADDLE_IDS; i++) {
        snprintf(c->name[i], sizeof c->name[i], "%d", i + 1);
        c->ids[i] = (fleet_id_slot){.name = c->name[i]};
    }
    c->o.ids = c->ids;
    c->o.n_ids = PADDLE_IDS;
}

static fleet_status bad_option(const char *what, long long got)
{
    return fl_fail(FLEET_EINVAL, "model: %s cannot be %lld", what, got);
}

static fleet_status check_ctr(ctr *c)
{
    if (c->o.embedding_dim < 0)
        return bad_option("embedding_dim", c->o.embedding_dim);
    if (c->o.n_dense < 0 || c->o.n_ids < 0 || c->o.n_hidden < 0)
        return bad_option("a number of slots or layers", -1);
    if ((c->o.n_dense > 0 && !c->o.dense) || (c->o.n_ids > 0 && !c->o.ids) ||
        (c->o.n_hidden > 0 && !c->o.hidden))
        return fl_fail(FLEET_EINVAL,
                       "model: a number of slots or layers, but their array is "
                       "NULL");
    paddle_slots(c);
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
        c->n_field += c->o.ids[i].dim > 1 ? c->o.ids[i].dim : 1;
    }
    return FLEET_OK;
}

static fleet_var *data(fleet_program *p, const char *name, fleet_dtype dtype,
                       int64_t dim)
{
    return fleet_data(p, name, dtype, (int64_t[]){-1, dim ? dim : 1}, 2);
}

static fleet_var *weight_slot(fleet_program *p, const char *name)
{
    return name ? data(p, name, FLEET_FLOAT32, 1) : NULL;
}

/* The mean, with weights if there are any. */
static fleet_var *mean_loss(fleet_program *p, fleet_var *loss,
                            fleet_var *weight)
{
    return fleet_mean(p, weight ? fleet_weighted_loss(p, loss, weight) : loss);
}

static fleet_var *dense_slot(fleet_program *p, const fleet_dense_slot *s)
{
    if (s->dim != -1)
        return data(p, s->name, FLEET_FLOAT32, s->dim);
    return fleet_sequence_pool(p, fleet_data_ragged_floats(p, s->name),
                               s->combiner);
}

static fleet_var *id_slot(fleet_program *p, const fleet_id_slot *s)
{
    return s->weighted    ? fleet_data_weighted(p, s->name)
           : s->dim == -1 ? fleet_data_ragged(p, s->name)
                          : data(p, s->name, FLEET_INT64, s->dim);
}

static fleet_status open_ctr(ctr *c, fleet_program *p,
                             const fleet_ctr_options *options, fleet_model *m)
{
    *c = (ctr){.p = p};
    if (options)
        c->o = *options;
    FL_TRY(check_ctr(c));
    if (c->o.embedding_dim == 0)
        c->o.embedding_dim = 9;
    FL_TRY(FL_NEW(&c->part,
                  (size_t)(c->o.n_ids + c->o.n_dense + 1) * sizeof *c->part));
    m->label = data(p, c->o.label ? c->o.label : "label",
                    c->o.label_dtype ? c->o.label_dtype : FLEET_INT64, 1);
    c->weight = weight_slot(p, c->o.weight);
    for (int i = 0; i < c->o.n_dense; i++)
        c->part[i] = dense_slot(p, &c->o.dense[i]);
    c->numbers = c->o.n_dense > 1 ? fleet_concat(p, c->part, c->o.n_dense, 1)
                                  : c->part[0];
    for (int i = 0; i < c->o.n_ids; i++)
        c->part[i] = id_slot(p, &c->o.ids[i]);
    return FLEET_OK;
}

/* A slot's rows; `suffix` tells tables of one model apart. */
static fleet_var *embed(ctr *c, int i, fleet_var *ids, int64_t dim,
                        const char *suffix, fleet_initializer first)
{
    const fleet_id_slot *s = &c->o.ids[i];
    const char *table = fl_arena_format(
        &c->p->arena, "%s%s", s->table ? s->table : "embedding", suffix);

    if (!table)
        return fl_program_failed(c->p, FLEET_ENOMEM);
    return fleet_sparse_embedding(c->p, ids, dim,
                                  &(fleet_sparse_embedding_options){
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
                                  });
}

/* --- towers -------------------------------------------------------------- */

static fleet_var *layer(fleet_program *p, fleet_var *x, const char *name,
                        int64_t units, fleet_activation activation)
{
    double fan_in = 1;
    fleet_fc_options o = {.name = name, .activation = activation};

    if (x) {
        int64_t dims[FLEET_MAX_DIM];
        int n = fleet_var_shape(x, dims);

        for (int i = 1; i < n; i++)
            fan_in *= (double)dims[i];
    }
    o.weight.initializer =
        (fleet_initializer){FLEET_INIT_NORMAL, 0, (float)(1 / sqrt(fan_in))};
    return fleet_fc(p, x, units, &o);
}

/* Hidden layers of relu, then `out` units without activation. */
static fleet_var *tower(fleet_program *p, fleet_var *x, const int64_t *hidden,
                        int n_hidden, fleet_activation activation, int64_t out)
{
    char name[32];

    for (int i = 0; i < n_hidden; i++) {
        snprintf(name, sizeof name, "tower_%d", i);
        x = layer(p, x, name, hidden[i], activation);
    }
    return layer(p, x, "tower_out", out, FLEET_LINEAR);
}

static fleet_var *ctr_tower(ctr *c, fleet_var *x, const int64_t *hidden,
                            int n_hidden, int64_t out)
{
    if (c->o.hidden)
        return tower(c->p, x, c->o.hidden, c->o.n_hidden, FLEET_RELU, out);
    return tower(c->p, x, hidden, n_hidden, FLEET_RELU, out);
}

/* Each number times a vector of its own: [B, n] -> [B, n dim]. */
static fleet_var *number_fields(ctr *c, int64_t dim, const char *name,
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

/* Vectors of all id slots side by side, then the numbers: as they are, or as
 * vectors of the parameter of that name. */
static fleet_var *fields(ctr *c, int64_t dim, const char *suffix,
                         const char *numbers, fleet_initializer first)
{
    fleet_var **part = fl_alloc_array((size_t)c->o.n_ids + 1, sizeof *part);
    fleet_var *all;
    int n = c->o.n_ids;

    if (!part)
        return fl_program_failed(c->p, FLEET_ENOMEM);
    for (int i = 0; i < n; i++)
        part[i] = embed(c, i, c->part[i], dim, suffix, first);
    if (c->numbers)
        part[n++] =
            numbers ? number_fields(c, dim, numbers, first) : c->numbers;
    all = n > 1 ? fleet_concat(c->p, part, n, 1) : part[0];
    fl_free(part);
    return all;
}

/* Embeddings of all slots, then the numbers, in one row. */
static fleet_var *deep_input(ctr *c)
{
    fleet_initializer first = {FLEET_INIT_DEFAULT, 0, 0};

    return fields(c, c->o.embedding_dim, "", NULL, first);
}

static void finish_binary(ctr *c, fleet_var *logit, fleet_model *m)
{
    m->prediction = fleet_sigmoid(c->p, logit);
    m->loss = mean_loss(c->p, fleet_log_loss(c->p, m->prediction, m->label, 0),
                        c->weight);
}

/* --- wide & deep --------------------------------------------------------- */

/* One weight per id, summed over the slots. */
static fleet_var *wide_of_ids(ctr *c)
{
    fleet_initializer zero = {FLEET_INIT_CONSTANT, 0, 0};
    fleet_var **part = fl_alloc_array((size_t)c->o.n_ids, sizeof *part), *all;

    if (!part)
        return fl_program_failed(c->p, FLEET_ENOMEM);
    for (int i = 0; i < c->o.n_ids; i++)
        part[i] = embed(c, i, c->part[i], 1, "_wide", zero);
    all = c->o.n_ids > 1 ? fleet_concat(c->p, part, c->o.n_ids, 1) : part[0];
    fl_free(part);
    return fleet_reduce_sum(c->p, all, 1, 1);
}

static void wide_deep(ctr *c, fleet_model *m)
{
    static const int64_t hidden[] = {512, 256, 128, 32};
    fleet_fc_options o = {.name = "wide"};
    fleet_var *logit = ctr_tower(c, deep_input(c), hidden, 4, 1);

    if (c->numbers) {
        o.weight.initializer =
            (fleet_initializer){FLEET_INIT_TRUNCATED_NORMAL, 0,
                                (float)(1 / sqrt((double)c->dense_dim))};
        logit = fleet_add(c->p, logit, fleet_fc(c->p, c->numbers, 1, &o));
    }
    if (c->o.wide_ids)
        logit = fleet_add(c->p, logit, wide_of_ids(c));
    finish_binary(c, logit, m);
}

/* The prediction is not the loss's second result: that depends on the label,
 * which a predictor is not fed. */
static void finish_classes(fleet_program *p, fleet_var *logits,
                           fleet_var *weight, fleet_model *m)
{
    m->loss = mean_loss(
        p, fleet_softmax_with_cross_entropy(p, logits, m->label, NULL), weight);
    m->prediction = fleet_softmax(p, logits);
}

/* --- ctr-dnn ------------------------------------------------------------- */

static void ctr_dnn(ctr *c, fleet_model *m)
{
    static const int64_t hidden[] = {512, 256, 128, 32};

    finish_classes(c->p, ctr_tower(c, deep_input(c), hidden, 4, 2), c->weight,
                   m);
}

/* --- DeepFM -------------------------------------------------------------- */

/* Half of (the square of the sum - the sum of squares), summed over the vector:
 * all products of two fields. */
static fleet_var *second_order(ctr *c, fleet_var *e, int64_t n, int64_t dim)
{
    fleet_program *p = c->p;
    fleet_var *x = fleet_reshape(p, e, (int64_t[]){-1, n, dim}, 3);
    fleet_var *of_sum = fleet_square(p, fleet_reduce_sum(p, x, 1, 0));
    fleet_var *of_each = fleet_reduce_sum(p, fleet_square(p, x), 1, 0);
    fleet_var *both = fleet_sub(p, of_sum, of_each);

    return fleet_scale(p, fleet_reduce_sum(p, both, 1, 1), 0.5f, 0);
}

static void deepfm(ctr *c, fleet_model *m)
{
    static const int64_t hidden[] = {400, 400, 400};
    int64_t dim = c->o.embedding_dim;
    int64_t n = c->n_field + (c->numbers ? c->dense_dim : 0);
    fleet_initializer first = {FLEET_INIT_TRUNCATED_NORMAL, 0,
                               (float)(0.1 / sqrt((double)dim))};
    fleet_var *linear = fleet_reduce_sum(
        c->p, fields(c, 1, "_first", "dense_first", first), 1, 1);
    fleet_var *e = fields(c, dim, "", "dense_second", first);
    fleet_var *logit = ctr_tower(c, e, hidden, 3, 1);

    logit = fleet_add(c->p, logit, second_order(c, e, n, dim));
    finish_binary(c, fleet_add(c->p, logit, linear), m);
}

/* --- public -------------------------------------------------------------- */

static fleet_var *build_ctr(fleet_program *p, const fleet_ctr_options *options,
                            fleet_model *out,
                            void (*build)(ctr *, fleet_model *))
{
    fleet_model m = {NULL, NULL, NULL};
    fleet_status status;
    ctr c;

    if (!p || !fl_program_ok(p))
        return NULL;
    status = open_ctr(&c, p, options, &m);
    if (status != FLEET_OK)
        return fl_program_failed(p, status);
    build(&c, &m);
    fl_free(c.part);
    if (out)
        *out = m;
    return m.loss;
}

fleet_var *fleet_wide_deep(fleet_program *p, const fleet_ctr_options *options,
                           fleet_model *model)
{
    return build_ctr(p, options, model, wide_deep);
}

fleet_var *fleet_ctr_dnn(fleet_program *p, const fleet_ctr_options *options,
                         fleet_model *model)
{
    return build_ctr(p, options, model, ctr_dnn);
}

fleet_var *fleet_deepfm(fleet_program *p, const fleet_ctr_options *options,
                        fleet_model *model)
{
    return build_ctr(p, options, model, deepfm);
}

fleet_var *fleet_mlp(fleet_program *p, const fleet_mlp_options *options,
                     fleet_model *out)
{
    static const int64_t paddle[] = {128, 64};
    const fleet_mlp_options *o = options;
    fleet_model m = {NULL, NULL, NULL};
    fleet_var *x, *weight;

    if (!p || !fl_program_ok(p))
        return NULL;
    if (!o || o->dim < 1 || o->classes < 2 || o->n_hidden < 0) {
        fl_fail(FLEET_EINVAL, "mlp: dim %lld and classes %lld are not possible",
                o ? (long long)o->dim : 0, o ? (long long)o->classes : 0);
        return fl_program_failed(p, FLEET_EINVAL);
    }
    x = data(p, o->input ? o->input : "image", FLEET_FLOAT32, o->dim);
    m.label = data(p, o->label ? o->label : "label", FLEET_INT64, 1);
    weight = weight_slot(p, o->weight);
    x = tower(p, x, o->hidden ? o->hidden : paddle, o->hidden ? o->n_hidden : 2,
              o->activation ? o->activation : FLEET_RELU, o->classes);
    finish_classes(p, x, weight, &m);
    if (out)
        *out = m;
    return m.loss;
}
