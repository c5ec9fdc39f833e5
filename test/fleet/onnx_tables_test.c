/* onnx_tables_test.c - rows of tables in ONNX: what an id reads as that has no
 * row, whole tables, checked ids; what is refused, by name; files. */
#define _GNU_SOURCE
#define SUITE onnx_tables
#include "onnx_kit.h"
#include "test.h"
#include "train_kit.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "fleet/job/handle.h"

/* A table of 3 numbers, looked up by two ids a sample, with rows that were
 * trained: those of ids 0 to 9, or of negative ones. */
typedef struct table_scene {
    fleet *f;
    fleet_program *p;
    fleet_var *ids, *out;
} table_scene;

enum { ROWS = 5 };

static void open_table(table_scene *s, fleet_sparse_embedding_options o)
{
    int64_t id[2 * ROWS], dims[] = {ROWS, 2};
    fleet_feed feed = {"ids", FLEET_INT64, id, dims, 2, NULL};
    fleet_executor *e;

    for (int i = 0; i < 2 * ROWS; i++)
        id[i] = o.rows > 0 || i % 2 ? i : -i - 1000000007;
    s->f = kit_handle(&(kit_options){0});
    s->p = fleet_program_create(s->f);
    s->ids = kit_data_ids(s->p, "ids", 2);
    s->out = fleet_sparse_embedding(s->p, s->ids, 3, &o);
    CHECK_OK(fleet_program_status(s->p));
    CHECK_OK(fleet_minimize(fleet_sgd(s->f, 0.5f),
                            fleet_mean(s->p, fleet_square(s->p, s->out))));
    e = fleet_executor_create(s->p, NULL);
    CHECK_OK(fleet_executor_run(e, &feed, 1, NULL, 0));
    fleet_executor_destroy(e);
}

static fleet_predictor *predictor_of(table_scene *s)
{
    fleet_predictor *p;

    CHECK_OK(fleet_save_inference_model(s->f, test_path("table"), &s->ids, 1,
                                        &s->out, 1));
    p = fleet_load_inference_model(test_path("table"));
    CHECK(p != NULL);
    return p;
}

static void close_table(table_scene *s, fleet_predictor *p)
{
    fleet_predictor_destroy(p);
    fleet_destroy(s->f);
}

static fleet_feed feed_of(const int64_t *id, const int64_t *dims)
{
    return (fleet_feed){"ids", FLEET_INT64, id, dims, 2, NULL};
}

/* Ids that were trained, and others, of both ends of int64. */
static const int64_t some_ids[] = {0,     1,  -1000000009, 9,         3,
                                   77777, -1, INT64_MAX,   INT64_MIN, 7};
static const int64_t five[] = {5, 2};

static void compare_table(const char *title, fleet_predictor *p,
                          const fleet_onnx_options *o)
{
    fleet_feed feed = feed_of(some_ids, five);
    onnx_model m;

    onnx_open(&m, title, p, o);
    onnx_batch(&m, &feed, 1, 0);
    onnx_close(&m);
}

TEST(unknown_ids_read_as_the_model_says)
{
    table_scene s;
    fleet_predictor *p;

    open_table(&s, (fleet_sparse_embedding_options){0});
    p = predictor_of(&s);
    CHECK_OK(fleet_predictor_set_fresh(p, NULL, FLEET_FRESH_ZEROS, 0));
    compare_table("zeros", p, NULL);
    fleet_predictor_destroy(p);
    p = predictor_of(&s);
    CHECK_OK(fleet_predictor_set_fresh(p, NULL, FLEET_FRESH_ROW, 3));
    compare_table("a row", p, NULL);
    fleet_predictor_destroy(p);
    p = predictor_of(&s);
    CHECK_OK(fleet_predictor_set_fresh(p, NULL, FLEET_FRESH_ROW, 12345));
    compare_table("a row that was not trained", p, NULL);
    close_table(&s, p);
    open_table(&s, (fleet_sparse_embedding_options){
                       .initializer = {FLEET_INIT_CONSTANT, 0.25f, 0}});
    p = predictor_of(&s);
    compare_table("a constant", p, NULL);
    close_table(&s, p);
    onnx_ask();
}

TEST(a_table_with_a_number_of_rows_goes_out_whole)
{
    table_scene s;
    fleet_predictor *p;
    fleet_feed feed = feed_of(some_ids, five);
    onnx_model m;

    open_table(&s, (fleet_sparse_embedding_options){.rows = 37});
    p = predictor_of(&s);
    onnx_open(&m, "initial values of 37 rows", p, NULL);
    onnx_batch(&m, &feed, 1, 0);
    onnx_close(&m);
    close_table(&s, p);
    /* zeros of 1,000,003: by keys, as a file of all would be large */
    open_table(&s, (fleet_sparse_embedding_options){
                       .rows = 1000003, .fresh = FLEET_FRESH_ZEROS});
    p = predictor_of(&s);
    onnx_open(&m, "modulo", p, NULL);
    onnx_batch(&m, &feed, 1, 0);
    onnx_close(&m);
    {
        char path[300];
        struct stat st;

        snprintf(path, sizeof path, "%s/model.onnx", m.folder);
        CHECK(stat(path, &st) == 0 && st.st_size < 4000);
    }
    close_table(&s, p);
    onnx_ask();
}

TEST(checked_ids_that_are_out_of_range_fail_in_onnxruntime_too)
{
    static const int64_t fine[] = {0, 1, 36, 20}, low[] = {0, 1, -1, 5},
                         high[] = {0, 37, 1, 5}, two[] = {2, 2};
    const fleet_fresh fresh[] = {FLEET_FRESH_INITIAL, FLEET_FRESH_ZEROS};

    for (int i = 0; i < 2; i++) {
        table_scene s;
        fleet_predictor *p;
        onnx_model m;

        open_table(&s, (fleet_sparse_embedding_options){
                           .rows = 37, .check_ids = 1, .fresh = fresh[i]});
        p = predictor_of(&s);
        onnx_open(&m, i ? "checked keys" : "checked rows", p, NULL);
        onnx_batch(&m, &(fleet_feed[]){feed_of(fine, two)}[0], 1, 0);
        onnx_bad_batch(&m, &(fleet_feed[]){feed_of(low, two)}[0], 1);
        onnx_bad_batch(&m, &(fleet_feed[]){feed_of(high, two)}[0], 1);
        onnx_close(&m);
        close_table(&s, p);
    }
    onnx_ask();
}

TEST(a_table_without_rows_and_rows_of_fewer_bits_go_out)
{
    table_scene s = {.f = kit_handle(&(kit_options){0})};
    fleet_predictor *p;

    s.p = fleet_program_create(s.f);
    s.ids = kit_data_ids(s.p, "ids", 2);
    s.out = fleet_sparse_embedding(
        s.p, s.ids, 3,
        &(fleet_sparse_embedding_options){.fresh = FLEET_FRESH_ZEROS});
    p = predictor_of(&s);
    compare_table("no rows", p, NULL);
    close_table(&s, p);
    open_table(&s, (fleet_sparse_embedding_options){.fresh = FLEET_FRESH_ZEROS,
                                                    .storage = FLEET_ROW_INT8});
    p = predictor_of(&s);
    compare_table("int8", p, NULL);
    close_table(&s, p);
    onnx_ask();
}

/* --- files ---------------------------------------------------------------- */

/* Wide enough that its weights are in the second file. */
static void open_wide(table_scene *s)
{
    s->f = kit_handle(&(kit_options){0});
    s->p = fleet_program_create(s->f);
    s->ids = kit_data(s->p, "x", 33);
    s->out = fleet_fc(s->p, fleet_fc(s->p, s->ids, 70, NULL), 40, NULL);
    CHECK_OK(fleet_program_status(s->p));
}

TEST(weights_may_be_in_a_second_file)
{
    table_scene s;
    fleet_predictor *p;
    kit_batch *b = kit_batch_new(4);
    fleet_feed feed[KIT_MOST_FEEDS];
    char path[300];
    struct stat st;
    onnx_model m;

    open_wide(&s);
    p = predictor_of(&s);
    kit_floats(b, "x", 33, 1);
    onnx_open(&m, "external data", p, &(fleet_onnx_options){1});
    onnx_batch(&m, feed, kit_feeds(b, feed), 0);
    onnx_close(&m);
    snprintf(path, sizeof path, "%s/model.onnx.data", m.folder);
    CHECK(stat(path, &st) == 0);
    /* 33 x 70 floats, and from the next page on 70 x 40 */
    CHECK_INT(st.st_size, 3 * 4096 + 70 * 40 * 4);
    snprintf(path, sizeof path, "%s/model.onnx", m.folder);
    CHECK(stat(path, &st) == 0 && st.st_size < 2500);
    kit_batch_free(b);
    close_table(&s, p);
    onnx_ask();
}

/* --- refusals ------------------------------------------------------------- */

TEST(what_onnx_cannot_say_is_refused_by_name)
{
    table_scene s;
    fleet_predictor *p;

    onnx_need_writer();
    open_table(&s, (fleet_sparse_embedding_options){.table = "users"});
    p = predictor_of(&s);
    CHECK_FAILS(fleet_export_onnx(p, test_path("no"), NULL), FLEET_EUNSUPPORTED,
                "an id without a row in table \"users\" reads as its initial "
                "value");
    CHECK(!fl_file_exists(test_path("no")));
    CHECK_FAILS(fleet_export_onnx(p, NULL, NULL), FLEET_EINVAL, "no path");
    CHECK_FAILS(fleet_export_onnx(NULL, "x", NULL), FLEET_EINVAL,
                "no predictor");
    CHECK_FAILS(fleet_export_onnx(p, "-", &(fleet_onnx_options){1}),
                FLEET_EINVAL, "standard output");
    close_table(&s, p);
}

static fleet_status export_of(table_scene *s, fleet_var *const *feed,
                              int n_feed, fleet_var *const *fetch, int n_fetch)
{
    fleet_predictor *p = onnx_predictor(s->f, feed, n_feed, fetch, n_fetch);
    fleet_status status = fleet_export_onnx(p, test_path("no"), NULL);

    close_table(s, p);
    return status;
}

TEST(names_that_would_be_there_twice_are_refused)
{
    fleet_var *twice[2], *feed[2];
    table_scene s;

    onnx_need_writer();
    open_wide(&s);
    twice[0] = twice[1] = s.out;
    CHECK_FAILS(export_of(&s, &s.ids, 1, twice, 2), FLEET_EINVAL,
                "is there twice");
    s.f = kit_handle(&(kit_options){0});
    s.p = fleet_program_create(s.f);
    feed[0] = fleet_data_ragged_floats(s.p, "x");
    feed[1] = kit_data(s.p, "x.offsets", 1);
    s.out =
        fleet_add(s.p, fleet_sequence_pool(s.p, feed[0], FLEET_SUM), feed[1]);
    CHECK_FAILS(export_of(&s, feed, 2, &s.out, 1), FLEET_EEXIST,
                "variable \"x.offsets\" has the name of the offsets of \"x\"");
}

TEST(a_file_that_cannot_be_written_leaves_the_old_one)
{
    table_scene s;
    fleet_predictor *p;
    char *text;
    size_t size;

    onnx_need_writer();
    open_wide(&s);
    p = predictor_of(&s);
    CHECK_FAILS(fleet_export_onnx(p, test_path("nowhere/x.onnx"), NULL),
                FLEET_EIO, "nowhere/x.onnx");
    CHECK_FAILS(fleet_export_onnx(p, test_folder(), NULL), FLEET_EIO,
                test_folder());
    test_file("kept", "as it was");
    for (int64_t n = 1;; n++) {
        fleet_status status;

        fl_memory_fail_at(n, false);
        status = fleet_export_onnx(p, test_path("kept"), NULL);
        fl_memory_fail_at(0, false);
        if (status == FLEET_OK)
            break;
        CHECK_INT(status, FLEET_ENOMEM);
        CHECK_OK(fl_file_read(test_path("kept"), &text, &size));
        CHECK_TEXT(text, "as it was");
        fl_free(text);
    }
    CHECK_OK(fl_file_read(test_path("kept"), &text, &size));
    CHECK(size > (33 * 70 + 70 * 40) * sizeof(float));
    fl_free(text);
    close_table(&s, p);
}

/* --- beside runs ---------------------------------------------------------- */

typedef struct runner_of {
    fleet_predictor *p;
    int runs;
    const char *path[2]; /* test_path() is for one thread */
} runner_of;

static void *run_often(void *arg)
{
    runner_of *r = arg;
    fleet_feed feed = feed_of(some_ids, five);
    float out[ROWS * 6];

    for (; r->runs < 200; r->runs++)
        CHECK_OK(fleet_predictor_run(r->p, &feed, 1, (void *[]){out},
                                     (size_t[]){sizeof out}, 1));
    return NULL;
}

static void *export_often(void *arg)
{
    runner_of *r = arg;

    for (; r->runs < 10; r->runs++)
        CHECK_OK(fleet_export_onnx(r->p, r->path[r->runs % 2], NULL));
    return NULL;
}

/* Two exports and runs at the same time: all of them end. */
TEST(exports_beside_runs_and_each_other_end)
{
    table_scene s;
    runner_of r[3];
    pthread_t thread[3];
    fleet_predictor *p;

    onnx_need_writer();
    open_table(&s,
               (fleet_sparse_embedding_options){.fresh = FLEET_FRESH_ZEROS});
    p = predictor_of(&s);
    for (int i = 0; i < 3; i++) {
        r[i] = (runner_of){p, 0, {test_path("one"), test_path("two")}};
        CHECK(pthread_create(&thread[i], NULL, i ? export_often : run_often,
                             &r[i]) == 0);
    }
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
    CHECK_INT(r[0].runs, 200);
    close_table(&s, p);
}
