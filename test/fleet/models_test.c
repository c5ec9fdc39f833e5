/* models_test.c - the models of fleet/applications.h whose slots have no roles,
 * each on a small set: they learn, with the same bits by any number of threads;
 * their programs are written and read; their checkpoints predict; and what
 * options they refuse. */
#define SUITE models
#include "gpu_kit.h"
#include "model_kit.h"
#include "test.h"
#include "train_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/applications/ctr.h"
#include "fleet/checkpoint.h"
#include "fleet/job/handle.h"

/* --- the models ----------------------------------------------------------- */

static const int64_t hidden[] = {8}, three[] = {6, 4, 4};
static const fleet_dense_slot dense[] = {{.name = "dense", .dim = 3}};
static const fleet_id_slot ids[] = {
    {.name = "u", .table = "users"}, {.name = "v"}, {.name = "w", .dim = -1}};
static const fleet_task_options tasks[] = {
    {.label = "label", .label_dtype = FLEET_FLOAT32},
    {.label = "second", .label_dtype = FLEET_FLOAT32, .weight = 0.5f}};

#define DEEP  .embedding_dim = 4, .hidden = hidden, .n_hidden = 1
#define TASKS .tasks = tasks, .n_tasks = 2

typedef struct model_case {
    const fl_ctr_model *model;
    fleet_ctr_options o;
} model_case;

/* Every FL_CTR_MODEL of model_list.def; some twice. */
static const model_case cases[] = {
    {&fl_model_wide_deep, {DEEP, .wide_ids = 1}},
    {&fl_model_ctr_dnn, {DEEP}},
    {&fl_model_deepfm, {DEEP}},
    {&fl_model_logistic_regression, {.n_ids = 0}},
    {&fl_model_fm, {.embedding_dim = 4}},
    {&fl_model_ffm, {.embedding_dim = 4}},
    {&fl_model_nfm, {DEEP}},
    {&fl_model_xdeepfm, {DEEP, .cin = three, .n_cin = 2}},
    {&fl_model_dcn, {DEEP, .cross_layers = 3}},
    {&fl_model_dcn_v2, {DEEP}},
    {&fl_model_dcn_v2, {DEEP, .low_rank = 3, .parallel = 1}},
    {&fl_model_dcn_v2, {DEEP, .low_rank = 3, .experts = 2}},
    {&fl_model_dlrm, {DEEP, .bottom = hidden, .n_bottom = 1}},
    {&fl_model_dlrm,
     {DEEP, .bottom = hidden, .n_bottom = 0, .self_interaction = 1}},
    {&fl_model_autoint, {DEEP, .attention = three, .n_attention = 2}},
    {&fl_model_autoint,
     {DEEP, .heads = 3, .attention = three, .n_attention = 1,
      .no_residual = 1}},
    {&fl_model_share_bottom, {DEEP, TASKS, .bottom = hidden, .n_bottom = 1}},
    {&fl_model_mmoe, {DEEP, TASKS, .experts = 3, .expert_units = 6}},
    {&fl_model_ple,
     {DEEP, TASKS, .experts = 2, .shared_experts = 1, .expert_units = 6,
      .levels = 2}},
    {&fl_model_esmm, {DEEP, TASKS}},
};

enum { N_CASE = sizeof cases / sizeof *cases };

/* Two labels, and the slots of scene_file(). */
static const char *two_labels(int lines)
{
    char *text = malloc(60000);
    size_t used = 0;

    for (int i = 0; i < lines; i++) {
        float a = kit_noise(i, 1), b = kit_noise(i, 2);
        int u = (i * 7919) % 50, v = (i * 104729) % 20;

        used += (size_t)sprintf(text + used,
                                "1 %d 1 %d 3 %.3f %.3f 0.5 1 %d 1 %d 2 %d %d\n",
                                (u % 7 < 3) ^ (a > 0.4f), v % 5 < 2, (double)a,
                                (double)b, u, v, i % 30, i % 11);
    }
    const char *path = test_file_bytes("two.txt", text, used);

    free(text);
    return path;
}

static void make_data(scene *s, const char *file)
{
    fleet_var *vars[6];
    int n = 0;

    vars[n++] = s->m.label;
    if (s->m.n_task > 1)
        vars[n++] = s->m.task[1].label;
    vars[n++] = fleet_program_var(s->p, "dense");
    vars[n++] = fleet_program_var(s->p, "u");
    vars[n++] = fleet_program_var(s->p, "v");
    vars[n++] = fleet_program_var(s->p, "w");
    s->data = fleet_queue_dataset(
        s->f, &(fleet_dataset_options){
                  .batch_size = 32, .use_var = vars, .n_use_var = n});
    CHECK(s->data != NULL);
    CHECK_OK(fleet_dataset_set_filelist(s->data, &file, 1));
}

static void open_case(scene *s, const model_case *c, int threads)
{
    fleet_ctr_options o = c->o;

    memset(s, 0, sizeof *s);
    s->f = kit_handle(&(kit_options){.threads = threads});
    s->p = fleet_program_create(s->f);
    o.dense = dense;
    o.n_dense = 1;
    o.ids = ids;
    o.n_ids = 3;
    if (o.n_tasks == 0)
        o.label_dtype = c->model->classes ? FLEET_INT64 : FLEET_FLOAT32;
    fl_ctr_build(s->p, &o, &s->m, c->model);
    if (fleet_program_status(s->p) != FLEET_OK)
        test_fail(__FILE__, __LINE__, "%s: %s", c->model->name,
                  fleet_last_error());
}

/* The mean loss of the first pass, and of the last. device NULL: the CPU. */
static uint64_t train_on(const char *device, int lines, scene *s,
                         const model_case *c, int threads, int passes,
                         double *first, double *last)
{
    fleet_train_result r;

    open_case(s, c, threads);
    kit_place(s->p, &(kit_options){.device = device});
    CHECK_OK(fleet_minimize(fleet_adam(s->f, 0.01f, NULL), s->m.loss));
    make_data(s, s->m.n_task > 1 ? two_labels(lines)
                                 : scene_file("train.txt", lines, 1));
    s->e = fleet_executor_create(s->p, NULL);
    CHECK(s->e != NULL);
    for (int i = 0; i < passes; i++) {
        CHECK_OK(fleet_train_from_dataset(s->e, s->data, NULL, &r));
        *(i == 0 ? first : last) = r.loss;
    }
    return kit_hash(s->f);
}

static uint64_t train_case(scene *s, const model_case *c, int threads,
                           int passes, double *first, double *last)
{
    return train_on(NULL, 300, s, c, threads, passes, first, last);
}

TEST(each_learns_with_the_same_bits_by_any_number_of_threads)
{
    for (int i = 0; i < N_CASE; i++) {
        double first = 0, last = 0, again = 0;
        uint64_t hash;
        scene s;

        hash = train_case(&s, &cases[i], 1, 5, &first, &last);
        scene_close(&s);
        if (!(last < 0.97 * first))
            test_fail(__FILE__, __LINE__, "%s, case %d: a loss of %g, then %g",
                      cases[i].model->name, i, first, last);
        CHECK(train_case(&s, &cases[i], 3, 5, &first, &again) == hash);
        scene_close(&s);
    }
}

/* On the emulated GPU, one pass each. */
TEST(each_trains_on_a_gpu_as_on_the_cpu)
{
    for (int i = 3; i < N_CASE; i++) {
        double here = 0, there = 0, last;
        scene s;

        train_on(NULL, 70, &s, &cases[i], 1, 1, &here, &last);
        scene_close(&s);
        gpu_kit_open();
        train_on("gpu:0", 70, &s, &cases[i], 1, 1, &there, &last);
        scene_close(&s);
        gpu_kit_close();
        CHECK_NEAR(there, here, 1e-4 * here);
    }
}

TEST(each_of_the_list_is_tried_here)
{
    static const fl_ctr_model *const all[] = {
#define FL_CTR_MODEL(title) &fl_model_##title,
#define FL_SEQUENCE_MODEL(title)
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

static kit_batch *inputs(void)
{
    kit_batch *b = kit_batch_new(40);

    kit_floats(b, "dense", 3, 1);
    kit_ids(b, "u", 1, 50, 2);
    kit_ids(b, "v", 1, 20, 3);
    kit_ragged(b, "w", 3, 30, 4);
    return b;
}

/* Every task's prediction, and esmm's third one. */
static int outputs_of(const fleet_model *m, const fleet_var **out)
{
    int n = 0;

    for (int i = 0; i < m->n_task; i++)
        out[n++] = m->task[i].prediction;
    if (n == 0)
        out[n++] = m->prediction;
    if (m->conversion)
        out[n++] = m->conversion;
    return n;
}

static void check_predicts(const model_case *c)
{
    enum { MOST = 80, OUTPUTS = 3 };
    const char *path = test_path(c->model->name);
    float want[OUTPUTS][MOST], got[OUTPUTS][MOST];
    void *to[OUTPUTS] = {got[0], got[1], got[2]};
    size_t size[OUTPUTS] = {sizeof *got, sizeof *got, sizeof *got};
    const fleet_var *out[OUTPUTS + 1];
    fleet_feed feed[KIT_MOST_FEEDS];
    kit_batch *b = inputs();
    fleet_predictor *predictor;
    double first, last;
    scene s;
    int n;

    train_case(&s, c, 1, 2, &first, &last);
    s.tester =
        fleet_executor_create(s.p, &(fleet_executor_options){.for_test = 1});
    n = outputs_of(&s.m, out);
    CHECK(n <= OUTPUTS);
    for (int i = 0; i < n; i++)
        CHECK_OK(kit_fetch(s.tester, b, out[i], want[i], MOST));
    CHECK_OK(fl_checkpoint_save(s.f, path, &(fl_scored){.model = &s.m},
                                FLEET_SAVE_ALL));
    predictor = fleet_load_inference_model(path);
    if (!predictor)
        test_fail(__FILE__, __LINE__, "%s", fleet_last_error());
    CHECK_OK(
        fleet_predictor_run(predictor, feed, kit_feeds(b, feed), to, size, n));
    for (int i = 0; i < n; i++)
        CHECK(memcmp(got[i], want[i], 40 * sizeof(float)) == 0);
    fleet_predictor_destroy(predictor);
    kit_batch_free(b);
    scene_close(&s);
}

/* One of a kind; of several labels every output. */
TEST(a_checkpoint_predicts_what_its_training_did)
{
    static const char *const names[] = {"ffm",  "dcn_v2", "dlrm", "autoint",
                                        "mmoe", "esmm",   NULL};

    for (int i = 0; names[i]; i++)
        for (int k = 0; k < N_CASE; k++)
            if (strcmp(cases[k].model->name, names[i]) == 0) {
                check_predicts(&cases[k]);
                break;
            }
}

/* --- what they are made of ------------------------------------------------ */

static void check_names(const model_case *c, const char *const *names)
{
    scene s;

    open_case(&s, c, 1);
    for (int i = 0; names[i]; i++)
        if (!fleet_program_var(s.p, names[i]))
            test_fail(__FILE__, __LINE__, "%s has no %s", c->model->name,
                      names[i]);
    scene_close(&s);
}

TEST(parameters_have_the_names_of_their_documentation)
{
    static const struct {
        int at; /* of cases */
        const char *names[12];
    } named[] = {
        {3, {"embedding_first", "users_first", "dense_first", "bias"}},
        {4, {"embedding", "users", "dense_second", "bias"}},
        {7, {"cin_0.w", "cin_1.w", "cin_out.w", "tower_out.b"}},
        {8, {"cross_0.w", "cross_2.b", "tower_0.w", "tower_out.w"}},
        {9, {"dense.w", "cross_1.w", "cross_1.b"}},
        {11, {"cross_0.v_0", "cross_0.c_1", "cross_0.u", "cross_0.gate"}},
        {12, {"bottom_0.w", "bottom_out.w", "tower_0.w"}},
        {14,
         {"attention_0.q", "attention_1.v", "attention_0_residual.w",
          "attention_1_norm.w", "attention_out.w"}},
        {16, {"bottom_0.w", "task_0_0.w", "task_1_out.b"}},
        {17, {"experts.w", "gate_0.w", "gate_1.b", "task_1_0.w"}},
        {18,
         {"level_0_experts_1.w", "level_0_shared.w", "level_0_gate_shared.w",
          "level_1_gate_0.w"}},
        {19, {"task_0_0.w", "task_1_out.w"}},
    };

    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        check_names(&cases[named[i].at], named[i].names);
}

/* PaddleRec's slots, without any option; several labels have to be named. */
TEST(each_is_paddlerecs_without_options)
{
    for (int i = 0; i < N_CASE; i++) {
        const fl_ctr_model *m = cases[i].model;
        fleet *f = kit_handle(&(kit_options){0});
        fleet_program *p = fleet_program_create(f);
        fleet_ctr_options o = {.tasks = tasks, .n_tasks = 2};
        fleet_model out;

        CHECK(fl_ctr_build(p, m->most_tasks > 0 ? &o : NULL, &out, m) != NULL);
        CHECK(fleet_program_var(p, "dense_input") &&
              fleet_program_var(p, "26"));
        CHECK_INT(out.n_task, m->most_tasks > 0 ? 2 : 0);
        fleet_destroy(f);
    }
}

/* --- what is refused ------------------------------------------------------ */

static void refused(const fl_ctr_model *m, fleet_ctr_options o,
                    fleet_status status, const char *words)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);

    o.dense = o.no_dense ? NULL : dense;
    o.n_dense = !o.no_dense;
    o.ids = ids;
    o.n_ids = 3;
    CHECK(fl_ctr_build(p, &o, NULL, m) == NULL);
    CHECK_FAILS(fleet_program_status(p), status, words);
    fleet_destroy(f);
}

#define REFUSED(model, words, ...)                                             \
    refused(&fl_model_##model, (fleet_ctr_options){__VA_ARGS__}, FLEET_EINVAL, \
            words)

TEST(options_that_cannot_be_are_refused_by_name)
{
    REFUSED(fm, "fm: hidden: expected nothing, the model has none",
            .hidden = hidden, .n_hidden = 1);
    REFUSED(logistic_regression, "logistic_regression: embedding_dim: expected",
            .embedding_dim = 4);
    REFUSED(deepfm, "deepfm: heads: expected nothing", .heads = 2);
    REFUSED(wide_deep, "wide_deep: cin: expected nothing", .cin = three,
            .n_cin = 1);
    REFUSED(mmoe, "mmoe: self_interaction: expected nothing", TASKS,
            .self_interaction = 1);
    REFUSED(dcn, "dcn: cross_layers: expected 1 to 64, got -1",
            .cross_layers = -1);
    REFUSED(dcn, "dcn: cross_layers: expected 1 to 64, got 9.22337e+18",
            .cross_layers = INT64_MAX);
    REFUSED(nfm, "nfm: hidden[1]: expected 1 unit or more, got 0",
            .hidden = (int64_t[]){4, 0}, .n_hidden = 2);
    REFUSED(xdeepfm, "xdeepfm: cin: 2 layers, whose units are NULL",
            .n_cin = 2);
    REFUSED(autoint, "heads 3 of units 64; expected a number that divides",
            .heads = 3);
    REFUSED(dcn_v2, "low_rank 1000; expected 1 to", .low_rank = 1000);
    REFUSED(dcn_v2, "experts 2 without low_rank", .experts = 2);
    REFUSED(dcn_v2, "experts 1; expected 2 to 64", .low_rank = 2, .experts = 1);
}

TEST(tasks_that_cannot_be_are_refused_by_name)
{
    static const fleet_task_options nameless[] = {{.label = "a"},
                                                  {.weight = 1}};
    static const fleet_task_options below[] = {{.label = "a"},
                                               {.label = "b", .weight = -1}};
    static const fleet_task_options more[FLEET_MOST_TASKS + 1] = {
        {.label = "a"}};

    REFUSED(mmoe, "mmoe: expected 2 to 8 tasks, each with a label, got 0",
            .label = "y");
    REFUSED(ple, "ple: expected 2 to 8 tasks", .tasks = tasks, .n_tasks = 1);
    REFUSED(ple, "ple: expected 2 to 8 tasks", .tasks = more,
            .n_tasks = FLEET_MOST_TASKS + 1);
    REFUSED(esmm, "esmm: expected 2 to 2 tasks", .tasks = tasks, .n_tasks = 3);
    REFUSED(share_bottom, "share_bottom: label: expected nothing", TASKS,
            .label = "y");
    REFUSED(mmoe, "mmoe: tasks[1].label: NULL", .tasks = nameless,
            .n_tasks = 2);
    REFUSED(mmoe, "mmoe: tasks[1].weight: expected a finite number above 0",
            .tasks = below, .n_tasks = 2);
    REFUSED(dlrm, "dlrm: the model has no tasks, got 2", TASKS);
}

/* Each loss is the task's own, and the sum has their weights. */
TEST(the_loss_is_the_sum_of_the_tasks_by_their_weights)
{
    kit_batch *b = inputs();
    float loss, one, two;
    scene s;

    open_case(&s, &cases[17], 1);
    s.tester =
        fleet_executor_create(s.p, &(fleet_executor_options){.for_test = 1});
    memset(kit_floats(b, "label", 1, 5), 0, 40 * sizeof(float));
    memset(kit_floats(b, "second", 1, 5), 0, 40 * sizeof(float));
    CHECK(s.m.label == s.m.task[0].label &&
          s.m.prediction == s.m.task[0].prediction && s.m.n_task == 2);
    CHECK_OK(kit_fetch(s.tester, b, s.m.loss, &loss, 1));
    CHECK_OK(kit_fetch(s.tester, b, s.m.task[0].loss, &one, 1));
    CHECK_OK(kit_fetch(s.tester, b, s.m.task[1].loss, &two, 1));
    CHECK_NEAR(loss, one + 0.5f * two, 1e-6);
    kit_batch_free(b);
    scene_close(&s);
}

TEST(a_conversion_is_a_click_and_what_comes_behind_it)
{
    float click[40], both[40], conversion[40];
    kit_batch *b = inputs();
    scene s;

    open_case(&s, &cases[N_CASE - 1], 1);
    s.tester =
        fleet_executor_create(s.p, &(fleet_executor_options){.for_test = 1});
    CHECK(s.m.conversion != NULL && s.m.n_task == 2);
    CHECK_OK(kit_fetch(s.tester, b, s.m.task[0].prediction, click, 40));
    CHECK_OK(kit_fetch(s.tester, b, s.m.task[1].prediction, both, 40));
    CHECK_OK(kit_fetch(s.tester, b, s.m.conversion, conversion, 40));
    for (int i = 0; i < 40; i++)
        CHECK_NEAR(both[i], (double)click[i] * (double)conversion[i], 1e-7);
    kit_batch_free(b);
    scene_close(&s);
}
