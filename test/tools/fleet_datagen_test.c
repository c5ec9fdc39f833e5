/* fleet_datagen_test.c - bin/fleet-datagen: parts of a set are the whole, all
 * formats have the same lines, ids follow Zipf's law, and the best score that
 * it says is one that a training nearly reaches and does not pass. */
#define SUITE fleet_datagen
#include "data_kit.h"
#include "datagen_kit.h"
#include "parquet_kit.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { MOST = DATAGEN_MOST };

#define SMALL "--seed 7 --dense 3 --slots 2 --ids 50 "

TEST(parts_are_the_whole)
{
    char said[MOST];
    char *whole = datagen_make(SMALL "--lines 300", "whole", said);
    char *first = datagen_make(SMALL "--lines 120", "first", said);
    char *rest = datagen_make(SMALL "--lines 180 --first 120", "rest", said);
    size_t n = strlen(first);

    CHECK(strncmp(whole, first, n) == 0);
    CHECK_TEXT(whole + n, rest);
    fl_free(rest);
    rest = datagen_make("--dense 3 --slots 2 --ids 50 --seed 8 --lines 300",
                        "other", said);
    CHECK(strcmp(whole, rest) != 0);
    fl_free(whole);
    fl_free(first);
    fl_free(rest);
}

/* A line's label, counts and ids, as each format writes them. */
TEST(all_formats_have_the_same_lines)
{
    char said[MOST], *slots = datagen_make("--lines 5", "slots", said);
    char *cells = datagen_make("--lines 5 --format csv", "cells", said);
    char *tabs = datagen_make("--lines 5 --format criteo", "tabs", said);
    char *a = slots, *b = cells, *c = tabs;

    for (int i = 0; i < 5; i++) {
        CHECK_INT(strtol(a + 2, &a, 10), strtol(b, &b, 10));
        CHECK(strtol(c, &c, 10) == a[-1] - '0');
        CHECK_INT(strtol(a, &a, 10), 13);
        for (int j = 0; j < 13; j++) {
            double x = strtod(a, &a);
            long count = strtol(b + 1, &b, 10);

            CHECK(*c == '\t' && strtol(c + 1, &c, 10) == count);
            CHECK(fabs(x - log1p((double)count)) < 1e-5);
        }
        for (int j = 0; j < 26; j++) {
            CHECK_INT(strtol(a, &a, 10), 1);
            CHECK_INT(strtoll(a, &a, 10), strtoll(b + 1, &b, 16));
            CHECK_INT(strtoll(c + 1, &c, 16), strtoll(b - 8, NULL, 16));
        }
        CHECK(*a++ == '\n' && *b++ == '\n' && *c++ == '\n');
    }
    fl_free(slots);
    fl_free(cells);
    fl_free(tabs);
}

/* The numbers of a file's lines, one blank between, by a shell's filter. */
static char *numbers_of(const char *format, const char *filter)
{
    char said[MOST], options[200], command[3 * MOST], *text = malloc(1 << 20);

    snprintf(options, sizeof options, "--lines 30 --format %s", format);
    fl_free(datagen_make(options, format, said));
    snprintf(command, sizeof command,
             "%s '%s' | tr -s ' ' | sed 's/^ //; s/ $//'", filter,
             test_path(format));
    CHECK_INT(test_shell(command, text, 1 << 20), 0);
    CHECK(strlen(text) > 30 * 5);
    return text;
}

TEST(named_formats_have_the_same_lines_too)
{
    char *want =
        numbers_of("multislot",
                   "awk '{printf \"%s\", $2; for (i = 4; i <= NF; i++) if (i < "
                   "17 || i % 2 == 0) printf \" %s\", $i; print \"\"}'");
    char *slots = numbers_of("slot_text", "sed 's/[a-z0-9_]*://g'");
    char *json =
        numbers_of("json_lines", "sed 's/\"[a-z0-9_]*\"://g; s/[][{},]/ /g'");

    CHECK_TEXT(slots, want);
    CHECK_TEXT(json, want);
    free(want);
    free(slots);
    free(json);
}

/* But for the digits of counts. */
TEST(tfrecord_has_the_lines_of_slot_text)
{
    static const fleet_slot slots[] = {{.name = "click", .required = 1},
                                       {.name = "slot_1", .dtype = FLEET_INT64},
                                       {.name = "counts", .dim = 3}};
    static const char *files[2];
    char said[MOST];
    fl_stream_spec spec =
        data_spec(FLEET_SLOT_TEXT, slots, DATA_N(slots), files, 1);
    data_dump want, got;
    const fl_batch *b;
    float count[3 * 200];

    files[0] = test_keep(test_path("text"));
    files[1] = test_keep(test_path("records"));
    fl_free(datagen_make(SMALL "--lines 200 --format slot_text", "text", said));
    fl_free(
        datagen_make(SMALL "--lines 200 --format tfrecord", "records", said));
    spec.batch_size = 200;
    b = data_first(&spec);
    memcpy(count, b->slot[2].values, sizeof count);
    spec.n_slot = 2;
    want = data_read(&spec);
    spec.files++;
    spec.format = FLEET_TFRECORD;
    got = data_read(&spec);
    CHECK_INT(got.rows, 200);
    CHECK(data_same(&got, &want));
    spec.n_slot = 3;
    CHECK_CLOSE((const float *)data_first(&spec)->slot[2].values, count, 600,
                1e-5);
    free(want.bytes);
    free(got.bytes);
}

/* Labels, and the last count and the last id of each line. */
static data_dump sheet_of(const char *file, fleet_format format)
{
    static const char *const named[] = {"click", "slot_1", "count_2"};
    static const char *const placed[] = {"0", "5", "3"};
    static const fleet_transform none[] = {FLEET_TRANSFORM_NONE};
    fleet_slot slots[] = {{.name = "click", .required = 1},
                          {.name = "slot_1", .dtype = FLEET_INT64},
                          {.name = "count"}};
    static const char *files[1];
    fl_stream_spec spec;

    for (int i = 0; i < 3; i++) {
        slots[i].columns = (format == FLEET_PARQUET ? named : placed) + i;
        slots[i].n_column = slots[i].n_transform = 1;
        slots[i].transforms = none;
    }
    files[0] = file;
    spec = data_spec(format, slots, 3, files, 1);
    spec.batch_size = 100;
    return data_read(&spec);
}

/* csv's ids in digits, as Parquet has them. */
static const char *csv_in_digits(const char *csv)
{
    const char *to = test_keep(test_path("digits.csv"));
    char command[3 * MOST], said[MOST];

    snprintf(
        command, sizeof command,
        "awk -F, '{printf \"%%s,%%s,%%s,%%s\", $1, $2, $3, $4; for (i = 5; i "
        "<= NF; i++) {x = 0; for (k = 1; k <= 8; k++) x = 16 * x + "
        "index(\"0123456789abcdef\", substr($i, k, 1)) - 1; printf "
        "\",%%.0f\", x} print \"\"}' '%s' >'%s'",
        csv, to);
    CHECK_INT(test_shell(command, said, sizeof said), 0);
    return to;
}

TEST(parquet_has_the_lines_of_csv)
{
    char said[MOST];
    const char *csv = test_keep(test_path("lines.csv"));
    const char *parquet = test_keep(test_path("lines.parquet"));
    data_dump want, got;

    parquet_table(); /* or it is skipped */
    fl_free(datagen_make(SMALL "--lines 300 --format csv", "lines.csv", said));
    fl_free(datagen_make(SMALL "--lines 300 --format parquet", "lines.parquet",
                         said));
    want = sheet_of(csv_in_digits(csv), FLEET_CSV);
    got = sheet_of(parquet, FLEET_PARQUET);
    CHECK_INT(got.rows, 300);
    CHECK(data_same(&got, &want));
    free(want.bytes);
    free(got.bytes);
}

/* 1,000 slots are 16 MB in 2,096 rows. */
TEST(parquet_is_written_in_groups_of_rows)
{
    const fl_parquet_table *table = parquet_table();
    const char *path = test_keep(test_path("wide.parquet"));
    fl_parquet_column click = {.name = "click"};
    fl_parquet_file *file;
    char said[MOST];

    fl_free(datagen_make("--dense 0 --slots 1000 --ids 9 --zipf 0 --lines 2100 "
                         "--format parquet",
                         "wide.parquet", said));
    CHECK_OK(table->open(path, NULL, 0, &click, 1, &file));
    CHECK_INT(table->count_groups(file), 2);
    CHECK_INT(table->count_rows(file, 0), (16 << 20) / 8 / 1001 + 1);
    CHECK_INT(table->count_rows(file, 0) + table->count_rows(file, 1), 2100);
    table->close(file);
}

/* fleet-datagen in a folder bin, as it is installed, beside lib. */
static int run_installed(char said[MOST])
{
    char command[3 * MOST];

    snprintf(command, sizeof command,
             "cd '%s' && env -u FLEET_PLUGIN_PATH ./fleet-datagen --lines 9 "
             "--format parquet x 2>&1",
             test_path("bin"));
    return test_shell(command, said, MOST);
}

TEST(parquet_needs_the_plug_in_and_finds_it_beside_bin)
{
    char command[3 * MOST], said[MOST];

    parquet_table();
    snprintf(command, sizeof command,
             "cd '%s' && mkdir bin lib && cp '%s' bin && echo >lib/'%s'",
             test_folder(), test_beside("fleet-datagen"), "libfleet_arrow.so");
    CHECK_INT(test_shell(command, said, sizeof said), 0);
    CHECK_INT(run_installed(said), 1);
    CHECK_CONTAINS(said, "fleet-datagen: format parquet needs the plug-in "
                         "libfleet_arrow.so");
    CHECK_CONTAINS(said, "/bin/../lib/libfleet_arrow.so: ");
    snprintf(command, sizeof command, "cp '%s' '%s'",
             test_beside("libfleet_arrow.so"), test_path("lib"));
    CHECK_INT(test_shell(command, said, sizeof said), 0);
    CHECK_INT(run_installed(said), 0);
    CHECK_CONTAINS(said, "{\"lines\":9,");
    snprintf(command, sizeof command,
             "cd '%s' && mv bin mine && ln -s mine bin", test_folder());
    CHECK_INT(test_shell(command, said, sizeof said), 0);
    CHECK_INT(run_installed(said), 1); /* lib beside mine may be anybody's */
}

/* The counts are those of multislot; each slot has its own indexes. */
TEST(libsvm_has_an_index_for_each_count_and_id)
{
    char *want = numbers_of("multislot", "awk '{print $2, $4, $16}'");
    char *got = numbers_of(
        "libsvm",
        "awk -F '[ :]' '{if (NF != 79) exit 1; for (i = 28; i < NF; i "
        "+= 2) if ($i <= 13 + (i - 28) / 2 * 100000 || $i > 13 + (i - "
        "26) / 2 * 100000 || $(i + 1) != 1) exit 1; print $1, $3, "
        "$27}'");

    CHECK_TEXT(got, want);
    free(got);
    free(want);
}

/* By the configuration that it writes. */
TEST(each_format_can_be_trained_on)
{
    static const char *const format[] = {"libsvm", "slot_text", "json_lines",
                                         "tfrecord", "parquet"};
    char said[MOST], options[MOST], command[3 * MOST], name[40];

    for (int i = 0; i < 5; i++) {
        if (i == 4)
            parquet_table(); /* or the rest is skipped */
        snprintf(name, sizeof name, "%s%s", format[i], i == 4 ? "" : ".gz");
        snprintf(options, sizeof options,
                 "--dense 3 --slots 2 --ids 20 --lines 8000 --format %s "
                 "--config '%s'",
                 format[i], test_path("config.json"));
        fl_free(datagen_make(options, name, said));
        snprintf(command, sizeof command,
                 "'%s' '%s' 'dataset.test=[\"%s\"]' 'model.hidden=[8]' "
                 "model.embedding_dim=4 optimizer.learning_rate=0.01 "
                 "2>/dev/null",
                 test_beside("fleet-train"), test_path("config.json"),
                 test_path(name));
        CHECK_INT(test_shell(command, said, sizeof said), 0);
        CHECK(datagen_number(said, "\"auc\"") > 0.62);
    }
}

/* The mean of the numbers in a file. */
static double mean_of(const char *path)
{
    char command[2 * MOST], said[MOST];

    snprintf(command, sizeof command,
             "awk '{s += $1} END {printf \"%%.9g\", s / NR}' '%s'", path);
    CHECK_INT(test_shell(command, said, sizeof said), 0);
    return strtod(said, NULL);
}

/* Of a tenth of the negative samples; what it saves says so many clicks as
 * there are. */
TEST(a_model_of_few_negatives_is_calibrated)
{
    char said[MOST], command[4 * MOST];
    const char *config = test_keep(test_path("config.json"));
    const char *data = test_keep(test_path("few"));
    const char *scores = test_keep(test_path("scores"));
    const char *model = test_keep(test_path("model"));
    double best, share;

    snprintf(command, sizeof command,
             "--dense 3 --slots 1 --ids 3 --lines 6000 --positive 0.1 "
             "--signal 1 --config '%s'",
             config);
    fl_free(datagen_make(command, "few", said));
    best = datagen_number(said, "\"best_logloss\"");
    share = datagen_number(said, "\"positives\"") / 6000;
    snprintf(command, sizeof command,
             "'%s' '%s' 'dataset.test=[\"%s\"]' dataset.negative_rate=0.1 "
             "model.type=logistic_regression epochs=4 'save=\"%s\"' "
             "optimizer.learning_rate=0.02 2>/dev/null && '%s' '%s' '%s' -o "
             "'%s' 2>/dev/null",
             test_beside("fleet-train"), config, data, model,
             test_beside("fleet-predict"), model, data, scores);
    CHECK_INT(test_shell(command, said, sizeof said), 0);
    CHECK(datagen_number(said, "\"logloss\"") < best + 0.03);
    CHECK(fabs(mean_of(scores) - share) < 0.015);
}

/* How often the most frequent id of the last slot comes, of 20,000. */
static double share_of_first(const char *options)
{
    char said[MOST], command[3 * MOST];

    fl_free(datagen_make(options, "ids", said));
    snprintf(command, sizeof command,
             "awk '{print $NF}' '%s' | sort | uniq -c | sort -rn | head -n 1",
             test_path("ids"));
    CHECK_INT(test_shell(command, said, sizeof said), 0);
    return strtod(said, NULL) / 20000;
}

/* By 1 over the sum of n^-exponent; deviations are below 0.0025. */
TEST(ids_follow_zipfs_law)
{
#define IDS "--lines 20000 --dense 0 --slots 1 "
    double one = 0, half = 0, three = 0;

    for (int i = 1; i <= 10; i++)
        three += 1.0 / (i * i * i);
    for (int i = 1; i <= 1000; i++) {
        one += 1.0 / i;
        half += 1 / sqrt(i);
    }
    CHECK(fabs(share_of_first(IDS "--ids 1000 --zipf 1") - 1 / one) < 0.012);
    CHECK(fabs(share_of_first(IDS "--ids 1000 --zipf 0.5") - 1 / half) < 0.006);
    CHECK(fabs(share_of_first(IDS "--ids 10 --zipf 3") - 1 / three) < 0.008);
    CHECK(share_of_first(IDS "--ids 1000 --zipf 0") < 0.004);
    CHECK(share_of_first(IDS "--ids 1 --zipf 1") == 1);
}

/* Trained by the configuration that it writes; both are compressed. */
TEST(a_training_comes_near_the_best_score_and_does_not_pass_it)
{
#define LEARNT "--dense 4 --slots 1 --ids 100 --format csv "
    char said[MOST], options[MOST], command[3 * MOST];
    double best, got;

    snprintf(options, sizeof options, LEARNT "--lines 40000 --config '%s'",
             test_path("config.json"));
    fl_free(datagen_make(options, "train.gz", said));
    fl_free(
        datagen_make(LEARNT "--lines 10000 --first 40000", "test.gz", said));
    best = datagen_number(said, "\"best_auc\"");
    CHECK(best > 0.8);
    snprintf(command, sizeof command,
             "'%s' '%s' 'dataset.test=[\"%s\"]' 'model.hidden=[16]' "
             "model.embedding_dim=4 optimizer.learning_rate=0.005 epochs=2 "
             "2>/dev/null",
             test_beside("fleet-train"), test_path("config.json"),
             test_path("test.gz"));
    CHECK_INT(test_shell(command, said, sizeof said), 0);
    got = datagen_number(said, "\"auc\"");
    if (!(got > best - 0.02 && got < best + 0.002))
        test_fail(__FILE__, __LINE__, "AUC %g, the best is %g", got, best);
}

/* Labels that have nothing to do with their lines. */
TEST(without_a_signal_nothing_can_be_learnt)
{
    char said[MOST];

    fl_free(datagen_make(SMALL "--lines 5000 --signal 0 --positive 0.5", "none",
                         said));
    CHECK(datagen_number(said, "\"best_auc\"") == 0.5);
    CHECK(fabs(datagen_number(said, "\"best_logloss\"") - log(2)) < 1e-5);
    CHECK(fabs(datagen_number(said, "\"positives\"") / 5000 - 0.5) < 0.03);
}

TEST(what_cannot_be_is_refused_by_name)
{
    static const char *const wrong[][2] = {
        {"--lines 0 x", "--lines: expected an integer from 1 to"},
        {"--lines 1x x", "not \"1x\""},
        {"--format text x",
         "--format: expected multislot, criteo, csv, libsvm, "
         "slot_text, json_lines, tfrecord or parquet, not \"text\""},
        {"--format idx x", "not \"idx\""},
        {"--format parquet -", "--format parquet: expected a FILE on a disk "
                               "without .gz, as pages in it are compressed, "
                               "not \"-\""},
        {"--format parquet x.gz", "not \"x.gz\""},
        {"--zipf nan x", "--zipf: expected a number from 0 to 10"},
        {"--format criteo --slots 3 x", "expected --dense 13 and --slots 26, "
                                        "not \"13 and 3\""},
        {"--dense 0 --slots 0 x", "one of them above 0"},
        {"--config c -", "expected a FILE that can be read again"},
        {"", "usage: fleet-datagen"},
        {"x y", "usage: fleet-datagen"},
        {"--none x", "usage: fleet-datagen"},
    };
    char said[MOST];

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_INT(datagen_run(wrong[i][0], said), 2);
        CHECK_CONTAINS(said, wrong[i][1]);
    }
    CHECK_INT(datagen_run("--help", said), 0);
    CHECK_CONTAINS(said, "usage: fleet-datagen");
}

TEST(a_file_that_cannot_be_written_is_named)
{
    char said[MOST];

    CHECK_INT(datagen_run(SMALL "/dev/full", said), 1);
    CHECK_CONTAINS(said, "fleet-datagen: /dev/full: No space left on device");
    CHECK_INT(datagen_run(SMALL "/nowhere/x", said), 1);
    CHECK_CONTAINS(said, "fleet-datagen: /nowhere/x: No such file");
    CHECK_INT(
        datagen_run(SMALL "--lines 1 --config /nowhere/c /dev/null", said), 1);
    CHECK_CONTAINS(said, "fleet-datagen: /nowhere/c: No such file");
}

TEST(a_parquet_file_that_cannot_be_written_is_named)
{
    char said[MOST];

    parquet_table();
    CHECK_INT(datagen_run(SMALL "--format parquet /nowhere/x", said), 1);
    CHECK_CONTAINS(said, "fleet-datagen: /nowhere/x: ");
    CHECK_CONTAINS(said, "No such file");
    CHECK_INT(datagen_run(SMALL "--format parquet /dev/full", said), 1);
    CHECK_CONTAINS(said, "fleet-datagen: /dev/full: ");
    CHECK_CONTAINS(said, "No space left");
}

TEST(a_dash_is_stdout_and_the_summary_goes_to_stderr)
{
    char said[MOST], command[3 * MOST];

    snprintf(command, sizeof command,
             "'%s' " SMALL "--lines 10 - 2>'%s' | wc -l",
             test_beside("fleet-datagen"), test_path("summary"));
    CHECK_INT(test_shell(command, said, sizeof said), 0);
    CHECK_INT(strtol(said, NULL, 10), 10);
    snprintf(command, sizeof command, "cat '%s'", test_path("summary"));
    CHECK_INT(test_shell(command, said, sizeof said), 0);
    CHECK(datagen_number(said, "\"lines\"") == 10);
}
