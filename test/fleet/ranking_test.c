/* ranking_test.c - recall and NDCG of items among all items: places that are
 * worked out by hand, any batch size and number of threads, and what a
 * configuration says and shows of them. */
#define SUITE ranking
#include "datagen_kit.h"
#include "model_kit.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fleet/fleet.h>

#include "base/file.h"
#include "base/memory.h"
#include "fleet/config/config.h"
#include "fleet/train/ranking.h"
#include "fleet/watch/metric_log.h"

/* --- by hand -------------------------------------------------------------- */

/* A model whose vectors are slots of two numbers. */
typedef struct given {
    fleet *f;
    fleet_program *p;
    fleet_executor *tester;
    fleet_model m;
} given;

static void open_given(given *g, bool labels, int threads)
{
    const fleet_options o = {.num_threads = threads,
                             .log_level = FLEET_LOG_SILENT};
    fleet_var *user, *item;

    *g = (given){0};
    CHECK_OK(fleet_init(&g->f, &o));
    g->p = fleet_program_create(g->f);
    user = fleet_data(g->p, "user", FLEET_FLOAT32, (int64_t[]){-1, 2}, 2);
    item = fleet_data(g->p, "item", FLEET_FLOAT32, (int64_t[]){-1, 2}, 2);
    if (labels)
        g->m.label =
            fleet_data(g->p, "label", FLEET_INT64, (int64_t[]){-1, 1}, 2);
    g->m.user = fleet_scale(g->p, user, 1, 0);
    g->m.item = fleet_scale(g->p, item, 1, 0);
    g->m.prediction = fleet_sigmoid(
        g->p, fleet_reduce_sum(g->p, fleet_mul(g->p, user, item), 1, 1));
    CHECK_OK(fleet_program_status(g->p));
    g->tester =
        fleet_executor_create(g->p, &(fleet_executor_options){.for_test = 1});
    CHECK(g->tester != NULL);
}

static void close_given(given *g)
{
    fleet_executor_destroy(g->tester);
    fleet_destroy(g->f);
}

static fleet_dataset *read_text(const given *g, const char *name,
                                const char *text, int64_t batch)
{
    static const fleet_slot slots[] = {
        {.name = "user", .dtype = FLEET_FLOAT32, .dim = 2},
        {.name = "item", .dtype = FLEET_FLOAT32, .dim = 2},
        {.name = "label", .dtype = FLEET_INT64, .dim = 1}};
    const fleet_dataset_options o = {.format = FLEET_MULTISLOT,
                                     .slots = slots,
                                     .n_slot = g->m.label ? 3 : 2,
                                     .batch_size = batch};
    fleet_dataset *d = fleet_queue_dataset(g->f, &o);
    const char *file = test_file(name, text);

    CHECK(d != NULL);
    CHECK_OK(fleet_dataset_set_filelist(d, &file, 1));
    return d;
}

/* A, B, C, E, and A once more. */
#define ITEMS                                                                  \
    "2 0 0 2 1 0%s\n2 0 0 2 0 1%s\n2 0 0 2 2 0%s\n2 0 0 2 1 5%s\n"             \
    "2 0 0 2 1 0%s\n"

enum { ROOM = 200 };

static void items_with(char items[ROOM], const char *label)
{
    snprintf(items, ROOM, ITEMS, label, label, label, label, label);
}

/* A for one of its direction: C above, E as high. E for one who likes it. One
 * that is not among them, and is below all four. */
#define SAMPLES "2 1 0 2 1 0%s\n2 0 1 2 1 5%s\n2 -1 0 2 9 9%s\n"

static const fleet_ranking all_kinds[] = {
    {.kind = FLEET_RECALL_AT, .k = 1}, {.kind = FLEET_RECALL_AT, .k = 2},
    {.kind = FLEET_RECALL_AT, .k = 3}, {.kind = FLEET_RECALL_AT, .k = 5},
    {.kind = FLEET_NDCG_AT, .k = 2},   {.kind = FLEET_NDCG_AT, .k = 3},
    {.kind = FLEET_NDCG_AT, .k = 5}};

enum { N_KIND = sizeof all_kinds / sizeof *all_kinds };

static fleet_evaluation rank(const given *g, const char *items,
                             const char *samples, int64_t batch)
{
    fleet_dataset *of = read_text(g, "items.txt", items, batch);
    fleet_dataset *d = read_text(g, "samples.txt", samples, batch);
    fleet_evaluation e;

    CHECK_OK(
        fleet_evaluate_ranking(g->tester, d, of, &g->m, all_kinds, N_KIND, &e));
    CHECK_INT(e.n_ranking, N_KIND);
    return e;
}

static void check_values(const fleet_evaluation *e, const double *want)
{
    for (int i = 0; i < N_KIND; i++)
        CHECK_NEAR(e->ranking[i].value, want[i], 1e-12);
}

TEST(places_are_those_that_are_found_by_hand)
{
    const double second = 1 / log2(3), third = 0.5, fifth = 1 / log2(6);
    const double want[N_KIND] = {1.0 / 3,
                                 (0.5 + 1) / 3,
                                 2.0 / 3,
                                 1,
                                 (second / 2 + 1) / 3,
                                 ((second + third) / 2 + 1) / 3,
                                 ((second + third) / 2 + 1 + fifth) / 3};

    for (int64_t batch = 1; batch <= 4; batch++) {
        given g;
        char items[ROOM], samples[ROOM];
        fleet_evaluation e;

        open_given(&g, false, 1);
        items_with(items, "");
        snprintf(samples, sizeof samples, SAMPLES, "", "", "");
        e = rank(&g, items, samples, batch);
        check_values(&e, want);
        CHECK_INT(e.samples, 3);
        CHECK_INT(e.items, 4);
        CHECK(isnan(e.auc) && isnan(e.accuracy) && isnan(e.loss));
        close_given(&g);
    }
}

/* The one that is below all has label 0. */
TEST(samples_of_label_0_have_no_item_to_find)
{
    const double second = 1 / log2(3), both = (second + 0.5) / 2;
    const double want[N_KIND] = {
        0.5, 0.75, 1, 1, (second / 2 + 1) / 2, (both + 1) / 2, (both + 1) / 2};
    char items[ROOM], samples[ROOM];
    fleet_evaluation e, alone;
    given g;

    open_given(&g, true, 1);
    items_with(items, " 1 0");
    snprintf(samples, sizeof samples, SAMPLES, " 1 1", " 1 1", " 1 0");
    e = rank(&g, items, samples, 2);
    check_values(&e, want);
    CHECK_OK(fleet_evaluate(g.tester, read_text(&g, "again.txt", samples, 2),
                            &g.m, &alone));
    CHECK(e.auc == alone.auc && e.logloss == alone.logloss);
    CHECK_INT(alone.n_ranking, 0);
    snprintf(samples, sizeof samples, SAMPLES, " 1 0", " 1 0", " 1 0");
    CHECK_FAILS(fleet_evaluate_ranking(
                    g.tester, read_text(&g, "none.txt", samples, 2),
                    read_text(&g, "of.txt", items, 2), &g.m, all_kinds, 1, &e),
                FLEET_EEND, "no sample has label 1");
    close_given(&g);
}

/* Some hundreds of items, of whole numbers, many of which are as high. */
static char *make_lines(int n, int seed)
{
    char *text = fl_alloc_array((size_t)n, 40), *at = text;
    unsigned x = (unsigned)seed;

    for (int i = 0; i < n; i++) {
        int v[4];

        for (int k = 0; k < 4; k++) {
            x = x * 1664525u + 1013904223u;
            v[k] = (int)(x >> 24) % 41 - 20;
        }
        at += sprintf(at, "2 %d %d 2 %d %d\n", v[0], v[1], v[2], v[3]);
    }
    return text;
}

/* By looking at all items of all lines, each once. */
static double recall_by_looking(const char *items, const char *samples, int k)
{
    static int item[600][2];
    int n = 0, lines = 0, u[2], v[2];
    double sum = 0;

    for (const char *at = items; *at; at = strchr(at, '\n') + 1) {
        int i = 0;

        CHECK_INT(sscanf(at, "2 %*d %*d 2 %d %d", &v[0], &v[1]), 2);
        while (i < n && (item[i][0] != v[0] || item[i][1] != v[1]))
            i++;
        memcpy(item[i], v, sizeof v);
        n += i == n;
    }
    for (const char *at = samples; *at; at = strchr(at, '\n') + 1, lines++) {
        int above = 0, ties = 1, own;

        CHECK_INT(sscanf(at, "2 %d %d 2 %d %d", &u[0], &u[1], &v[0], &v[1]), 4);
        own = u[0] * v[0] + u[1] * v[1];
        for (int i = 0; i < n; i++) {
            const int dot = u[0] * item[i][0] + u[1] * item[i][1];

            if (item[i][0] == v[0] && item[i][1] == v[1])
                continue;
            above += dot > own;
            ties += dot == own;
        }
        sum += fmin(1, fmax(0, (double)(k - above) / ties));
    }
    return sum / lines;
}

TEST(values_are_those_of_looking_by_any_number_of_threads)
{
    char *items = make_lines(500, 1), *samples = make_lines(300, 2);
    fleet_evaluation first = {0};

    for (int i = 0; i < 4; i++) {
        static const int64_t batch[] = {300, 64, 7, 1};
        fleet_evaluation e;
        given g;

        open_given(&g, false, i % 2 == 0 ? 1 : 3);
        e = rank(&g, items, samples, batch[i]);
        CHECK_NEAR(e.ranking[3].value, recall_by_looking(items, samples, 5),
                   1e-12);
        if (i == 0)
            first = e;
        for (int k = 0; k < N_KIND; k++)
            CHECK(e.ranking[k].value == first.ranking[k].value);
        close_given(&g);
    }
    fl_free(items);
    fl_free(samples);
}

TEST(what_cannot_be_ranked_is_refused)
{
    const fleet_ranking zero = {.kind = FLEET_RECALL_AT, .k = 0};
    fleet_dataset *d;
    fleet_evaluation e;
    given g;

    open_given(&g, false, 1);
    d = read_text(&g, "samples.txt", "2 1 0 2 1 0\n", 1);
    CHECK_FAILS(fleet_evaluate_ranking(g.tester, d, d, &g.m, &zero, 1, &e),
                FLEET_EINVAL, "metric 0: kind 0, k 0; expected");
    CHECK_FAILS(fleet_evaluate_ranking(g.tester, d, d, &g.m, all_kinds, 9, &e),
                FLEET_EINVAL, "9 metrics; expected 1 to 8");
    CHECK_FAILS(fleet_evaluate_ranking(g.tester, d,
                                       read_text(&g, "empty.txt", "", 1), &g.m,
                                       all_kinds, 1, &e),
                FLEET_EEND, "the dataset of items has no sample");
    CHECK_FAILS(fleet_evaluate(g.tester, d, &g.m, &e), FLEET_EINVAL,
                "the model has no label");
    g.m.user = NULL;
    CHECK_FAILS(fleet_evaluate_ranking(g.tester, d, d, &g.m, all_kinds, 1, &e),
                FLEET_EINVAL, "no vectors of users and items");
    close_given(&g);
}

TEST(names_say_the_metric)
{
    static const char *const wrong[] = {"recall",
                                        "recall@",
                                        "recall@0",
                                        "recall@1000001",
                                        "recall@07",
                                        "recall@-1",
                                        "recall@5 ",
                                        "map@5",
                                        "@5",
                                        "",
                                        "ndcg@99999999999999999999"};
    char name[FL_RANKING_NAME];
    fleet_ranking r;

    CHECK(fl_ranking_parse("ndcg@1000000", &r));
    CHECK(r.kind == FLEET_NDCG_AT && r.k == 1000000);
    fl_ranking_name(&r, name);
    CHECK_TEXT(name, "ndcg@1000000");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK(!fl_ranking_parse(wrong[i], &r));
}

/* --- by a configuration --------------------------------------------------- */

#define SET "--history 5 --ids 40 --topics 4 --rule next --pairs --lines "

/* Pairs of gru4rec, and 200 others as `test`; with these words. */
static void train_pairs(const char *words, char said[DATAGEN_MOST])
{
    const char *config = test_keep(test_path("config.json")), *test;
    char options[DATAGEN_MOST];

    snprintf(options, sizeof options, SET "1200 --config '%s'", config);
    datagen_file(options, "train.txt", said);
    test = datagen_file(SET "200 --first 1200", "test.txt", said);
    snprintf(options, sizeof options,
             "model.embedding_dim=8 optimizer.learning_rate=0.02 epochs=3 "
             "'dataset.test=[\"%s\"]' %s",
             test, words);
    datagen_train(config, options, said);
}

static char *read_file(const char *name)
{
    size_t size;
    char *text;

    CHECK_OK(fl_file_read(test_path(name), &text, &size));
    return text;
}

#define BOTH "'metrics=[\"recall@5\",\"ndcg@5\"]' "

TEST(they_are_in_the_progress_the_log_the_files_and_the_closing_line)
{
    char said[DATAGEN_MOST], words[DATAGEN_MOST], want[80], *text;
    double recall;

    snprintf(words, sizeof words,
             BOTH "'validate_every={}' 'metrics_log.path=\"%s\"' "
                  "'metrics_log.tensorboard=\"%s\"'",
             test_path("m.csv"), test_path("board"));
    train_pairs(words, said);
    recall = datagen_number(said, "\"recall@5\"");
    CHECK(recall > 0.3 && recall < 1);
    CHECK(datagen_number(said, "\"ndcg@5\"") < recall);
    CHECK_CONTAINS(said, "\"auc\":null,\"logloss\":null,\"accuracy\":null,"
                         "\"recall@5\":");
    text = read_file("train.log");
    snprintf(want, sizeof want, "  recall@5 %.4f  ndcg@5 ", recall);
    CHECK_CONTAINS(text, want);
    snprintf(want, sizeof want, ", recall@5 %.6g, ndcg@5 ", recall);
    CHECK_CONTAINS(text, want);
    fl_free(text);
    text = read_file("m.csv");
    CHECK_CONTAINS(text, ",time,validation_recall@5,validation_ndcg@5\n");
    snprintf(want, sizeof want, ",%.9g,", recall);
    CHECK_CONTAINS(text, want);
    fl_free(text);
    snprintf(words, sizeof words,
             "cat '%s'/* | grep -c 'validation/recall@5'; "
             "'%s' '%s' -o '%s' >/dev/null && echo drawn",
             test_path("board"), test_beside("fleet-plot"), test_path("m.csv"),
             test_path("m.png"));
    CHECK_INT(test_shell(words, said, sizeof said), 0);
    CHECK_CONTAINS(said, "drawn");
    CHECK(strtol(said, NULL, 10) > 0);
}

/* By the metric that grows: the first validation is the best that min_delta
 * leaves, so two more end it; lines of JSON have its numbers. */
TEST(a_training_is_stopped_and_its_best_one_saved_by_them)
{
    char said[DATAGEN_MOST], words[DATAGEN_MOST], *text;
    double best = 0, last;

    snprintf(words, sizeof words,
             BOTH "epochs=9 validate_every.metric=ndcg@5 "
                  "validate_every.patience=2 validate_every.min_delta=0.9 "
                  "'validate_every.save_best=\"%s\"' 'metrics_log=\"%s\"'",
             test_path("best"), test_path("m.json"));
    train_pairs(words, said);
    last = datagen_number(said, "\"ndcg@5\"");
    text = read_file("train.log");
    CHECK_CONTAINS(text, "stopped early in epoch 3, step 15: in 2 validations "
                         "in a row ndcg@5 was no better than ");
    fl_free(text);
    text = read_file("m.json");
    for (const char *at = text;
         (at = strstr(at, "\"validation_ndcg@5\":")) != NULL; at++)
        best = fmax(best, strtod(at + strlen("\"validation_ndcg@5\":"), NULL));
    fl_free(text);
    CHECK(best >= last && best > 0.2);
    snprintf(words, sizeof words,
             "'%s' --evaluate '%s' 'load=\"%s\"' model.embedding_dim=8 "
             "'dataset.test=[\"%s\"]' " BOTH "2>/dev/null",
             test_beside("fleet-train"), test_path("config.json"),
             test_path("best"), test_path("test.txt"));
    CHECK_INT(test_shell(words, said, sizeof said), 0);
    CHECK_NEAR(datagen_number(said, "\"ndcg@5\""), best, 1e-6);
}

/* By default the training's items, all 40; of one file those in it. */
TEST(items_are_those_of_the_training_or_of_files)
{
    char said[DATAGEN_MOST], words[DATAGEN_MOST];

    snprintf(words, sizeof words,
             "'metrics=[\"recall@40\",\"recall@2\"]' "
             "'dataset.items=[\"%s\"]'",
             test_file("items.txt", "1 1 1 0 1 0\n1 1 1 1 1 0\n"));
    train_pairs(words, said);
    CHECK(datagen_number(said, "\"recall@40\"") == 1);
    CHECK(datagen_number(said, "\"recall@2\"") > 0.5);
    train_pairs("'metrics=[\"recall@40\",\"recall@39\",\"recall@2\"]'", said);
    CHECK(datagen_number(said, "\"recall@40\"") == 1);
    CHECK(datagen_number(said, "\"recall@39\"") > 0.9);
    CHECK(datagen_number(said, "\"recall@2\"") < 0.5);
}

/* --- what is refused ------------------------------------------------------ */

#define FILES "\"dataset\": {\"format\": \"multislot\", \"train\": [\"a\"]"
#define SLOTS                                                                  \
    "\"slots\": [{\"name\": \"u\", \"type\": \"uint64\"}, {\"name\": "         \
    "\"i\", \"type\": \"uint64\", \"role\": \"item\"}]"

static void refused(const char *files, const char *rest, const char *words)
{
    char text[1000];
    fl_config c;
    int n = snprintf(text, sizeof text,
                     "{\"model\": {\"type\": \"two_tower\"}, " FILES
                     "%s}, " SLOTS "%s}",
                     files, rest);

    CHECK_FAILS(fl_config_read(&c, text, (size_t)n, "f.json"), FLEET_ECONFIG,
                words);
    fl_config_done(&c);
}

#define TESTED ", \"test\": [\"a\"]"

TEST(a_configuration_that_is_wrong_is_refused_by_name)
{
    refused(TESTED, ", \"metrics\": [\"recall\"]",
            "metrics[0]: expected \"recall@K\" or \"ndcg@K\", K from 1 to "
            "1000000, got \"recall\"");
    refused(TESTED, ", \"metrics\": [\"ndcg@3\", \"ndcg@3\"]",
            "metrics[1]: expected each of them once");
    refused("", ", \"metrics\": [\"ndcg@3\"]",
            "metrics: expected nothing: there are no files of dataset.test");
    refused(TESTED ", \"items\": [\"a\"]", "",
            "dataset.items: expected nothing: there are no `metrics`");
    refused(TESTED ", \"items\": [\"-\"]", ", \"metrics\": [\"ndcg@3\"]",
            "dataset.items: expected files, which are read several times");
    refused(TESTED,
            ", \"metrics\": [\"ndcg@3\"], \"validate_every\": "
            "{\"metric\": \"ndcg@4\", \"patience\": 1}",
            "validate_every.metric: expected one of \"loss\", \"auc\", "
            "\"logloss\", \"accuracy\", \"ndcg@3\", got \"ndcg@4\"");
}

/* Of models it is known once they are made. */
TEST(a_model_without_vectors_has_none_of_them)
{
    char said[DATAGEN_MOST], options[DATAGEN_MOST];
    const char *config = test_keep(test_path("config.json"));
    const char *data;

    snprintf(options, sizeof options,
             "--history 3 --ids 40 --topics 4 --lines 100 --model din "
             "--config '%s'",
             config);
    data = datagen_file(options, "data", said);
    snprintf(options, sizeof options,
             "'%s' --dry-run '%s' 'dataset.test=[\"%s\"]' " BOTH "2>&1",
             test_beside("fleet-train"), config, data);
    CHECK_INT(test_shell(options, said, sizeof said), 1);
    CHECK_CONTAINS(said, "metrics: expected nothing of model din, which has no "
                         "vectors of users and items; gru4rec, sasrec, ");
    snprintf(options, sizeof options,
             "--history 3 --ids 40 --topics 4 --lines 100 --pairs --config "
             "'%s'",
             config);
    data = datagen_file(options, "data", said);
    snprintf(options, sizeof options,
             "'%s' --dry-run '%s' 'dataset.test=[\"%s\"]' " BOTH
             "validate_every.metric=auc validate_every.patience=1 2>&1",
             test_beside("fleet-train"), config, data);
    CHECK_INT(test_shell(options, said, sizeof said), 1);
    CHECK_CONTAINS(said, "validate_every.metric: expected \"loss\" or one of "
                         "`metrics`, as there is no label, got \"auc\"");
}
