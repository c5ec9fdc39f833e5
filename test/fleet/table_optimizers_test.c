/* table_optimizers_test.c - tables with optimizers of their own in one process:
 * each weight is what its own rule makes of it, in double; saves, texts and
 * configurations know of them; what cannot be is refused by name. */
#define SUITE table_optimizers
#include "model_kit.h"
#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "fleet/config/config.h"
#include "fleet/job/handle.h"

/* --- formulas ------------------------------------------------------------- */

typedef struct net {
    fleet *f;
    fleet_program *p;
    fleet_var *loss;
    fleet_optimizer *all, *a, *b;
    fleet_executor *e;
} net;

enum { DIM_A = 3, DIM_B = 2 };

static fleet_var *row_of(fleet_program *p, fleet_var *id, const char *table,
                         int64_t dim)
{
    return fleet_mean(
        p, fleet_sparse_embedding(
               p, id, dim, &(fleet_sparse_embedding_options){.table = table}));
}

/* loss = mean(x w) + mean(row of a) + mean(row of b), of one sample. */
static void open_net(net *n)
{
    fleet_var *x, *id, *w;

    *n = (net){.f = kit_handle(&(kit_options){0})};
    n->p = fleet_program_create(n->f);
    x = kit_data(n->p, "x", 1);
    id = kit_data_ids(n->p, "id", 1);
    w = fleet_parameter(n->p, (int64_t[]){1}, 1,
                        &(fleet_param_attr){.name = "w"});
    n->loss = fleet_add(n->p, fleet_mean(n->p, fleet_mul(n->p, x, w)),
                        fleet_add(n->p, row_of(n->p, id, "a", DIM_A),
                                  row_of(n->p, id, "b", DIM_B)));
    CHECK_OK(fleet_program_status(n->p));
    n->all = fleet_momentum(n->f, 0.1f, NULL);
    n->a = fleet_rowwise_adagrad(
        n->f, 0.5f,
        &(fleet_rowwise_adagrad_options){.initial_accumulator = 0.25f});
    n->b = fleet_adam(n->f, 0.02f, NULL);
}

static void start_net(net *n)
{
    CHECK_OK(fleet_minimize(n->all, n->loss));
    n->e = fleet_executor_create(n->p, NULL);
    if (!n->e)
        test_fail(__FILE__, __LINE__, "%s", fleet_last_error());
}

static void close_net(net *n)
{
    fleet_executor_destroy(n->e);
    fleet_destroy(n->f);
}

static void step_net(const net *n, float x, int64_t id)
{
    const int64_t dims[] = {1, 1};
    const fleet_feed feed[] = {{"x", FLEET_FLOAT32, &x, dims, 2, NULL},
                               {"id", FLEET_INT64, &id, dims, 2, NULL}};

    CHECK_OK(fleet_executor_run(n->e, feed, 2, NULL, 0));
}

/* Weights by hand: w, a row of a, a row of b. */
static void look(const net *n, uint64_t key, float got[1 + DIM_A + DIM_B])
{
    CHECK_OK(fleet_parameter_get(n->f, "w", got, 1));
    CHECK_OK(fleet_table_get(n->f, "a", &key, 1, DIM_A, got + 1, NULL, NULL));
    CHECK_OK(fleet_table_get(n->f, "b", &key, 1, DIM_B, got + 1 + DIM_A, NULL,
                             NULL));
}

TEST(each_table_has_the_rule_and_the_rate_that_it_was_given)
{
    enum { STEPS = 9, N = 1 + DIM_A + DIM_B };
    double w[N], velocity = 0, sum = 0.25, m = 0, v = 0;
    float got[N];
    net n;

    open_net(&n);
    CHECK_OK(fleet_optimizer_set_exponential_decay(n.b, 0.8f, 2, 1));
    CHECK_OK(fleet_optimizer_set_l2_decay(n.a, 0.125f));
    CHECK_OK(fleet_optimizer_set_table(n.all, "a", n.a));
    CHECK_OK(fleet_optimizer_set_table(n.all, "b", n.b));
    start_net(&n);
    look(&n, 7, got);
    for (int i = 0; i < N; i++)
        w[i] = (double)got[i];
    for (int t = 1; t <= STEPS; t++) {
        double square = 0, x = t % 2 ? 0.5 : -1, g;

        step_net(&n, (float)x, 7);
        velocity = (double)0.9f * velocity + x;
        w[0] -= (double)0.1f * velocity;
        for (int i = 1; i <= DIM_A; i++) {
            g = 1.0 / DIM_A + 0.125 * w[i];
            square += g * g / DIM_A;
        }
        sum += square;
        for (int i = 1; i <= DIM_A; i++)
            w[i] -= 0.5 * (1.0 / DIM_A + 0.125 * w[i]) / (sqrt(sum) + 1e-8);
        g = 1.0 / DIM_B;
        m = (double)0.9f * m + (1 - (double)0.9f) * g;
        v = (double)0.999f * v + (1 - (double)0.999f) * g * g;
        for (int i = 1 + DIM_A; i < N; i++)
            w[i] -= (double)0.02f * pow((double)0.8f, (t - 1) / 2) *
                    (m / (1 - pow((double)0.9f, t))) /
                    (sqrt(v / (1 - pow((double)0.999f, t))) + 1e-8);
        look(&n, 7, got);
        for (int i = 0; i < N; i++)
            if (!(fabs((double)got[i] - w[i]) < 2e-5))
                test_fail(__FILE__, __LINE__, "step %d, weight %d: %g not %g",
                          t, i, (double)got[i], w[i]);
    }
    close_net(&n);
}

TEST(what_is_set_for_a_table_again_is_what_counts)
{
    float first[6], got[6];
    net n;

    open_net(&n);
    CHECK_OK(fleet_optimizer_set_table(n.all, "a", n.b));
    CHECK_OK(fleet_optimizer_set_table(n.all, "b", n.a));
    CHECK_OK(fleet_optimizer_set_table(n.all, "b", NULL));
    CHECK_OK(fleet_optimizer_set_table(n.all, "a", fleet_sgd(n.f, 3)));
    start_net(&n);
    look(&n, 7, first);
    step_net(&n, 1, 7);
    look(&n, 7, got);
    for (int i = 1; i <= DIM_A; i++) /* 3 / 3 */
        CHECK(fabsf(first[i] - got[i] - 1) < 1e-6f);
    for (int i = 1 + DIM_A; i < 6; i++) /* momentum's first step: 0.1 / 2 */
        CHECK(fabsf(first[i] - got[i] - 0.05f) < 1e-6f);
    close_net(&n);
}

/* In [-1, 1). */
static double noise_of(int t)
{
    return sin(12.9898 * (t + 1)) * 0.99;
}

/* Squares of all gradients: 1/4 of w, 1/3 of a, 1/2 of b. */
TEST(one_clip_is_of_all_gradients)
{
    const float factor = 0.25f / sqrtf(0.25f + 1 / 3.0f + 0.5f);
    float first[6], got[6];
    net n;

    open_net(&n);
    CHECK_OK(fleet_optimizer_set_global_norm_clip(n.all, 0.25f));
    CHECK_OK(fleet_optimizer_set_table(n.all, "a", fleet_sgd(n.f, 3)));
    start_net(&n);
    look(&n, 7, first);
    step_net(&n, 0.5f, 7);
    look(&n, 7, got);
    CHECK(fabsf(first[0] - got[0] - 0.1f * 0.5f * factor) < 1e-6f);
    for (int i = 1; i <= DIM_A; i++)
        CHECK(fabsf(first[i] - got[i] - factor) < 1e-6f);
    close_net(&n);
}

/* Gradients are x of w, 1/3 of each weight of a, 1/2 of each of b: norms |x|,
 * sqrt(1/3), sqrt(1/2). A decay comes behind the clip. */
TEST(a_clip_by_norm_is_of_each_parameter_and_table_over_a_hundred_updates)
{
    enum { STEPS = 100, N = 1 + DIM_A + DIM_B };
    const double most = 0.6, scaled = most / sqrt(0.5);
    double w[N], velocity[N] = {0};
    float got[N];
    net n;

    open_net(&n);
    CHECK_OK(fleet_optimizer_set_norm_clip(n.all, (float)most));
    CHECK_OK(fleet_optimizer_set_l2_decay(n.all, 0.01f));
    start_net(&n);
    look(&n, 7, got);
    for (int i = 0; i < N; i++)
        w[i] = (double)got[i];
    for (int t = 0; t < STEPS; t++) {
        double x = noise_of(t);

        step_net(&n, (float)x, 7);
        for (int i = 0; i < N; i++) {
            double g = i == 0       ? fmax(-most, fmin(most, x))
                       : i <= DIM_A ? 1.0 / DIM_A
                                    : scaled / DIM_B;

            velocity[i] = (double)0.9f * velocity[i] + g + (double)0.01f * w[i];
            w[i] -= (double)0.1f * velocity[i];
        }
        look(&n, 7, got);
        for (int i = 0; i < N; i++)
            CHECK(fabs((double)got[i] - w[i]) < 2e-5 * fmax(1, fabs(w[i])));
    }
    close_net(&n);
}

TEST(bounds_hold_for_rows_that_are_updated)
{
    float first[6], other[6], got[6];
    net n;

    open_net(&n);
    CHECK_OK(fleet_optimizer_set_row_bounds(n.b, -0.75f, 0.5f));
    CHECK_OK(fleet_optimizer_set_table(n.all, "a", fleet_sgd(n.f, 90)));
    CHECK_OK(fleet_optimizer_set_table(n.all, "b", fleet_sgd(n.f, 90)));
    CHECK_OK(fleet_optimizer_set_table(n.all, "b", n.b));
    start_net(&n);
    look(&n, 7, first);
    look(&n, 8, other);
    CHECK(first[4] > -0.75f);
    for (int t = 0; t < 80; t++)
        step_net(&n, 1, 7);
    look(&n, 7, got);
    CHECK(got[4] == -0.75f && got[5] == -0.75f); /* each step takes 0.02 */
    CHECK(got[1] < -100);                        /* no bounds of its own */
    look(&n, 8, got);
    CHECK(memcmp(got + 1, other + 1, 5 * sizeof *got) == 0);
    CHECK_FAILS(fleet_optimizer_set_row_bounds(n.b, -1, 1), FLEET_ESTATE,
                "before fleet_minimize()");
    close_net(&n);
}

/* --- what cannot be ------------------------------------------------------- */

TEST(pairs_that_cannot_be_are_refused_by_name)
{
    net n, other;

    open_net(&n);
    open_net(&other);
    CHECK_FAILS(fleet_optimizer_set_table(NULL, "a", n.a), FLEET_EINVAL,
                "no optimizer");
    CHECK_FAILS(fleet_optimizer_set_table(n.all, NULL, n.a), FLEET_EINVAL,
                "no table");
    CHECK_FAILS(fleet_optimizer_set_table(n.all, "a", n.all), FLEET_EINVAL,
                "table \"a\": the optimizer is that of all other");
    CHECK_FAILS(fleet_optimizer_set_table(n.all, "a", other.a), FLEET_EINVAL,
                "another handle");
    CHECK_OK(fleet_optimizer_set_table(n.all, "a", n.a));
    CHECK_FAILS(fleet_optimizer_set_table(n.a, "b", n.b), FLEET_EINVAL,
                "a table's or a group's itself");
    CHECK_FAILS(fleet_optimizer_set_table(n.b, "b", n.all), FLEET_EINVAL,
                "has tables or groups itself");
    CHECK_FAILS(fleet_optimizer_set_global_norm_clip(n.a, 1), FLEET_EINVAL,
                "norm is that of all gradients");
    CHECK_OK(fleet_optimizer_set_global_norm_clip(n.b, 1));
    CHECK_FAILS(fleet_optimizer_set_table(n.all, "b", n.b), FLEET_EINVAL,
                "its optimizer clips");
    CHECK_FAILS(fleet_minimize(n.a, n.loss), FLEET_EINVAL,
                "the optimizer is a table's");
    CHECK_OK(fleet_optimizer_set_table(n.all, "c", n.a));
    CHECK_FAILS(fleet_minimize(n.all, n.loss), FLEET_ENOENT,
                "the table \"c\" has an optimizer");
    CHECK_OK(fleet_optimizer_set_table(n.all, "c", NULL));
    CHECK_OK(fleet_minimize(n.all, n.loss));
    CHECK_FAILS(fleet_optimizer_set_table(n.all, "b", n.a), FLEET_ESTATE,
                "table \"b\": call it before fleet_minimize()");
    CHECK_FAILS(fleet_optimizer_set_l2_decay(n.a, 1), FLEET_ESTATE,
                "set before fleet_minimize()");
    CHECK_OK(fleet_optimizer_set_l2_decay(n.all, 1));
    CHECK_FAILS(fleet_optimizer_set_row_bounds(other.b, 1, 1), FLEET_EINVAL,
                "a larger one, got 1 and 1");
    CHECK_FAILS(fleet_optimizer_set_row_bounds(other.b, 0, INFINITY),
                FLEET_EINVAL, "inf");
    close_net(&n);
    close_net(&other);
}

TEST(a_rule_of_whole_rows_is_for_tables_alone)
{
    fleet_program *p;
    net n;

    open_net(&n);
    CHECK_FAILS(fleet_minimize(n.a, n.loss), FLEET_EUNSUPPORTED,
                "rowwise_adagrad keeps numbers of whole rows and is for "
                "tables, but \"w\"");
    p = fleet_program_create(n.f);
    CHECK_OK(fleet_minimize(
        n.a, row_of(p, kit_data_ids(p, "id", 1), "alone", DIM_A)));
    close_net(&n);
}

static fleet_status bounded(bool geo, fleet_row_storage storage, float low,
                            float high)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    const fleet_sparse_embedding_options how = {.table = "t",
                                                .storage = storage};
    fleet_optimizer *all = fleet_sgd(f, 1), *own = fleet_sgd(f, 1);
    fleet_status status;

    if (geo) { /* as a worker of such a job has it */
        f->role.server_num = 1;
        f->strategy.a_sync = 1;
        f->strategy.a_sync_configs.k_steps = 4;
    }
    CHECK_OK(fleet_optimizer_set_row_bounds(own, low, high));
    CHECK_OK(fleet_optimizer_set_table(all, "t", own));
    status = fleet_minimize(
        all, fleet_mean(p, fleet_sparse_embedding(p, kit_data_ids(p, "id", 1),
                                                  2, &how)));
    f->role.server_num = 0;
    fleet_destroy(f);
    return status;
}

TEST(bounds_that_would_not_hold_are_refused_by_name)
{
    CHECK_OK(bounded(false, FLEET_ROW_FLOAT32, 0.3f, 0.30001f));
    CHECK_FAILS(bounded(true, FLEET_ROW_FLOAT32, -1, 1), FLEET_EUNSUPPORTED,
                "table \"t\" has row bounds, and in geo mode");
    CHECK_FAILS(bounded(false, FLEET_ROW_BFLOAT16, 0.3f, 0.30001f),
                FLEET_EUNSUPPORTED,
                "table \"t\" keeps rows in bfloat16, which has no number "
                "within the row bounds 0.3 to 0.30001");
    CHECK_OK(bounded(false, FLEET_ROW_INT8, -0.3f, 0.3f));
}

/* --- saves ---------------------------------------------------------------- */

static void open_scene(scene *s, const char *embedding, const char *wide)
{
    const fleet_options o = {.num_threads = 1, .seed = 5};

    scene_open_as(s, &o,
                  &(scene_training){.optimizer = "adam",
                                    .embedding = embedding,
                                    .wide = wide});
    scene_data(s, scene_file("train.txt", 200, 1), 32, 1, 0);
}

static void goes_on_alike(const char *embedding, const char *wide)
{
    scene a, b;

    open_scene(&a, embedding, wide);
    scene_train(&a, 1);
    CHECK_OK(fleet_save_persistables(a.f, test_path("saved")));
    open_scene(&b, embedding, wide);
    CHECK_OK(fleet_load_model(b.f, test_path("saved")));
    CHECK(scene_hash(&a) == scene_hash(&b));
    scene_train(&a, 1);
    scene_train(&b, 1);
    CHECK(scene_hash(&a) == scene_hash(&b));
    scene_close(&a);
    scene_close(&b);
}

TEST(a_training_that_is_loaded_goes_on_with_each_tables_states)
{
    goes_on_alike("rowwise_adagrad", "ftrl");
    goes_on_alike("shared_adam", KIT_ROW_ADAM);
    goes_on_alike("adamw", "std_adagrad");
    goes_on_alike("sgd", "rowwise_adagrad");
}

TEST(a_load_into_another_rule_of_a_table_is_refused_by_name)
{
    const fleet_load_options anew = {.states = FLEET_STATES_INITIALIZE};
    scene a, b;

    open_scene(&a, "rowwise_adagrad", "adagrad");
    scene_train(&a, 1);
    CHECK_OK(fleet_save_persistables(a.f, test_path("saved")));
    open_scene(&b, "shared_adam", "adagrad");
    CHECK_FAILS(fleet_load_model(b.f, test_path("saved")), FLEET_ESHAPE,
                "\"embedding\" was saved with the states of another optimizer "
                "than shared_adam: expected row_m, row_v, got row_sum");
    CHECK_OK(fleet_load_model_with(b.f, test_path("saved"), &anew));
    CHECK(scene_hash(&a) == scene_hash(&b));
    scene_close(&b);
    /* a sum of a row is not one of a weight */
    open_scene(&b, "adagrad", "rowwise_adagrad");
    CHECK_FAILS(fleet_load_model(b.f, test_path("saved")), FLEET_ESHAPE,
                "expected sum, got row_sum");
    CHECK_OK(fleet_load_one_table(
        b.f, "embedding_wide", test_path("saved"),
        &(fleet_load_table_options){.states = FLEET_STATES_INITIALIZE}));
    scene_close(&b);
    scene_close(&a);
}

static void check_texts(const char *path, const char *again)
{
    char *text, *same;
    size_t size;

    CHECK_OK(fl_file_read(path, &text, &size));
    CHECK_OK(fl_file_read(again, &same, &size));
    CHECK_TEXT(same, text);
    CHECK_CONTAINS(text, " 4 updates row_m row_v\n");
    fl_free(text);
    fl_free(same);
}

/* By hand: dim n_state floats, then those of the row. */
TEST(states_of_rows_come_and_go_by_hand_and_as_text)
{
    enum { DIM = 4, KEYS = 3 };
    static const uint64_t key[KEYS] = {1, 2, 3};
    float row[KEYS][DIM], states[KEYS][2], got[KEYS][DIM], again[KEYS][2];
    fleet_table_statistics stat;
    scene a, b;

    open_scene(&a, "shared_adam", NULL);
    scene_train(&a, 1);
    CHECK_OK(fleet_table_stat(a.f, "embedding", &stat));
    CHECK(stat.n_state == 0 && stat.n_row_state == 2);
    CHECK_OK(fleet_table_get(a.f, "embedding", key, KEYS, DIM, row[0],
                             states[0], NULL));
    for (int i = 0; i < KEYS; i++)
        CHECK(states[i][0] != 0 && states[i][1] > 0);
    open_scene(&b, "shared_adam", NULL);
    CHECK_OK(
        fleet_table_set(b.f, "embedding", key, KEYS, DIM, row[0], states[0]));
    CHECK_OK(fleet_table_get(b.f, "embedding", key, KEYS, DIM, got[0], again[0],
                             NULL));
    CHECK(memcmp(row, got, sizeof row) == 0);
    CHECK(memcmp(states, again, sizeof states) == 0);
    CHECK_OK(fleet_export_table(a.f, "embedding", test_path("text"),
                                &(fleet_export_options){.states = 1}));
    CHECK_OK(fleet_import_table(b.f, "embedding", test_path("text"), NULL));
    CHECK_OK(fleet_export_table(b.f, "embedding", test_path("again"),
                                &(fleet_export_options){.states = 1}));
    check_texts(test_path("text"), test_path("again"));
    scene_close(&a);
    scene_close(&b);
}

/* --- said and shown ------------------------------------------------------- */

TEST(the_strategys_dump_says_which_table_has_which_rule)
{
    scene s;
    char *text;

    open_scene(&s, "rowwise_adagrad", NULL);
    text = fleet_strategy_dump(s.f);
    CHECK_CONTAINS(text, "optimizer: type adam");
    CHECK_CONTAINS(text, "optimizer of table \"embedding\": type "
                         "rowwise_adagrad, learning_rate 0.02");
    fleet_free(text);
    scene_close(&s);
}

#define CONFIG(optimizer)                                                      \
    "{\"model\": {\"type\": \"wide_deep\"}, \"optimizer\": " optimizer         \
    ", \"dataset\": {\"format\": \"criteo\", \"train\": [\"a\"]}}"

static void check_config(const char *text, const char *words)
{
    fl_config c;

    CHECK_FAILS(fl_config_read(&c, text, strlen(text), "f.json"), FLEET_ECONFIG,
                words);
    fl_config_done(&c);
}

TEST(a_configuration_gives_tables_their_optimizers)
{
    static const char text[] =
        CONFIG("{\"type\": \"momentum\", \"tables\": {\"embedding\": "
               "{\"type\": \"rowwise_adagrad\", \"learning_rate\": 0.25, "
               "\"epsilon\": 0.5, \"row_bounds\": [-1, 2], "
               "\"l1_decay\": 0.125, \"clip_value\": 3}, \"more\": {}}}");
    const fl_config_optimizer *own;
    fl_config c;

    CHECK_OK(fl_config_read(&c, text, strlen(text), "f.json"));
    CHECK_INT(c.optimizer.n_own, 2);
    own = c.optimizer.own;
    CHECK_TEXT(own[0].name, "embedding");
    CHECK_INT(own[0].type, FL_RULE_ROWWISE_ADAGRAD);
    CHECK(own[0].learning_rate == 0.25);
    CHECK(FL_NUMBER_OF(&own[0], ROWWISE_ADAGRAD, epsilon) == 0.5f);
    CHECK(own[0].l1_decay == 0.125 && own[0].clip_value == 3);
    CHECK(own[1].l1_decay == 0 && own[1].clip_value == 0);
    CHECK(own[0].bounds && own[0].low == -1 && own[0].high == 2);
    CHECK_TEXT(own[1].name, "more");
    CHECK_INT(own[1].type, FL_RULE_ADAM); /* not that around it */
    fl_config_done(&c);
    check_config(CONFIG("{\"tables\": []}"),
                 "optimizer.tables: expected an object");
    check_config(CONFIG("{\"tables\": {\"a\": 1}}"),
                 "optimizer.tables.a: expected an optimizer");
    check_config(CONFIG("{\"tables\": {\"a\": {\"clip_global_norm\": 1}}}"),
                 "optimizer.tables.a.clip_global_norm");
    check_config(CONFIG("{\"tables\": {\"a\": {\"tables\": {}}}}"),
                 "optimizer.tables.a.tables");
    check_config(CONFIG("{\"tables\": {\"a\": {}, \"a\": {}}}"),
                 "optimizer.tables.a: stands twice");
    check_config(CONFIG("{\"row_bounds\": [1]}"), "optimizer.row_bounds");
}

/* Of programs of one handle a table and a parameter may have one name. */
TEST(a_tables_optimizer_is_of_no_parameter_that_is_called_as_it)
{
    static const int64_t one[] = {-1, 1};
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f), *q = fleet_program_create(f);
    fleet_optimizer *o = fleet_adam(f, 0.1f, NULL);
    fleet_var *loss = fleet_mean(p, fleet_fc(p, kit_data(p, "x", 3), 1,
                                             &(fleet_fc_options){.name = "a"}));
    kit_batch *b = kit_batch_new(4);
    fleet_executor *e;

    CHECK(fleet_sparse_embedding(
              q, fleet_data(q, "id", FLEET_INT64, one, 2), 2,
              &(fleet_sparse_embedding_options){.table = "a.w"}) != NULL);
    CHECK_OK(fleet_optimizer_set_table(o, "a.w",
                                       fleet_rowwise_adagrad(f, 0.1f, NULL)));
    CHECK_OK(fleet_minimize(o, loss));
    e = fleet_executor_create(p, NULL);
    CHECK(e != NULL);
    kit_floats(b, "x", 3, 1);
    kit_step(e, b, loss);
    kit_batch_free(b);
    fleet_executor_destroy(e);
    fleet_destroy(f);
}
