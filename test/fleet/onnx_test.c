/* onnx_test.c - models in ONNX: every operator and every application is
 * exported, checked by `onnx`, and gives by onnxruntime what predictors say;
 * an operator or a model that is new and has no form fails here, by name. */
#define SUITE onnx
#include "onnx_kit.h"
#include "op_kit.h"
#include "test.h"
#include "train_kit.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "fleet/applications/ctr.h"
#include "fleet/onnx/onnx_ops.h"
#include "ops/ops.h"

/* --- operators ------------------------------------------------------------ */

TEST(each_operator_has_a_form_or_a_reason)
{
    for (int i = 0; fl_ops[i]; i++) {
        const fl_onnx_op *o = fl_onnx_op_of(fl_ops[i]);

        if (!o || (o->emit ? !o->type : !o->why || !*o->why))
            test_fail(__FILE__, __LINE__,
                      "operator %s is not in onnx_ops.def: how is it exported?",
                      fl_ops[i]->name);
    }
}

/* What those whose cases are elsewhere, as they are ragged, are tried by. */
static bool is_tried_below(const char *op)
{
    return strcmp(op, "sparse_embedding") == 0 ||
           strcmp(op, "sequence_embedding") == 0 ||
           strcmp(op, "sequence_pool") == 0 ||
           strcmp(op, "sequence_pad") == 0 || strcmp(op, "sequence_mask") == 0;
}

typedef struct op_run {
    const op_case *c;
    bool tried[400]; /* by the operator's place in fl_ops */
} op_run;

static int place_of(const char *op)
{
    int i = 0;

    while (strcmp(fl_ops[i]->name, op) != 0)
        i++;
    return i;
}

static void compare_case(void *arg, const case_view *v)
{
    op_run *run = arg;
    const op_case *c = run->c;
    const fl_onnx_op *o = fl_onnx_op_of(v->out->producer->op);
    fleet_var *feed[KIT_MAX_IN];
    char title[200];
    fleet_predictor *p;
    onnx_model m;
    int n = 0;

    for (int i = 0; i < c->n_in; i++)
        if (!c->in[i].is_param)
            feed[n++] = v->in[i];
    if (n == 0)
        return; /* of parameters alone: other cases have a batch */
    snprintf(title, sizeof title, "%s (%s)", c->op, c->title);
    p = onnx_predictor(v->f, feed, n, &v->out, 1);
    if (o && !o->emit) {
        CHECK_FAILS(fleet_export_onnx(p, test_path("no.onnx"), NULL),
                    FLEET_EUNSUPPORTED, o->why);
    } else {
        onnx_open(&m, title, p, NULL);
        onnx_batch(&m, v->feed, v->n_feed, c->tolerance);
        onnx_close(&m);
    }
    run->tried[place_of(c->op)] = true;
    fleet_predictor_destroy(p);
}

TEST_LIMIT(operators_give_what_the_predictor_says, 120)
{
    op_run run = {0};

    for (int f = 0; op_families[f]; f++)
        for (run.c = op_families[f]; run.c->op; run.c++)
            if (!run.c->bf16)
                view_case(run.c, 3, compare_case, &run);
    for (int i = 0; fl_ops[i]; i++)
        if (!run.tried[i] && !is_tried_below(fl_ops[i]->name))
            test_fail(__FILE__, __LINE__, "operator %s was not exported",
                      fl_ops[i]->name);
    onnx_ask();
}

/* --- sequences and ragged ids --------------------------------------------- */

/* The data variables that the batch has, but for labels. */
static int data_of(fleet_program *p, const kit_batch *b, fleet_var **feed)
{
    int n = 0;

    for (int i = 0; i < b->n; i++)
        if (!strstr(b->feed[i].name, "label") &&
            strcmp(b->feed[i].name, "second") != 0)
            feed[n++] = fleet_program_var(p, b->feed[i].name);
    return n;
}

/* Batches of 1 and of several rows, of ids that were trained and not. */
static void compare_model(const char *title, fleet *f, fleet_program *p,
                          kit_batch *b, fleet_var *const *fetch, int n_fetch)
{
    fleet_var *input[KIT_MOST_FEEDS];
    fleet_feed feed[KIT_MOST_FEEDS];
    kit_batch one = kit_head(b, 1), some = kit_head(b, 5);
    fleet_predictor *predictor =
        onnx_predictor(f, input, data_of(p, b, input), fetch, n_fetch);
    onnx_model m;

    onnx_open(&m, title, predictor, NULL);
    onnx_batch(&m, feed, kit_feeds(&one, feed), 0);
    onnx_batch(&m, feed, kit_feeds(&some, feed), 0);
    onnx_batch(&m, feed, kit_feeds(b, feed), 0);
    onnx_close(&m);
    fleet_predictor_destroy(predictor);
}

static void compare_kit(const char *title, kit_kind kind)
{
    kit_model m;
    kit_batch *b;

    kit_open(&m, kind, &(kit_options){0});
    b = kit_batch_for(&m, 20, 1);
    CHECK_OK(kit_run(m.e, b));
    kit_batch_free(b);
    b = kit_batch_for(&m, 30, 2);
    compare_model(title, m.f, m.p, b, &m.m.prediction, 1);
    kit_batch_free(b);
    kit_close(&m);
}

/* A history in every way, as outputs side by side. */
static int build_history(fleet_program *p, fleet_var **out)
{
    const fleet_sparse_embedding_options o = {.table = "items", .rows = 50};
    fleet_var *ids = fleet_data_weighted(p, "ids");
    fleet_var *x = fleet_data_ragged_floats(p, "x");
    fleet_var *first, *mask;
    int n = 0;

    for (int keep_first = 0; keep_first < 2; keep_first++) {
        out[n++] =
            fleet_sequence_embedding(p, ids, 3, 4 - keep_first, keep_first, &o);
        out[n++] = fleet_sequence_pad(p, x, 3, keep_first, -2);
    }
    mask = out[n++] = fleet_sequence_mask(p, ids, 4);
    first = fleet_sequence_embedding(p, ids, 3, 4, 1, &o);
    out[n++] = fleet_gru(p, first, 5, NULL, NULL);
    out[n++] =
        fleet_gru(p, first, 5, mask, &(fleet_gru_options){.name = "weighted"});
    out[n++] = fleet_lstm(p, first, 3, mask, NULL);
    out[n++] = fleet_sequence_reverse(p, first, mask);
    for (int i = FLEET_SUM; i <= FLEET_LAST; i++) {
        fleet_sparse_embedding_options pooled = o;

        pooled.combiner = (fleet_combiner)i;
        out[n++] = fleet_sparse_embedding(p, ids, 3, &pooled);
        out[n++] = fleet_sequence_pool(p, x, (fleet_combiner)i);
    }
    return n;
}

static void compare_history(void)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    kit_batch *b = kit_batch_new(12);
    fleet_var *out[40];
    int n = build_history(p, out);

    CHECK_OK(fleet_program_status(p));
    kit_ragged(b, "ids", 6, 40, 1);
    kit_weights(b, "ids.weights", 0, 2);
    kit_ragged_floats(b, "x", 5, 3);
    compare_model("a history", f, p, b, out, n);
    kit_batch_free(b);
    fleet_destroy(f);
}

TEST(ragged_ids_are_pooled_and_padded_alike)
{
    compare_kit("pooled", KIT_POOLED);
    compare_kit("sequence", KIT_SEQUENCE);
    compare_kit("wide&deep", KIT_CTR);
    compare_history();
    onnx_ask();
}

/* --- applications --------------------------------------------------------- */

static const int64_t hidden[] = {16, 8};
static const fleet_dense_slot dense[] = {{.name = "left", .dim = 2},
                                         {.name = "right", .dim = 3}};
static const fleet_id_slot slots[] = {
    {.name = "one", .dim = 1},
    {.name = "three", .dim = 3},
    {.name = "some", .dim = -1},
    {.name = "mean", .dim = -1, .combiner = FLEET_MEAN},
};
static const fleet_task_options tasks[] = {{.label = "label"},
                                           {.label = "second"}};

static kit_batch *ctr_batch(int seed)
{
    kit_batch *b = kit_batch_new(20);

    kit_floats(b, "left", 2, seed);
    kit_floats(b, "right", 3, seed + 1);
    kit_ids(b, "one", 1, 20, seed + 2);
    kit_ids(b, "three", 3, 40, seed + 3);
    kit_ragged(b, "some", 5, 30, seed + 4);
    kit_ragged(b, "mean", 5, 30, seed + 5);
    kit_ids(b, "label", 1, 2, seed + 6);
    kit_ids(b, "second", 1, 2, seed + 7);
    return b;
}

/* All predictions of the model. */
static int predictions_of(const fleet_model *m, fleet_var **out)
{
    int n = 0;

    for (int i = 0; i < m->n_task; i++)
        out[n++] = m->task[i].prediction;
    if (n == 0)
        out[n++] = m->prediction;
    if (m->conversion)
        out[n++] = m->conversion;
    if (m->user) {
        out[n++] = m->user;
        out[n++] = m->item;
    }
    return n;
}

/* Train a batch, and compare on another one. */
static void compare_trained(const char *name, fleet *f, fleet_program *p,
                            const fleet_model *m, kit_batch *(*batch)(int))
{
    fleet_var *fetch[FLEET_MOST_TASKS + 3];
    kit_batch *b = batch(1);
    fleet_executor *e;

    kit_keep(b, p);
    CHECK_OK(fleet_program_status(p));
    CHECK_OK(fleet_minimize(fleet_sgd(f, 0.1f), m->loss));
    e = fleet_executor_create(p, NULL);
    CHECK(e != NULL);
    for (int i = 0; i < 3; i++)
        CHECK_OK(kit_run(e, b));
    fleet_executor_destroy(e);
    kit_batch_free(b);
    b = batch(20);
    kit_keep(b, p);
    compare_model(name, f, p, b, fetch, predictions_of(m, fetch));
    kit_batch_free(b);
    fleet_destroy(f);
}

static bool has_option(const fl_ctr_model *model, const char *name)
{
    for (const char *const *own = model->own; *own; own++)
        if (strcmp(*own, name) == 0)
            return true;
    return false;
}

static void compare_ctr(const char *name, const fl_ctr_model *model)
{
    fleet *f = kit_handle(&(kit_options){.threads = 1});
    fleet_program *p = fleet_program_create(f);
    fleet_ctr_options o = {
        .dense = dense, .n_dense = 2, .ids = slots, .n_ids = 4};
    fleet_model m;

    if (has_option(model, "hidden")) {
        o.hidden = hidden;
        o.n_hidden = 2;
    }
    if (model->most_tasks > 0) {
        o.tasks = tasks;
        o.n_tasks = 2;
    }
    fl_ctr_build(p, &o, &m, model);
    compare_trained(name, f, p, &m, ctr_batch);
}

/* Slots with roles: as many of them as the model has. */
static int slots_of(const fl_ctr_model *model, fleet_id_slot *to)
{
    static const fleet_id_slot all[] = {
        {.name = "one"},
        {.name = "history",
         .dim = -1,
         .table = "items",
         .role = FLEET_SLOT_HISTORY},
        {.name = "item", .table = "items", .role = FLEET_SLOT_ITEM}};
    int n = 0;

    for (int i = 0; i < 3; i++)
        if (all[i].role == FLEET_SLOT_FEATURE ? !model->no_features
                                              : model->role[all[i].role].most)
            to[n++] = all[i];
    return n;
}

static kit_batch *sequence_batch(int seed)
{
    kit_batch *b = kit_batch_new(20);

    kit_ids(b, "one", 1, 20, seed);
    kit_ragged(b, "history", 6, 30, seed + 1);
    kit_ids(b, "item", 1, 30, seed + 2);
    kit_ids(b, "label", 1, 2, seed + 3);
    return b;
}

static void compare_sequences(const char *name, const fl_ctr_model *model)
{
    fleet *f = kit_handle(&(kit_options){.threads = 1});
    fleet_program *p = fleet_program_create(f);
    fleet_id_slot ids[3];
    fleet_ctr_options o = {.ids = ids, .n_ids = slots_of(model, ids)};
    fleet_model m;

    if (has_option(model, "max_len"))
        o.max_len = 4;
    fl_ctr_build(p, &o, &m, model);
    compare_trained(name, f, p, &m, sequence_batch);
}

static kit_batch *mlp_batch(int seed)
{
    kit_batch *b = kit_batch_new(20);

    kit_floats(b, "image", 20, seed);
    kit_ids(b, "label", 1, 5, seed + 1);
    return b;
}

static void compare_mlp(const char *name)
{
    fleet *f = kit_handle(&(kit_options){.threads = 1});
    fleet_program *p = fleet_program_create(f);
    fleet_model m;

    fleet_mlp(p, &(fleet_mlp_options){.dim = 20, .classes = 5}, &m);
    compare_trained(name, f, p, &m, mlp_batch);
}

static kit_batch *image_batch(int seed)
{
    kit_batch *b = kit_batch_new(20);

    kit_floats(b, "image", 28 * 28, seed);
    kit_ids(b, "label", 1, 10, seed + 1);
    return b;
}

static void compare_lenet(const char *name)
{
    fleet *f = kit_handle(&(kit_options){.threads = 1});
    fleet_program *p = fleet_program_create(f);
    fleet_model m;

    fleet_lenet(p, NULL, &m);
    compare_trained(name, f, p, &m, image_batch);
}

TEST_LIMIT(every_application_gives_what_the_predictor_says, 120)
{
#define FL_CTR_MODEL(title)      compare_ctr(#title, &fl_model_##title);
#define FL_SEQUENCE_MODEL(title) compare_sequences(#title, &fl_model_##title);
#define FL_MODEL(title)          compare_##title(#title);
#include "fleet/applications/model_list.def"
#undef FL_CTR_MODEL
#undef FL_MODEL
    onnx_ask();
}
