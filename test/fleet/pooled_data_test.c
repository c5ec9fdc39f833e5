/* pooled_data_test.c - weighted slots and ragged numbers from files to scores:
 * what a dataset feeds, what it refuses, ids out of bounds by file and line,
 * configurations, saved models. */
#define SUITE pooled_data
#include "model_kit.h"
#include "test.h"
#include "train_kit.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "fleet/config/config.h"

/* --- from a file --------------------------------------------------------- */

/* A program with weighted ids, whose output is what it gives. */
typedef struct reading {
    fleet *f;
    fleet_program *p;
    fleet_var *ids, *out, *numbers, *pooled;
    fleet_executor *e;
    fleet_dataset *d;
} reading;

static void reading_open(reading *r, const fleet_sparse_embedding_options *o)
{
    *r = (reading){.f = kit_handle(&(kit_options){0})};
    r->p = fleet_program_create(r->f);
    r->ids = fleet_data_weighted(r->p, "rated");
    r->out = fleet_sparse_embedding(r->p, r->ids, 2, o);
    r->numbers = fleet_data_ragged_floats(r->p, "prices");
    r->pooled = fleet_sequence_pool(r->p, r->numbers, FLEET_SUM);
    CHECK_OK(fleet_program_status(r->p));
}

static void reading_data(reading *r, const char *text)
{
    fleet_var *vars[] = {r->ids, r->numbers};
    const fleet_dataset_options o = {
        .use_var = vars, .n_use_var = 2, .batch_size = 4};
    const char *file = test_file("part-0", text);

    r->d = fleet_queue_dataset(r->f, &o);
    CHECK(r->d != NULL);
    CHECK_OK(fleet_dataset_set_filelist(r->d, &file, 1));
}

static void reading_close(reading *r)
{
    fleet_executor_destroy(r->e);
    fleet_destroy(r->f);
}

TEST(ids_and_weights_are_fed_side_by_side)
{
    static const fleet_initializer ones = {FLEET_INIT_CONSTANT, 1, 0};
    float got[6], sums[3];
    int64_t id[] = {1, 2, 3}, offsets[] = {0, 2, 2, 3}, rows[] = {3};
    float weight[] = {0.5f, 2, 1}, price[] = {3, 4}, *to[] = {got, sums};
    int64_t at[] = {0, 0, 2, 2};
    fleet_feed feed[] = {
        {"rated", FLEET_INT64, id, rows, 1, offsets},
        {"rated.weights", FLEET_FLOAT32, weight, rows, 1, offsets},
        {"prices", FLEET_FLOAT32, price, rows, 1, at}};
    reading r;

    reading_open(&r, &(fleet_sparse_embedding_options){.initializer = ones});
    r.e = fleet_executor_create(r.p, NULL);
    for (int i = 0; i < 2; i++) {
        fleet_fetch fetch = {.var = i ? r.pooled : r.out,
                             .data = to[i],
                             .size = i ? sizeof sums : sizeof got};

        CHECK_OK(fleet_executor_run(r.e, feed, 3, &fetch, 1));
    }
    CHECK(got[0] == 2.5f && got[1] == 2.5f && got[2] == 0 && got[4] == 1);
    CHECK(sums[0] == 0 && sums[1] == 7 && sums[2] == 0);
    reading_close(&r);
}

/* A file's batches are those that are fed: the same weights after training. */
TEST(training_from_a_file_is_training_on_what_it_says)
{
    uint64_t hash[2];

    for (int fed = 0; fed < 2; fed++) {
        int64_t id[] = {1, 2, 3}, offsets[] = {0, 2, 2, 3}, rows[] = {3};
        float weight[] = {0.5f, -2, 1}, price[] = {3, 4};
        int64_t at[] = {0, 0, 2, 2};
        fleet_feed feed[] = {
            {"rated", FLEET_INT64, id, rows, 1, offsets},
            {"rated.weights", FLEET_FLOAT32, weight, rows, 1, offsets},
            {"prices", FLEET_FLOAT32, price, rows, 1, at}};
        reading r;

        reading_open(&r,
                     &(fleet_sparse_embedding_options){.combiner = FLEET_MAX});
        fleet_var *both[] = {r.out, r.pooled};
        CHECK_OK(fleet_minimize(
            fleet_sgd(r.f, 0.5f),
            fleet_mean(r.p,
                       fleet_fc(r.p, fleet_concat(r.p, both, 2, 1), 1, NULL))));
        r.e = fleet_executor_create(r.p, NULL);
        reading_data(&r, "2 1:0.5 2:-2 0\n0 2 3 4\n1 3 0\n");
        if (fed)
            CHECK_OK(fleet_executor_run(r.e, feed, 3, NULL, 0));
        else
            CHECK_OK(fleet_train_from_dataset(r.e, r.d, NULL, NULL));
        hash[fed] = kit_hash(r.f);
        reading_close(&r);
    }
    CHECK(hash[0] == hash[1]);
}

/* --- what does not fit --------------------------------------------------- */

static void check_slots(const fleet_slot *slots, int n, fleet_status status,
                        const char *words)
{
    const fleet_dataset_options o = {.slots = slots, .n_slot = n};
    const char *file = test_file("part-0", "0 0\n");
    reading r;

    reading_open(&r, NULL);
    r.e = fleet_executor_create(r.p, NULL);
    r.d = fleet_queue_dataset(r.f, &o);
    CHECK(r.d != NULL);
    CHECK_OK(fleet_dataset_set_filelist(r.d, &file, 1));
    CHECK_FAILS(fleet_infer_from_dataset(r.e, r.d, NULL, NULL), status, words);
    reading_close(&r);
}

TEST(a_slot_is_weighted_as_its_variable_is)
{
    fleet_slot slots[] = {
        {.name = "rated", .dtype = FLEET_INT64, .dim = -1, .weighted = 1},
        {.name = "prices", .dtype = FLEET_FLOAT32, .dim = -1},
        {.name = "rated.weights", .dtype = FLEET_FLOAT32, .dim = -1}};
    fleet_dataset_options o = {0};
    fleet_var *vars[2];
    reading r;

    check_slots(slots, 3, FLEET_EINVAL,
                "slot \"rated.weights\" feeds the weights of \"rated\"");
    slots[0].weighted = 0;
    check_slots(slots, 2, FLEET_ESHAPE,
                "slot \"rated\" is not weighted, but its variable is");
    reading_open(&r, NULL);
    vars[0] = r.ids;
    vars[1] = fleet_program_var(r.p, "rated.weights");
    CHECK(fleet_var_weights(r.ids) == vars[1]);
    CHECK(fleet_var_weights(vars[1]) == NULL && fleet_var_is_ragged(vars[1]));
    o.use_var = vars;
    o.n_use_var = 2;
    CHECK(fleet_queue_dataset(r.f, &o) == NULL);
    CHECK_CONTAINS(fleet_last_error(),
                   "use_var[1] is the weights of \"rated\"");
    reading_close(&r);
}

TEST(a_weighted_slot_needs_a_weighted_variable)
{
    const fleet_slot slots[] = {
        {.name = "plain", .dtype = FLEET_INT64, .dim = -1, .weighted = 1}};
    const fleet_dataset_options o = {.slots = slots, .n_slot = 1};
    const char *file = test_file("part-0", "1 5:2\n");
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    fleet_executor *e;
    fleet_dataset *d;

    CHECK(fleet_sparse_embedding(p, fleet_data_ragged(p, "plain"), 2, NULL));
    e = fleet_executor_create(p, NULL);
    d = fleet_queue_dataset(f, &o);
    CHECK_OK(fleet_dataset_set_filelist(d, &file, 1));
    CHECK_FAILS(fleet_infer_from_dataset(e, d, NULL, NULL), FLEET_ESHAPE,
                "slot \"plain\" is weighted, but its variable is not");
    fleet_executor_destroy(e);
    fleet_destroy(f);
}

/* --- ids out of bounds --------------------------------------------------- */

TEST(an_id_out_of_a_tables_bounds_is_refused_by_file_line_and_slot)
{
    const fleet_sparse_embedding_options o = {.rows = 10, .check_ids = 1};
    reading r;

    reading_open(&r, &o);
    r.e = fleet_executor_create(r.p, NULL);
    reading_data(&r, "2 1:0.5 9:2 0\n1 3 2 3 4\n2 9 10:0.5 0\n");
    CHECK_FAILS(fleet_infer_from_dataset(r.e, r.d, NULL, NULL), FLEET_EFORMAT,
                "part-0:3: slot \"rated\": expected an id below 10, got "
                "\"10\"");
    reading_data(&r, "2 1:0.5 9:2 0\n1 3 2 3 4\n2 9 0:0.5 0\n");
    CHECK_OK(fleet_infer_from_dataset(r.e, r.d, NULL, NULL));
    reading_close(&r);
}

/* Without check_ids they are taken modulo the rows, as ever. */
TEST(ids_are_taken_modulo_rows_unless_they_are_checked)
{
    const fleet_sparse_embedding_options o = {.rows = 10};
    reading r;

    reading_open(&r, &o);
    r.e = fleet_executor_create(r.p, NULL);
    reading_data(&r, "2 1:0.5 9:2 0\n1 30 2 3 4\n");
    CHECK_OK(fleet_infer_from_dataset(r.e, r.d, NULL, NULL));
    reading_close(&r);
}

TEST(ids_of_a_dense_table_are_checked_while_they_are_read)
{
    const char *file = test_file("part-0", "2 1 9\n2 10 3\n");
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    fleet_var *ids = kit_data_ids(p, "ids", 2);
    const fleet_dataset_options o = {
        .use_var = &ids, .n_use_var = 1, .batch_size = 4};
    fleet_executor *e;
    fleet_dataset *d;

    CHECK(fleet_embedding(p, ids, 10, 2, NULL) != NULL);
    e = fleet_executor_create(p, NULL);
    d = fleet_queue_dataset(f, &o);
    CHECK_OK(fleet_dataset_set_filelist(d, &file, 1));
    CHECK_FAILS(fleet_infer_from_dataset(e, d, NULL, NULL), FLEET_EFORMAT,
                "part-0:2: slot \"ids\": expected an id below 10, got \"10\"");
    fleet_executor_destroy(e);
    fleet_destroy(f);
}

/* --- what builders refuse ------------------------------------------------ */

static void check_refused(const fleet_sparse_embedding_options *o,
                          const fleet_sparse_embedding_options *again,
                          fleet_status status, const char *words)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);

    fleet_sparse_embedding(p, fleet_data_ragged(p, "a"), 2, o);
    if (again) {
        CHECK_OK(fleet_program_status(p));
        fleet_sparse_embedding(p, fleet_data_ragged(p, "b"), 2, again);
    }
    if (words)
        CHECK_FAILS(fleet_program_status(p), status, words);
    else
        CHECK_OK(fleet_program_status(p));
    fleet_destroy(f);
}

#define TABLE(...)                                                             \
    &(fleet_sparse_embedding_options)                                          \
    {                                                                          \
        __VA_ARGS__                                                            \
    }

TEST(what_a_table_does_with_ids_must_be_possible_and_the_same_for_all)
{
    const fleet_sparse_embedding_options row = {
        .rows = 9, .check_ids = 1, .fresh = FLEET_FRESH_ROW, .default_id = 8};

    check_refused(TABLE(.check_ids = 1), NULL, FLEET_EINVAL,
                  "embedding: check_ids needs rows");
    check_refused(TABLE(.fresh = (fleet_fresh)3), NULL, FLEET_EINVAL,
                  "embedding: fresh 3 does not exist");
    check_refused(TABLE(.rows = 9, .check_ids = 1, .fresh = FLEET_FRESH_ROW,
                        .default_id = 9),
                  NULL, FLEET_EINVAL, "default_id 9 is not in [0, 9)");
    check_refused(&row, TABLE(.rows = 9), FLEET_OK, NULL);
    check_refused(&row, &row, FLEET_OK, NULL);
    check_refused(TABLE(.rows = 9), TABLE(.rows = 9, .check_ids = 1),
                  FLEET_EEXIST, "there already with another check_ids");
    check_refused(&row, TABLE(.rows = 9, .fresh = FLEET_FRESH_ZEROS),
                  FLEET_EEXIST, "there already with another fresh");
    check_refused(&row,
                  TABLE(.rows = 9, .fresh = FLEET_FRESH_ROW, .default_id = 7),
                  FLEET_EEXIST, "there already with another default_id");
}

/* --- ids without a row in a predictor ------------------------------------ */

enum { KNOWN = 5, OTHER = 6, UNKNOWN = 77 };

/* A table with rows for two ids, and a model of what it gives. */
static void save_model(const fleet_sparse_embedding_options *o,
                       const char *path)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    fleet_var *ids = kit_data_ids(p, "ids", 2);
    fleet_var *out = fleet_sparse_embedding(p, ids, 3, o);
    kit_batch *b = kit_batch_new(1);
    int64_t *id = kit_ids(b, "ids", 2, 5, 0);
    fleet_executor *e;

    id[0] = KNOWN;
    id[1] = OTHER;
    CHECK_OK(fleet_minimize(fleet_sgd(f, 1), fleet_mean(p, out)));
    e = fleet_executor_create(p, NULL);
    CHECK_OK(kit_run(e, b));
    CHECK_OK(fleet_save_inference_model(f, path, &ids, 1, &out, 1));
    kit_batch_free(b);
    fleet_executor_destroy(e);
    fleet_destroy(f);
}

/* The rows of two ids. */
static void predict(fleet_predictor *p, int64_t a, int64_t b, float row[2][3])
{
    int64_t id[] = {a, b}, dims[] = {1, 2};
    fleet_feed feed = {"ids", FLEET_INT64, id, dims, 2, NULL};
    size_t size = 6 * sizeof(float);

    CHECK_OK(fleet_predictor_run(p, &feed, 1, (void *[]){row}, &size, 1));
}

static fleet_predictor *open_model(const char *path)
{
    fleet_predictor *p = fleet_load_inference_model(path);

    if (!p)
        test_fail(__FILE__, __LINE__, "%s", fleet_last_error());
    return p;
}

/* What UNKNOWN reads as, by what the model was saved with; KNOWN reads as its
 * row, whatever it was saved with. */
static void fresh_row(const fleet_sparse_embedding_options *o, float want[3],
                      float known[3])
{
    float row[2][3];
    fleet_predictor *p;

    save_model(o, test_path("model"));
    p = open_model(test_path("model"));
    predict(p, UNKNOWN, KNOWN, row);
    memcpy(want, row[0], sizeof row[0]);
    memcpy(known, row[1], sizeof row[1]);
    fleet_predictor_destroy(p);
}

TEST(a_model_says_what_its_predictor_reads_for_an_id_without_a_row)
{
    static const float zeros[3];
    float first[3], known[3], got[3], same[3];

    fresh_row(NULL, first, known);
    CHECK(memcmp(first, zeros, sizeof first) != 0);
    fresh_row(TABLE(.fresh = FLEET_FRESH_ZEROS), got, same);
    CHECK(memcmp(got, zeros, sizeof got) == 0);
    CHECK(memcmp(same, known, sizeof same) == 0);
    fresh_row(TABLE(.fresh = FLEET_FRESH_ROW, .default_id = KNOWN), got, same);
    CHECK(memcmp(got, known, sizeof got) == 0);
    CHECK(memcmp(same, known, sizeof same) == 0);
    fresh_row(TABLE(.fresh = FLEET_FRESH_ROW, .default_id = UNKNOWN), got,
              same);
    CHECK(memcmp(got, first, sizeof got) == 0); /* it has no row either */
    fresh_row(
        TABLE(.rows = 60, .fresh = FLEET_FRESH_ROW, .default_id = 60 + KNOWN),
        got, same);
    CHECK(memcmp(got, same, sizeof got) == 0); /* modulo the rows, like ids */
}

/* It is the predictor's alone: training and tests read initial values. */
TEST(an_id_without_a_row_begins_with_its_initial_value_in_training)
{
    float row[2][6];

    for (int zeros = 0; zeros < 2; zeros++) {
        fleet *f = kit_handle(&(kit_options){0});
        fleet_program *p = fleet_program_create(f);
        fleet_var *out = fleet_sparse_embedding(
            p, kit_data_ids(p, "ids", 2), 3,
            TABLE(.fresh = zeros ? FLEET_FRESH_ZEROS : FLEET_FRESH_INITIAL));
        kit_batch *b = kit_batch_new(1);
        fleet_executor *e;

        kit_ids(b, "ids", 2, 5, 0);
        e = fleet_executor_create(p, &(fleet_executor_options){.for_test = 1});
        CHECK_OK(kit_fetch(e, b, out, row[zeros], 6));
        kit_batch_free(b);
        fleet_executor_destroy(e);
        fleet_destroy(f);
    }
    CHECK(memcmp(row[0], row[1], sizeof row[0]) == 0);
}

TEST(a_predictor_may_be_told_otherwise_before_it_runs)
{
    static const float zeros[3];
    const char *path = test_path("model");
    float row[2][3], other[2][3];
    fleet_predictor *p;

    save_model(TABLE(.rows = 90, .check_ids = 1), path);
    p = open_model(path);
    CHECK_FAILS(fleet_predictor_set_fresh(p, "no", FLEET_FRESH_ZEROS, 0),
                FLEET_ENOENT, "the model has no table \"no\"");
    CHECK_FAILS(fleet_predictor_set_fresh(p, NULL, (fleet_fresh)7, 0),
                FLEET_EINVAL, "fresh 7 does not exist");
    CHECK_FAILS(fleet_predictor_set_fresh(p, NULL, FLEET_FRESH_ROW, 90),
                FLEET_EINVAL, "default_id 90 is not in [0, 90)");
    CHECK_FAILS(fleet_predictor_set_fresh(NULL, NULL, FLEET_FRESH_ZEROS, 0),
                FLEET_EINVAL, "no predictor");
    CHECK_OK(fleet_predictor_set_fresh(p, "embedding", FLEET_FRESH_ZEROS, 0));
    predict(p, UNKNOWN, KNOWN, row);
    CHECK(memcmp(row[0], zeros, sizeof zeros) == 0);
    CHECK_FAILS(fleet_predictor_set_fresh(p, NULL, FLEET_FRESH_INITIAL, 0),
                FLEET_ESTATE, "the predictor has run");
    fleet_predictor_destroy(p);
    p = open_model(path); /* the saved model is as it was */
    CHECK_OK(fleet_predictor_set_fresh(p, NULL, FLEET_FRESH_ROW, OTHER));
    predict(p, UNKNOWN, OTHER, other);
    CHECK(memcmp(other[0], other[1], sizeof zeros) == 0);
    fleet_predictor_destroy(p);
}

TEST(a_predictor_checks_ids_as_its_model_did)
{
    int64_t id[] = {1, 90}, dims[] = {1, 2};
    fleet_feed feed = {"ids", FLEET_INT64, id, dims, 2, NULL};
    size_t size = 6 * sizeof(float);
    float row[6];
    fleet_predictor *p;

    save_model(TABLE(.rows = 90, .check_ids = 1), test_path("model"));
    p = open_model(test_path("model"));
    CHECK_FAILS(fleet_predictor_run(p, &feed, 1, (void *[]){row}, &size, 1),
                FLEET_EINVAL,
                "id 90 of \"ids\" in row 0 of the batch is not in [0, 90)");
    fleet_predictor_destroy(p);
}

/* --- a whole model, saved and loaded ------------------------------------- */

TEST(a_predictor_of_pooled_slots_scores_as_its_model_does)
{
    static const char *const name[] = {"dense", "u", "v", "w", "prices", "x"};
    static const char *const weighted[] = {"w", "x"};
    const scene_training how = {.pooled = true};
    float dense[] = {0.5f, 0.5f, 0.25f, 0, 1, 1}, price[] = {0.5f, -1, 2};
    int64_t u[] = {3, 4}, v[] = {5, 6}, w[] = {7, 8, 8}, x[] = {9, 100, 3};
    float by[] = {0.5f, -1, 1}, of_x[] = {1, 2, -0.25f}, want[2], got[2];
    int64_t three[] = {2, 3}, one[] = {2, 1}, rows[] = {2};
    int64_t at[] = {0, 3, 3}, late[] = {0, 0, 3};
    fleet_feed feed[] = {{"dense", FLEET_FLOAT32, dense, three, 2, NULL},
                         {"u", FLEET_INT64, u, one, 2, NULL},
                         {"v", FLEET_INT64, v, one, 2, NULL},
                         {"w", FLEET_INT64, w, rows, 1, at},
                         {"prices", FLEET_FLOAT32, price, rows, 1, late},
                         {"x", FLEET_INT64, x, rows, 1, late},
                         {"w.weights", FLEET_FLOAT32, by, rows, 1, at},
                         {"x.weights", FLEET_FLOAT32, of_x, rows, 1, late}};
    fleet_fetch fetch = {.data = want, .size = sizeof want};
    size_t size = sizeof got;
    fleet_var *vars[8];
    fleet_predictor *p;
    scene s;

    scene_open_as(&s, &(fleet_options){.num_threads = 1}, &how);
    scene_data(&s, scene_pooled_file("train.txt", 300, 1), 32, 1, 0);
    scene_train(&s, 1);
    s.tester =
        fleet_executor_create(s.p, &(fleet_executor_options){.for_test = 1});
    fetch.var = s.m.prediction;
    CHECK_OK(fleet_executor_run(s.tester, feed, 8, &fetch, 1));
    for (int i = 0; i < 6; i++)
        vars[i] = fleet_program_var(s.p, name[i]);
    CHECK_FAILS(fleet_save_inference_model(s.f, test_path("m"), vars, 6,
                                           &s.m.prediction, 1),
                FLEET_ENOENT, "depends on \"w.weights\"");
    for (int i = 0; i < 2; i++)
        vars[6 + i] = (fleet_var *)(uintptr_t)fleet_var_weights(
            fleet_program_var(s.p, weighted[i]));
    CHECK_OK(fleet_save_inference_model(s.f, test_path("m"), vars, 8,
                                        &s.m.prediction, 1));
    p = open_model(test_path("m"));
    CHECK_TEXT(fleet_var_name(fleet_var_weights(fleet_predictor_input(p, 3))),
               "w.weights");
    CHECK_OK(fleet_predictor_run(p, feed, 8, (void *[]){got}, &size, 1));
    CHECK(memcmp(got, want, sizeof got) == 0);
    fleet_predictor_destroy(p);
    scene_close(&s);
}

/* --- configurations ------------------------------------------------------ */

#define CONFIG(model, slots)                                                   \
    "{\"model\": {\"type\": \"wide_deep\", \"hidden\": [8]" model              \
    "}, \"dataset\": {\"format\": \"multislot\", \"train\": [\"part-0\"], "    \
    "\"batch_size\": 4}, \"slots\": [{\"name\": \"y\", \"type\": "             \
    "\"float\", \"role\": \"label\"}," slots "]}"
#define RATED                                                                  \
    "{\"name\": \"rated\", \"type\": \"uint64\", \"dim\": -1, \"weighted\": "  \
    "true, \"combiner\": \"max\"}"

static void refused(const char *text, const char *words)
{
    fl_config c;

    CHECK_FAILS(fl_config_read(&c, text, strlen(text), "f.json"), FLEET_ECONFIG,
                words);
    fl_config_done(&c);
}

TEST(a_configuration_says_how_slots_are_pooled)
{
    static const char text[] = CONFIG(
        ", \"rows\": 100, \"check_ids\": true, \"fresh\": \"row\", "
        "\"default_id\": 7",
        RATED ", {\"name\": \"prices\", \"type\": \"float\", \"dim\": -1, "
              "\"combiner\": \"sqrt\"}");
    fl_config c;

    CHECK_OK(fl_config_read(&c, text, strlen(text), "f.json"));
    CHECK_INT(c.slot[1].slot.weighted, 1);
    CHECK_INT(c.slot[1].combiner, FLEET_MAX);
    CHECK_INT(c.slot[2].combiner, FLEET_SQRT);
    CHECK_INT(c.slot[2].slot.dim, -1);
    CHECK(c.rows == 100 && c.check_ids && c.fresh == FLEET_FRESH_ROW);
    CHECK_INT(c.default_id, 7);
    fl_config_done(&c);
}

TEST(a_configuration_refuses_what_cannot_be_pooled)
{
    refused(CONFIG("", "{\"name\": \"u\", \"type\": \"uint64\", \"weighted\": "
                       "true}"),
            "slots[1].weighted: expected false");
    refused(CONFIG("", "{\"name\": \"u\", \"type\": \"uint64\", \"combiner\": "
                       "\"max\"}"),
            "slots[1].combiner: expected nothing: it is for dim -1");
    refused(CONFIG("", "{\"name\": \"u\", \"type\": \"uint64\", \"dim\": -1, "
                       "\"combiner\": \"least\"}"),
            "slots[1].combiner: expected one of \"sum\", \"mean\", \"sqrt\", "
            "\"max\"");
    refused(CONFIG(", \"check_ids\": true", RATED), "model.check_ids: expected "
                                                    "false: without rows");
    refused(CONFIG(", \"default_id\": 3", RATED),
            "model.default_id: expected nothing: it is for fresh \"row\"");
    refused(CONFIG(", \"fresh\": \"ones\"", RATED),
            "model.fresh: expected one of \"initial\", \"zeros\", \"row\"");
}

/* The same model by a configuration and by calls: the same bits. */
TEST(a_configuration_trains_weighted_slots)
{
    const char *file = scene_pooled_file("train.txt", 120, 1);
    const scene_training how = {.pooled = true, .units = 8};
    char want[80], *line;
    fl_text t = {0};
    scene s;

    fl_text_add(
        &t,
        "{\"model\": {\"type\": \"wide_deep\", \"embedding_dim\": 4, "
        "\"hidden\": [8, 8], \"wide_ids\": true}, \"seed\": 3, \"optimizer\": "
        "{\"type\": \"adam\", \"learning_rate\": 0.01}, \"dataset\": "
        "{\"format\": \"multislot\", \"train\": [\"%s\"], \"batch_size\": 32}, "
        "\"slots\": [{\"name\": \"label\", \"type\": \"float\", \"role\": "
        "\"label\"}, {\"name\": \"dense\", \"type\": \"float\", \"dim\": 3}, "
        "{\"name\": \"u\", \"type\": \"uint64\"}, {\"name\": \"v\", \"type\": "
        "\"uint64\"}, {\"name\": \"w\", \"type\": \"uint64\", \"dim\": -1, "
        "\"combiner\": \"max\", \"weighted\": true}, {\"name\": \"prices\", "
        "\"type\": \"float\", \"dim\": -1, \"combiner\": \"max\"}, {\"name\": "
        "\"x\", \"type\": \"uint64\", \"dim\": -1, \"combiner\": \"sqrt\", "
        "\"weighted\": true}]}",
        file);
    const char *config = test_file("f.json", fl_text_chars(&t));
    CHECK_OK(fleet_train_from_config(config, NULL, &line));
    scene_open_as(&s, &(fleet_options){.num_threads = 1, .seed = 3}, &how);
    scene_data(&s, file, 32, 1, 0);
    scene_train(&s, 1);
    snprintf(want, sizeof want, "\"params_hash\":\"%016llx\"",
             (unsigned long long)scene_hash(&s));
    CHECK_CONTAINS(line, want);
    fleet_free(line);
    scene_close(&s);
    fl_text_done(&t);
}
