/* feed_fetch_test.c - what an executor is fed with and what is fetched from it:
 * each mistake is refused by name, and changes nothing. */
#define SUITE feed_fetch
#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/job/handle.h"
#include "runtime/exec/feed_fetch.h"
#include "runtime/graph/op.h"

/* A model, a batch of four, and its feeds to spoil. */
typedef struct scene {
    kit_model m;
    kit_batch *b;
    fleet_feed feed[KIT_MOST_FEEDS];
    int n;
    uint64_t hash;
} scene;

static void open_scene(scene *s, kit_kind kind)
{
    kit_open(&s->m, kind, &(kit_options){0});
    s->b = kit_batch_for(&s->m, 4, 1);
    s->n = kit_feeds(s->b, s->feed);
    s->hash = kit_hash(s->m.f);
}

static void close_scene(scene *s)
{
    kit_batch_free(s->b);
    kit_close(&s->m);
}

/* The feeds as they are now are refused; as they were, they are taken. */
static void check_refused(scene *s, fleet_status want, const char *words)
{
    CHECK_STATUS(fleet_executor_run(s->m.e, s->feed, s->n, NULL, 0), want);
    CHECK_CONTAINS(fleet_last_error(), words);
    CHECK(kit_hash(s->m.f) == s->hash);
    s->n = kit_feeds(s->b, s->feed);
}

TEST(a_variable_without_a_feed_is_named_with_what_it_wants)
{
    scene s;

    open_scene(&s, KIT_MLP);
    s.n = 1;
    check_refused(&s, FLEET_ENOENT,
                  "feed \"label\" is missing: expected int64 [-1,1]");
    s.n = 0;
    check_refused(&s, FLEET_ENOENT,
                  "feed \"image\" is missing: expected float32 [-1,20]");
    close_scene(&s);
}

TEST(a_feed_without_a_variable_is_named)
{
    scene s;

    open_scene(&s, KIT_MLP);
    s.feed[1].name = "lable";
    check_refused(&s, FLEET_ENOENT, "feed \"lable\": the program has no data");
    s.feed[1].name = "tower_0.w";
    check_refused(&s, FLEET_ENOENT, "feed \"tower_0.w\": the program has no");
    s.feed[1].name = NULL;
    check_refused(&s, FLEET_EINVAL, "its name is NULL");
    close_scene(&s);
}

TEST(a_feed_that_comes_twice_is_named)
{
    scene s;

    open_scene(&s, KIT_MLP);
    s.feed[2] = s.feed[0];
    s.n = 3;
    check_refused(&s, FLEET_EINVAL, "feed \"image\" is there twice");
    close_scene(&s);
}

TEST(a_wrong_element_type_is_named_with_both)
{
    scene s;

    open_scene(&s, KIT_MLP);
    s.feed[0].dtype = FLEET_INT64;
    check_refused(&s, FLEET_EDTYPE,
                  "feed \"image\": expected float32, got int64");
    s.feed[1].dtype = (fleet_dtype)77;
    check_refused(&s, FLEET_EDTYPE, "feed \"label\": expected int64, got ?");
    close_scene(&s);
}

TEST(a_wrong_shape_is_named_with_both)
{
    int64_t narrow[] = {4, 19}, one[] = {4}, none[] = {0, 20};
    int64_t many[20] = {4, 20};
    scene s;

    open_scene(&s, KIT_MLP);
    s.feed[0].dims = narrow;
    check_refused(&s, FLEET_ESHAPE,
                  "feed \"image\": expected shape [-1,20], got [4,19]");
    s.feed[0].dims = one;
    s.feed[0].n_dim = 1;
    check_refused(&s, FLEET_ESHAPE, "expected shape [-1,20], got [4]");
    s.feed[0].dims = none;
    check_refused(&s, FLEET_ESHAPE,
                  "feed \"image\": a batch of 0 rows: expected 1 or more");
    s.feed[0].dims = NULL;
    check_refused(&s, FLEET_ESHAPE, "expected shape [-1,20], got []");
    s.feed[0].dims = many;
    s.feed[0].n_dim = 20;
    check_refused(&s, FLEET_ESHAPE, "got [4,20,0,0,0,0,0,0]");
    s.feed[0].n_dim = -3;
    check_refused(&s, FLEET_ESHAPE, "got []");
    close_scene(&s);
}

TEST(feeds_of_different_batches_are_named)
{
    int64_t three[] = {3, 1};
    scene s;

    open_scene(&s, KIT_MLP);
    s.feed[1].dims = three;
    check_refused(&s, FLEET_ESHAPE,
                  "feed \"label\" has 3 rows, but \"image\" has 4");
    close_scene(&s);
}

TEST(a_feed_without_data_is_named)
{
    scene s;

    open_scene(&s, KIT_MLP);
    s.feed[0].data = NULL;
    check_refused(&s, FLEET_EINVAL, "feed \"image\": data is NULL");
    close_scene(&s);
}

static fleet_feed *feed_of(scene *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->feed[i].name, name) == 0)
            return &s->feed[i];
    test_fail(__FILE__, __LINE__, "no feed \"%s\"", name);
}

TEST(ragged_feeds_need_offsets_that_grow_from_zero)
{
    const int64_t late[] = {1, 1, 1, 1, 1}, falls[] = {0, 2, 2, 1, 2};
    const int64_t two[] = {4, 1};
    scene s;

    open_scene(&s, KIT_CTR);
    feed_of(&s, "some")->offsets = NULL;
    check_refused(&s, FLEET_EINVAL, "feed \"some\": ragged, so it needs");
    feed_of(&s, "some")->offsets = late;
    check_refused(&s, FLEET_EINVAL, "feed \"some\": ragged, so it needs");
    feed_of(&s, "mean")->offsets = falls;
    check_refused(&s, FLEET_EINVAL,
                  "feed \"mean\": offset 3 falls from 2 to 1");
    feed_of(&s, "some")->dims = two;
    feed_of(&s, "some")->n_dim = 2;
    check_refused(&s, FLEET_ESHAPE,
                  "feed \"some\": expected shape [-1], the rows alone, with "
                  "offsets, got [4,1]");
    close_scene(&s);
}

TEST(a_ragged_feed_without_data_has_no_ids)
{
    const int64_t none[] = {0, 0, 0, 0, 0}, some[] = {0, 0, 2, 2, 2};
    scene s;

    open_scene(&s, KIT_CTR);
    feed_of(&s, "some")->data = NULL;
    feed_of(&s, "some")->offsets = some;
    check_refused(&s, FLEET_EINVAL, "feed \"some\": data is NULL");
    feed_of(&s, "some")->data = NULL;
    feed_of(&s, "some")->offsets = none;
    CHECK_OK(fleet_executor_run(s.m.e, s.feed, s.n, NULL, 0));
    close_scene(&s);
}

static void refused_label(fleet_var *(*loss)(fleet_program *, fleet_var *,
                                             fleet_var *),
                          float value)
{
    float x[2] = {0.5f, 0.5f}, label[2] = {1, value};
    int64_t dims[2] = {2, 1};
    const fleet_feed feed[] = {{"x", FLEET_FLOAT32, x, dims, 2, NULL},
                               {"y", FLEET_FLOAT32, label, dims, 2, NULL}};
    float got[2];
    fleet_fetch fetch = {.data = got, .size = sizeof got};
    fleet_executor *e;
    fleet_program *p;
    fleet *f;

    CHECK_OK(fleet_init(&f, NULL));
    p = fleet_program_create(f);
    fetch.var =
        loss(p, fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, 1}, 2),
             fleet_data(p, "y", FLEET_FLOAT32, (int64_t[]){-1, 1}, 2));
    e = fleet_executor_create(p, NULL);
    CHECK_FAILS(fleet_executor_run(e, feed, 2, &fetch, 1), FLEET_EINVAL,
                "in row 1 of the batch, expected 0 to 1");
    CHECK_CONTAINS(fleet_last_error(), "batch 1");
    CHECK_CONTAINS(fleet_last_error(), "label \"y\"");
    fleet_executor_destroy(e);
    fleet_destroy(f);
}

static fleet_var *log_loss(fleet_program *p, fleet_var *x, fleet_var *label)
{
    return fleet_log_loss(p, x, label, 0);
}

TEST(a_target_that_is_no_probability_is_refused)
{
    const float values[] = {5, -1, 1.0001f, NAN};

    for (int i = 0; i < 4; i++) {
        refused_label(fleet_sigmoid_cross_entropy, values[i]);
        refused_label(log_loss, values[i]);
    }
}

TEST(a_label_out_of_range_is_named_with_its_row)
{
    int64_t label[] = {0, 4, 5, -1};
    scene s;

    open_scene(&s, KIT_MLP);
    s.feed[1].data = label;
    check_refused(
        &s, FLEET_EINVAL,
        "batch 1: softmax_with_cross_entropy: label \"label\" is 5 in "
        "row 2 of the batch, which is not a class from 0 to 4");
    label[2] = -1;
    s.feed[1].data = label;
    check_refused(&s, FLEET_EINVAL, "label \"label\" is -1 in row 2");
    close_scene(&s);
}

static void check_id(fleet_executor *e, int64_t id, bool good)
{
    const int64_t ids[] = {0, 6, 3, id}, dims[] = {2, 2};
    fleet_feed feed = {"ids", FLEET_INT64, ids, dims, 2, NULL};
    fleet_status status = fleet_executor_run(e, &feed, 1, NULL, 0);

    CHECK_INT(status, good ? FLEET_OK : FLEET_EINVAL);
    if (!good)
        CHECK_CONTAINS(fleet_last_error(), "of \"ids\" in row 1 of the batch "
                                           "is not in [0, 7)");
}

TEST(an_id_out_of_range_is_named_with_its_row)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    fleet_var *ids = fleet_data(p, "ids", FLEET_INT64, (int64_t[]){-1, 2}, 2);
    fleet_var *loss = fleet_mean(p, fleet_embedding(p, ids, 7, 3, NULL));
    fleet_executor *e;

    CHECK_OK(fleet_minimize(fleet_sgd(f, 1), loss));
    e = fleet_executor_create(p, NULL);
    check_id(e, 6, true);
    check_id(e, 7, false);
    check_id(e, -1, false);
    check_id(e, INT64_MAX, false);
    check_id(e, 0, true);
    fleet_executor_destroy(e);
    fleet_destroy(f);
}

TEST(arguments_of_null_are_refused)
{
    scene s;

    open_scene(&s, KIT_MLP);
    CHECK_STATUS(fleet_executor_run(NULL, s.feed, s.n, NULL, 0), FLEET_EINVAL);
    CHECK_STATUS(fleet_executor_run(s.m.e, NULL, 2, NULL, 0), FLEET_EINVAL);
    CHECK_STATUS(fleet_executor_run(s.m.e, s.feed, s.n, NULL, 1), FLEET_EINVAL);
    CHECK(fleet_executor_create(NULL, NULL) == NULL);
    CHECK(fleet_executor_create(
              s.m.p, &(fleet_executor_options){.max_batch = -1}) == NULL);
    CHECK_CONTAINS(fleet_last_error(),
                   "max_batch: expected 0 to 2147483648, got -1");
    CHECK(fleet_executor_create(s.m.p, &(fleet_executor_options){
                                           .max_batch = INT64_MAX}) == NULL);
    CHECK(!fleet_program_dump(s.m.p, FLEET_DUMP_PLAN, INT64_MAX));
    CHECK_FAILS(fleet_params_hash(s.m.f, NULL), FLEET_EINVAL, "nowhere");
    fleet_executor_destroy(NULL);
    close_scene(&s);
}

/* --- fetches -------------------------------------------------------------- */

static void check_fetch(scene *s, fleet_fetch fetch, fleet_status want,
                        const char *words)
{
    CHECK_STATUS(fleet_executor_run(s->m.e, s->feed, s->n, &fetch, 1), want);
    CHECK_CONTAINS(fleet_last_error(), words);
}

TEST(what_cannot_be_fetched_is_named)
{
    float room[8];
    scene s, other;

    open_scene(&s, KIT_CTR);
    open_scene(&other, KIT_MLP);
    check_fetch(&s, (fleet_fetch){.var = NULL}, FLEET_EINVAL, "NULL is not");
    check_fetch(&s, (fleet_fetch){.var = other.m.m.loss}, FLEET_EINVAL,
                "is not a variable of the executor's program");
    check_fetch(&s, (fleet_fetch){.var = fleet_program_var(s.m.p, "embedding")},
                FLEET_EUNSUPPORTED, "fetch: \"embedding\" is a table");
    check_fetch(&s, (fleet_fetch){.var = fleet_program_var(s.m.p, "some")},
                FLEET_EUNSUPPORTED, "fetch: \"some\" is ragged");
    check_fetch(
        &s, (fleet_fetch){.var = s.m.m.prediction, .data = room, .size = 15},
        FLEET_ESHAPE, "is 16 bytes, but there is room for 15");
    close_scene(&other);
    close_scene(&s);
}

/* A caller that makes room and calls again trains the batch once. */
TEST(a_fetch_without_room_is_refused_before_anything_is_trained)
{
    float loss = 0, prediction[4 * 5] = {0};
    fleet_feed feed[KIT_MOST_FEEDS];
    scene s;

    open_scene(&s, KIT_MLP);
    fleet_fetch fetch[] = {
        {.var = s.m.m.loss, .data = &loss, .size = sizeof loss},
        {.var = s.m.m.prediction, .data = prediction, .size = 79}};
    int n = kit_feeds(s.b, feed);

    for (int i = 0; i < 2; i++) {
        CHECK_FAILS(fleet_executor_run(s.m.e, feed, n, fetch, 2), FLEET_ESHAPE,
                    "is 80 bytes, but there is room for 79");
        CHECK(kit_hash(s.m.f) == s.hash);
        CHECK(loss == 0.0f);
        CHECK_INT(fetch[1].n_dim, 2);
        CHECK_INT(fetch[1].dims[0], 4);
        CHECK_INT(fetch[1].dims[1], 5);
    }
    fetch[1].size = sizeof prediction;
    CHECK_OK(fleet_executor_run(s.m.e, feed, n, fetch, 2));
    CHECK(kit_hash(s.m.f) != s.hash);
    CHECK(loss > 0);
    close_scene(&s);
}

/* Of a merge group, too: the batch is not counted in it. */
TEST(a_fetch_without_room_is_no_batch_of_a_merge_group)
{
    const kit_options two = {.merge = 2};
    fleet_feed feed[KIT_MOST_FEEDS];
    float loss = 0;
    scene s;

    kit_open(&s.m, KIT_MLP, &two);
    s.b = kit_batch_for(&s.m, 4, 1);
    s.hash = kit_hash(s.m.f);
    int n = kit_feeds(s.b, feed);
    fleet_fetch fetch = {.var = s.m.m.loss, .data = &loss, .size = sizeof loss};

    CHECK_OK(fleet_executor_run(s.m.e, feed, n, &fetch, 1));
    fetch.size = 3;
    CHECK_FAILS(fleet_executor_run(s.m.e, feed, n, &fetch, 1), FLEET_ESHAPE,
                "there is room for 3");
    CHECK(kit_hash(s.m.f) == s.hash);
    fetch.size = sizeof loss;
    CHECK_OK(fleet_executor_run(s.m.e, feed, n, &fetch, 1));
    CHECK(kit_hash(s.m.f) != s.hash);
    close_scene(&s);
}

/* Each of them has made a plan for a size of batch of its own. */
TEST(calls_that_are_refused_leave_the_last_iteration_to_be_fetched_from)
{
    float loss = 0, same = 0;
    fleet_fetch fetch = {.data = &same, .size = sizeof same};
    kit_batch *b;
    kit_model m;

    kit_open(&m, KIT_MLP, &(kit_options){0});
    b = kit_batch_for(&m, 40, 3);
    CHECK_OK(kit_fetch(m.e, b, m.m.loss, &loss, 1));
    kit_batch_free(b);
    for (int i = 0; i < 10; i++) {
        b = kit_batch_for(&m, 1 + i, 3);
        CHECK_STATUS(kit_fetch(m.e, b, m.m.loss, &same, 0), FLEET_ESHAPE);
        kit_batch_free(b);
    }
    CHECK_INT(m.f->store->updates, 1);
    fetch.var = m.m.loss;
    CHECK_OK(fl_executor_fetch(m.e, &fetch));
    CHECK(same == loss);
    kit_close(&m);
}

TEST(a_fetch_without_memory_gets_the_dimensions)
{
    scene s;

    open_scene(&s, KIT_MLP);
    fleet_fetch fetch[] = {{.var = s.m.m.prediction}, {.var = s.m.m.loss}};
    CHECK_OK(fleet_executor_run(s.m.e, s.feed, s.n, fetch, 2));
    CHECK(fetch[0].n_dim == 2 && fetch[0].dims[0] == 4 &&
          fetch[0].dims[1] == 5);
    CHECK(fetch[1].n_dim == 1 && fetch[1].dims[0] == 1);
    close_scene(&s);
}

TEST(inputs_and_parameters_are_fetched_too)
{
    float image[4 * 20], weight[33], after[33];
    scene s;

    open_scene(&s, KIT_MLP);
    fleet_fetch fetch[] = {
        {fleet_program_var(s.m.p, "image"), image, sizeof image, {0}, 0},
        {fleet_program_var(s.m.p, "tower_0.b"), weight, sizeof weight, {0}, 0}};
    CHECK_OK(fleet_executor_run(s.m.e, s.feed, s.n, fetch, 2));
    CHECK(memcmp(image, s.feed[0].data, sizeof image) == 0);
    CHECK(fetch[1].n_dim == 1 && fetch[1].dims[0] == 33);
    fetch[1].data = after;
    CHECK_OK(fleet_executor_run(s.m.e, s.feed, s.n, fetch, 2));
    CHECK(memcmp(weight, after, sizeof weight) != 0);
    close_scene(&s);
}

TEST(a_variable_may_be_fetched_twice_at_once)
{
    float a = NAN, b = NAN;
    scene s;

    open_scene(&s, KIT_MLP);
    fleet_fetch fetch[] = {{s.m.m.loss, &a, sizeof a, {0}, 0},
                           {s.m.m.loss, &b, sizeof b, {0}, 0}};
    CHECK_OK(fleet_executor_run(s.m.e, s.feed, s.n, fetch, 2));
    CHECK(a == b && a > 0);
    close_scene(&s);
}

TEST(data_that_nothing_depends_on_need_not_be_fed)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    fleet_var *x = fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, 2}, 2);
    fleet_var *y = fleet_data(p, "y", FLEET_FLOAT32, (int64_t[]){-1, 2}, 2);
    fleet_var *fx = fleet_scale(p, x, 2, 0), *fy = fleet_scale(p, y, 3, 0);
    kit_batch *b = kit_batch_new(3);
    fleet_executor *e = fleet_executor_create(p, NULL);
    float out[6];

    kit_floats(b, "x", 2, 1);
    CHECK_OK(kit_fetch(e, b, fx, out, 6));
    CHECK(out[5] == 2 * kit_noise(5, 1));
    CHECK_STATUS(kit_fetch(e, b, fy, out, 6), FLEET_ENOENT);
    CHECK_CONTAINS(fleet_last_error(), "feed \"y\" is missing");
    kit_batch_free(b);
    fleet_executor_destroy(e);
    fleet_destroy(f);
}
