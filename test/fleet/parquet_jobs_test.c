/* parquet_jobs_test.c - a model that is trained on Parquet by a configuration
 * is the one that the same data make as csv, and scores files of both. */
#define SUITE parquet_jobs
#include "lines_kit.h"
#include "parquet_kit.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 2000 };

/* %s in turn: format, options of it, file, test file, save. */
static const char config[] =
    "{\"model\":{\"type\":\"wide_deep\",\"embedding_dim\":4,\"hidden\":[8]},"
    "\"optimizer\":{\"type\":\"adam\",\"learning_rate\":0.01},"
    "\"dataset\":{\"format\":\"%s\",%s\"missing\":\"?\",\"train\":[\"%s\"],"
    "\"test\":[\"%s\"],\"batch_size\":64,\"shuffle\":500},\"slots\":["
    "{\"name\":\"label\",\"type\":\"float\",\"role\":\"label\",\"columns\":"
    "[\"income\"],\"transform\":\"equals\",\"value\":[\">50K\"]},"
    "{\"name\":\"dense\",\"type\":\"float\",\"dim\":2,\"columns\":[\"age\","
    "\"gain\"],\"transform\":[\"standardize\",\"log1p_standardize\"]},"
    "{\"name\":\"workclass\",\"type\":\"uint64\"%s},"
    "{\"name\":\"who\",\"type\":\"uint64\",\"dim\":-1,\"columns\":["
    "\"occupation\",\"sex\",\"age\"]}],\"save\":\"%s\"}";

static const char header[] =
    "age,workclass,fnlwgt,education,edunum,marital,occupation,relationship,"
    "race,sex,gain,loss,hours,country,income\n";

static void run(const char *tool, const char *arguments, char *said,
                size_t size)
{
    char command[2000];

    snprintf(command, sizeof command, "%s %s 2>&1", test_beside(tool),
             arguments);
    if (test_shell(command, said, size) != 0)
        test_fail(__FILE__, __LINE__, "%s: %s", command, said);
}

/* The closing line's hash of all parameters. */
static const char *train(const char *format, const char *options,
                         const char *file, const char *columns,
                         const char *save)
{
    char text[3000], said[4000], *at;

    snprintf(text, sizeof text, config, format, options, file, file, columns,
             save);
    run("fleet-train", test_file("train.json", text), said, sizeof said);
    at = strstr(said, "\"params_hash\"");
    CHECK(at != NULL);
    return test_keep(at);
}

static void score(const char *save, const char *file, float *to)
{
    char arguments[1000], said[2000];

    snprintf(arguments, sizeof arguments, "%s %s -o %s", save, file,
             test_path("scores"));
    run("fleet-predict", arguments, said, sizeof said);
    CHECK_INT(lines_scores(test_path("scores"), to, ROWS), ROWS);
}

/* The csv with the names of its columns in front. */
static const char *with_header(const char *path)
{
    char *all = malloc(1 << 20);
    size_t n = strlen(strcpy(all, header));
    FILE *f = fopen(path, "r");
    const char *to;

    CHECK(f != NULL);
    n += fread(all + n, 1, (1 << 20) - n - 1, f);
    all[n] = 0;
    fclose(f);
    to = test_file("named.csv", all);
    free(all);
    return to;
}

TEST(a_model_is_the_one_that_csv_makes_and_scores_both)
{
    static float a[ROWS], b[ROWS];
    const char *parquet = test_path("rows.parquet");
    const char *csv = test_path("rows.csv"), *named, *hash;

    parquet_adult(csv, parquet, ROWS);
    named = with_header(csv);
    hash = train("csv", "\"header\":true,", named,
                 ",\"columns\":[\"workclass\"]", test_path("by_csv"));
    CHECK_TEXT(train("parquet", "", parquet, "", test_path("by_parquet")),
               hash);
    score(test_path("by_parquet"), parquet, a);
    score(test_path("by_csv"), named, b);
    CHECK(memcmp(a, b, sizeof a) == 0);
}
