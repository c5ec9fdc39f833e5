/* sequence_models_test.c - the models of fleet/applications.h whose slots have
 * roles: they come near the best score that their data allow, with the same
 * bits by any number of threads and on a GPU nearly so; their programs are
 * written and read; their checkpoints predict; and what they refuse. */
#define SUITE sequence_models
#include "gpu_kit.h"
#include "history_kit.h"
#include "test.h"
#include "train_kit.h"

#include <string.h>

#include "fleet/checkpoint.h"

typedef struct sequence_case {
    const fl_ctr_model *model;
    fleet_ctr_options o;
    history_rule rule; /* what they can learn of the samples */
    float rate;
    int passes;
} sequence_case;

static const int64_t hidden[] = {16}, attention[] = {8};

#define SMALL .embedding_dim = 8, .max_len = 6
#define TOWER .embedding_dim = 8, .hidden = hidden, .n_hidden = 1
#define DEEP  SMALL, .hidden = hidden, .n_hidden = 1

/* Every FL_SEQUENCE_MODEL of model_list.def. */
static const sequence_case cases[] = {
    {&fl_model_din,
     {DEEP, .attention = attention, .n_attention = 1},
     HISTORY_HAS,
     0.01f,
     6},
    {&fl_model_bst,
     {.embedding_dim = 16,
      .max_len = 6,
      .hidden = hidden,
      .n_hidden = 1,
      .heads = 2,
      .ffn_units = 16},
     HISTORY_NEXT,
     0.005f,
     12},
    {&fl_model_sasrec, {SMALL, .blocks = 1}, HISTORY_NEXT, 0.01f, 6},
    {&fl_model_two_tower, {TOWER, .temperature = 0.5f}, HISTORY_USER, 0.01f, 6},
    {&fl_model_youtube_dnn, {TOWER}, HISTORY_USER, 0.01f, 6},
    {&fl_model_dien,
     {DEEP, .attention = attention, .n_attention = 1},
     HISTORY_NEXT,
     0.01f,
     6},
    {&fl_model_gru4rec, {SMALL}, HISTORY_NEXT, 0.01f, 6},
    {&fl_model_word2vec, {.embedding_dim = 8}, HISTORY_USER, 0.02f, 6},
};

enum { N_CASE = sizeof cases / sizeof *cases, LINES = 3000, BATCH = 64 };

/* Of 2,000 samples that were not trained on, so near the best AUC. */
static const double NEAR = 0.02;

static void open_case(scene *s, const sequence_case *c, int threads)
{
    const fleet_options o = {
        .num_threads = threads, .seed = 7, .log_level = FLEET_LOG_WARNING};

    history_open(s, &o, c->model, c->o, c->rate, NULL);
}

static uint64_t train_case(scene *s, const sequence_case *c, int threads,
                           int lines, int passes)
{
    open_case(s, c, threads);
    history_data(
        s, history_file("train.txt", c->model, lines, 1, c->rule, NULL), BATCH);
    scene_train(s, passes);
    return scene_hash(s);
}

TEST(each_comes_near_the_best_score)
{
    const bool all = test_fraction() == 1;

    for (int i = 0; i < N_CASE; i++) {
        const sequence_case *c = &cases[i];
        double best, found;
        scene s;

        train_case(&s, c, 2, all ? LINES : 200, all ? c->passes : 1);
        found = history_auc(
            &s, history_file("test.txt", c->model, 2000, 2, c->rule, &best));
        scene_close(&s);
        if (all && !(found > best - NEAR && found < best + NEAR))
            test_fail(__FILE__, __LINE__,
                      "%s: an AUC of %.4f, the best is %.4f", c->model->name,
                      found, best);
    }
}

/* On a part of the data. */
TEST(each_has_the_same_bits_by_any_number_of_threads)
{
    for (int i = 0; i < N_CASE; i++) {
        uint64_t one;
        scene s;

        one = train_case(&s, &cases[i], 1, 300, 1);
        scene_close(&s);
        CHECK(train_case(&s, &cases[i], 3, 300, 1) == one);
        scene_close(&s);
    }
}

static double loss_on(const char *device, const sequence_case *c)
{
    fleet_train_result r;
    scene s;

    open_case(&s, c, 1);
    if (device)
        kit_place(s.p, &(kit_options){.device = device});
    history_data(&s, history_file("train.txt", c->model, 150, 1, c->rule, NULL),
                 BATCH);
    s.e = fleet_executor_create(s.p, NULL);
    CHECK(s.e != NULL);
    CHECK_OK(fleet_train_from_dataset(s.e, s.data, NULL, &r));
    scene_close(&s);
    return r.loss;
}

TEST(each_trains_on_a_gpu_as_on_the_cpu)
{
    for (int i = 0; i < N_CASE; i++) {
        double here = loss_on(NULL, &cases[i]), there;

        gpu_kit_open();
        there = loss_on("gpu:0", &cases[i]);
        gpu_kit_close();
        CHECK_NEAR(there, here, 1e-4 * here);
    }
}

TEST(each_of_the_list_is_tried_here)
{
    static const fl_ctr_model *const all[] = {
#define FL_CTR_MODEL(title)
#define FL_SEQUENCE_MODEL(title) &fl_model_##title,
#define FL_MODEL(title)
#include "fleet/applications/model_list.def"
#undef FL_CTR_MODEL
#undef FL_MODEL
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        bool found = false;

        for (int k = 0; k < N_CASE; k++)
            found = found || cases[k].model == all[i];
        if (!found)
            test_fail(__FILE__, __LINE__, "%s is tried nowhere", all[i]->name);
    }
}

/* --- written and read ----------------------------------------------------- */

TEST(each_program_is_read_as_it_was_written)
{
    for (int i = 0; i < N_CASE; i++) {
        scene s;

        open_case(&s, &cases[i], 1);
        scene_is_read_as_written(&s);
        scene_close(&s);
    }
}

/* Histories that are longer than what counts, and none. */
static kit_batch *inputs(const scene *s)
{
    kit_batch *b = kit_batch_new(40);

    kit_ragged(b, "history", 9, HISTORY_ITEMS, 1);
    kit_ids(b, "item", 1, HISTORY_ITEMS, 2);
    kit_ids(b, "user", 1, HISTORY_USERS, 3);
    kit_ragged(b, "negative", 9, HISTORY_ITEMS, 1);
    kit_keep(b, s->p);
    return b;
}

/* Of the batch what the predictor takes. */
static int feeds_of(const fleet_predictor *p, const kit_batch *b,
                    fleet_feed *feed)
{
    int n = 0, all = kit_feeds(b, feed);

    for (int i = 0; i < all; i++)
        for (int k = 0; k < fleet_predictor_input_num(p); k++)
            if (strcmp(fleet_var_name(fleet_predictor_input(p, k)),
                       feed[i].name) == 0)
                feed[n++] = feed[i];
    return n;
}

static void check_predicts(const sequence_case *c)
{
    const char *path = test_path(c->model->name);
    enum { MOST = 40 * 16 };
    float want[MOST], got[3][MOST];
    void *to[] = {got[0], got[1], got[2]};
    size_t size[] = {sizeof *got, sizeof *got, sizeof *got};
    fleet_feed feed[KIT_MOST_FEEDS];
    fleet_predictor *p;
    kit_batch *b;
    scene s;

    train_case(&s, c, 1, 300, 1);
    b = inputs(&s);
    s.tester =
        fleet_executor_create(s.p, &(fleet_executor_options){.for_test = 1});
    CHECK_OK(kit_fetch(s.tester, b, s.m.prediction, want, 40));
    CHECK_OK(fl_checkpoint_save(s.f, path, &(fl_scored){.model = &s.m},
                                FLEET_SAVE_ALL));
    p = fleet_load_inference_model(path);
    if (!p)
        test_fail(__FILE__, __LINE__, "%s: %s", c->model->name,
                  fleet_last_error());
    CHECK_INT(fleet_predictor_output_num(p), s.m.user ? 3 : 1);
    CHECK_OK(fleet_predictor_run(p, feed, feeds_of(p, b, feed), to, size,
                                 s.m.user ? 3 : 1));
    CHECK(memcmp(got[0], want, 40 * sizeof *want) == 0);
    if (s.m.user) {
        CHECK_OK(kit_fetch(s.tester, b, s.m.item, want, MOST));
        CHECK(memcmp(got[2], want,
                     40 * (size_t)fl_shape_cols(&s.m.item->shape) *
                         sizeof *want) == 0);
    }
    fleet_predictor_destroy(p);
    kit_batch_free(b);
    scene_close(&s);
}

TEST(each_checkpoint_predicts_what_its_training_did)
{
    for (int i = 0; i < N_CASE; i++)
        check_predicts(&cases[i]);
}

/* --- histories ------------------------------------------------------------ */

static void score(const sequence_case *c, int n, const int64_t *history,
                  float *p)
{
    int64_t offsets[] = {0, n}, item[] = {3}, dims[] = {1, 1};
    const fleet_feed feed[] = {
        {"history", FLEET_INT64, history, dims, 1, offsets},
        {"item", FLEET_INT64, item, dims, 2, NULL},
        {"user", FLEET_INT64, item, dims, 2, NULL}};
    fleet_fetch fetch = {.data = p, .size = sizeof *p};
    scene s;

    train_case(&s, c, 1, 300, 1);
    s.tester =
        fleet_executor_create(s.p, &(fleet_executor_options){.for_test = 1});
    fetch.var = s.m.prediction;
    CHECK_OK(fleet_executor_run(
        s.tester, feed, fleet_program_var(s.p, "user") ? 3 : 2, &fetch, 1));
    scene_close(&s);
}

/* Of nine ids with max_len 6 the first three are as if they were not there. */
TEST(the_last_ids_of_a_history_count)
{
    static const int64_t ids[] = {1, 2, 4, 5, 6, 7, 8, 9, 10};

    for (int i = 0; i < N_CASE; i++) {
        float all, last, fewer;

        if (cases[i].model->role[FLEET_SLOT_HISTORY].most == 0)
            continue;
        score(&cases[i], 9, ids, &all);
        score(&cases[i], 6, ids + 3, &last);
        score(&cases[i], 5, ids + 4, &fewer);
        CHECK(all == last);
        CHECK(fewer != last);
    }
}

/* --- what they are made of ------------------------------------------------ */

TEST(parameters_have_the_names_of_their_documentation)
{
    static const struct {
        const fl_ctr_model *model;
        const char *names[12];
    } named[] = {
        {&fl_model_din,
         {"items", "users", "items_bias", "attention_0.w", "attention_out.b",
          "history.w", "tower_0.w", "tower_out.w"}},
        {&fl_model_bst,
         {"position", "block_0.q", "block_0.out", "block_0_norm_1.w",
          "block_0_ffn_1.w", "tower_0.w", "tower_out.w"}},
        {&fl_model_sasrec,
         {"position", "block_0.v", "block_0_norm_0.w", "block_0_ffn_0.w",
          "norm.w"}},
        {&fl_model_two_tower, {"users", "items", "user_out.w", "item_out.b"}},
        {&fl_model_youtube_dnn, {"users", "items_out", "tower_0.w"}},
        {&fl_model_dien,
         {"gru.x.w", "gru.h.b", "augru.x.w", "attention_out.w", "items_bias",
          "tower_out.w"}},
        {&fl_model_gru4rec, {"items", "gru.x.w", "gru.h.w"}},
        {&fl_model_word2vec, {"users", "items_out", "items_bias"}},
    };

    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        for (int k = 0; k < N_CASE; k++) {
            scene s;

            if (cases[k].model != named[i].model)
                continue;
            open_case(&s, &cases[k], 1);
            for (int j = 0; named[i].names[j]; j++)
                if (!fleet_program_var(s.p, named[i].names[j]))
                    test_fail(__FILE__, __LINE__, "%s has no %s",
                              named[i].model->name, named[i].names[j]);
            scene_close(&s);
        }
}

TEST(each_has_paddlerecs_slots_without_options)
{
    for (int i = 0; i < N_CASE; i++) {
        const fl_ctr_model *m = cases[i].model;
        fleet *f = kit_handle(&(kit_options){0});
        fleet_program *p = fleet_program_create(f);
        fleet_model out;

        CHECK(fl_ctr_build(p, NULL, &out, m) != NULL);
        for (int k = 0; k < m->n_ids; k++)
            CHECK(fleet_program_var(p, m->ids[k].name) != NULL);
        CHECK(fleet_program_var(p, "dense_input") == NULL);
        fleet_destroy(f);
    }
}

/* --- pairs ---------------------------------------------------------------- */

/* Two samples: the loss of a batch with these labels; NULL: there is none. */
static double loss_of_pairs(const float *label)
{
    const int64_t user[] = {1, 2}, item[] = {3, 4}, one[] = {2, 1};
    const fleet_feed feed[] = {{"item", FLEET_INT64, item, one, 2, NULL},
                               {"user", FLEET_INT64, user, one, 2, NULL},
                               {"label", FLEET_FLOAT32, label, one, 2, NULL}};
    fleet_ctr_options o = {TOWER, .no_label = !label};
    float loss;
    scene s;

    history_open(&s, &(fleet_options){.seed = 7, .num_threads = 1},
                 &fl_model_two_tower, o, 0.01f, NULL);
    s.tester =
        fleet_executor_create(s.p, &(fleet_executor_options){.for_test = 1});
    CHECK_OK(fleet_executor_run(
        s.tester, feed, label ? 3 : 2,
        &(fleet_fetch){.var = s.m.loss, .data = &loss, .size = sizeof loss},
        1));
    scene_close(&s);
    return (double)loss;
}

TEST(a_pair_counts_what_its_label_says)
{
    double all = loss_of_pairs(NULL);
    double first = loss_of_pairs((const float[]){1, 0});
    double second = loss_of_pairs((const float[]){0, 1});

    CHECK(first > 0 && second > 0);
    CHECK_NEAR(loss_of_pairs((const float[]){1, 1}), all, 1e-6);
    CHECK_NEAR(first + second, all, 1e-6);
    CHECK_NEAR(loss_of_pairs((const float[]){0, 0}), 0, 0);
}

TEST(pairs_without_a_label_cannot_be_evaluated_and_are_saved)
{
    fleet_evaluation found;
    scene s;

    history_open(&s, &(fleet_options){.seed = 7, .num_threads = 1},
                 &fl_model_youtube_dnn,
                 (fleet_ctr_options){TOWER, .no_label = 1}, 0.01f, NULL);
    CHECK(s.m.label == NULL);
    CHECK_OK(fl_checkpoint_save(s.f, test_path("pairs"),
                                &(fl_scored){.model = &s.m}, FLEET_SAVE_ALL));
    s.tester =
        fleet_executor_create(s.p, &(fleet_executor_options){.for_test = 1});
    history_data(&s, test_file("none.txt", ""), 1);
    CHECK_FAILS(fleet_evaluate(s.tester, s.data, &s.m, &found), FLEET_EINVAL,
                "the model has no label");
    scene_close(&s);
}

/* --- what is refused ------------------------------------------------------ */

static void refused(const fl_ctr_model *m, fleet_ctr_options o,
                    const char *words)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);

    CHECK(fl_ctr_build(p, &o, NULL, m) == NULL);
    CHECK_FAILS(fleet_program_status(p), FLEET_EINVAL, words);
    fleet_destroy(f);
}

static void slots_refused(const fl_ctr_model *m, fleet_id_slot a,
                          fleet_id_slot b, const char *words)
{
    const fleet_id_slot ids[] = {a, b};

    refused(m, (fleet_ctr_options){.ids = ids, .n_ids = 2, .no_dense = 1},
            words);
}

TEST(slots_that_cannot_be_are_refused_by_name)
{
    const fleet_id_slot h = {"h", -1, FLEET_SUM, NULL, 0, FLEET_SLOT_HISTORY};
    const fleet_id_slot item = {"i", 1, FLEET_SUM, NULL, 0, FLEET_SLOT_ITEM};
    const fleet_id_slot f = {.name = "f"};
    fleet_id_slot bad;

    slots_refused(&fl_model_fm, h, f,
                  "fm: h: expected no \"history\", the model has none");
    slots_refused(&fl_model_din, f, item,
                  "din: expected 1 to 16 slots of role \"history\", got 0");
    slots_refused(&fl_model_din, h, f,
                  "din: expected 1 to 16 slots of role \"item\", got 0");
    bad = h;
    bad.dim = 3;
    slots_refused(&fl_model_din, bad, item,
                  "din: h: expected dim -1 of a \"history\", got 3");
    bad = h;
    bad.combiner = FLEET_MEAN;
    slots_refused(&fl_model_din, bad, item, "din: h: expected no combiner");
    bad = item;
    bad.dim = -1;
    slots_refused(&fl_model_din, h, bad,
                  "din: i: expected dim 1 of an \"item\", got -1");
    bad.role = (fleet_slot_role)77;
    slots_refused(&fl_model_din, h, bad, "din: i: role 77 does not exist");
    bad.role = FLEET_SLOT_NEGATIVE;
    slots_refused(&fl_model_din, h, bad,
                  "din: i: expected no \"negative\", the model has none");
    bad.dim = 1;
    slots_refused(&fl_model_sasrec, h, bad,
                  "sasrec: i: expected dim -1 of a \"negative\", got 1");
    slots_refused(&fl_model_sasrec, h, f,
                  "sasrec: f: expected a \"history\" or an \"item\", the model "
                  "has no features");
}

TEST(items_are_as_many_as_histories)
{
    static const fleet_id_slot ids[] = {
        {"h", -1, FLEET_SUM, NULL, 0, FLEET_SLOT_HISTORY},
        {"k", -1, FLEET_SUM, "kinds", 0, FLEET_SLOT_HISTORY},
        {"i", 1, FLEET_SUM, NULL, 0, FLEET_SLOT_ITEM}};
    static const fleet_id_slot negatives[] = {
        {"h", -1, FLEET_SUM, NULL, 0, FLEET_SLOT_HISTORY},
        {"i", 1, FLEET_SUM, NULL, 0, FLEET_SLOT_ITEM},
        {"n", -1, FLEET_SUM, NULL, 0, FLEET_SLOT_NEGATIVE},
        {"m", -1, FLEET_SUM, NULL, 0, FLEET_SLOT_NEGATIVE}};
    static const fleet_dense_slot numbers[] = {{.name = "x"}};

    refused(
        &fl_model_din, (fleet_ctr_options){.ids = ids, .n_ids = 3},
        "din: expected an \"item\" for each \"history\", in the same order, "
        "got 1 and 2");
    refused(&fl_model_sasrec, (fleet_ctr_options){.ids = negatives, .n_ids = 4},
            "sasrec: expected no \"negative\", or one for each \"history\", in "
            "the same order, got 2 and 1");
    refused(&fl_model_sasrec,
            (fleet_ctr_options){
                .ids = negatives, .n_ids = 2, .dense = numbers, .n_dense = 1},
            "sasrec: x: expected no numbers, the model has no features");
    refused(&fl_model_two_tower,
            (fleet_ctr_options){.ids = negatives + 1, .n_ids = 1},
            "two_tower: expected 1 to 10000 slots of role \"feature\", got 0");
    refused(
        &fl_model_din,
        (fleet_ctr_options){.ids = history_slots, .n_ids = 3, .max_len = -1},
        "din: max_len: expected 1 to 65536, got -1");
    refused(&fl_model_fm, (fleet_ctr_options){.max_len = 9},
            "fm: max_len: expected nothing, the model has none");
    refused(&fl_model_din, (fleet_ctr_options){.log_q = "q"},
            "din: log_q: expected nothing, the model has none");
    refused(&fl_model_fm, (fleet_ctr_options){.no_label = 1},
            "fm: no_label: expected nothing, the model has none");
    refused(&fl_model_word2vec,
            (fleet_ctr_options){
                .ids = history_slots + 1, .n_ids = 2, .no_label = 1},
            "word2vec: expected a \"negative\", or a label");
    refused(&fl_model_two_tower,
            (fleet_ctr_options){.no_label = 1, .label = "y"},
            "two_tower: label \"y\" beside no_label");
    refused(&fl_model_two_tower, (fleet_ctr_options){.temperature = -1},
            "two_tower: temperature: expected 1e-06 to 1e+06, got -1");
    refused(&fl_model_sasrec, (fleet_ctr_options){.temperature = 1},
            "sasrec: temperature: expected nothing, the model has none");
}
