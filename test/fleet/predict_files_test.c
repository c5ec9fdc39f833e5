/* predict_files_test.c - files scored on several threads: in their order, all
 * or nothing, from pipes and into them. */
#define _GNU_SOURCE
#define SUITE predict_files
#include "disk_kit.h"
#include "lines_kit.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"

static fleet_predictor *p;
static lines_scene s;

static void open_format(lines_format format)
{
    lines_open(&s, format);
    p = lines_predictor(&s);
}

static void close_all(void)
{
    fleet_predictor_destroy(p);
    lines_close(&s);
}

static fleet_status predict(const fleet_predict_options *o,
                            fleet_predict_result *r)
{
    return fleet_predict_files(p, &s.path, 1, o, r);
}

static const char *scores(void)
{
    return test_path("out/scores");
}

static void make_folder(void)
{
    CHECK(mkdir(test_path("out"), 0777) == 0);
}

static void check_file(void)
{
    float got[LINES_N];

    CHECK_INT(lines_scores(scores(), got, LINES_N), LINES_N);
    CHECK(memcmp(got, s.want, sizeof got) == 0);
    CHECK_INT(count_entries(test_path("out")), 1);
}

TEST(scores_are_in_order_on_any_number_of_threads)
{
    make_folder();
    open_format(LINES_CSV);
    for (int threads = 1; threads <= 5; threads += 2) {
        fleet_predict_result r;
        const fleet_predict_options o = {
            .output = scores(), .threads = threads, .batch_size = 7};

        unlink(scores());
        CHECK_OK(predict(&o, &r));
        CHECK_INT(r.samples, LINES_N);
        CHECK(r.seconds > 0);
        CHECK(r.evaluation.samples == 0);
        check_file();
    }
    close_all();
}

/* Files in their given order, of which a middle one is empty. */
TEST(files_come_one_after_the_other)
{
    const char *half, *paths[4];
    float got[2 * LINES_N];
    fleet_predict_result r;

    make_folder();
    open_format(LINES_MULTISLOT);
    half = s.text;
    for (int i = 0; i < 60; i++)
        half = strchr(half, '\n') + 1;
    paths[0] = test_file("z", half);
    paths[1] = test_file("e", "");
    paths[2] = test_file_bytes("a", s.text, (size_t)(half - s.text));
    CHECK_OK(fleet_predict_files(p, paths, 3,
                                 &(fleet_predict_options){.output = scores(),
                                                          .threads = 3,
                                                          .batch_size = 16},
                                 &r));
    CHECK_INT(r.samples, LINES_N);
    CHECK_INT(lines_scores(scores(), got, 2 * LINES_N), LINES_N);
    CHECK(memcmp(got, s.want + 60, 90 * sizeof *got) == 0);
    CHECK(memcmp(got + 90, s.want, 60 * sizeof *got) == 0);
    close_all();
}

TEST(the_evaluation_is_that_of_the_training)
{
    static const lines_format formats[] = {LINES_HEADER, LINES_CRITEO,
                                           LINES_TFRECORD};

    for (int i = 0; i < 3; i++) {
        fleet_predict_result r;

        open_format(formats[i]);
        CHECK_OK(predict(&(fleet_predict_options){.label = FLEET_LABEL_READ,
                                                  .threads = 3,
                                                  .batch_size = 9},
                         &r));
        CHECK_INT(r.evaluation.samples, LINES_N);
        CHECK(r.evaluation.auc == s.found.auc);
        CHECK(r.evaluation.logloss == s.found.logloss);
        CHECK(r.evaluation.accuracy == s.found.accuracy);
        close_all();
    }
}

TEST(an_empty_file_has_no_scores_and_no_evaluation)
{
    const char *path;
    fleet_predict_result r;

    make_folder();
    open_format(LINES_CSV);
    path = test_file("empty", "");
    CHECK_OK(fleet_predict_files(
        p, &path, 1, &(fleet_predict_options){.output = scores()}, &r));
    CHECK_INT(r.samples, 0);
    CHECK_INT(lines_scores(scores(), NULL, 0), 0);
    CHECK_FAILS(fleet_predict_files(
                    p, &path, 1,
                    &(fleet_predict_options){.label = FLEET_LABEL_READ}, &r),
                FLEET_EEND, "no sample");
    close_all();
}

/* --- all or nothing ------------------------------------------------------- */

static void check_old(void)
{
    char *text;
    size_t size;

    CHECK_OK(fl_file_read(scores(), &text, &size));
    CHECK_TEXT(text, "old");
    fl_free(text);
    CHECK_INT(count_entries(test_path("out")), 1);
}

TEST(a_line_that_does_not_fit_leaves_the_older_file)
{
    const fleet_predict_options o = {
        .output = scores(), .threads = 4, .batch_size = 5};
    const char *path[2];
    char all[LINES_N * 60 + 100], want[2000];

    make_folder();
    open_format(LINES_CSV);
    test_file("out/scores", "old");
    snprintf(all, sizeof all, "%sno,1,red,x,\nno,y,red,1,\n", s.text);
    path[0] = s.path;
    path[1] = test_file("bad", all);
    snprintf(want, sizeof want,
             "%s:%d: slot \"numbers\": expected a finite number, got \"x\"",
             path[1], LINES_N + 1);
    for (int i = 0; i < 5; i++)
        CHECK_FAILS(fleet_predict_files(p, path, 2, &o, NULL), FLEET_EFORMAT,
                    want);
    check_old();
    path[1] = "/nowhere/lines";
    CHECK_FAILS(fleet_predict_files(p, path, 2, &o, NULL), FLEET_ENOENT,
                "/nowhere/lines");
    check_old();
    close_all();
}

static ssize_t full_write(int fd, const void *data, size_t size)
{
    (void)fd, (void)data, (void)size;
    errno = ENOSPC;
    return -1;
}

static int failing_flush(int fd)
{
    (void)fd;
    errno = EIO;
    return -1;
}

TEST(a_full_disk_leaves_the_older_file)
{
    const fleet_predict_options o = {.output = scores(), .threads = 2};
    fl_disk disk = fl_disk_system;

    make_folder();
    open_format(LINES_CSV);
    test_file("out/scores", "old");
    disk.write = full_write;
    fl_disk_use(&disk);
    CHECK_FAILS(predict(&o, NULL), FLEET_EIO, "No space left");
    disk = fl_disk_system;
    disk.flush = failing_flush;
    fl_disk_use(&disk);
    CHECK_FAILS(predict(&o, NULL), FLEET_EIO, "Input/output error");
    fl_disk_use(NULL);
    check_old();
    CHECK_OK(predict(&o, NULL));
    check_file();
    close_all();
}

static void check_crash(void *arg, const char *path)
{
    int *seen = arg;
    char *text, file[2000];
    size_t size;

    if (!path)
        test_fail(__FILE__, __LINE__, "no folder is left");
    snprintf(file, sizeof file, "%s/scores", path);
    CHECK_OK(fl_file_read(file, &text, &size));
    if (strcmp(text, "old") == 0)
        seen[0]++;
    else
        CHECK(size > LINES_N && text[size - 1] == '\n');
    seen[1]++;
    fl_free(text);
}

TEST(a_crash_leaves_the_older_file_or_the_whole_new_one)
{
    const fleet_predict_options o = {.output = scores(), .threads = 1};
    int n, seen[2] = {0};

    make_folder();
    open_format(LINES_CSV);
    test_file("out/scores", "old");
    disk_record(test_folder());
    CHECK_OK(predict(&o, NULL));
    n = disk_recorded();
    disk_each_crash("out", 0, n, check_crash, seen);
    CHECK(seen[0] > 0 && seen[1] > seen[0]);
    close_all();
}

TEST(a_link_stays_and_so_do_permissions)
{
    const fleet_predict_options o = {.output = test_path("link")};
    struct stat st;

    make_folder();
    open_format(LINES_CSV);
    test_file("out/scores", "old");
    CHECK(chmod(scores(), 0640) == 0);
    CHECK(symlink("out/scores", test_path("link")) == 0);
    CHECK_OK(predict(&o, NULL));
    CHECK(lstat(test_path("link"), &st) == 0 && S_ISLNK(st.st_mode));
    CHECK(stat(scores(), &st) == 0 && (st.st_mode & 0777) == 0640);
    check_file();
    close_all();
}

TEST(a_place_that_cannot_be_written_is_named_first)
{
    open_format(LINES_CSV);
    CHECK_FAILS(
        predict(&(fleet_predict_options){.output = test_folder()}, NULL),
        FLEET_EIO, "Is a directory");
    CHECK_FAILS(
        predict(&(fleet_predict_options){.output = "/nowhere/scores"}, NULL),
        FLEET_EIO, "cannot write /nowhere/scores: No such file");
    close_all();
}

/* --- pipes ---------------------------------------------------------------- */

static void *write_fifo(void *path)
{
    FILE *f = fopen(path, "w");

    fwrite(s.text, 1, 100, f); /* in pieces that are no lines */
    fflush(f);
    fwrite(s.text + 100, 1, strlen(s.text) - 100, f);
    fclose(f);
    return NULL;
}

TEST(a_fifo_is_read_to_its_end)
{
    const char *path = test_path("in");
    pthread_t writer;

    make_folder();
    open_format(LINES_CSV);
    CHECK(mkfifo(path, 0666) == 0);
    CHECK(pthread_create(&writer, NULL, write_fifo, (void *)path) == 0);
    CHECK_OK(fleet_predict_files(
        p, &path, 1, &(fleet_predict_options){.output = scores(), .threads = 2},
        NULL));
    pthread_join(writer, NULL);
    check_file();
    close_all();
}

static void *read_fifo(void *path)
{
    FILE *f = fopen(path, "r");
    char *text = calloc(1, 100000);
    size_t n = fread(text, 1, 99999, f);

    (void)n;
    fclose(f);
    return text;
}

TEST(a_fifo_gets_lines_as_they_are_scored)
{
    const char *path = test_path("pipe");
    pthread_t reader;
    void *text;

    make_folder();
    open_format(LINES_CSV);
    CHECK(mkfifo(path, 0666) == 0);
    CHECK(pthread_create(&reader, NULL, read_fifo, (void *)path) == 0);
    CHECK_OK(
        predict(&(fleet_predict_options){.output = path, .threads = 3}, NULL));
    pthread_join(reader, &text);
    test_file("out/scores", text);
    free(text);
    check_file();
    close_all();
}

static void *close_fifo(void *path)
{
    FILE *f = fopen(path, "r");

    fclose(f);
    return NULL;
}

static atomic_bool is_over;

/* Line after line, as long as they are wanted: a score that meets no reader any
 * more comes at last. */
static void *write_on(void *path)
{
    struct pollfd to = {open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC), POLLOUT,
                        0};
    size_t size = strlen(s.text), at = 0;

    CHECK(to.fd >= 0);
    while (!atomic_load(&is_over)) {
        ssize_t n;

        poll(&to, 1, 50);
        n = write(to.fd, s.text + at, size - at);
        at = n > 0 ? (at + (size_t)n) % size : at;
    }
    close(to.fd);
    return NULL;
}

/* The data never end: a FIFO whose writer is this process. */
TEST_LIMIT(a_reader_that_goes_ends_the_wait_for_data, 60)
{
    const char *in = test_path("in"), *out = test_path("pipe");
    pthread_t reader, writer;
    FILE *keep;

    open_format(LINES_CSV);
    CHECK(mkfifo(out, 0666) == 0 && mkfifo(in, 0666) == 0);
    keep = fopen(in, "r+");
    CHECK(keep != NULL);
    CHECK(pthread_create(&writer, NULL, write_on, (void *)in) == 0);
    CHECK(pthread_create(&reader, NULL, close_fifo, (void *)out) == 0);
    CHECK_FAILS(fleet_predict_files(p, &in, 1,
                                    &(fleet_predict_options){.output = out,
                                                             .threads = 3,
                                                             .batch_size = 8},
                                    NULL),
                FLEET_EIO, "Broken pipe");
    atomic_store(&is_over, true);
    pthread_join(reader, NULL);
    pthread_join(writer, NULL);
    fclose(keep);
    close_all();
}

/* --- outputs -------------------------------------------------------------- */

static void save_two_outputs(void)
{
    fleet_var *feed[] = {fleet_program_var(s.p, "numbers"),
                         fleet_program_var(s.p, "color"),
                         fleet_program_var(s.p, "word")};

    CHECK_OK(fleet_save_inference_model_with(
        s.f, test_path("two"), feed, 3, (fleet_var *[]){s.m.prediction, s.pair},
        2, &(fleet_inference_options){.dataset = s.data, .label = "label"}));
}

static void check_first_lines(const char *head, int columns)
{
    char *text, want[3][40], all[400];
    size_t size;

    CHECK_OK(fl_file_read(scores(), &text, &size));
    snprintf(want[0], sizeof want[0], "%.9g", (double)s.want[0]);
    snprintf(all, sizeof all, "%s%s%s%s%s%s\n", head, want[0],
             columns > 1 ? "\t" : "", columns > 1 ? want[0] : "",
             columns > 2 ? "\t" : "", columns > 2 ? want[0] : "");
    CHECK(strncmp(text, all, strlen(all)) == 0);
    fl_free(text);
}

TEST(outputs_stand_side_by_side_and_can_be_chosen)
{
    fleet_predict_options o = {.output = scores(), .header = 1};
    fleet_predict_result r;
    const char *one, *two;
    char head[300];

    make_folder();
    open_format(LINES_CSV);
    save_two_outputs();
    fleet_predictor_destroy(p);
    p = fleet_load_inference_model(test_path("two"));
    CHECK(p != NULL);
    one = fleet_var_name(fleet_predictor_output(p, 0));
    two = fleet_var_name(fleet_predictor_output(p, 1));
    CHECK_OK(predict(&o, NULL));
    snprintf(head, sizeof head, "%s\t%s[0]\t%s[1]\n", one, two, two);
    check_first_lines(head, 3);
    o.names = &two;
    o.n_name = 1;
    o.header = 0;
    o.label = FLEET_LABEL_READ;
    CHECK_OK(predict(&o, &r));
    check_first_lines("", 2);
    CHECK(r.evaluation.auc == s.found.auc);
    o.names = (const char *[]){"nothing"};
    CHECK_FAILS(predict(&o, NULL), FLEET_ENOENT, "no output \"nothing\"");
    CHECK_CONTAINS(fleet_last_error(), one);
    close_all();
}

/* --- commands, images ----------------------------------------------------- */

TEST(a_model_trained_through_a_command_wants_to_know_it)
{
    const fleet_slot slots[] = {
        {.name = "color", .dtype = FLEET_INT64},
        {.name = "numbers", .dim = 2},
        {.name = "label", .dtype = FLEET_INT64},
        {.name = "word", .dtype = FLEET_INT64, .dim = -1}};
    fleet_predict_options o = {.output = scores()};

    make_folder();
    lines_open(&s, LINES_MULTISLOT);
    s.data = fleet_queue_dataset(
        s.f, &(fleet_dataset_options){
                 .slots = slots, .n_slot = 4, .pipe_command = "sed s/x//"});
    CHECK_OK(fleet_dataset_set_filelist(s.data, &s.path, 1));
    p = lines_predictor(&s);
    CHECK_FAILS(predict(&o, NULL), FLEET_EINVAL,
                "trained through a pipe_command: expected one, or \"cat\"");
    o.pipe_command = "cat";
    CHECK_OK(predict(&o, NULL));
    check_file();
    o.pipe_command = "sed 's/^1 /1 1/'";
    CHECK_OK(predict(&o, NULL));
    o.pipe_command = "false";
    CHECK_FAILS(predict(&o, NULL), FLEET_ECHILD, "false");
    close_all();
}

static const char *idx_file(const char *name, int magic, int n, int pixels)
{
    unsigned char data[16 + 20 * 4] = {0, 0, 8, (unsigned char)magic,
                                       0, 0, 0, (unsigned char)n};
    const int head = pixels ? 16 : 8, size = n * (pixels ? pixels : 1);

    if (pixels)
        data[11] = 2, data[15] = (unsigned char)(pixels / 2);
    for (int i = 0; i < size; i++)
        data[head + i] = (unsigned char)(pixels ? i * 71 : i % 2);
    return test_file_bytes(name, data, (size_t)(head + size));
}

TEST(images_are_scored_with_their_labels_and_without)
{
    const char *files[] = {idx_file("images", 3, 20, 4),
                           idx_file("labels", 1, 20, 0)};
    char config[2000], *line = NULL, *with, *without;
    fleet_predict_options o = {
        .output = scores(), .threads = 2, .label = FLEET_LABEL_READ};
    fleet_predict_result r;
    size_t size;

    make_folder();
    snprintf(config, sizeof config,
             "{\"model\": {\"type\": \"mlp\", \"hidden\": [4], \"classes\": 2},"
             "\"dataset\": {\"format\": \"idx\", \"train\": [\"%s\", \"%s\"], "
             "\"test\": [\"%s\", \"%s\"]}, \"save\": \"%s\"}",
             files[0], files[1], files[0], files[1], test_path("model"));
    CHECK_OK(fleet_train_from_config(
        test_file("config.json", config),
        &(fleet_config_options){.log_level = FLEET_LOG_WARNING}, &line));
    p = fleet_load_inference_model(test_path("model"));
    CHECK(p != NULL);
    CHECK_OK(fleet_predict_files(p, files, 2, &o, &r));
    snprintf(config, sizeof config, "\"auc\":%.6g", r.evaluation.auc);
    CHECK_TEXT(test_json_value(line, "\"auc\""), config);
    CHECK_OK(fl_file_read(scores(), &with, &size));
    o.label = FLEET_LABEL_ABSENT;
    CHECK_OK(fleet_predict_files(p, files, 1, &o, &r));
    CHECK_INT(r.samples, 20);
    CHECK_OK(fl_file_read(scores(), &without, &size));
    CHECK_TEXT(without, with);
    CHECK_FAILS(fleet_predict_files(p, files, 2, &o, &r), FLEET_ECONFIG,
                "one file, the images");
    CHECK_FAILS(fleet_predictor_run_text(p, "x", 1, FLEET_LABEL_UNREAD,
                                         (void *[]){NULL}, (size_t[]){0}, 1,
                                         NULL),
                FLEET_EINVAL, "idx, which is no text");
    fl_free(with);
    fl_free(without);
    fleet_free(line);
    fleet_predictor_destroy(p);
}

TEST(options_that_cannot_be_are_refused)
{
    open_format(LINES_CSV);
    CHECK_FAILS(predict(&(fleet_predict_options){.threads = 65}, NULL),
                FLEET_EINVAL, "threads: expected 0 to 64, got 65");
    CHECK_FAILS(predict(&(fleet_predict_options){.batch_size = -1}, NULL),
                FLEET_EINVAL, "batch_size: expected 0 to 1048576, got -1");
    CHECK_FAILS(predict(&(fleet_predict_options){.n_name = 1}, NULL),
                FLEET_EINVAL, "names is NULL");
    CHECK_FAILS(fleet_predict_files(p, (const char *[]){NULL}, 1, NULL, NULL),
                FLEET_EINVAL, "paths[0] is NULL");
    close_all();
}
