/* datagen_sequences_test.c - histories of bin/fleet-datagen: parts of a set are
 * the whole, all formats have the same ones, the best scores that it says are
 * those that can be had, and models come near them. */
#define SUITE datagen_sequences
#include "data_kit.h"
#include "datagen_kit.h"
#include "parquet_kit.h"
#include "test.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { MOST = DATAGEN_MOST };

#define SMALL "--seed 7 --history 4 --ids 40 --topics 4 "

TEST(parts_are_the_whole)
{
    char said[MOST];
    char *whole = datagen_make(SMALL "--lines 300", "whole", said);
    char *first = datagen_make(SMALL "--lines 120", "first", said);
    char *rest = datagen_make(SMALL "--lines 180 --first 120", "rest", said);
    const size_t n = strlen(first);

    CHECK(strncmp(whole, first, n) == 0);
    CHECK_TEXT(whole + n, rest);
    fl_free(rest);
    rest = datagen_make(SMALL "--lines 300 --seed 8", "other", said);
    CHECK(strcmp(whole, rest) != 0);
    fl_free(whole);
    fl_free(first);
    fl_free(rest);
}

/* --- formats -------------------------------------------------------------- */

static const char *const columns[] = {"0", "1", "2", "3", "4", "5"};
static const fleet_transform none[] = {FLEET_TRANSFORM_NONE};

/* Of clicks; of csv the history has as many columns as it has ids at most. */
static data_dump clicks_of(const char *name, fleet_format format)
{
    static const char *files[1];
    fleet_slot slots[] = {{.name = "click", .dim = 1},
                          {.name = "history", .dtype = FLEET_INT64, .dim = -1},
                          {.name = "item", .dtype = FLEET_INT64, .dim = 1}};
    fl_stream_spec spec;

    for (int i = 0; i < 3 && format == FLEET_CSV; i++) {
        slots[i].columns = columns + (i == 0 ? 0 : i == 1 ? 1 : 5);
        slots[i].n_column = i == 1 ? 4 : 1;
    }
    for (int i = 0; i < 3 && format == FLEET_PARQUET; i++) {
        slots[i].columns = &slots[i].name;
        slots[i].n_column = 1;
    }
    if (format == FLEET_CSV || format == FLEET_PARQUET)
        for (int i = 0; i < 3; i++) {
            slots[i].transforms = none;
            slots[i].n_transform = 1;
        }
    files[0] = test_keep(test_path(name));
    spec = data_spec(format, slots, 3, files, 1);
    spec.batch_size = 100;
    return data_read(&spec);
}

static void check_format(const char *name, fleet_format format,
                         const data_dump *want)
{
    char options[300], said[MOST];
    data_dump got;

    snprintf(options, sizeof options, SMALL "--lines 250 --format %s", name);
    datagen_file(options, name, said);
    got = clicks_of(name, format);
    if (got.rows != 250 || !data_same(&got, want))
        test_fail(__FILE__, __LINE__, "%s: %d rows, %s", name, (int)got.rows,
                  got.error);
    free(got.bytes);
}

TEST(all_formats_have_the_same_histories)
{
    char said[MOST];
    data_dump want;

    datagen_file(SMALL "--lines 250", "multislot", said);
    want = clicks_of("multislot", FLEET_MULTISLOT);
    check_format("slot_text", FLEET_SLOT_TEXT, &want);
    check_format("json_lines", FLEET_JSON_LINES, &want);
    check_format("tfrecord", FLEET_TFRECORD, &want);
    check_format("csv", FLEET_CSV, &want);
    parquet_table(); /* or the rest is skipped */
    check_format("parquet", FLEET_PARQUET, &want);
    free(want.bytes);
}

/* log_q of the first 100 pairs. */
static void log_q_of(const char *name, fleet_format format, float *to)
{
    static const char *files[1], *column[] = {"log_q"};
    const fleet_slot slot = {.name = "log_q",
                             .dim = 1,
                             .columns = format == FLEET_PARQUET ? column : NULL,
                             .n_column = format == FLEET_PARQUET};
    char options[300], said[MOST];
    fl_stream_spec spec;

    snprintf(options, sizeof options,
             SMALL "--pairs --lines 100 --zipf 1 --format %s", name);
    files[0] = datagen_file(options, name, said);
    spec = data_spec(format, &slot, 1, files, 1);
    spec.batch_size = 100;
    memcpy(to, data_first(&spec)->slot[0].values, 100 * sizeof *to);
}

/* 4 topics of 10 items each: 1 / (4 (rank + 1) (1 + 1/2 + ... + 1/10)). */
TEST(pairs_have_the_logarithm_of_their_items_share)
{
    float text[100], other[100], least = 0, most = -100;

    log_q_of("slot_text", FLEET_SLOT_TEXT, text);
    for (int i = 0; i < 100; i++) {
        least = fminf(least, text[i]);
        most = fmaxf(most, text[i]);
    }
    CHECK_NEAR(most, -log(4 * 2.9289683), 1e-5);
    CHECK(least >= -logf(4 * 2.9289683f * 10) - 1e-5f && least < most - 1.5f);
    log_q_of("tfrecord", FLEET_TFRECORD, other);
    CHECK_CLOSE(other, text, 100, 1e-5);
    parquet_table();
    log_q_of("parquet", FLEET_PARQUET, other);
    CHECK_CLOSE(other, text, 100, 1e-5);
}

/* --- the best scores ------------------------------------------------------ */

static double best(const char *options, const char *key)
{
    char said[MOST];

    datagen_file(options, "best", said);
    return datagen_number(said, key);
}

#define PAIRS "--pairs --history 3 --rule next --lines 20000 "

/* One item of each topic follows for sure; or any of twenty. */
TEST(the_best_recall_is_that_of_certainty_and_of_chance)
{
    double gain = 0;

    for (int i = 1; i <= 10; i++)
        gain += 1 / log2(i + 1);
    CHECK_NEAR(best(PAIRS "--ids 10 --topics 10 --follow 1 --top 1",
                    "\"best_recall\""),
               1, 0);
    CHECK_NEAR(best(PAIRS "--ids 10 --topics 10 --follow 1", "\"best_ndcg\""),
               1, 0);
    CHECK_NEAR(best(PAIRS "--ids 20 --topics 2 --follow 0 --zipf 0",
                    "\"best_recall\""),
               0.5, 1e-6);
    CHECK_NEAR(
        best(PAIRS "--ids 20 --topics 2 --follow 0 --zipf 0", "\"best_ndcg\""),
        gain / 20, 1e-6);
}

/* Of two topics one has 3/4, the other 1/4, and the i-th item of each of ten
 * 1 / i of what the first has. So the shares are, times 1 + ... + 1/10: 3/4,
 * 3/8, 1/4 twice, ... Deviations are below 0.0036. */
TEST(the_best_recall_of_likelier_items_is_their_share)
{
#define UNEVEN PAIRS "--ids 20 --topics 2 --follow 0.5 --zipf 1 "
    const double all = 2.9289683;

    CHECK_NEAR(best(UNEVEN "--top 1", "\"best_recall\""), 0.75 / all, 0.012);
    CHECK_NEAR(best(UNEVEN "--top 2", "\"best_recall\""), 1.125 / all, 0.012);
    CHECK_NEAR(best(UNEVEN "--top 3", "\"best_recall\""), 1.375 / all, 0.012);
    CHECK_NEAR(best(UNEVEN "--top 4", "\"best_recall\""), 1.625 / all, 0.012);
    CHECK_NEAR(best(UNEVEN "--top 2", "\"best_ndcg\""),
               (0.75 + 0.375 / log2(3)) / all, 0.012);
}

/* Numbers of a line of MultiSlot. */
static int ids_of(char **at, long long *to)
{
    const int n = (int)strtol(*at, at, 10);

    for (int i = 0; i < n; i++)
        to[i] = strtoll(*at, at, 10);
    return n;
}

static int count_of(const long long *ids, int n, long long id)
{
    int found = 0;

    for (int i = 0; i < n; i++)
        found += ids[i] == id;
    return found;
}

/* Of `all` items those that the history has oftener than the item, and as
 * often, by looking. */
static void places_by_looking(const long long *history, int n, long long item,
                              int all, int *above, int *ties)
{
    const int own = count_of(history, n, item);
    int distinct = 0, oftener = 0, as_often = 0;

    for (int i = 0; i < n; i++) {
        const int count = count_of(history, n, history[i]);

        if (count_of(history, i, history[i]) > 0)
            continue;
        distinct++;
        oftener += count > own;
        as_often += count == own;
    }
    *above = oftener;
    *ties = own == 0 ? all - distinct : as_often;
}

/* An item of each topic is one that the history has as often as its topic. */
TEST(the_best_recall_of_interests_is_that_of_what_was_seen_oftenest)
{
    char said[MOST];
    char *text = datagen_make("--pairs --history 9 --ids 12 --topics 12 "
                              "--follow 0.7 --lines 2000 --top 2",
                              "pairs", said);
    char *at = text;
    double recall = 0;

    for (int i = 0; i < 2000; i++) {
        long long history[9], item[1] = {0};
        const int n = ids_of(&at, history);
        int above, ties;

        CHECK_INT(ids_of(&at, item), 1);
        places_by_looking(history, n, item[0], 12, &above, &ties);
        if (above < 2)
            recall += fmin((2.0 - above) / ties, 1);
        CHECK_INT(strtol(at, &at, 10), 1); /* log_q */
        strtod(at, &at);
    }
    CHECK_NEAR(datagen_number(said, "\"best_recall\""), recall / 2000, 1e-6);
    CHECK(recall / 2000 > 0.4 && recall / 2000 < 0.9);
    fl_free(text);
}

TEST(labels_are_as_many_as_were_asked_for)
{
#define EVEN "--history 4 --ids 4000 --topics 4 --zipf 0 "
    char said[MOST];

    datagen_file(EVEN "--lines 20000 --positive 0.1 --signal 2", "a", said);
    CHECK_NEAR(datagen_number(said, "\"positives\"") / 20000, 0.1, 0.015);
    datagen_file(EVEN "--lines 20000 --positive 0.6 --rule next", "b", said);
    CHECK_NEAR(datagen_number(said, "\"positives\"") / 20000, 0.6, 0.02);
    CHECK(datagen_number(said, "\"best_auc\"") > 0.8);
    datagen_file(SMALL "--lines 5000 --signal 0 --positive 0.5", "c", said);
    CHECK(datagen_number(said, "\"best_auc\"") == 0.5);
    CHECK_NEAR(datagen_number(said, "\"best_logloss\""), log(2), 1e-5);
}

/* --- models --------------------------------------------------------------- */

#define ITEMS  "--history 6 --ids 50 --topics 5 --zipf 0.5 "
#define LEARNT "model.embedding_dim=8 optimizer.learning_rate=0.01 "

/* What a model reaches on 4,000 clicks that were not trained on, and the best
 * there. */
static double train_on(const char *options, const char *words, double *best_auc)
{
    char said[MOST], all[MOST];
    const char *config = test_keep(test_path("config.json")), *test;

    snprintf(all, sizeof all, ITEMS "--lines 20000 --config '%s' %s", config,
             options);
    datagen_file(all, "train.txt", said);
    snprintf(all, sizeof all, ITEMS "--lines 4000 --first 20000 %s", options);
    test = datagen_file(all, "test.txt", said);
    *best_auc = datagen_number(said, "\"best_auc\"");
    snprintf(all, sizeof all, LEARNT "'dataset.test=[\"%s\"]' %s", test, words);
    datagen_train(config, all, said);
    return datagen_number(said, "\"auc\"");
}

static void check_reached(const char *model, double got, double want)
{
    if (!(got > want - 0.02 && got < want + 0.005))
        test_fail(__FILE__, __LINE__, "%s reaches %g, the best is %g", model,
                  got, want);
}

TEST(din_comes_near_the_best_auc)
{
    double want, got = train_on("--positive 0.5",
                                "'model.hidden=[32]' 'model.attention=[16]' "
                                "epochs=4 dataset.batch_size=128",
                                &want);

    check_reached("din", got, want);
}

TEST(sasrec_comes_near_the_best_auc)
{
    double want,
        got = train_on("--positive 0.5 --rule next --model sasrec",
                       "model.blocks=1 epochs=4 dataset.batch_size=128", &want);

    check_reached("sasrec", got, want);
}

enum { WIDTH = 16, N_ITEM = 100, N_TEST = 500 };

/* User's and item's vectors of the lines of a file. */
static void vectors_of(const char *model, const char *file, int lines,
                       float (*user)[WIDTH], float (*item)[WIDTH])
{
    char command[3 * MOST], said[MOST], *text = malloc(1 << 20), *at = text;

    snprintf(command, sizeof command, "'%s' '%s' '%s' -o '%s' 2>&1",
             test_beside("fleet-predict"), model, file, test_path("vectors"));
    if (test_shell(command, said, sizeof said) != 0)
        test_fail(__FILE__, __LINE__, "%s: %s", command, said);
    snprintf(command, sizeof command, "cat '%s'", test_path("vectors"));
    CHECK_INT(test_shell(command, text, 1 << 20), 0);
    for (int i = 0; i < lines; i++) {
        strtod(at, &at); /* what the pair's score is */
        for (int k = 0; k < WIDTH; k++)
            user[i][k] = strtof(at, &at);
        for (int k = 0; k < WIDTH; k++)
            item[i][k] = strtof(at, &at);
    }
    CHECK(strspn(at, "\n") == strlen(at));
    free(text);
}

static float dot(const float *a, const float *b)
{
    float sum = 0;

    for (int k = 0; k < WIDTH; k++)
        sum += a[k] * b[k];
    return sum;
}

/* Each item once, as a pair with itself. */
static const char *all_items(const char *pairs)
{
    const char *to = test_keep(test_path("items.txt"));
    char command[3 * MOST], said[MOST];

    snprintf(command, sizeof command,
             "awk '{print $($1 + 3)}' '%s' | sort -u | awk '{print \"1 \" $1 "
             "\" 1 \" $1 \" 1 0\"}' >'%s'; wc -l <'%s'",
             pairs, to, to);
    CHECK_INT(test_shell(command, said, sizeof said), 0);
    CHECK_INT(strtol(said, NULL, 10), N_ITEM);
    return to;
}

/* Of 500 pairs the share whose item is among the ten of the largest dots. */
static double recall_of(const char *model, const char *items, const char *test)
{
    static float user[N_TEST][WIDTH], item[N_TEST][WIDTH], all[N_ITEM][WIDTH];
    int found = 0;

    vectors_of(model, items, N_ITEM, user, all);
    vectors_of(model, test, N_TEST, user, item);
    for (int i = 0; i < N_TEST; i++) {
        const float own = dot(user[i], item[i]);
        int above = 0;

        for (int k = 0; k < N_ITEM; k++)
            above += dot(user[i], all[k]) > own * (1 + 1e-6f) + 1e-6f;
        found += above < 10;
    }
    return (double)found / N_TEST;
}

#define NEXT "--history 6 --ids 100 --topics 10 --zipf 1 --pairs --rule next "

/* Without log_q frequent items would be taken for rare ones. */
TEST(retrieval_comes_near_the_best_recall)
{
    static const char *const model[] = {"gru4rec", "youtube_dnn"};
    char said[MOST], options[MOST];
    const char *config = test_keep(test_path("config.json")), *pairs, *test;
    double want, ndcg, got, found;

    for (int i = 0; i < 2; i++) {
        snprintf(options, sizeof options,
                 NEXT "--lines 10000 --model %s "
                      "--config '%s'",
                 model[i], config);
        pairs = datagen_file(options, "train.txt", said);
        test = datagen_file(NEXT "--lines 500 "
                                 "--first 10000",
                            "test.txt", said);
        want = datagen_number(said, "\"best_recall\"");
        ndcg = datagen_number(said, "\"best_ndcg\"");
        snprintf(options, sizeof options,
                 "'dataset.test=[\"%s\"]' "
                 "'metrics=[\"recall@10\",\"ndcg@10\"]' "
                 "model.embedding_dim=16 %s optimizer.learning_rate=0.01 "
                 "epochs=4 dataset.batch_size=128 'save=\"%s\"'",
                 test, i == 0 ? "" : "'model.hidden=[16]'", test_path("model"));
        datagen_train(config, options, said);
        found = datagen_number(said, "\"recall@10\"");
        CHECK_NEAR(datagen_number(said, "\"ndcg@10\""), ndcg, 0.03);
        got = recall_of(test_path("model"), all_items(pairs), test);
        if (!(got > want - 0.03 && got < want + 0.03))
            test_fail(__FILE__, __LINE__, "%s: a recall of %g, the best is %g",
                      model[i], got, want);
        CHECK_NEAR(found, got, 0.0041); /* of 500; ties are looked at apart */
    }
}

/* The other models take the configuration, too, and each format's. */
TEST(each_model_and_format_trains_by_the_configuration)
{
    static const struct {
        const char *options, *words;
    } each[] = {
        {"--model dien --format csv", "'model.hidden=[8]'"},
        {"--model bst --format json_lines",
         "'model.hidden=[8]' model.heads=2 model.embedding_dim=8"},
        {"--model youtube_dnn --format slot_text", "'model.hidden=[8]'"},
        {"--model two_tower --pairs --format tfrecord", "'model.hidden=[8]'"},
        {"--model gru4rec --pairs --format csv", ""},
        {"--model gru4rec --format parquet", ""},
    };
    const char *config = test_keep(test_path("config.json"));
    char said[MOST], options[MOST];

    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        if (strstr(each[i].options, "parquet"))
            parquet_table(); /* or it is skipped */
        snprintf(options, sizeof options, SMALL "--lines 600 --config '%s' %s",
                 config, each[i].options);
        datagen_file(options, "data", said);
        datagen_train(config, each[i].words, said);
        CHECK(isfinite(datagen_number(said, "\"loss\"")));
    }
}

/* --- what is refused ------------------------------------------------------ */

TEST(what_cannot_be_is_refused_by_name)
{
    static const char *const wrong[][2] = {
        {"--history 0 x", "--history: expected an integer from 1 to 1000"},
        {"--history 3 --dense 2 x", "--dense: expected no --history beside it"},
        {"--topics 3 x", "--topics: expected --history beside it"},
        {"--pairs x", "--pairs: expected --history beside it"},
        {"--history 3 --rule has x",
         "--rule: expected interest or next, not \"has\""},
        {"--history 3 --format libsvm x",
         "--format: expected one that can have histories, not \"libsvm\""},
        {"--history 3 --format criteo x", "not \"criteo\""},
        {"--history 3 --ids 30 x",
         "--ids: expected as many for each of --topics, not \"30\""},
        {"--history 3 --pairs --signal 1 x",
         "--signal: expected no --pairs beside it"},
        {"--history 3 --model fm x",
         "--model of histories: expected din, dien, bst, sasrec, gru4rec, "
         "youtube_dnn, two_tower, not \"fm\""},
        {"--history 3 --pairs --model din x",
         "--model of pairs: expected gru4rec, youtube_dnn, two_tower, not "
         "\"din\""},
    };
    char said[MOST];

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_INT(datagen_run(wrong[i][0], said), 2);
        CHECK_CONTAINS(said, wrong[i][1]);
    }
}
