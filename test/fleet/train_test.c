/* train_test.c - passes over a dataset: what they report, what they refuse, and
 * that they leave the same bits behind however the data was read. */
#define SUITE train
#include "model_kit.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "runtime/exec/feed_fetch.h"

static uint64_t hash_after(const char *file, int readers, int64_t shuffle,
                           int compute)
{
    fleet_options o = {.seed = 5, .num_threads = compute};
    uint64_t hash;
    scene s;

    scene_open(&s, &o, "adam");
    scene_data(&s, file, 32, readers, shuffle);
    scene_train(&s, 2);
    hash = scene_hash(&s);
    scene_close(&s);
    return hash;
}

TEST(bits_do_not_depend_on_reader_or_compute_threads)
{
    const char *file = scene_file("a.txt", SCENE_LINES, 1);
    uint64_t hash = hash_after(file, 1, 0, 1);

    CHECK(hash_after(file, 1, 0, 1) == hash);
    CHECK(hash_after(file, 4, 0, 1) == hash);
    CHECK(hash_after(file, 4, 0, 3) == hash);
    CHECK(hash_after(file, 1, 100, 1) != hash);
    CHECK(hash_after(file, 4, 100, 2) == hash_after(file, 1, 100, 1));
}

TEST(a_pass_reports_what_it_did)
{
    fleet_train_result r;
    scene s;

    scene_open(&s, NULL, "adam");
    scene_data(&s, scene_file("a.txt", 100, 1), 32, 2, 0);
    s.e = fleet_executor_create(s.p, NULL);
    CHECK_OK(fleet_train_from_dataset(s.e, s.data, NULL, &r));
    CHECK_INT(r.batches, 4);
    CHECK_INT(r.samples, 100);
    CHECK(r.seconds > 0);
    CHECK(r.loss > 0.1 && r.loss < 2);
    scene_close(&s);
}

TEST(training_makes_the_loss_smaller_and_testing_changes_nothing)
{
    fleet_executor_options test = {.for_test = 1};
    fleet_evaluation before, after;
    uint64_t hash;
    scene s;

    scene_open(&s, NULL, "adam");
    scene_data(&s, scene_file("a.txt", SCENE_LINES, 1), 32, 1, 0);
    s.tester = fleet_executor_create(s.p, &test);
    CHECK_OK(fleet_evaluate(s.tester, s.data, &s.m, &before));
    scene_train(&s, 8);
    hash = scene_hash(&s);
    CHECK_OK(fleet_evaluate(s.tester, s.data, &s.m, &after));
    CHECK_INT(after.samples, SCENE_LINES);
    CHECK(after.logloss < before.logloss - 0.1);
    CHECK(after.auc > 0.9 && after.auc > before.auc);
    CHECK(after.accuracy > before.accuracy);
    CHECK(scene_hash(&s) == hash);
    scene_close(&s);
}

/* Before a batch is read, and without a word about another one's memory. */
TEST(labels_and_predictions_that_cannot_be_compared_are_refused_by_name)
{
    fleet_executor_options test = {.for_test = 1};
    fleet_evaluation got;
    fleet_model m;
    scene s;

    scene_open(&s, NULL, "adam");
    scene_data(&s, scene_file("a.txt", SCENE_LINES, 1), 32, 1, 0);
    s.tester = fleet_executor_create(s.p, &test);
    m = s.m;
    m.label = s.m.prediction;
    CHECK_FAILS(fleet_evaluate(s.tester, s.data, &m, &got), FLEET_EINVAL,
                "is no data variable of the executor's program");
    m = s.m;
    m.prediction = s.m.loss;
    CHECK_FAILS(fleet_evaluate(s.tester, s.data, &m, &got), FLEET_ESHAPE,
                "[1] is one of a whole batch: expected one of each sample");
    CHECK_OK(fleet_evaluate(s.tester, s.data, &s.m, &got));
    scene_close(&s);
}

/* A program that is not trained does not need the label itself. */
TEST(a_label_that_no_slot_feeds_is_named)
{
    const fleet_slot slots[] = {{.name = "x",
                                 .dtype = FLEET_FLOAT32,
                                 .dim = 1,
                                 .columns = (const char *const[]){"0"},
                                 .n_column = 1}};
    const char *file = test_file("x.csv", "1\n2\n");
    fleet_evaluation got;
    fleet_executor *e;
    fleet_dataset *d;
    fleet_program *p;
    fleet_model m;
    fleet_var *x;
    fleet *f;

    CHECK_OK(fleet_init(&f, NULL));
    p = fleet_program_create(f);
    x = fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, 1}, 2);
    m = (fleet_model){
        .label = fleet_data(p, "click", FLEET_FLOAT32, (int64_t[]){-1, 1}, 2),
        .prediction = fleet_sigmoid(p, x)};
    e = fleet_executor_create(p, &(fleet_executor_options){.for_test = 1});
    d = fleet_queue_dataset(f, &(fleet_dataset_options){.format = FLEET_CSV,
                                                        .slots = slots,
                                                        .n_slot = 1,
                                                        .batch_size = 2});

    CHECK_OK(fleet_dataset_set_filelist(d, &file, 1));
    CHECK_FAILS(fleet_evaluate(e, d, &m, &got), FLEET_ENOENT,
                "no slot of the dataset feeds the label \"click\"");
    fleet_executor_destroy(e);
    fleet_destroy(f);
}

/* --- the fetch line ------------------------------------------------------ */

typedef struct lines {
    char text[4000];
    int n;
} lines;

static void keep_line(void *user, fleet_log_level level, const char *line)
{
    lines *l = user;

    if (level == FLEET_LOG_INFO) {
        l->n++;
        strncat(l->text, line, sizeof l->text - strlen(l->text) - 2);
        strcat(l->text, "\n");
    }
}

TEST(the_log_line_is_fleets)
{
    lines l = {.n = 0};
    fleet_options o = {.log = keep_line, .log_user = &l};
    fleet_train_options t = {.n_fetch = 1,
                             .fetch_info = (const char *[]){"cost"},
                             .print_period = 2};
    int year, batch;
    double loss;
    scene s;

    scene_open(&s, &o, "adam");
    t.fetch_list = (const fleet_var *[]){s.m.loss};
    scene_data(&s, scene_file("a.txt", 100, 1), 20, 1, 0);
    s.e = fleet_executor_create(s.p, NULL);
    CHECK_OK(fleet_train_from_dataset(s.e, s.data, &t, NULL));
    CHECK_INT(l.n, 2);
    CHECK_INT(sscanf(l.text,
                     "time: [%d-%*d-%*d %*d:%*d:%*d], batch: [%d], "
                     "cost[1]:[%lf]",
                     &year, &batch, &loss),
              3);
    CHECK_INT(batch, 2);
    CHECK(year > 2000 && loss > 0);
    scene_close(&s);
}

static void keep_warning(void *user, fleet_log_level level, const char *line)
{
    if (level == FLEET_LOG_WARNING)
        snprintf(user, 100, "%s", line);
}

/* What a later pass waits for before its first step counts; what the first one
 * waits for is the start. */
TEST(the_sum_of_seconds_leaves_out_the_start_alone)
{
    fleet_train_result first, second;
    const char *file;
    int64_t begun;
    double whole;
    scene s;

    scene_open(&s, NULL, "adam");
    file = scene_file("a.txt", 50, 1);
    s.data = fleet_queue_dataset(
        s.f, &(fleet_dataset_options){
                 .use_var = (fleet_var *[]){fleet_program_var(s.p, "label"),
                                            fleet_program_var(s.p, "dense"),
                                            fleet_program_var(s.p, "u"),
                                            fleet_program_var(s.p, "v"),
                                            fleet_program_var(s.p, "w")},
                 .n_use_var = 5,
                 .batch_size = 50,
                 .pipe_command = "sleep 0.3; cat"});
    CHECK_OK(fleet_dataset_set_filelist(s.data, &file, 1));
    s.e = fleet_executor_create(s.p, NULL);
    begun = fl_now_ns();
    CHECK_OK(fleet_train_from_dataset(s.e, s.data, NULL, &first));
    whole = (double)(fl_now_ns() - begun) * 1e-9;
    CHECK_OK(fleet_train_from_dataset(s.e, s.data, NULL, &second));
    CHECK(first.batches == 1 && second.batches == 1);
    CHECK(first.seconds > 0 && first.seconds <= whole - 0.3);
    CHECK(second.seconds >= 0.3);
    scene_close(&s);
}

TEST(files_without_a_sample_are_warned_about)
{
    char line[100] = "";
    fleet_options o = {.log = keep_warning, .log_user = line};
    fleet_train_result r;
    scene s;

    scene_open(&s, &o, "adam");
    scene_data(&s, test_file("empty.txt", "\n\n"), 20, 1, 0);
    s.e = fleet_executor_create(s.p, NULL);
    CHECK_OK(fleet_train_from_dataset(s.e, s.data, NULL, &r));
    CHECK_INT(r.samples, 0);
    CHECK_TEXT(line, "no sample in the files of this pass");
    scene_close(&s);
}

static void dataset_refused(fleet *f, fleet_dataset_options o,
                            const char *words)
{
    CHECK(fleet_queue_dataset(f, &o) == NULL);
    CHECK_CONTAINS(fleet_last_error(), words);
}

TEST(what_is_wrong_with_a_dataset_is_known_before_it_has_files)
{
    static const fleet_slot slot = {.name = "x"};
    fleet *f;

    CHECK_OK(fleet_init(&f, NULL));
#define REFUSED(words, ...)                                                    \
    dataset_refused(f, (fleet_dataset_options){__VA_ARGS__}, words)
    REFUSED("needs slots", .format = FLEET_MULTISLOT);
    REFUSED("use_var is NULL", .n_use_var = 3);
    REFUSED("separator: only csv", .slots = &slot, .n_slot = 1,
            .separator = ';');
    REFUSED("batch size", .format = FLEET_CRITEO, .batch_size = -1);
    REFUSED("header: only csv", .format = FLEET_CRITEO, .header = 1);
    REFUSED("not for idx", .format = FLEET_IDX, .pipe_command = "sort");
#undef REFUSED
    fleet_destroy(f);
}

/* A csv column that is standardized, and a label. */
static fleet_dataset *csv_data(fleet *f, const char *file)
{
    static const fleet_transform standard = FLEET_STANDARDIZE;
    static const fleet_transform none = FLEET_TRANSFORM_NONE;
    static const char *const columns[] = {"0", "1"};
    const fleet_slot slots[] = {{.name = "x",
                                 .columns = columns,
                                 .n_column = 1,
                                 .transforms = &standard,
                                 .n_transform = 1},
                                {.name = "y",
                                 .columns = columns + 1,
                                 .n_column = 1,
                                 .transforms = &none,
                                 .n_transform = 1,
                                 .required = 1}};
    fleet_dataset *d =
        fleet_queue_dataset(f, &(fleet_dataset_options){.format = FLEET_CSV,
                                                        .slots = slots,
                                                        .n_slot = 2,
                                                        .batch_size = 10});

    CHECK_OK(fleet_dataset_set_filelist(d, &file, 1));
    return d;
}

/* The sum of a pass over x, as the dataset feeds it. */
static fleet_status mean_of(fleet *f, fleet_dataset *d, double *mean)
{
    fleet_executor_options test = {.for_test = 1};
    fleet_program *p = fleet_program_create(f);
    fleet_var *x = fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, 1}, 2);
    const fleet_var *m = fleet_mean(p, x);
    fleet_executor *e = fleet_executor_create(p, &test);
    fleet_train_options o = {.fetch_list = &m, .n_fetch = 1};
    fleet_fetch fetch = {.var = m};
    float value = 0;
    fleet_status status = fleet_infer_from_dataset(e, d, &o, NULL);

    if (status == FLEET_OK) {
        fetch.data = &value;
        fetch.size = sizeof value;
        CHECK_OK(fl_executor_fetch(e, &fetch));
    }
    *mean = (double)value;
    fleet_executor_destroy(e);
    return status;
}

TEST(a_dataset_made_after_a_load_standardizes_with_what_was_saved)
{
    const char *path = test_path("saved");
    const char *a = test_file("a.csv", "1,0\n3,1\n");
    const char *b = test_file("b.csv", "5,0\n5,1\n");
    double mean;
    fleet *f;

    CHECK_OK(fleet_init(&f, NULL));
    CHECK_OK(mean_of(f, csv_data(f, a), &mean));
    CHECK(fabs(mean) < 1e-6);
    CHECK_OK(fleet_save_persistables(f, path));
    fleet_destroy(f);

    CHECK_OK(fleet_init(&f, NULL));
    CHECK_OK(fleet_load_model(f, path));
    CHECK_OK(mean_of(f, csv_data(f, b), &mean));
    CHECK(fabs(mean - 3) < 1e-6); /* (5 - 2) / 1 */
    fleet_destroy(f);
}

TEST(a_required_cell_that_is_missing_is_refused)
{
    double mean;
    fleet *f;

    CHECK_OK(fleet_init(&f, NULL));
    CHECK_FAILS(
        mean_of(f, csv_data(f, test_file("m.csv", "1,0\n,1\n3,\n")), &mean),
        FLEET_EFORMAT, "m.csv:3: slot \"y\": expected a cell that is there");
    fleet_destroy(f);
}

static int stop_at_2(void *user, int64_t batch, int64_t samples)
{
    *(int64_t *)user += samples;
    return batch == 2;
}

TEST(a_callback_may_end_the_pass)
{
    int64_t seen = 0;
    fleet_train_options t = {.on_batch = stop_at_2, .user = &seen};
    fleet_train_result r;
    scene s;

    scene_open(&s, NULL, "adam");
    scene_data(&s, scene_file("a.txt", 100, 1), 20, 2, 0);
    s.e = fleet_executor_create(s.p, NULL);
    CHECK_OK(fleet_train_from_dataset(s.e, s.data, &t, &r));
    CHECK_INT(r.batches, 2);
    CHECK_INT(seen, 40);
    scene_close(&s);
}

/* --- bad input ----------------------------------------------------------- */

static void refuses(const char *text, fleet_status want, const char *words)
{
    fleet_train_result r = {0};
    scene s;

    scene_open(&s, NULL, "adam");
    scene_data(&s, test_file("bad.txt", text), 1, 2, 0);
    s.e = fleet_executor_create(s.p, NULL);
    CHECK_FAILS(fleet_train_from_dataset(s.e, s.data, NULL, &r), want, words);
    CHECK_CONTAINS(fleet_last_error(), "bad.txt");
    CHECK_INT(r.batches, 1); /* the line before it was trained on */
    scene_close(&s);
}

#define GOOD "1 1 3 0 0 0 1 5 1 6 2 7 8\n"

TEST(a_malformed_line_is_named_by_file_line_and_slot)
{
    refuses(GOOD "1 x 3 0 0 0 1 5 1 6 1 7\n", FLEET_EFORMAT, "2");
    refuses(GOOD "1 1 3 0 0 0 1 5 1 6 -1\n", FLEET_EFORMAT, "\"w\"");
    refuses(GOOD "1 1 3 0 0 0 1 -5 1 6 1 7\n", FLEET_EFORMAT, "\"u\"");
    refuses(GOOD "1 1 3 0 0 0 1 3.7 1 6 1 7\n", FLEET_EFORMAT, "3.7");
    refuses(GOOD "1 1 3 0 0 0 1 5 1 6 1 7 9\n", FLEET_EFORMAT, "2");
    refuses(GOOD "1 1 3 0 0\n", FLEET_EFORMAT, "\"dense\"");
    refuses(GOOD "1 nan 3 0 0 0 1 5 1 6 1 7\n", FLEET_EFORMAT, "\"label\"");
}

TEST(what_cannot_be_read_is_named)
{
    const char *missing = "/nonexistent/part-*";
    scene s;

    scene_open(&s, NULL, "adam");
    scene_data(&s, scene_file("a.txt", 10, 1), 4, 1, 0);
    CHECK_FAILS(fleet_dataset_set_filelist(s.data, &missing, 1), FLEET_ENOENT,
                "/nonexistent/part-*");
    CHECK_FAILS(
        fleet_dataset_set_filelist(s.data, (const char *[]){"*", NULL}, 2),
        FLEET_EINVAL, "files: path 2 of 2 is NULL");
    CHECK_FAILS(fleet_dataset_set_filelist(s.data, NULL, 1), FLEET_EINVAL,
                "no files");
    s.e = fleet_executor_create(s.p, NULL);
    CHECK_FAILS(fleet_infer_from_dataset(s.e, s.data, NULL, NULL), FLEET_ESTATE,
                "for_test");
    scene_close(&s);
}

/* --- a loss that teaches nothing ------------------------------------------ */

static void keep_warnings(void *user, fleet_log_level level, const char *line)
{
    if (level == FLEET_LOG_WARNING)
        snprintf((char *)user, 500, "%s", line);
}

enum { OF_ACCURACY, OF_DATA, OF_FROZEN, OF_TRAINED };

static void warned(int of, const char *words)
{
    char line[500] = "";
    fleet_options o = {.log = keep_warnings, .log_user = line};
    fleet_fc_options fc = {.weight.frozen = of == OF_FROZEN, .no_bias = 1};
    fleet_program *p;
    fleet_var *x, *y, *loss;
    fleet *f;

    CHECK_OK(fleet_init(&f, &o));
    p = fleet_program_create(f);
    x = fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, 2}, 2);
    y = fleet_fc(p, x, 2, &fc);
    if (of == OF_ACCURACY)
        loss = fleet_accuracy(
            p, y, fleet_data(p, "l", FLEET_INT64, (int64_t[]){-1, 1}, 2));
    else
        loss = fleet_mean(p, of == OF_DATA ? x : y);
    CHECK_OK(fleet_minimize(fleet_sgd(f, 0.1f), loss));
    if (words)
        CHECK_CONTAINS(line, words);
    else
        CHECK_TEXT(line, "");
    fleet_destroy(f);
}

TEST(a_loss_that_changes_nothing_is_a_warning)
{
    warned(OF_ACCURACY, "reaches no parameter");
    warned(OF_DATA, "reaches no parameter");
    warned(OF_FROZEN, "reaches no parameter");
    warned(OF_TRAINED, NULL);
}

/* As text it would be a header without the columns that are asked for. */
TEST(a_packed_file_that_is_read_as_text_is_named)
{
    static const struct {
        const char *bytes, *words;
    } packed[] = {
        {"\x28\xb5\x2f\xfd\x04\x58", "is packed by zstd: unpack it, or set "
                                     "pipe_command \"zstd -dc\""},
        {"\x1f\x8b\x08 ", "is packed by gzip: name it .gz"},
        {"BZh91AY&SY ", "is packed by bzip2"},
        {"\xfd"
         "7zXZ",
         "is packed by xz"},
        {"PK\x03\x04", "is packed by zip"},
    };

    for (size_t i = 0; i < sizeof packed / sizeof *packed; i++) {
        const char *path = test_file("a.csv.zst", packed[i].bytes);
        scene s;

        scene_open(&s, NULL, "adam");
        scene_data(&s, path, 4, 1, 0);
        s.e = fleet_executor_create(s.p, NULL);
        CHECK_FAILS(fleet_train_from_dataset(s.e, s.data, NULL, NULL),
                    FLEET_EUNSUPPORTED, packed[i].words);
        CHECK_CONTAINS(fleet_last_error(), "a.csv.zst");
        scene_close(&s);
    }
}

TEST(a_pipe_command_that_fails_is_named)
{
    scene s;
    fleet_var *vars[5];
    fleet_dataset_options o = {.batch_size = 4,
                               .pipe_command = "head -n 2; exit 3"};
    const char *file = scene_file("a.txt", 10, 1);

    scene_open(&s, NULL, "adam");
    vars[0] = s.m.label;
    vars[1] = fleet_program_var(s.p, "dense");
    vars[2] = fleet_program_var(s.p, "u");
    vars[3] = fleet_program_var(s.p, "v");
    vars[4] = fleet_program_var(s.p, "w");
    o.use_var = vars;
    o.n_use_var = 5;
    s.data = fleet_queue_dataset(s.f, &o);
    CHECK_OK(fleet_dataset_set_filelist(s.data, &file, 1));
    s.e = fleet_executor_create(s.p, NULL);
    CHECK_FAILS(fleet_train_from_dataset(s.e, s.data, NULL, NULL), FLEET_ECHILD,
                "head -n 2; exit 3");
    CHECK_CONTAINS(fleet_last_error(), "3");
    CHECK(waitpid(-1, NULL, WNOHANG) == -1); /* no child is left */
    scene_close(&s);
}

TEST(a_slot_that_does_not_fit_its_variable_is_named)
{
    fleet_slot slots[] = {{.name = "label"},
                          {.name = "dense", .dim = 2},
                          {.name = "u", .dtype = FLEET_INT64},
                          {.name = "v", .dtype = FLEET_INT64},
                          {.name = "w", .dtype = FLEET_INT64, .dim = -1}};
    fleet_dataset_options o = {.slots = slots, .n_slot = 5};
    const char *file = scene_file("a.txt", 10, 1);
    scene s;

    scene_open(&s, NULL, "adam");
    s.e = fleet_executor_create(s.p, NULL);
    s.data = fleet_queue_dataset(s.f, &o);
    CHECK_OK(fleet_dataset_set_filelist(s.data, &file, 1));
    CHECK_FAILS(fleet_train_from_dataset(s.e, s.data, NULL, NULL), FLEET_ESHAPE,
                "slot \"dense\" has 2 values per sample, but its variable "
                "takes 3");
    slots[1] = (fleet_slot){.name = "dense", .dtype = FLEET_INT64, .dim = 3};
    s.data = fleet_queue_dataset(s.f, &o);
    CHECK_OK(fleet_dataset_set_filelist(s.data, &file, 1));
    CHECK_FAILS(fleet_train_from_dataset(s.e, s.data, NULL, NULL), FLEET_EDTYPE,
                "slot \"dense\" is int64, but its variable is float32");
    slots[1] = (fleet_slot){.name = "numbers", .dim = 3};
    s.data = fleet_queue_dataset(s.f, &o);
    CHECK_OK(fleet_dataset_set_filelist(s.data, &file, 1));
    CHECK_FAILS(fleet_train_from_dataset(s.e, s.data, NULL, NULL), FLEET_ENOENT,
                "no slot of the dataset feeds variable \"dense\"; slot "
                "\"numbers\" feeds none");
    scene_close(&s);
}

typedef struct hashes {
    fleet *f;
    uint64_t last;
    int64_t batches;
} hashes;

static int keep_hash(void *user, int64_t batch, int64_t samples)
{
    hashes *h = user;

    (void)samples;
    h->batches = batch;
    return fleet_params_hash(h->f, &h->last) != FLEET_OK;
}

TEST(a_loss_that_is_not_finite_is_blamed_and_changes_nothing)
{
    hashes h = {0};
    fleet_train_options t = {.on_batch = keep_hash, .user = &h};
    char batch[32];
    scene s;

    scene_open(&s, NULL, "explode");
    scene_data(&s, scene_file("a.txt", SCENE_LINES, 1), 32, 1, 0);
    s.e = fleet_executor_create(s.p, NULL);
    h.f = s.f;
    CHECK_FAILS(fleet_train_from_dataset(s.e, s.data, &t, NULL), FLEET_ENUMERIC,
                "the loss is not finite: op ");
    snprintf(batch, sizeof batch, "batch %lld:", (long long)h.batches + 1);
    CHECK_CONTAINS(fleet_last_error(), batch);
    CHECK(scene_hash(&s) == h.last);
    scene_close(&s);
}

/* --- misuse -------------------------------------------------------------- */

TEST(calls_out_of_order_are_refused)
{
    fleet_program *p;
    fleet_executor *e;
    scene s;

    scene_open(&s, NULL, "adam");
    scene_data(&s, scene_file("a.txt", 10, 1), 4, 1, 0);
    CHECK_FAILS(fleet_run_server(s.f), FLEET_ESTATE, "worker");
    CHECK_OK(fleet_init_worker(s.f));
    CHECK_OK(fleet_barrier_worker(s.f));
    CHECK_OK(fleet_stop_worker(s.f));
    s.e = fleet_executor_create(s.p, NULL);
    p = fleet_program_create(s.f);
    fleet_mlp(p,
              &(fleet_mlp_options){.input = "in2",
                                   .label = "label2",
                                   .dim = 2,
                                   .classes = 2,
                                   .hidden = (int64_t[]){3},
                                   .n_hidden = 1},
              NULL);
    CHECK(fleet_program_status(p) == FLEET_OK);
    e = fleet_executor_create(p, NULL);
    CHECK(e == NULL); /* its tower_0.w has another shape here */
    CHECK_CONTAINS(fleet_last_error(), "tower_");
    scene_close(&s);
}

TEST(a_handle_of_the_parent_is_refused_in_a_child)
{
    int status = -1;
    pid_t child;
    scene s;

    scene_open(&s, &(fleet_options){.num_threads = 2}, "adam");
    scene_data(&s, scene_file("a.txt", 40, 1), 4, 1, 0);
    scene_train(&s, 1);
    child = fork();
    if (child == 0)
        _exit(fleet_train_from_dataset(s.e, s.data, NULL, NULL) == FLEET_ESTATE
                  ? 0
                  : 1);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    scene_train(&s, 1);
    scene_close(&s);
}

TEST(two_handles_in_one_process_share_nothing)
{
    const char *file = scene_file("a.txt", SCENE_LINES, 1);
    fleet_options o = {.seed = 5, .num_threads = 2};
    scene a, b;

    scene_open(&a, &o, "adam");
    scene_open(&b, &o, "adam");
    scene_data(&a, file, 32, 1, 0);
    scene_data(&b, file, 32, 1, 0);
    scene_train(&a, 1);
    scene_train(&b, 1);
    CHECK(scene_hash(&a) == scene_hash(&b));
    scene_train(&a, 1);
    CHECK(scene_hash(&a) != scene_hash(&b));
    scene_close(&a);
    scene_train(&b, 1);
    scene_close(&b);
}
