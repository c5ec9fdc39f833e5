/* program_json_test.c - programs as JSON: what is written reads as the same
 * program, and what is malformed is refused with its path. */
#define SUITE program_json
#include "test.h"
#include "train_kit.h"

#include <stdlib.h>
#include <string.h>

#include "base/json/json_write.h"
#include "base/memory.h"
#include "fleet/job/handle.h"
#include "ops/ops.h"
#include "runtime/graph/program_json.h"

/* --- round trips --------------------------------------------------------- */

static char *text_of(fleet_program *p)
{
    char *text = fleet_program_dump(p, FLEET_DUMP_TEXT, 1);

    CHECK(text != NULL);
    return text;
}

/* The program that computes a model's prediction, as a file would have it. */
static fl_json *written(fleet_program *p, fleet_var *prediction)
{
    fl_json *json, *read;
    char *text;

    CHECK_OK(fl_program_to_json(p, &prediction, 1, &json));
    text = fl_json_print(json, false);
    CHECK_OK(fl_json_parse(text, strlen(text), "model.json", &read));
    fl_free(text);
    fl_json_free(json);
    return read;
}

/* Read JSON into a program of a handle of its own. */
static fleet_status read_program(const fl_json *json, fleet **f,
                                 fleet_program **p)
{
    fl_at root = fl_at_root(json);

    *f = kit_handle(&(kit_options){0});
    *p = fleet_program_create(*f);
    return fl_program_from_json(*p, &root, fl_op_find);
}

/* What computes the prediction, written, read, and written again. */
static void check_round_trip(kit_kind kind)
{
    fl_json *first, *second;
    char *a, *b, *text;
    fleet_program *p;
    kit_model m;
    fleet *f;

    kit_build(&m, kind, &(kit_options){0});
    first = written(m.p, m.m.prediction);
    CHECK_OK(read_program(first, &f, &p));
    fleet_var *prediction =
        fleet_program_var(p, fleet_var_name(m.m.prediction));
    CHECK(prediction != NULL);
    second = written(p, prediction);
    a = fl_json_print(first, false);
    b = fl_json_print(second, false);
    CHECK_TEXT(b, a);
    text = text_of(p);
    CHECK(strstr(text, "log_loss") == NULL && strstr(text, "mean(") == NULL);
    fleet_free(text);
    fl_free(a);
    fl_free(b);
    fl_json_free(first);
    fl_json_free(second);
    fleet_destroy(f);
    kit_close(&m);
}

TEST(a_program_reads_as_it_was_written)
{
    check_round_trip(KIT_MLP);
    check_round_trip(KIT_CTR);
    check_round_trip(KIT_POOLED);
    check_round_trip(KIT_SEQUENCE);
}

/* The same scores from the same weights. */
TEST(a_program_that_was_read_computes_the_same)
{
    float want[20], got[20];
    fleet_program *p;
    fl_json *json;
    kit_model m;
    fleet *f;

    kit_open(&m, KIT_CTR, &(kit_options){0});
    kit_batch *b = kit_batch_for(&m, 20, 1);
    fleet_executor *e =
        fleet_executor_create(m.p, &(fleet_executor_options){.for_test = 1});
    CHECK_OK(kit_fetch(e, b, m.m.prediction, want, 20));
    json = written(m.p, m.m.prediction);
    CHECK_OK(read_program(json, &f, &p));
    fleet_executor *other = fleet_executor_create(p, NULL);
    CHECK(other != NULL);
    for (size_t i = 0; i < f->store->params.n; i++) {
        fl_param *to = f->store->params.entry[i].value;
        fl_param *from = fl_store_param(m.f->store, to->name);

        memcpy(to->flat->weight + to->offset, from->flat->weight + from->offset,
               (size_t)to->n * 4);
    }
    b->n--; /* the label is not needed any more */
    CHECK_OK(kit_fetch(other, b,
                       fleet_program_var(p, fleet_var_name(m.m.prediction)),
                       got, 20));
    CHECK(memcmp(got, want, sizeof got) == 0);
    b->n++;
    kit_batch_free(b);
    fl_json_free(json);
    fleet_executor_destroy(other);
    fleet_executor_destroy(e);
    fleet_destroy(f);
    kit_close(&m);
}

/* --- refusals ------------------------------------------------------------ */

#define X                                                                      \
    "{\"name\":\"x\",\"kind\":\"data\",\"dtype\":\"float32\","                 \
    "\"shape\":[-1,4]}"
#define W                                                                      \
    "{\"name\":\"w\",\"kind\":\"param\",\"dtype\":\"float32\","                \
    "\"shape\":[4,3]}"
#define VARS(list)  "{\"vars\":[" list "],\"nodes\":[]}"
#define NODES(list) "{\"vars\":[" X "," W "],\"nodes\":[" list "]}"
#define NODE(op, in, out, attrs)                                               \
    "{\"op\":\"" op "\",\"in\":[" in "],\"out\":[" out "],\"attrs\":{" attrs   \
    "}}"

static const struct {
    const char *text;
    fleet_status status;
    const char *words;
} refusals[] = {
    {"{}", FLEET_ECONFIG, "vars: expected an array of variables, got nothing"},
    {"{\"vars\":[]}", FLEET_ECONFIG, "nodes: expected an array of nodes"},
    {VARS("{}"), FLEET_ECONFIG, "vars[0].name: missing"},
    {VARS("{\"name\":5}"), FLEET_ECONFIG, "vars[0].name: expected a string"},
    {VARS("{\"name\":\"x\"}"), FLEET_ECONFIG, "vars[0].kind: missing"},
    {VARS("{\"name\":\"x\",\"kind\":\"dat\"}"), FLEET_ECONFIG,
     "vars[0].kind: expected one of \"data\""},
    {VARS("{\"name\":\"x\",\"kind\":\"data\"}"), FLEET_ECONFIG,
     "vars[0].shape: expected 1 to 8 dimensions, got nothing"},
    {VARS("{\"name\":\"x\",\"kind\":\"data\",\"shape\":[]}"), FLEET_ECONFIG,
     "vars[0].shape: expected 1 to 8 dimensions"},
    {VARS("{\"name\":\"x\",\"kind\":\"data\",\"shape\":[-2,1]}"), FLEET_ECONFIG,
     "vars[0].shape[0]: expected an integer from -1"},
    {VARS("{\"name\":\"x\",\"kind\":\"data\",\"shape\":[-1,0]}"), FLEET_ESHAPE,
     "x: dimension 1 of [-1,0]"},
    {VARS("{\"name\":\"x\",\"kind\":\"data\",\"dtype\":\"int8\"}"),
     FLEET_ECONFIG, "vars[0].dtype: expected one of"},
    {VARS("{\"name\":\"x\",\"kind\":\"temp\",\"shape\":[1]}"), FLEET_ECONFIG,
     "vars[0].kind: expected a variable that is not computed"},
    {VARS("{\"name\":\"w\",\"kind\":\"param\",\"shape\":[-1,2]}"), FLEET_ESHAPE,
     "\"w\": it cannot have a batch"},
    {VARS("{\"name\":\"t\",\"kind\":\"table\",\"shape\":[0,2,2]}"),
     FLEET_ESHAPE, "t"},
    {VARS("{\"name\":\"t\",\"kind\":\"table\",\"shape\":[0,2],"
          "\"initializer\":2,\"a\":1,\"b\":0}"),
     FLEET_EINVAL, "initializer 2 with a = 1 and b = 0"},
    {VARS("{\"name\":\"x\",\"kind\":\"data\",\"shape\":[-1,2],"
          "\"ragged\":true}"),
     FLEET_ESHAPE, "\"x\": ragged, but not data of [-1,1]"},
    {VARS(X "," X), FLEET_EEXIST, "the name \"x\" is taken"},
    {NODES("{}"), FLEET_ECONFIG, "nodes[0].op: missing"},
    {NODES(NODE("fcc", "", "", "")), FLEET_EUNSUPPORTED,
     "nodes[0].op: there is no op \"fcc\""},
    {NODES(NODE("fc", "\"x\"", "\"y\"", "")), FLEET_ECONFIG,
     "nodes[0].in: expected as many inputs as the op has, got [\"x\"]"},
    {NODES(NODE("fc", "\"x\",\"v\"", "\"y\"", "")), FLEET_ECONFIG,
     "nodes[0].in[1]: no variable \"v\""},
    {NODES(NODE("fc", "\"x\",\"w\"", "\"y\"", "")), FLEET_ECONFIG,
     "nodes[0].attrs.activation: missing"},
    {NODES(NODE("fc", "\"x\",\"w\"", "\"y\"", "\"activation\":77")),
     FLEET_EINVAL, "fc: activation 77 does not exist"},
    {NODES(NODE("fc", "\"x\",\"w\"", "", "\"activation\":0")), FLEET_ECONFIG,
     "nodes[0].out: expected as many outputs as the op has"},
    {NODES(NODE("fc", "\"w\",\"x\"", "\"y\"", "\"activation\":0")),
     FLEET_ESHAPE, "a matrix without a batch"},
    {NODES(NODE("relu", "\"x\"", "\"w\"", "")), FLEET_EEXIST,
     "the name \"w\" is taken"},
    {NODES(NODE("relu", "\"x\"", "5", "")), FLEET_ECONFIG,
     "nodes[0].out[0]: expected a string, got 5"},
    {NODES(NODE("scale", "\"x\"", "\"y\"", "\"scale\":\"a\"")), FLEET_ECONFIG,
     "nodes[0].attrs.scale: expected a number"},
    {NODES(NODE("reshape", "\"x\"", "\"y\"", "\"shape\":[1,2,3,4,5,6,7,8,9]")),
     FLEET_ECONFIG, "nodes[0].attrs.shape: expected up to 8 integers"},
    {NODES(NODE("reshape", "\"x\"", "\"y\"", "\"shape\":[-1,1.5]")),
     FLEET_ECONFIG, "nodes[0].attrs.shape[1]: expected an integer"},
    {NODES(NODE("auc", "\"x\",\"x\",\"x\",\"x\"", "\"y\"", "")), FLEET_ESHAPE,
     "auc: \"x\" has shape [-1,4]; expected a histogram"},
    {NODES(NODE("sparse_embedding", "\"w\",\"x\"", "\"y\"", "\"combiner\":0")),
     FLEET_ESHAPE, "expected a table of rows"},
};

TEST(what_is_malformed_is_refused_with_its_path)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const char *text = refusals[i].text;
        fleet_program *p;
        fl_json *json;
        fleet *f;

        CHECK_OK(fl_json_parse(text, strlen(text), "t", &json));
        fleet_status status = read_program(json, &f, &p);
        if (status != refusals[i].status ||
            !strstr(fleet_last_error(), refusals[i].words))
            test_fail(__FILE__, __LINE__, "%s gave %s (%s), not %s", text,
                      fleet_status_name(status), fleet_last_error(),
                      refusals[i].words);
        fl_json_free(json);
        fleet_destroy(f);
    }
}

/* --- memory -------------------------------------------------------------- */

static bool reads_without_memory(const fl_json *json, int64_t n)
{
    fleet_status status;
    fl_at root = fl_at_root(json);
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);

    fl_memory_fail_at(n, false);
    status = fl_program_from_json(p, &root, fl_op_find);
    fl_memory_fail_at(0, false);
    CHECK(status == FLEET_OK || status == FLEET_ENOMEM);
    fleet_destroy(f);
    return status == FLEET_OK;
}

TEST(reading_survives_every_allocation_that_fails)
{
    fl_json *json;
    kit_model m;
    int64_t n = 1;

    kit_build(&m, KIT_CTR, &(kit_options){0});
    json = written(m.p, m.m.prediction);
    while (!reads_without_memory(json, n))
        n++;
    CHECK(n > 30);
    fl_json_free(json);
    kit_close(&m);
}

TEST(writing_survives_every_allocation_that_fails)
{
    fleet_status status = FLEET_ENOMEM;
    fl_json *json;
    kit_model m;
    int64_t n = 0;

    kit_build(&m, KIT_CTR, &(kit_options){0});
    fl_json_use_allocator();
    while (status != FLEET_OK) {
        fl_memory_fail_at(++n, false);
        status = fl_program_to_json(m.p, &m.m.prediction, 1, &json);
        CHECK((json != NULL) == (status == FLEET_OK));
        CHECK(status == FLEET_OK || status == FLEET_ENOMEM);
    }
    fl_memory_fail_at(0, false);
    CHECK(n > 100);
    fl_json_free(json);
    kit_close(&m);
}
