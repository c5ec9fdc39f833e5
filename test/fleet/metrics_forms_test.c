/* metrics_forms_test.c - a training's lines as CSV, and its numbers in files of
 * TensorBoard's, which test/fleet/read_events.py reads, too. */
#define _GNU_SOURCE
#define SUITE metrics_forms
#include "test.h"
#include "watch_kit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "fleet/watch/event_log.h"
#include "fleet/watch/metric_log.h"

static char *read_all(const char *path)
{
    char *text;
    size_t size;

    CHECK_OK(fl_file_read(path, &text, &size));
    return text;
}

/* --- rows ----------------------------------------------------------------- */

enum { COLUMNS = 13, MOST = 40 };

typedef struct row {
    char cell[COLUMNS][40];
} row;

static row rows[MOST];
static int n_row;

static void read_rows(const char *path)
{
    char *text = read_all(path), *at = text + strcspn(text, "\n");

    CHECK(*at == '\n');
    *at++ = 0;
    CHECK_TEXT(text, fl_metric_columns);
    for (n_row = 0; *at; n_row++) {
        CHECK(n_row < MOST);
        for (int i = 0; i < COLUMNS; i++) {
            size_t n = strcspn(at, ",\n");

            CHECK(n < 40 && at[n] == (i < COLUMNS - 1 ? ',' : '\n'));
            snprintf(rows[n_row].cell[i], 40, "%.*s", (int)n, at);
            at += n + 1;
        }
    }
    fl_free(text);
}

/* "2:64 4:100v ", a bar in front of each run. */
static const char *steps(void)
{
    static char text[1000];
    size_t n = 0;

    *text = 0;
    for (int i = 0; i < n_row; i++)
        n += (size_t)snprintf(
            text + n, sizeof text - n, "%s%s:%s%s ",
            i == 0 || strcmp(rows[i].cell[0], rows[i - 1].cell[0]) ? "| " : "",
            rows[i].cell[1], rows[i].cell[3], *rows[i].cell[8] ? "v" : "");
    return text;
}

static void train(const char *a, const char *b, const char *c, const char *d)
{
    fleet_free(watch_train((const char *[]){a, b, c, d, NULL}));
}

static void same_cell(const char *line, const char *key, const char *cell)
{
    char want[80];

    snprintf(want, sizeof want, "%s:%s", key, cell);
    CHECK_TEXT(test_json_value(line, key), want);
}

TEST(a_row_has_what_a_line_of_json_has)
{
    char *text, *at;

    train(watch_path("metrics_log.path", "m.csv"), "metrics_log.steps=3",
          "validate_every={}", "epochs=2");
    train(watch_path("metrics_log.path", "m.json"), "metrics_log.steps=3",
          "validate_every={}", "epochs=2");
    read_rows(test_path("m.csv"));
    CHECK_TEXT(steps(), "| 3:96 4:100v 7:196 8:200v ");
    text = read_all(test_path("m.json"));
    at = text;
    for (int i = 0; i < n_row; i++) {
        at = strchr(at, '\n') + 1;
        same_cell(at, "\"step\"", rows[i].cell[1]);
        same_cell(at, "\"epoch\"", rows[i].cell[2]);
        same_cell(at, "\"loss\"", rows[i].cell[5]);
        same_cell(at, "\"learning_rate\"", rows[i].cell[6]);
        if (i % 2 == 0)
            continue;
        same_cell(at, "\"validation_loss\"", rows[i].cell[7]);
        same_cell(at, "\"validation_auc\"", rows[i].cell[8]);
        same_cell(at, "\"validation_logloss\"", rows[i].cell[9]);
        same_cell(at, "\"validation_accuracy\"", rows[i].cell[10]);
        same_cell(at, "\"validation_samples\"", rows[i].cell[11]);
    }
    CHECK(atof(rows[0].cell[4]) > 0 && atof(rows[0].cell[12]) > 1.6e9);
    fl_free(text);
}

static void train_saved(int every, const char *epochs, const char *where)
{
    char set[500];

    snprintf(set, sizeof set,
             "save_every={\"folder\":\"%s\",\"steps\":%d,\"keep\":100}",
             test_path("all"), every);
    fleet_free(watch_train((const char *[]){where, "metrics_log.steps=3",
                                            "validate_every.steps=5", set,
                                            epochs, NULL}));
}

static void add_bytes(const char *path, const char *bytes, size_t n)
{
    FILE *f = fopen(path, "a");

    CHECK(f != NULL && fwrite(bytes, 1, n, f) == n);
    fclose(f);
}

TEST(rows_of_a_training_that_resumes_are_those_of_one_that_never_ended)
{
    static const char torn[] = "0123456789abcdef,9,";
    const char *where = watch_path("metrics_log.path", "m.csv");
    static row want[MOST];
    int n;

    train(where, "metrics_log.steps=3", "validate_every.steps=5", NULL);
    read_rows(test_path("m.csv"));
    CHECK_TEXT(steps(), "| 3:96 4:100 5:132v 8:200 10:264v 12:300 ");
    memcpy(want, rows, sizeof want);
    n = n_row;
    unlink(test_path("m.csv"));
    train_saved(1, "epochs=2", where);
    watch_resumes = 1;
    for (int cut = 8; cut > 0; cut -= 3) {
        watch_forget(cut);
        add_bytes(test_path("m.csv"), torn, strlen(torn));
        train_saved(100, NULL, where);
        CHECK_CONTAINS(watch_said, "its last line was cut off: 19 bytes");
        read_rows(test_path("m.csv"));
        CHECK_INT(n_row, n);
        for (int i = 0; i < n; i++)
            for (int k = 0; k < COLUMNS - 1; k++)
                if (k != 0 && k != 4) /* its run, and how fast it was */
                    CHECK_TEXT(rows[i].cell[k], want[i].cell[k]);
    }
}

TEST(another_run_comes_behind_the_first_without_another_head)
{
    const char *where = watch_path("metrics_log", "m.csv");

    train(where, "epochs=1", NULL, NULL);
    train(where, "epochs=2", NULL, NULL);
    read_rows(test_path("m.csv"));
    CHECK_TEXT(steps(), "| 4:100 | 4:100 8:200 ");
}

#define AA "00000000000000aa,"
#define BB "00000000000000bb,"

/* What becomes of rows when run aa goes on behind `lines`. */
static void check_kept(const char *text, int64_t lines, bool goes_on,
                       const char *want)
{
    char all[1000], *now;
    const char *path;
    fl_metric_log m;

    snprintf(all, sizeof all, "%s%s%s", fl_metric_columns, *text ? "\n" : "",
             text);
    path = test_file("kept", all);
    CHECK_OK(
        fl_metric_log_open(&m, path, fl_metric_columns, 0xaa, lines, NULL));
    CHECK_INT(m.goes_on, goes_on);
    CHECK_INT(m.is_empty, *text == 0);
    fl_metric_log_close(&m);
    now = read_all(path);
    snprintf(all, sizeof all, "%s%s%s", *text ? fl_metric_columns : "",
             *text ? "\n" : "", want);
    CHECK_TEXT(now, all);
    fl_free(now);
}

TEST(only_rows_of_its_own_run_go_and_only_at_the_end)
{
    check_kept(AA "1\n" AA "2\n", 1, true, AA "1\n");
    check_kept(BB "1\n" AA "1\n" AA "2\n", 0, true, BB "1\n");
    check_kept(AA "1\n" AA "2\n", 2, true, AA "1\n" AA "2\n");
    check_kept(AA "1\n", 2, false, AA "1\n");
    check_kept(AA "1\n" BB "1\n", 0, false, AA "1\n" BB "1\n");
    check_kept(AA "1\n00000000", 1, true, AA "1\n");
    check_kept("", 0, false, ""); /* a head that was cut off */
}

TEST(a_csv_of_something_else_is_refused_and_stays)
{
    static const char *const other[] = {"a,b\n1,2\n", "run,step\n",
                                        "{\"run\":\"1\"}\n"};

    for (int i = 0; i < 3; i++) {
        char *closing, *now;
        const char *path = test_file("m.csv", other[i]);

        CHECK_FAILS(watch_act(FLEET_CONFIG_CHECK,
                              (const char *[]){
                                  watch_path("metrics_log", "m.csv"), NULL},
                              &closing),
                    FLEET_EFORMAT, "expected the columns run,step,epoch,");
        now = read_all(path);
        CHECK_TEXT(now, other[i]);
        fl_free(now);
    }
}

TEST(the_format_is_said_or_the_names)
{
    char *text;

    train(watch_path("metrics_log.path", "m.csv"), "metrics_log.format=json",
          "epochs=1", NULL);
    text = read_all(test_path("m.csv"));
    CHECK(strncmp(text, "{\"run\":", 7) == 0);
    fl_free(text);
    train(watch_path("metrics_log.path", "m"), "metrics_log.format=csv",
          "epochs=1", NULL);
    read_rows(test_path("m"));
    CHECK_TEXT(steps(), "| 4:100 ");
    watch_refuse("metrics_log={\"path\":\"m\",\"format\":\"tsv\"}", NULL,
                 "metrics_log.format: expected one of \"json\", \"csv\"");
    watch_refuse("metrics_log={\"tensorboard\":\"t\",\"format\":\"csv\"}", NULL,
                 "metrics_log.format: expected nothing: there is no path");
    watch_refuse("metrics_log={\"format\":\"csv\"}", NULL,
                 "metrics_log.path: ");
}

/* --- events --------------------------------------------------------------- */

/* All that the reader finds in the folder; valid until the next call. */
static const char *events(void)
{
    static char said[40000];
    char command[2000];

    snprintf(command, sizeof command,
             "'%s/test/fleet/read_events.py' '%s' 2>&1", getenv("FLEET_SOURCE"),
             test_path("board"));
    CHECK_INT(test_shell(command, said, sizeof said), 0);
    CHECK(strstr(said, "tensorboard: absent\n") ||
          strstr(said, "tensorboard: same\n"));
    return said;
}

static int drop_from(char (*line)[80], int n, int start)
{
    int kept = 0;

    for (int i = 0; i < n; i++)
        if (atoi(line[i] + strlen("scalar ")) < start)
            memmove(line[kept++], line[i], 80);
    return kept;
}

/* Scalars that count, as TensorBoard drops those of before a start from its
 * step on, but for how fast it was. */
static const char *kept_events(void)
{
    static char kept[40000], line[MOST * 10][80];
    const char *at = events();
    size_t used = 0;
    int n = 0;

    for (int start; *at; at = strchr(at, '\n') + 1) {
        size_t size = strcspn(at, "\n");

        if (sscanf(at, "start %d", &start) == 1)
            n = drop_from(line, n, start);
        if (strncmp(at, "scalar ", 7) == 0 && size < 80 &&
            !memmem(at, size, "samples_per_s", 13))
            snprintf(line[n++], 80, "%.*s", (int)size, at);
    }
    for (int i = 0; i < n; i++)
        used += (size_t)snprintf(kept + used, sizeof kept - used, "%.79s\n",
                                 line[i]);
    kept[used] = 0;
    return kept;
}

static int count_of(const char *text, const char *word)
{
    int n = 0;

    for (text = strstr(text, word); text; text = strstr(text + 1, word))
        n++;
    return n;
}

TEST(event_files_have_the_numbers_of_the_lines)
{
    char want[200];
    const char *all;

    train(watch_path("metrics_log.path", "m.csv"),
          watch_path("metrics_log.tensorboard", "board"), "validate_every={}",
          "epochs=2");
    read_rows(test_path("m.csv"));
    CHECK_TEXT(steps(), "| 4:100v 8:200v ");
    all = events();
    CHECK(strncmp(all, "file 0\nversion brain.Event:2\nstart 1\n", 36) == 0);
    CHECK_INT(count_of(all, "scalar "), 2 * 8);
    for (int i = 0; i < 2; i++) {
        const char *const *tag = (const char *const[]){
            "train/samples_per_s", "train/loss", "train/learning_rate",
            "validation/loss", "validation/auc"};

        for (int k = 0; k < 5; k++) {
            snprintf(want, sizeof want, "\nscalar %s %s %.9g\n",
                     rows[i].cell[1], tag[k],
                     (double)strtof(rows[i].cell[4 + k], NULL));
            CHECK_CONTAINS(all, want);
        }
        snprintf(want, sizeof want, "\nscalar %s train/epoch %d\n",
                 rows[i].cell[1], i + 1);
        CHECK_CONTAINS(all, want);
    }
}

/* What is not known is no number of an event, as nothing of a validation is. */
TEST(numbers_that_are_not_known_are_no_events)
{
    train(watch_path("metrics_log.tensorboard", "board"), "epochs=1", NULL,
          NULL);
    CHECK_INT(count_of(events(), "scalar "), 4);
    CHECK(strstr(events(), "validation") == NULL);
}

TEST(events_of_a_training_that_resumes_are_those_of_one_that_never_ended)
{
    const char *where = watch_path("metrics_log.tensorboard", "board");
    const char *want;

    train_saved(1, "epochs=3", where);
    want = test_keep(kept_events());
    CHECK_INT(count_of(want, "train/loss"), 6);
    watch_resumes = 1;
    for (int cut = 8; cut > 0; cut -= 3) {
        watch_forget(cut);
        train_saved(100, "epochs=3", where);
        CHECK_TEXT(kept_events(), want);
    }
    CHECK_INT(count_of(events(), "start "), 4);
}

/* --- a disk that is full -------------------------------------------------- */

static int writes;

/* Of the third record half, and nothing of the rest. */
static ssize_t write_half(int fd, const void *data, size_t size)
{
    if (++writes == 3)
        return fl_disk_system.write(fd, data, size / 2);
    if (writes == 4) {
        errno = ENOSPC;
        return -1;
    }
    return fl_disk_system.write(fd, data, size);
}

TEST(a_part_of_a_record_is_taken_back)
{
    const fl_event_scalar x = {"x", 0.5};
    fl_disk disk = fl_disk_system;
    fl_event_log e;
    const char *all;

    disk.write = write_half;
    fl_disk_use(&disk);
    CHECK_OK(fl_event_log_open(&e, test_path("board"), 7, NULL));
    CHECK_OK(fl_event_log_add(&e, 7, &x, 1));
    CHECK(e.has_failed);
    CHECK_OK(fl_event_log_add(&e, 8, &x, 1));
    CHECK(!e.has_failed);
    fl_event_log_flush(&e);
    fl_event_log_close(&e);
    fl_disk_use(NULL);
    all = events();
    CHECK(strstr(all, "torn") == NULL);
    CHECK_CONTAINS(all, "start 7\nscalar 8 x 0.5\n");
}

/* Steps and lengths of more than 7 bits. */
TEST(large_numbers_are_several_bytes)
{
    char tag[300], want[400];
    fl_event_scalar x = {tag, -0.5};
    fl_event_log e;

    memset(tag, 'a', 299);
    tag[299] = 0;
    CHECK_OK(fl_event_log_open(&e, test_path("board"), 1, NULL));
    CHECK_OK(fl_event_log_add(&e, ((int64_t)1 << 53) - 1, &x, 1));
    fl_event_log_close(&e);
    snprintf(want, sizeof want, "scalar 9007199254740991 %s -0.5\n", tag);
    CHECK_CONTAINS(events(), want);
}

TEST(where_no_events_can_be_is_said_before_the_training)
{
    char *closing;

    test_file("board", "x");
    CHECK_FAILS(watch_act(FLEET_CONFIG_CHECK,
                          (const char *[]){
                              "metrics_log.tensorboard=/no/such/board", NULL},
                          &closing),
                FLEET_EIO, "/no/such/board cannot have event files");
    CHECK_FAILS(
        watch_act(FLEET_CONFIG_CHECK,
                  (const char *[]){
                      watch_path("metrics_log.tensorboard", "board"), NULL},
                  &closing),
        FLEET_EIO, "cannot have event files");
}
