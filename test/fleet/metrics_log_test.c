/* metrics_log_test.c - a training's lines: what they say, after a crash, too,
 * and what becomes of a file. */
#define SUITE metrics_log
#include "test.h"
#include "watch_kit.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json/json.h"
#include "base/memory.h"
#include "fleet/watch/metric_log.h"

/* --- lines of a file ------------------------------------------------------ */

enum { MOST = 60 };

/* Without its time. */
typedef struct told {
    char run[20]; /* of a first line; else "" */
    int64_t step, epoch, samples;
    double loss, rate, auc, speed; /* -1: null, or not told */
} told;

static told line[MOST];
static int n_line;

static double number_of(const fl_at *root, const char *key)
{
    fl_at at = fl_at_key(root, key);
    double x = -1;

    if (!at.json || fl_at_double(&at, 0, 1e300, &x) != FLEET_OK)
        return -1;
    return x;
}

static void read_line(const char *text, size_t size)
{
    told *to = &line[n_line++];
    fl_json *json;
    fl_at root, at;
    const char *run = "";

    CHECK(n_line <= MOST);
    CHECK_OK(fl_json_parse(text, size, "a line", &json));
    root = fl_at_root(json);
    at = fl_at_key(&root, "run");
    CHECK_OK(fl_at_string(&at, &run));
    *to = (told){.step = (int64_t)number_of(&root, "step"),
                 .epoch = (int64_t)number_of(&root, "epoch"),
                 .samples = (int64_t)number_of(&root, "samples"),
                 .loss = number_of(&root, "loss"),
                 .rate = number_of(&root, "learning_rate"),
                 .auc = number_of(&root, "validation_auc"),
                 .speed = number_of(&root, "samples_per_s")};
    snprintf(to->run, sizeof to->run, "%s", run);
    CHECK(number_of(&root, "time") > 1.6e9);
    fl_json_free(json);
}

/* Each is JSON. */
static void read_lines(const char *path)
{
    char *text;
    size_t size;

    CHECK_OK(fl_file_read(path, &text, &size));
    n_line = 0;
    for (char *at = text; *at;) {
        char *end = strchr(at, '\n');

        CHECK(end != NULL);
        read_line(at, (size_t)(end - at));
        at = end + 1;
    }
    fl_free(text);
}

/* Steps and samples, with the places of runs and of validations:
 * "run 2:64 4:100v". */
static const char *steps(void)
{
    static char text[1000];
    size_t n = 0;

    *text = 0;
    for (int i = 0; i < n_line; i++)
        n += (size_t)(*line[i].run
                          ? snprintf(text + n, sizeof text - n, "run ")
                          : snprintf(text + n, sizeof text - n, "%d:%d%s ",
                                     (int)line[i].step, (int)line[i].samples,
                                     line[i].auc >= 0 ? "v" : ""));
    return text;
}

static char *train_logged(const char *a, const char *b, const char *c)
{
    return watch_train(
        (const char *[]){watch_path("metrics_log.path", "m"), a, b, c, NULL});
}

/* --- what they say -------------------------------------------------------- */

static void check_steps(const char *a, const char *b, const char *want)
{
    unlink(test_path("m"));
    fleet_free(train_logged(a, b, NULL));
    read_lines(test_path("m"));
    CHECK_TEXT(steps(), want);
}

TEST(each_so_many_batches_at_the_ends_of_passes_and_with_validations)
{
    check_steps("epochs=2", NULL, "run 4:100 8:200 ");
    check_steps("epochs=2", "metrics_log.steps=3",
                "run 3:96 4:100 7:196 8:200 ");
    check_steps("epochs=2", "validate_every.steps=3",
                "run 3:96v 4:100 6:164v 8:200 ");
    check_steps("epochs=2", "validate_every={}", "run 4:100v 8:200v ");
    check_steps("epochs=1", "trainer.thread=2", "run 4:100 ");
}

/* Over the samples of a pass they add up to the loss of the pass. */
TEST(losses_and_rates_are_those_of_the_batches_since_the_line_before)
{
    char *closing = train_logged("metrics_log.steps=3",
                                 "optimizer.decay={\"type\":\"step\","
                                 "\"steps\":4,\"rate\":0.5}",
                                 "validate_every={}");
    char want[40];
    double sum;

    read_lines(test_path("m"));
    CHECK_TEXT(steps(), "run 3:96 4:100v 7:196 8:200v 11:296 12:300v ");
    sum = line[5].loss * 96 + line[6].loss * 4;
    snprintf(want, sizeof want, "\"loss\":%.6g", sum / 100);
    CHECK_TEXT(test_json_value(closing, "\"loss\""), want);
    CHECK(fabs(line[5].loss - line[6].loss) > 1e-3);
    CHECK_NEAR(line[1].rate, 0.001, 1e-9);
    CHECK_NEAR(line[3].rate, 0.0005, 1e-9);
    CHECK_NEAR(line[5].rate, 0.00025, 1e-9);
    CHECK_INT(line[5].epoch, 3);
    CHECK_NEAR(line[6].auc, watch_seen[2].auc, 1e-8);
    fleet_free(closing);
}

/* --- after a crash -------------------------------------------------------- */

static void add_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "a");

    CHECK(f != NULL);
    fputs(text, f);
    fclose(f);
}

/* As a crash after that checkpoint, and behind the last line, leaves it. */
static void crash_after(int checkpoint, const char *torn)
{
    watch_forget(checkpoint);
    add_text(test_path("m"), torn);
}

static void same_lines(const told *want, int n)
{
    CHECK_INT(n_line, n);
    for (int i = 0; i < n; i++) {
        CHECK_INT(line[i].step, want[i].step);
        CHECK_INT(line[i].epoch, want[i].epoch);
        CHECK_INT(line[i].samples, want[i].samples);
        CHECK_NEAR(line[i].loss, want[i].loss, 0);
        CHECK_NEAR(line[i].rate, want[i].rate, 0);
        CHECK_NEAR(line[i].auc, want[i].auc, 0);
    }
}

static void train_saved(int every, const char *epochs)
{
    char set[500];

    snprintf(set, sizeof set,
             "save_every={\"folder\":\"%s\",\"steps\":%d,\"keep\":100}",
             test_path("all"), every);
    fleet_free(watch_train((const char *[]){
        watch_path("metrics_log.path", "m"), "metrics_log.steps=3",
        "validate_every.steps=5", set, epochs, NULL}));
}

/* At the end of a pass, behind a validation, and before the first line. */
TEST(a_training_that_resumes_has_the_lines_of_one_that_never_ended)
{
    static const int cuts[] = {8, 6, 2};
    static told want[MOST];
    int n;

    fleet_free(
        train_logged("metrics_log.steps=3", "validate_every.steps=5", NULL));
    read_lines(test_path("m"));
    CHECK_TEXT(steps(), "run 3:96 4:100 5:132v 8:200 10:264v 12:300 ");
    memcpy(want, line, sizeof want);
    n = n_line;
    unlink(test_path("m"));
    train_saved(1, "epochs=2");
    watch_resumes = 1;
    for (int i = 0; i < 3; i++) {
        crash_after(cuts[i], "{\"step\":9,\"epo");
        train_saved(100, NULL);
        CHECK_CONTAINS(watch_said, "its last line was cut off: 14 bytes");
        read_lines(test_path("m"));
        same_lines(want, n);
    }
}

TEST(without_resume_another_run_comes_behind_the_first)
{
    char run[20];

    fleet_free(train_logged("epochs=1", NULL, NULL));
    add_text(test_path("m"), "{\"ru");
    fleet_free(train_logged("epochs=2", NULL, NULL));
    read_lines(test_path("m"));
    CHECK_TEXT(steps(), "run 4:100 run 4:100 8:200 ");
    snprintf(run, sizeof run, "%s", line[0].run);
    CHECK(strcmp(run, line[2].run) != 0);
}

TEST(a_run_that_has_lost_its_lines_gets_another_number)
{
    char run[20];

    train_saved(1, "epochs=2");
    read_lines(test_path("m"));
    snprintf(run, sizeof run, "%s", line[0].run);
    unlink(test_path("m"));
    watch_forget(6);
    watch_resumes = 1;
    train_saved(100, "epochs=2");
    read_lines(test_path("m"));
    CHECK_TEXT(steps(), "run 8:200 ");
    CHECK(strcmp(run, line[0].run) != 0);
}

/* --- what is asked for changes -------------------------------------------- */

static void train_changed(const char *epochs, const char *a, const char *b)
{
    fleet_free(watch_train(
        (const char *[]){watch_path("save_every.folder", "all"),
                         "save_every.steps=4", epochs, a, b, NULL}));
    watch_resumes = 1;
}

TEST(lines_begin_where_they_are_asked_for_and_go_on_behind_passes_without)
{
    const char *path = watch_path("metrics_log.path", "m");

    train_changed("epochs=2", "validate_every={}", NULL);
    train_changed("epochs=3", path, "metrics_log.steps=4");
    train_changed("epochs=4", NULL, NULL);
    train_changed("epochs=5", path, NULL);
    read_lines(test_path("m"));
    CHECK_TEXT(steps(), "run 12:300 20:500 ");
    CHECK_INT(line[0].step, 8);
}

TEST(a_training_that_goes_on_from_a_save_has_its_lines)
{
    char load[500];

    fleet_free(train_logged("epochs=1", watch_path("save", "end"), NULL));
    snprintf(load, sizeof load,
             "load={\"path\":\"%s\",\"position\":\"resume\"}",
             test_path("end"));
    fleet_free(train_logged("epochs=2", load, NULL));
    read_lines(test_path("m"));
    CHECK_TEXT(steps(), "run 4:100 8:200 ");
}

/* A file takes 0.1 seconds; 4 samples are left of 100. */
TEST(a_speed_is_without_samples_of_the_process_before)
{
    static const char slow[] = "dataset.pipe_command=sleep 0.1; cat";
    const char *all = watch_path("save_every.folder", "all");

    for (int i = 0; i < 2; i++) {
        watch_resumes = i;
        fleet_free(
            train_logged("save_every={\"steps\":1,\"keep\":100}", all, slow));
        watch_forget(11);
    }
    read_lines(test_path("m"));
    CHECK_TEXT(steps(), "run 4:100 8:200 12:300 ");
    CHECK(line[3].speed > 0 && line[3].speed <= 40);
}

/* --- a file --------------------------------------------------------------- */

#define FIRST   "{\"run\":\"00000000000000aa\",\"time\":1}\n"
#define OTHER   "{\"run\":\"00000000000000bb\",\"time\":1}\n"
#define LINE(n) "{\"step\":" #n "}\n"

/* What becomes of the text when run aa goes on behind `lines`. */
static void check_kept(const char *text, int64_t lines, bool goes_on,
                       const char *want)
{
    const char *path = test_file("kept", text);
    fl_metric_log m;
    char *now;
    size_t size;

    CHECK_OK(fl_metric_log_open(&m, path, NULL, 0xaa, lines, NULL));
    CHECK_INT(m.goes_on, goes_on);
    fl_metric_log_add(&m, "{\"step\":99}");
    fl_metric_log_close(&m);
    CHECK_OK(fl_file_read(path, &now, &size));
    CHECK(size > strlen(LINE(99)));
    now[size - strlen(LINE(99))] = 0;
    CHECK_TEXT(now, want);
    fl_free(now);
}

TEST(only_lines_of_its_own_run_go_and_only_at_the_end)
{
    check_kept(FIRST LINE(1) LINE(2), 1, true, FIRST LINE(1));
    check_kept(OTHER LINE(1) FIRST LINE(1) LINE(2), 0, true,
               OTHER LINE(1) FIRST);
    check_kept(FIRST LINE(1) LINE(2), 2, true, FIRST LINE(1) LINE(2));
    check_kept(FIRST LINE(1), 2, false, FIRST LINE(1)); /* it has lost one */
    check_kept(FIRST LINE(1) OTHER LINE(1), 0, false,
               FIRST LINE(1) OTHER LINE(1));
    check_kept(OTHER LINE(1), 0, false, OTHER LINE(1));
    check_kept(FIRST LINE(1) "{\"st", 1, true, FIRST LINE(1));
    check_kept(FIRST LINE(1) "{\"step\":2", 1, true, FIRST LINE(1));
}

static void check_foreign(const char *text)
{
    const char *path = test_file("foreign", text);
    fl_metric_log m;
    char *now;
    size_t size;

    CHECK_FAILS(fl_metric_log_open(&m, path, NULL, 0, 0, NULL), FLEET_EFORMAT,
                "is a file of something else: expected lines that begin with "
                "{\"run\": or {\"step\":");
    CHECK(m.fd < 0);
    CHECK_OK(fl_file_read(path, &now, &size));
    CHECK_TEXT(now, text);
    fl_free(now);
}

TEST(a_file_of_something_else_is_refused_and_stays)
{
    check_foreign("precious");
    check_foreign("precious\n");
    check_foreign("{\"model\": 1}\n");
    check_foreign(FIRST "precious");
}

static void check_found(const char *set, fleet_status code, const char *words)
{
    char *closing;

    CHECK_FAILS(
        watch_act(FLEET_CONFIG_CHECK, (const char *[]){set, NULL}, &closing),
        code, words);
}

TEST(where_no_file_can_be_is_said_before_the_training)
{
    test_file("foreign", "precious");
    check_found("metrics_log=/no/such/m", FLEET_EIO,
                "metrics_log: cannot make /no/such/m");
    check_found("metrics_log=/", FLEET_EIO,
                "metrics_log: cannot write /: Is a directory");
    check_found(watch_path("metrics_log", "foreign"), FLEET_EFORMAT,
                "is a file of something else");
    watch_refuse("metrics_log={\"steps\":4}", NULL, "metrics_log.path: ");
    watch_refuse("metrics_log=4", NULL,
                 "metrics_log: expected a string or an object");
}

TEST(one_training_at_a_time_has_the_file)
{
    const char *path = test_path("m");
    fl_metric_log m, other;

    CHECK_OK(fl_metric_log_open(&m, path, NULL, 0, 0, NULL));
    CHECK_FAILS(fl_metric_log_open(&other, path, NULL, 0, 0, NULL),
                FLEET_EEXIST, "metrics_log: another training is writing");
    CHECK(other.fd < 0);
    fl_metric_log_close(&m);
    CHECK_OK(fl_metric_log_open(&other, path, NULL, 0, 0, NULL));
    fl_metric_log_close(&other);
}

/* The default of SIGPIPE would end the training. */
TEST_LIMIT(a_fifo_is_not_waited_for, 20)
{
    const char *path = test_path("fifo");
    fl_metric_log m;
    int reader, n = 0;
    char some[8192];

    signal(SIGPIPE, SIG_DFL);
    CHECK(mkfifo(path, 0600) == 0);
    CHECK_FAILS(fl_metric_log_open(&m, path, NULL, 0, 0, NULL), FLEET_EIO,
                "metrics_log: cannot open");
    reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    CHECK_OK(fl_metric_log_open(&m, path, NULL, 0, 0, NULL));
    while (!m.has_failed && n++ < 1000000)
        fl_metric_log_add(&m, "{\"step\":1}");
    CHECK(m.has_failed);
    CHECK(read(reader, some, sizeof some) == (ssize_t)sizeof some);
    fl_metric_log_add(&m, "{\"step\":1}");
    CHECK(!m.has_failed);
    close(reader);
    fl_metric_log_add(&m, "{\"step\":1}");
    CHECK(m.has_failed);
    fl_metric_log_flush(&m);
    fl_metric_log_close(&m);
}

/* --- a disk that is full -------------------------------------------------- */

static int writes, full_at;

static ssize_t write_half(int fd, const void *data, size_t size)
{
    if (++writes == full_at)
        return fl_disk_system.write(fd, data, size / 2);
    if (writes == full_at + 1) {
        errno = ENOSPC;
        return -1;
    }
    return fl_disk_system.write(fd, data, size);
}

/* A run's first line. Of so many writes the disk takes half of the last one,
 * and nothing of the next. */
static void begin_on_full_disk(fl_metric_log *m, const char *path, int write)
{
    static fl_disk disk;

    disk = fl_disk_system;
    disk.write = write_half;
    full_at = write;
    CHECK_OK(fl_metric_log_open(m, path, NULL, 0, 0, NULL));
    fl_disk_use(&disk);
    fl_metric_log_add(m, "{\"run\":1}");
}

TEST(a_line_is_one_write_and_a_part_of_one_is_taken_back)
{
    const char *path = test_path("full");
    fl_metric_log m;
    char *now;
    size_t size;

    begin_on_full_disk(&m, path, 3);
    fl_metric_log_add(&m, "{\"step\":1}");
    CHECK_INT(writes, 2);
    fl_metric_log_add(&m, "{\"step\":2}");
    fl_metric_log_add(&m, "{\"step\":3}");
    fl_disk_use(NULL);
    fl_metric_log_close(&m);
    CHECK_OK(fl_file_read(path, &now, &size));
    CHECK_TEXT(now, "{\"run\":1}\n{\"step\":1}\n{\"step\":3}\n");
    fl_free(now);
}

/* By somebody who has emptied the file meanwhile, say. */
TEST(a_part_of_a_line_is_taken_back_to_where_the_file_ended)
{
    const char *path = test_path("full");
    fl_metric_log m;
    char *now;
    size_t size;

    begin_on_full_disk(&m, path, 2);
    CHECK(truncate(path, 0) == 0);
    fl_metric_log_add(&m, "{\"step\":1}");
    fl_disk_use(NULL);
    fl_metric_log_close(&m);
    CHECK_OK(fl_file_read(path, &now, &size));
    CHECK_INT(size, 0);
    fl_free(now);
}

static const char *refused; /* how the line begins that the disk refuses */

static ssize_t refuse_once(int fd, const void *data, size_t size)
{
    const size_t n = refused ? strlen(refused) : 0;

    if (n == 0 || size < n || memcmp(data, refused, n) != 0)
        return fl_disk_system.write(fd, data, size);
    refused = NULL;
    errno = ENOSPC;
    return -1;
}

static void refuse(const char *begins)
{
    static fl_disk disk;

    disk = fl_disk_system;
    disk.write = refuse_once;
    refused = begins;
    fl_disk_use(&disk);
}

TEST(a_line_that_is_lost_is_counted_by_no_checkpoint)
{
    refuse("{\"step\":3,");
    train_saved(1, "epochs=2");
    CHECK_CONTAINS(watch_said, "lines are lost: No space left on device");
    watch_forget(6);
    watch_resumes = 1;
    train_saved(100, "epochs=2");
    read_lines(test_path("m"));
    CHECK_TEXT(steps(), "run 4:100 5:132v 8:200 ");
}

TEST(a_run_whose_first_line_is_refused_begins_with_its_next_line)
{
    refuse("{\"run\":");
    fleet_free(train_logged("epochs=1", "metrics_log.steps=3", NULL));
    fleet_free(train_logged("epochs=1", NULL, NULL));
    read_lines(test_path("m"));
    CHECK_TEXT(steps(), "run 3:96 4:100 run 4:100 ");
}
