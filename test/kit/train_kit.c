/* train_kit.c - made-up batches, optimizers by name, two small models. */
#define SUITE train_kit
#include "train_kit.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "fleet/job/handle.h"
#include "runtime/simd/simd.h"

static uint64_t bits_of(int64_t i, int stream)
{
    return fl_mix((uint64_t)i * 0x9E3779B97F4A7C15 + (uint64_t)stream + 1);
}

float kit_noise(int64_t i, int stream)
{
    return (float)(int32_t)(bits_of(i, stream) >> 40) * 0x1p-23f - 1;
}

/* --- batches ------------------------------------------------------------- */

kit_batch *kit_batch_new(int64_t rows)
{
    kit_batch *b = calloc(1, sizeof *b);

    b->rows = rows;
    return b;
}

void kit_batch_free(kit_batch *b)
{
    for (int i = 0; b && i < b->n; i++) {
        free((void *)(uintptr_t)b->feed[i].data);
        free((void *)(uintptr_t)b->feed[i].offsets);
    }
    free(b);
}

static void add_feed(kit_batch *b, const char *name, fleet_dtype dtype,
                     const void *data, int64_t dim, const int64_t *offsets)
{
    CHECK(b->n < KIT_MOST_FEEDS);
    b->dims[b->n][0] = b->rows;
    b->dims[b->n][1] = dim;
    b->feed[b->n++] =
        (fleet_feed){name, dtype, data, NULL, offsets ? 1 : 2, offsets};
}

float *kit_floats(kit_batch *b, const char *name, int64_t dim, int stream)
{
    float *x = malloc((size_t)(b->rows * dim) * sizeof *x);

    for (int64_t i = 0; i < b->rows * dim; i++)
        x[i] = kit_noise(i, stream);
    add_feed(b, name, FLEET_FLOAT32, x, dim, NULL);
    return x;
}

static int64_t *ids_of(int64_t n, int64_t below, int stream)
{
    int64_t *id = malloc((size_t)(n + 1) * sizeof *id);

    for (int64_t i = 0; i < n; i++)
        id[i] = (int64_t)(bits_of(i, stream) % (uint64_t)below);
    return id;
}

int64_t *kit_ids(kit_batch *b, const char *name, int64_t dim, int64_t below,
                 int stream)
{
    int64_t *id = ids_of(b->rows * dim, below, stream);

    add_feed(b, name, FLEET_INT64, id, dim, NULL);
    return id;
}

static int64_t *offsets_of(const kit_batch *b, int most, int stream)
{
    int64_t *offsets = calloc((size_t)b->rows + 1, sizeof *offsets);

    for (int64_t i = 0; i < b->rows; i++)
        offsets[i + 1] = offsets[i] + (int64_t)(bits_of(i, stream + 5000) %
                                                (uint64_t)(most + 1));
    return offsets;
}

/* With the offsets, which become its own. */
static float *add_ragged_floats(kit_batch *b, const char *name,
                                int64_t *offsets, int stream)
{
    int64_t n = offsets[b->rows];
    float *x = malloc((size_t)(n + 1) * sizeof *x);

    for (int64_t i = 0; i < n; i++)
        x[i] = kit_noise(i, stream);
    add_feed(b, name, FLEET_FLOAT32, x, 0, offsets);
    return x;
}

float *kit_ragged_floats(kit_batch *b, const char *name, int most, int stream)
{
    return add_ragged_floats(b, name, offsets_of(b, most, stream), stream);
}

float *kit_weights(kit_batch *b, const char *name, int of, int stream)
{
    size_t size = (size_t)(b->rows + 1) * sizeof(int64_t);
    int64_t *offsets = malloc(size);

    memcpy(offsets, b->feed[of].offsets, size);
    return add_ragged_floats(b, name, offsets, stream);
}

int64_t *kit_ragged(kit_batch *b, const char *name, int most, int64_t below,
                    int stream)
{
    int64_t *offsets = offsets_of(b, most, stream), *id;

    id = ids_of(offsets[b->rows], below, stream);
    add_feed(b, name, FLEET_INT64, id, 0, offsets);
    return id;
}

void kit_keep(kit_batch *b, const fleet_program *p)
{
    int n = 0;

    for (int i = 0; i < b->n; i++)
        if (fleet_program_var(p, b->feed[i].name)) {
            b->feed[n] = b->feed[i];
            memcpy(b->dims[n++], b->dims[i], sizeof b->dims[i]);
        } else {
            free((void *)(uintptr_t)b->feed[i].data);
            free((void *)(uintptr_t)b->feed[i].offsets);
        }
    b->n = n;
}

int kit_feeds(const kit_batch *b, fleet_feed feed[KIT_MOST_FEEDS])
{
    for (int i = 0; i < b->n; i++) {
        feed[i] = b->feed[i];
        feed[i].dims = b->dims[i];
    }
    return b->n;
}

kit_batch kit_head(const kit_batch *b, int64_t rows)
{
    kit_batch head = *b;

    CHECK(rows <= b->rows);
    head.rows = rows;
    for (int i = 0; i < head.n; i++)
        head.dims[i][0] = rows;
    return head;
}

/* --- models -------------------------------------------------------------- */

fleet *kit_handle(const kit_options *o)
{
    fleet_options options = {.num_threads = o->threads ? o->threads : 1,
                             .seed = o->seed ? o->seed : 7,
                             .log_level = FLEET_LOG_WARNING,
                             .role = o->role};
    fleet *f;

    CHECK_OK(fleet_init(&f, &options));
    if (o->make_rows)
        f->store->make_rows = o->make_rows;
    return f;
}

fleet_optimizer *kit_own_rule(fleet *f, const char *name, float rate)
{
    int kind = 0;

    if (strcmp(name, KIT_ROW_ADAM) == 0)
        return fleet_adam(f, rate, &(fleet_adam_options){.row_steps = 1});
    while (kind < FL_N_RULE &&
           strcmp(fl_rule_of((fl_rule_kind)kind)->name, name) != 0)
        kind++;
    CHECK(kind < FL_N_RULE);
    return fl_handle_optimizer(f, (fl_rule_kind)kind, rate,
                               (float[FL_MAX_NUMBER]){0});
}

static void give_to_tables(const fleet *f, fleet_optimizer *to,
                           fleet_optimizer *o)
{
    for (size_t i = 0; i < f->n_program; i++)
        for (size_t k = 0; k < f->program[i]->n_var; k++) {
            const fleet_var *v = f->program[i]->var[k];

            if (v->kind == FL_VAR_TABLE)
                CHECK_OK(fleet_optimizer_set_table(to, v->name, o));
        }
}

fleet_optimizer *kit_rule(fleet *f, const char *name, float rate)
{
    fleet_optimizer *o = kit_own_rule(f, name, rate), *rest;

    CHECK(o != NULL);
    if (fl_rule_of(o->kind)->n_row == 0)
        return o;
    rest = fleet_sgd(f, rate);
    CHECK_OK(fleet_optimizer_set_l1_decay(o, 0.002f));
    CHECK_OK(fleet_optimizer_set_value_clip(o, 0.02f));
    give_to_tables(f, rest, o);
    return rest;
}

void kit_group(fleet *f, fleet_optimizer *o, const char *rule)
{
    fleet_optimizer *own = kit_own_rule(f, rule, 0.03f);

    CHECK(own != NULL);
    CHECK_OK(fleet_optimizer_set_l2_decay(own, 0.004f));
    CHECK_OK(fleet_optimizer_set_l1_decay(own, 0.002f));
    CHECK_OK(fleet_optimizer_set_value_clip(own, 0.02f));
    CHECK_OK(fleet_optimizer_set_exponential_decay(own, 0.8f, 2, 0));
    CHECK_OK(fleet_optimizer_add_group(o, f->program[0], "tower_?.w", own));
}

const char *kit_rule_name(int i)
{
    return i < FL_N_RULE    ? fl_rule_of((fl_rule_kind)i)->name
           : i == FL_N_RULE ? KIT_ROW_ADAM
                            : NULL;
}

static void set_layers(fleet_distributed_strategy *s, const kit_options *o)
{
    s->lars = o->layers && strcmp(o->layers, "lars") == 0;
    s->lamb = o->layers && !s->lars;
    if (s->lars && o->layer_coeff > 0)
        s->lars_configs.lars_coeff = o->layer_coeff;
    if (s->lars && o->layer_decay > 0)
        s->lars_configs.lars_weight_decay = o->layer_decay;
    if (s->lars)
        s->lars_configs.epsilon = o->layer_epsilon;
    if (s->lamb && o->layer_decay > 0)
        s->lamb_configs.lamb_weight_decay = o->layer_decay;
}

fleet_optimizer *kit_optimizer(fleet *f, const kit_options *options)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    float rate = options->learning_rate > 0 ? options->learning_rate : 0.05f;
    const char *name = options->optimizer ? options->optimizer : "adam";
    fleet_optimizer *o;

    set_layers(&s, options);
    o = kit_rule(f, s.lars ? "momentum" : name, rate);
    CHECK(o != NULL);
    if (options->l2_decay > 0)
        CHECK_OK(fleet_optimizer_set_l2_decay(o, options->l2_decay));
    CHECK_OK(fleet_optimizer_set_l1_decay(o, options->l1_decay));
    if (options->value_clip > 0)
        CHECK_OK(fleet_optimizer_set_value_clip(o, options->value_clip));
    if (options->norm_clip > 0)
        CHECK_OK(fleet_optimizer_set_norm_clip(o, options->norm_clip));
    if (options->clip > 0)
        CHECK_OK(fleet_optimizer_set_global_norm_clip(o, options->clip));
    if (options->group)
        kit_group(f, o, options->group);
    s.gradient_merge = options->merge > 1;
    s.gradient_merge_configs.k_steps = options->merge > 1 ? options->merge : 1;
    s.gradient_merge_configs.avg = !options->sum;
    if (options->scaling) {
        s.amp_configs = *options->scaling;
        s.amp_configs.use_fp16_guard = 1; /* as by default */
    }
    s.amp_configs.use_bf16 = options->bf16;
    s.amp = options->bf16 || options->fp16;
    if (options->choose)
        options->choose(&s);
    CHECK(fleet_distributed_optimizer(f, o, &s) == o);
    return o;
}

static void build_mlp(kit_model *m)
{
    static const int64_t hidden[] = {33, 17};

    fleet_mlp(m->p,
              &(fleet_mlp_options){.dim = 20,
                                   .classes = 5,
                                   .hidden = hidden,
                                   .n_hidden = 2,
                                   .activation = FLEET_TANH},
              &m->m);
}

/* The rest is the case's own. */
static void build_wide_deep(kit_model *m, fleet_ctr_options o)
{
    static const int64_t hidden[] = {32, 16};

    o.embedding_dim = 9;
    o.hidden = hidden;
    o.n_hidden = 2;
    o.wide_ids = 1;
    o.label_dtype = FLEET_FLOAT32;
    fleet_wide_deep(m->p, &o, &m->m);
}

static void build_ctr(kit_model *m)
{
    static const fleet_dense_slot dense[] = {{.name = "numbers", .dim = 5}};
    static const fleet_id_slot ids[] = {
        {.name = "one", .dim = 1},
        {.name = "three", .dim = 3},
        {.name = "some", .dim = -1},
        {"mean", -1, FLEET_MEAN, "second", 0, FLEET_SLOT_FEATURE},
    };

    build_wide_deep(m,
                    (fleet_ctr_options){
                        .dense = dense, .n_dense = 1, .ids = ids, .n_ids = 4});
}

static void build_pooled(kit_model *m)
{
    static const fleet_dense_slot dense[] = {{.name = "numbers", .dim = 2},
                                             {"prices", -1, FLEET_SQRT},
                                             {"highest", -1, FLEET_MAX}};
    static const fleet_id_slot ids[] = {
        {.name = "one", .dim = 1},
        {"rated", -1, FLEET_SUM, NULL, 1, FLEET_SLOT_FEATURE},
        {"most", -1, FLEET_MAX, NULL, 0, FLEET_SLOT_FEATURE},
        {"heaviest", -1, FLEET_MAX, "second", 1, FLEET_SLOT_FEATURE},
        {"root", -1, FLEET_SQRT, NULL, 1, FLEET_SLOT_FEATURE},
        {"mean", -1, FLEET_MEAN, "second", 1, FLEET_SLOT_FEATURE},
    };

    build_wide_deep(m,
                    (fleet_ctr_options){
                        .dense = dense, .n_dense = 3, .ids = ids, .n_ids = 6});
}

/* The rows of a history of a table and of a parameter, where it has any. */
static fleet_var *history_of(fleet_program *p)
{
    enum { MOST = 3, DIM = 9 };
    fleet_var *ids = fleet_data_ragged(p, "history");
    fleet_var *x = fleet_sequence_embedding(p, ids, DIM, MOST, 0, NULL);
    fleet_var *mask = fleet_sequence_mask(p, ids, MOST), *y;

    y = fleet_embedding(
        p, fleet_sequence_pad(p, ids, MOST, 0, 40), 41, DIM,
        &(fleet_embedding_options){.has_padding = 1, .padding_id = 40});
    x = fleet_add(p, x, fleet_reshape(p, y, (int64_t[]){-1, MOST, DIM}, 3));
    return fleet_mul(p, fleet_tanh(p, x), fleet_unsqueeze(p, mask, 2));
}

static void build_sequence(kit_model *m)
{
    fleet_var *numbers = fleet_sequence_pad(
        m->p, fleet_data_ragged_floats(m->p, "prices"), 2, 1, -1);
    fleet_var *x = fleet_fc(m->p, history_of(m->p), 8, NULL);

    x = fleet_concat(m->p, (fleet_var *[]){x, numbers}, 2, 1);
    m->m.label = kit_data(m->p, "label", 1);
    x = fleet_fc(m->p, x, 1, NULL);
    m->m.prediction = fleet_sigmoid(m->p, x);
    m->m.loss =
        fleet_mean(m->p, fleet_sigmoid_cross_entropy(m->p, x, m->m.label));
}

/* The square of what a layer makes of numbers that are normalized twice. A bias
 * before that would have no gradient but what rounding leaves. */
static void add_normalized(kit_model *m)
{
    const char *of = m->kind == KIT_MLP ? "image" : "numbers";
    fleet_var *x =
        fleet_fc(m->p, fleet_program_var(m->p, of), 6,
                 &(fleet_fc_options){.name = "normed", .no_bias = 1});

    x = fleet_batch_norm(m->p, x, &(fleet_batch_norm_options){.name = "norm"});
    x = fleet_fc(m->p, fleet_tanh(m->p, x), 3,
                 &(fleet_fc_options){.name = "again", .no_bias = 1});
    x = fleet_batch_norm(m->p, x, &(fleet_batch_norm_options){.name = "last"});
    x = fleet_fc(m->p, fleet_tanh(m->p, x), 1, NULL);
    m->m.loss =
        fleet_add(m->p, m->m.loss, fleet_mean(m->p, fleet_square(m->p, x)));
}

void kit_place(fleet_program *p, const kit_options *o)
{
    fleet_place place;

    if (o->device) {
        CHECK_OK(fleet_place_parse(o->device, &place));
        CHECK_OK(fleet_program_place(
            p, place,
            &(fleet_place_options){.strict_fp32 = !o->bf16 && !o->fp16,
                                   .allow_cpu = o->allow_cpu,
                                   .no_graphs = o->no_graphs}));
    }
    CHECK_OK(fleet_device_guard(p, o->guard));
}

void kit_build(kit_model *m, kit_kind kind, const kit_options *options)
{
    *m = (kit_model){.kind = kind};
    m->f = kit_handle(options);
    m->p = fleet_program_create(m->f);
    kit_place(m->p, options);
    if (kind == KIT_MLP)
        build_mlp(m);
    else if (kind == KIT_CTR)
        build_ctr(m);
    else if (kind == KIT_POOLED)
        build_pooled(m);
    else
        build_sequence(m);
    if (options->normalized)
        add_normalized(m);
    if (options->unreached)
        fleet_fc(m->p, fleet_program_var(m->p, "image"), 3,
                 &(fleet_fc_options){.name = "unreached"});
    CHECK_OK(fleet_program_status(m->p));
    m->o = kit_optimizer(m->f, options);
    CHECK_OK(fleet_minimize(m->o, m->m.loss));
}

void kit_open(kit_model *m, kit_kind kind, const kit_options *options)
{
    kit_build(m, kind, options);
    m->e = fleet_executor_create(
        m->p, &(fleet_executor_options){.max_batch = options->max_batch});
    CHECK(m->e != NULL);
}

void kit_close(kit_model *m)
{
    fleet_executor_destroy(m->e);
    fleet_destroy(m->f);
}

fleet_var *kit_data(fleet_program *p, const char *name, int64_t dim)
{
    return fleet_data(p, name, FLEET_FLOAT32, (int64_t[]){-1, dim}, 2);
}

fleet_var *kit_data_ids(fleet_program *p, const char *name, int64_t dim)
{
    return fleet_data(p, name, FLEET_INT64, (int64_t[]){-1, dim}, 2);
}

void kit_refused(fleet *f, fleet_optimizer *o,
                 const fleet_distributed_strategy *s, fleet_status status,
                 const char *words)
{
    CHECK(fleet_distributed_optimizer(f, o, s) == NULL);
    CHECK_INT(fleet_last_status(), status);
    CHECK_CONTAINS(fleet_last_error(), words);
}

void kit_need_bf16(void)
{
    if (!fl_simd_has_bf16())
        test_skip("this processor has no avx512_bf16");
}

/* Few ids, so that some stand in a sample twice: columns of equal numbers. */
static void pooled_feeds(kit_batch *b, int seed)
{
    static const char *const of[] = {"rated", "heaviest", "root", "mean"};
    static const char *const weights[] = {"rated.weights", "heaviest.weights",
                                          "root.weights", "mean.weights"};

    kit_floats(b, "numbers", 2, seed);
    kit_ragged_floats(b, "prices", 3, seed + 10);
    kit_ragged_floats(b, "highest", 4, seed + 20);
    kit_ids(b, "one", 1, 50, seed + 100);
    kit_ragged(b, "most", 5, 9, seed + 200);
    for (int i = 0; i < 4; i++) {
        kit_ragged(b, of[i], 5, 40, seed + 300 + i);
        kit_weights(b, weights[i], b->n - 1, seed + 400 + i);
    }
}

kit_batch *kit_batch_for(const kit_model *m, int64_t rows, int seed)
{
    kit_batch *b = kit_batch_new(rows);
    float *label;

    if (m->kind == KIT_MLP) {
        kit_floats(b, "image", 20, seed);
        kit_ids(b, "label", 1, 5, seed + 100);
        return b;
    }
    if (m->kind == KIT_SEQUENCE) {
        kit_ragged(b, "history", 5, 40, seed);
        kit_ragged_floats(b, "prices", 3, seed + 10);
    } else if (m->kind == KIT_POOLED) {
        pooled_feeds(b, seed);
    } else {
        kit_floats(b, "numbers", 5, seed);
        kit_ids(b, "one", 1, 50, seed + 100);
        kit_ids(b, "three", 3, 400, seed + 200);
        kit_ragged(b, "some", 6, 300, seed + 300);
        kit_ragged(b, "mean", 4, 60, seed + 400);
    }
    label = kit_floats(b, "label", 1, seed + 500);
    for (int64_t i = 0; i < rows; i++)
        label[i] = label[i] > 0.3f;
    return b;
}

fleet_status kit_run(fleet_executor *e, const kit_batch *b)
{
    fleet_feed feed[KIT_MOST_FEEDS];
    int n = kit_feeds(b, feed);

    return fleet_executor_run(e, feed, n, NULL, 0);
}

fleet_status kit_fetch(fleet_executor *e, const kit_batch *b,
                       const fleet_var *var, float *out, int64_t n)
{
    fleet_fetch fetch = {
        .var = var, .data = out, .size = (size_t)n * sizeof *out};
    fleet_feed feed[KIT_MOST_FEEDS];
    int n_feed = kit_feeds(b, feed);

    return fleet_executor_run(e, feed, n_feed, &fetch, 1);
}

float kit_step(fleet_executor *e, const kit_batch *b, const fleet_var *loss)
{
    float x = NAN;

    CHECK_OK(kit_fetch(e, b, loss, &x, 1));
    return x;
}

uint64_t kit_train(kit_model *m, int64_t rows, int batches)
{
    for (int i = 0; i < batches; i++) {
        kit_batch *b = kit_batch_for(m, rows, i);

        CHECK_OK(kit_run(m->e, b));
        kit_batch_free(b);
    }
    return kit_hash(m->f);
}

uint64_t kit_hash(fleet *f)
{
    uint64_t hash = 0;

    CHECK_OK(fleet_params_hash(f, &hash));
    return hash;
}
