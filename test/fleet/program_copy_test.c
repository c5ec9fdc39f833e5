/* program_copy_test.c - programs that are made of other ones: read from JSON
 * they dump and train as those that were written; clones for tests compute as
 * in inference and are not trained; pruned ones have what is needed alone. */
#define SUITE program_copy
#include "test.h"
#include "train_kit.h"

#include <string.h>

#include "base/memory.h"
#include "fleet/job/handle.h"

enum { ROWS = 24 };

static char *dump(fleet_program *p, fleet_dump how)
{
    char *text = fleet_program_dump(p, how, 0);

    CHECK(text != NULL);
    return text;
}

/* What is known of layers by number, by name, by place, at random; whose
 * parameters, tables and data have all that can be said of them. */
static fleet_var *build(fleet_program *p)
{
    static const int64_t one[] = {-1, 1};
    const fleet_accessor ctr = {.kind = FLEET_CTR_ACCESSOR,
                                .show = "y",
                                .embedx_dim = 3,
                                .base_threshold = 0.5f};
    fleet_var *x = kit_data(p, "x", 6), *ids = fleet_data_weighted(p, "w");
    fleet_var *y = fleet_data(p, "y", FLEET_INT64, one, 2), *h, *logits;

    fleet_data(p, "unread", FLEET_FLOAT32, one, 2);
    h = fleet_sparse_embedding(
        p, ids, 4,
        &(fleet_sparse_embedding_options){
            .table = "t",
            .initializer = {FLEET_INIT_UNIFORM, -0.1f, 0.3f},
            .combiner = FLEET_SUM,
            .life = {.entry = {.kind = FLEET_COUNT_FILTER_ENTRY, .count = 2},
                     .accessor = ctr,
                     .most_rows = 4096}});
    h = fleet_dropout(p, fleet_concat(p, (fleet_var *[]){x, h}, 2, 1), 0.25f);
    CHECK_OK(fleet_device_guard(p, "cpu"));
    h = fleet_fc(p, h, 8,
                 &(fleet_fc_options){
                     .activation = FLEET_RELU,
                     .weight = {.learning_rate = 0.3f, .l2_decay = 0.125f},
                     .bias = {.no_decay = 1}});
    CHECK_OK(fleet_device_guard(p, NULL));
    h = fleet_batch_norm(p, h, NULL);
    h = fleet_dropout(p, h, 0.5f);
    logits = fleet_fc(p, h, 2, &(fleet_fc_options){.weight = {.frozen = 1}});
    fleet_auc(p, fleet_softmax(p, logits), y, 0);
    return fleet_mean(p, fleet_softmax_with_cross_entropy(p, logits, y, NULL));
}

typedef struct trained {
    fleet *f;
    fleet_program *p;
    fleet_executor *e;
    kit_batch *b;
} trained;

static void feed(trained *t)
{
    t->b = kit_batch_new(ROWS);
    kit_floats(t->b, "x", 6, 1);
    kit_ragged(t->b, "w", 3, 20, 2);
    kit_weights(t->b, "w.weights", 1, 3);
    kit_ids(t->b, "y", 1, 2, 4);
}

/* The program trains on; its loss after so many batches. */
static float train(trained *t, fleet_program *p, fleet_var *loss, int batches)
{
    float last = 0;

    t->p = p;
    CHECK(loss != NULL);
    CHECK_OK(fleet_minimize(
        fleet_distributed_optimizer(t->f, fleet_adam(t->f, 0.01f, NULL), NULL),
        loss));
    t->e = fleet_executor_create(p, NULL);
    CHECK(t->e != NULL);
    feed(t);
    for (int i = 0; i < batches; i++)
        last = kit_step(t->e, t->b, loss);
    return last;
}

static void end(trained *t)
{
    kit_batch_free(t->b);
    fleet_executor_destroy(t->e);
    fleet_destroy(t->f);
}

static uint64_t train_built(trained *t, int batches)
{
    fleet_program *p;

    t->f = kit_handle(&(kit_options){0});
    p = fleet_program_create(t->f);
    train(t, p, build(p), batches);
    return kit_hash(t->f);
}

/* --- from JSON ------------------------------------------------------------ */

/* In a handle of its own, compared. */
static fleet_program *read_again(fleet_program *from, fleet **f)
{
    char *json = dump(from, FLEET_DUMP_JSON), *text, *again;
    fleet_program *p;

    *f = kit_handle(&(kit_options){0});
    p = fleet_program_from_json(*f, json);
    if (!p)
        test_fail(__FILE__, __LINE__, "%s in %s", fleet_last_error(), json);
    again = dump(p, FLEET_DUMP_JSON);
    CHECK_TEXT(again, json);
    fleet_free(again);
    fleet_free(json);
    text = dump(from, FLEET_DUMP_TEXT);
    again = dump(p, FLEET_DUMP_TEXT);
    CHECK_TEXT(again, text);
    fleet_free(again);
    fleet_free(text);
    return p;
}

TEST(a_program_read_from_its_dump_dumps_and_trains_the_same)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *from = fleet_program_create(f), *p;
    fleet_var *loss = build(from);
    trained t, want;

    CHECK_OK(fleet_program_status(from));
    p = read_again(from, &t.f);
    train(&t, p, fleet_program_var(p, fleet_var_name(loss)), 4);
    CHECK(train_built(&want, 4) == kit_hash(t.f));
    end(&t);
    end(&want);
    fleet_destroy(f);
}

TEST(models_read_from_their_dumps_dump_the_same)
{
    for (int kind = KIT_MLP; kind <= KIT_SEQUENCE; kind++) {
        kit_model m;
        fleet_program *p;
        fleet *f;

        kit_build(&m, (kit_kind)kind, &(kit_options){0});
        m.p->training.loss = NULL; /* is in no dump of a program alone */
        p = read_again(m.p, &f);
        CHECK(fleet_program_var(p, fleet_var_name(m.m.loss)) != NULL);
        fleet_destroy(f);
        kit_close(&m);
    }
}

TEST(layers_added_to_what_was_read_go_on_with_its_names)
{
    fleet *f = kit_handle(&(kit_options){0}), *g;
    fleet_program *from = fleet_program_create(f), *p;
    const char *name;

    fleet_fc(from, kit_data(from, "x", 6), 8, NULL);
    p = read_again(from, &g);
    name = fleet_var_name(fleet_fc(p, fleet_program_var(p, "x"), 8, NULL));
    CHECK_TEXT(name, fleet_var_name(fleet_fc(from, fleet_program_var(from, "x"),
                                             8, NULL)));
    fleet_destroy(f);
    fleet_destroy(g);
}

TEST(what_no_dump_wrote_is_refused_with_its_path)
{
#define DATA(name, type)                                                       \
    "{\"name\":\"" name "\",\"kind\":\"data\",\"dtype\":\"" type               \
    "\",\"shape\":[-1,1],\"ragged\":true"
#define PROGRAM(vars, nodes)                                                   \
    "{\"trains\":true,\"vars\":[" vars "],\"nodes\":[" nodes "]}"
    static const struct {
        const char *text;
        fleet_status status;
        const char *words;
    } refused[] = {
        {NULL, FLEET_EINVAL, "no text"},
        {"{", FLEET_ECONFIG, "program"},
        {"{\"trains\":1}", FLEET_ECONFIG, "trains: expected"},
        {PROGRAM("{\"name\":\"w\",\"kind\":\"param\",\"dtype\":\"float32\","
                 "\"shape\":[2],\"learning_rate\":-1}",
                 ""),
         FLEET_EINVAL, "w: learning_rate -1 is out of range"},
        {PROGRAM("{\"name\":\"w\",\"kind\":\"param\",\"dtype\":\"float32\","
                 "\"shape\":[2],\"ps\":\"mine\"}",
                 ""),
         FLEET_ECONFIG, "vars[0].ps: expected one of"},
        {PROGRAM("{\"name\":\"t\",\"kind\":\"table\",\"dtype\":\"float32\","
                 "\"shape\":[0,2],\"life\":{\"entry\":\"all\"}}",
                 ""),
         FLEET_ECONFIG, "vars[0].life.entry: expected an entry"},
        {PROGRAM("{\"name\":\"t\",\"kind\":\"table\",\"dtype\":\"float32\","
                 "\"shape\":[0,2],\"memory_cap_bytes\":5}",
                 ""),
         FLEET_EINVAL, "t: memory_cap_bytes 5"},
        {PROGRAM(DATA("w", "float32") ",\"weighs\":\"i\"}", ""), FLEET_ECONFIG,
         "vars[0].weighs: expected ragged ids"},
        {PROGRAM(DATA("i", "int64") "}",
                 "{\"op\":\"relu\",\"in\":[],\"out\":[\"y\"],\"attrs\":{}}"),
         FLEET_ECONFIG, "nodes[0].in: expected as many inputs"},
        {PROGRAM("{\"name\":\"x\",\"kind\":\"data\",\"dtype\":\"float32\","
                 "\"shape\":[-1,2]}",
                 "{\"op\":\"relu\",\"in\":[\"x\"],\"out\":[\"y\"],\"attrs\":{},"
                 "\"stream\":-1}"),
         FLEET_ECONFIG, "nodes[0].stream: expected an integer from 0"},
        {PROGRAM("{\"name\":\"x\",\"kind\":\"data\",\"dtype\":\"float32\","
                 "\"shape\":[-1,2]}",
                 "{\"op\":\"relu\",\"in\":[\"x\"],\"out\":[\"y\"],\"attrs\":{},"
                 "\"device\":\"tpu\"}"),
         FLEET_EINVAL, "device \"tpu\""},
    };
    fleet *f = kit_handle(&(kit_options){0});

    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        CHECK(fleet_program_from_json(f, refused[i].text) == NULL);
        if (!strstr(fleet_last_error(), refused[i].words))
            test_fail(__FILE__, __LINE__, "%s gave %s, not %s", refused[i].text,
                      fleet_last_error(), refused[i].words);
        CHECK(f->n_program == 0);
    }
    fleet_destroy(f);
}

TEST(reading_and_cloning_survive_every_allocation_that_fails)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *from = fleet_program_create(f), *p = NULL;
    char *json;

    build(from);
    json = dump(from, FLEET_DUMP_JSON);
    for (int64_t n = 1; !p; n++) {
        fl_memory_fail_at(n, false);
        p = n % 2 ? fleet_program_from_json(f, json)
                  : fleet_program_clone(from, 1);
        fl_memory_fail_at(0, false);
        CHECK(f->n_program == (size_t)(p ? 2 : 1));
    }
    fleet_free(json);
    fleet_destroy(f);
}

/* --- clones, pruned programs ---------------------------------------------- */

TEST(a_clone_for_tests_computes_as_in_inference_and_is_not_trained)
{
    float want[1], got[1];
    fleet_program *clone;
    fleet_executor *tests, *cloned;
    uint64_t before;
    fleet_var *loss;
    trained t;

    train_built(&t, 3);
    loss = t.p->training.loss;
    clone = fleet_program_clone(t.p, 1);
    CHECK(clone != NULL);
    before = kit_hash(t.f);
    tests =
        fleet_executor_create(t.p, &(fleet_executor_options){.for_test = 1});
    cloned = fleet_executor_create(clone, NULL);
    CHECK_OK(kit_fetch(tests, t.b, loss, want, 1));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(kit_fetch(cloned, t.b,
                           fleet_program_var(clone, fleet_var_name(loss)), got,
                           1));
        CHECK(got[0] == want[0]);
    }
    CHECK(kit_hash(t.f) == before);
    CHECK(kit_step(t.e, t.b, loss) != want[0]); /* with dropout */
    CHECK_OK(kit_fetch(cloned, t.b,
                       fleet_program_var(clone, fleet_var_name(loss)), got, 1));
    CHECK(got[0] != want[0]); /* by what was trained since */
    fleet_executor_destroy(tests);
    fleet_executor_destroy(cloned);
    end(&t);
}

TEST(a_clone_for_tests_is_not_minimized)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *from = fleet_program_create(f);
    const char *name = fleet_var_name(build(from));
    fleet_program *clone = fleet_program_clone(from, 1);
    fleet_program *again = fleet_program_clone(clone, 0);
    fleet_optimizer *o = fleet_sgd(f, 0.1f);

    CHECK_FAILS(fleet_minimize(o, fleet_program_var(again, name)), FLEET_ESTATE,
                "a clone for tests");
    CHECK_FAILS(fleet_minimize(o, fleet_program_var(clone, name)), FLEET_ESTATE,
                "a clone for tests");
    CHECK_OK(fleet_minimize(
        o, fleet_program_var(fleet_program_clone(from, 0), name)));
    fleet_destroy(f);
}

TEST(a_program_without_its_metrics_trains_to_the_same_bits)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *from = fleet_program_create(f), *p, *twice;
    fleet_var *loss, *target;
    trained t = {.f = f}, want;
    char *text;

    fleet_dropout(from, kit_data(from, "v", 2), 0.5f);
    loss = build(from);
    p = fleet_program_prune(from, &loss, 1);
    CHECK(p != NULL);
    text = dump(p, FLEET_DUMP_TEXT);
    CHECK(strstr(text, "auc") == NULL && strstr(text, " unread ") == NULL);
    CHECK(strstr(text, " v ") == NULL && strstr(text, "dropout") != NULL);
    fleet_free(text);
    target = fleet_program_var(p, fleet_var_name(loss));
    twice = fleet_program_prune(p, &target, 1);
    train(&t, twice, fleet_program_var(twice, fleet_var_name(loss)), 4);
    want.f = kit_handle(&(kit_options){0});
    from = fleet_program_create(want.f);
    fleet_dropout(from, kit_data(from, "v", 2), 0.5f);
    loss = build(from);
    train(&want, from, loss, 0);
    kit_floats(want.b, "v", 2, 9);
    for (int i = 0; i < 4; i++)
        kit_step(want.e, want.b, loss);
    CHECK(kit_hash(want.f) == kit_hash(f));
    end(&want);
    end(&t);
}

/* Whose names alone stand in the table's accessor. */
TEST(a_pruned_program_keeps_the_slots_that_tables_count_by)
{
    static const int64_t one[] = {-1, 1};
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *from = fleet_program_create(f), *p;
    fleet_var *ids = fleet_data_ragged(from, "ids"), *loss;

    fleet_data(from, "seen", FLEET_INT64, one, 2);
    fleet_data(from, "clicked", FLEET_INT64, one, 2);
    fleet_data(from, "unread", FLEET_INT64, one, 2);
    loss = fleet_mean(
        from,
        fleet_sparse_embedding(from, ids, 2,
                               &(fleet_sparse_embedding_options){
                                   .table = "t",
                                   .life.accessor = {.kind = FLEET_CTR_ACCESSOR,
                                                     .show = "seen",
                                                     .click = "clicked"}}));
    CHECK_OK(fleet_program_status(from));
    p = fleet_program_prune(from, &loss, 1);
    CHECK(p != NULL && fleet_program_var(p, "seen") != NULL);
    CHECK(fleet_program_var(p, "clicked") != NULL);
    CHECK(fleet_program_var(p, "unread") == NULL);
    CHECK_OK(fleet_minimize(fleet_sgd(f, 0.1f),
                            fleet_program_var(p, fleet_var_name(loss))));
    fleet_destroy(f);
}

TEST(targets_of_no_operator_are_refused)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f), *q = fleet_program_create(f);
    fleet_var *x = kit_data(p, "x", 2), *y = fleet_relu(p, x);
    fleet_var *two[] = {y, NULL};

    CHECK(fleet_program_prune(p, NULL, 1) == NULL);
    CHECK_CONTAINS(fleet_last_error(), "fleet_program_prune: no targets");
    CHECK(fleet_program_prune(p, &x, 1) == NULL);
    CHECK_CONTAINS(fleet_last_error(), "target 0, \"x\", is not computed");
    CHECK(fleet_program_prune(p, two, 2) == NULL);
    CHECK_CONTAINS(fleet_last_error(), "target 1, \"\", is not computed");
    CHECK(fleet_program_prune(q, &y, 1) == NULL);
    CHECK_CONTAINS(fleet_last_error(), "is not computed by the program");
    CHECK(fleet_program_prune(p, &y, 1) != NULL);
    CHECK(fleet_program_clone(NULL, 1) == NULL);
    fleet_destroy(f);
}
