/* fleet_inspect_test.c - bin/fleet-inspect: what it says of a save: numbers,
 * rows, and how it differs from another one. */
#define SUITE fleet_inspect
#include "grown_kit.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All that it says; how it ends. */
static int run(const char *arguments, const char *save, char said[6000])
{
    char command[9000];

    snprintf(command, sizeof command, "'%s' %s '%s' 2>&1",
             test_beside("fleet-inspect"), arguments, save);
    return test_shell(command, said, 6000);
}

static const char *line_with(const char *said, const char *words)
{
    const char *at = strstr(said, words);

    if (!at)
        test_fail(__FILE__, __LINE__, "%s is not in: %s", words, said);
    while (at > said && at[-1] != '\n')
        at--;
    return test_keep(at);
}

/* The value of a key in the line that has these words. */
static void check_value(const char *said, const char *words, const char *key,
                        const char *want)
{
    CHECK_TEXT(test_json_value(line_with(said, words), key), want);
}

/* w: 3, -4 and 0; of t rows 5, 7 and the largest one. */
static const uint64_t keys[] = {5, 7, UINT64_MAX};

static void open_known(grown *g)
{
    static const float w[GROWN_W] = {3, -4, 0};
    static const float rows[3][GROWN_DIM] = {{3, 4}, {0, 0.5f}, {-6, 8}};
    static const float states[3][2 * GROWN_DIM] = {
        {1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}};

    grown_open(g, &(grown_how){.optimizer = "adam"});
    CHECK_OK(fleet_parameter_set(g->f, "w", w, GROWN_W));
    CHECK_OK(
        fleet_table_set(g->f, "t", keys, 3, GROWN_DIM, rows[0], states[0]));
}

static const char *save_of(const grown *g, const char *name)
{
    const char *path = test_keep(test_path(name));

    CHECK_OK(fleet_save_persistables(g->f, path));
    return path;
}

TEST(numbers_of_parameters_and_tables_are_summed_up)
{
    char said[6000];
    grown g;

    open_known(&g);
    CHECK_INT(run("", save_of(&g, "save"), said), 0);
    check_value(said, "\"save\"", "\"what\"", "\"what\":\"checkpoint\"");
    check_value(said, "\"save\"", "\"tables\"", "\"tables\":1");
    check_value(said, "\"parameter\":\"w\"", "\"shape\"", "\"shape\":[3]");
    check_value(said, "\"parameter\":\"w\"", "\"least\"", "\"least\":-4");
    check_value(said, "\"parameter\":\"w\"", "\"most\"", "\"most\":3");
    check_value(said, "\"parameter\":\"w\"", "\"norm\"", "\"norm\":5");
    check_value(said, "\"parameter\":\"w\"", "\"zeros\"", "\"zeros\":1");
    CHECK_CONTAINS(line_with(said, "\"parameter\":\"w\""),
                   "\"mean\":-0.333333333,\"deviation\":2.86744176,");
    check_value(said, "\"table\":\"t\"", "\"rows\"", "\"rows\":3");
    check_value(said, "\"table\":\"t\"", "\"n\"", "\"n\":6");
    check_value(said, "\"table\":\"t\"", "\"nonfinite\"", "\"nonfinite\":0");
    CHECK_CONTAINS(line_with(said, "\"table\":\"t\""),
                   "\"row_norm\":{\"n\":3,\"least\":0.5,\"most\":10,");
    CHECK_CONTAINS(line_with(said, "\"table\":\"t\""),
                   "\"v\":{\"n\":6,\"least\":3,\"most\":12,");
    grown_close(&g);
}

TEST(a_row_is_shown_with_its_states_and_one_that_is_not_there_ends_with_1)
{
    char said[6000];
    const char *save;
    grown g;

    open_known(&g);
    save = save_of(&g, "save");
    CHECK_INT(run("--row t:7 --row t:18446744073709551615", save, said), 0);
    CHECK_CONTAINS(
        said, "{\"table\":\"t\",\"key\":\"7\",\"updates\":0,\"weights\":[0,"
              "0.5],\"states\":{\"m\":[5,6],\"v\":[7,8]}}\n");
    CHECK_CONTAINS(said, "\"key\":\"18446744073709551615\",\"updates\":0,"
                         "\"weights\":[-6,8]");
    CHECK_INT(run("--row t:5 --row t:6", save, said), 1);
    CHECK_CONTAINS(said, "\"weights\":[3,4]");
    CHECK_CONTAINS(said, "{\"table\":\"t\",\"key\":\"6\",\"weights\":null}\n");
    CHECK_INT(run("--row u:5", save, said), 2);
    CHECK_CONTAINS(said, "has no table \"u\"");
    grown_close(&g);
}

TEST(rows_have_their_ages_and_what_they_were_shown)
{
    char said[6000];
    grown g;

    grown_open(&g,
               &(grown_how){.optimizer = "sgd", .life = {.ttl_updates = 9}});
    grown_train(&g, 2);
    grown_train(&g, 1);
    CHECK_INT(run("--row t:1 --row t:0", save_of(&g, "old"), said), 0);
    check_value(said, "\"key\":\"1\"", "\"age\"", "\"age\":1");
    check_value(said, "\"key\":\"0\"", "\"age\"", "\"age\":0");
    grown_close(&g);
    grown_open(&g, &(grown_how){.optimizer = "sgd",
                                .life = {.accessor.kind = FLEET_CTR_ACCESSOR}});
    grown_train(&g, 2);
    grown_train(&g, 1);
    CHECK_INT(run("--row t:0", save_of(&g, "shown"), said), 0);
    check_value(said, "\"key\":\"0\"", "\"show\"", "\"show\":2");
    check_value(said, "\"key\":\"0\"", "\"click\"", "\"click\":0");
    grown_close(&g);
}

TEST(a_parameters_weights_are_printed_one_a_line)
{
    char said[6000];
    const char *save;
    grown g;

    open_known(&g);
    save = save_of(&g, "save");
    CHECK_INT(run("--values w", save, said), 0);
    CHECK_TEXT(said, "3\n-4\n0\n");
    CHECK_INT(run("--values t", save, said), 2);
    CHECK_CONTAINS(said, "has no parameter \"t\"");
    grown_close(&g);
}

TEST(two_saves_are_compared)
{
    static const float w[GROWN_W] = {3, -4, 12}, row[GROWN_DIM] = {3, 1};
    static const uint64_t new_key = 9;
    char said[6000], option[3000];
    const char *before;
    grown g;

    open_known(&g);
    before = save_of(&g, "before");
    snprintf(option, sizeof option, "--diff '%s'", before);
    CHECK_INT(run(option, before, said), 0);
    check_value(said, "\"parameter\":\"w\"", "\"differ\"", "\"differ\":0");
    CHECK_OK(fleet_table_set(g.f, "t", &new_key, 1, GROWN_DIM, row, NULL));
    CHECK_INT(run(option, save_of(&g, "grown"), said), 1);
    check_value(said, "\"table\":\"t\"", "\"differ\"", "\"differ\":0");
    CHECK_OK(fleet_parameter_set(g.f, "w", w, GROWN_W));
    CHECK_OK(fleet_table_set(g.f, "t", &keys[0], 1, GROWN_DIM, row, NULL));
    CHECK_INT(run(option, save_of(&g, "now"), said), 1);
    CHECK_CONTAINS(said,
                   "{\"parameter\":\"w\",\"n\":3,\"differ\":1,\"most\":12,"
                   "\"norm\":12,\"norm_before\":5,\"nonfinite\":0}\n");
    CHECK_CONTAINS(
        said, "{\"table\":\"t\",\"rows_before\":3,\"rows\":4,\"rows_gone\":"
              "0,\"rows_new\":1,\"rows_differ\":1,\"differ\":1,\"most\":3,"
              "\"norm\":3,");
    grown_close(&g);
    grown_open(&g, &(grown_how){.optimizer = "sgd", .larger = true, .dim = 3});
    CHECK_INT(run(option, save_of(&g, "other"), said), 1);
    CHECK_CONTAINS(said, "{\"parameter\":\"extra\",\"only_in\":");
    CHECK_CONTAINS(said, "{\"table\":\"t\",\"shape_before\":\"[0,2]\","
                         "\"shape\":\"[0,3]\"}\n");
    grown_close(&g);
}

TEST(what_is_no_save_or_damaged_is_named)
{
    char said[6000], command[3000];
    const char *save;
    grown g;

    open_known(&g);
    save = save_of(&g, "save");
    grown_close(&g);
    CHECK_INT(run("", test_path("none"), said), 2);
    CHECK_CONTAINS(said, "cannot open");
    snprintf(command, sizeof command,
             "printf x | dd of='%s/part-00000' bs=1 seek=40 conv=notrunc "
             "2>&1",
             save);
    CHECK_INT(test_shell(command, said, sizeof said), 0);
    CHECK_INT(run("", save, said), 2);
    CHECK_CONTAINS(said, "part-00000");
    CHECK_INT(run("--row t", save, said), 2);
    CHECK_CONTAINS(said, "usage: fleet-inspect");
    CHECK_INT(run("--row t:1 --values w", save, said), 2);
    CHECK_CONTAINS(said, "usage: fleet-inspect");
}

/* --- the projector -------------------------------------------------------- */

/* What a command says in the folder. */
static const char *in_board(const char *then)
{
    char command[3000], text[6000];

    snprintf(command, sizeof command, "cd '%s' && %s", test_path("board"),
             then);
    CHECK_INT(test_shell(command, text, sizeof text), 0);
    return test_keep(text);
}

/* Keys, updates and weights of open_known(), by growing key: rows stand in a
 * save as hashes want. */
static void check_known_rows(void)
{
    CHECK_TEXT(
        in_board("tail -n +2 metadata.tsv | paste - vectors.tsv | sort -n"),
        "5\t0\t3\t4\n7\t0\t0\t0.5\n18446744073709551615\t0\t-6\t8\n");
}

/* By the packages' own reader, where they are. */
static void check_by_tensorboard(const char *points)
{
    const char *source = getenv("FLEET_SOURCE");
    char command[3000], said[6000], want[200];

    if (!source)
        return;
    snprintf(command, sizeof command,
             "'%s/test/tools/read_projector.py' '%s' 2>&1", source,
             test_path("board"));
    CHECK_INT(test_shell(command, said, sizeof said), 0);
    snprintf(want, sizeof want, "points %s\n", points);
    CHECK_CONTAINS(said, want);
    CHECK(strstr(said, "tensorboard: absent\n") ||
          strstr(said, "tensorboard: same\n"));
}

TEST(rows_are_written_as_the_projector_reads_them)
{
    char said[6000], option[3000];
    const char *save;
    grown g;

    open_known(&g);
    save = save_of(&g, "save");
    snprintf(option, sizeof option, "--projector '%s' --table t",
             test_path("board"));
    for (int i = 0; i < 2; i++) { /* into a folder that is there, too */
        CHECK_INT(run(option, save, said), 0);
        CHECK_CONTAINS(said, "{\"table\":\"t\",\"dim\":2,\"rows\":3,"
                             "\"projector\":");
        check_known_rows();
        CHECK_TEXT(in_board("head -1 metadata.tsv; cat projector_config.pbtxt"),
                   "key\tupdates\n"
                   "embeddings {\n  tensor_name: \"t\"\n  tensor_shape: 3\n"
                   "  tensor_shape: 2\n  tensor_path: \"vectors.tsv\"\n"
                   "  metadata_path: \"metadata.tsv\"\n}\n");
        CHECK_TEXT(in_board("ls -A | wc -l"), "3\n");
        check_by_tensorboard("3 2");
    }
    grown_close(&g);
}

TEST(the_most_updated_rows_are_projected)
{
    char said[6000], option[3000];
    grown g;

    grown_open(&g, &(grown_how){.optimizer = "adam"});
    for (uint64_t n = 40; n > 0; n--) /* keys below n: 39 once, 0 forty times */
        grown_train(&g, (int)n);
    snprintf(option, sizeof option, "--projector '%s' --most 3",
             test_path("board"));
    CHECK_INT(run(option, save_of(&g, "save"), said), 0);
    CHECK_TEXT(in_board("tail -n +2 metadata.tsv | sort -n"),
               "0\t40\n1\t39\n2\t38\n");
    snprintf(option, sizeof option, "--projector '%s' --most 1000",
             test_path("board"));
    CHECK_INT(run(option, save_of(&g, "save"), said), 0);
    CHECK_CONTAINS(said, "\"rows\":40,");
    check_by_tensorboard("40 2");
    grown_close(&g);
}

TEST(what_cannot_be_projected_is_named)
{
    char said[6000], option[3000];
    const char *save;
    grown g;

    open_known(&g);
    save = save_of(&g, "save");
    snprintf(option, sizeof option, "--projector '%s' --table u",
             test_path("board"));
    CHECK_INT(run(option, save, said), 2);
    CHECK_CONTAINS(said, "has no table \"u\"");
    CHECK_INT(run("--projector /no/such/folder", save, said), 2);
    CHECK_CONTAINS(said, "cannot make /no/such/folder: No such file");
    CHECK_INT(run("--projector /dev/null", save, said), 2);
    CHECK_CONTAINS(said, "cannot create /dev/null/.vectors.tsv.new");
    CHECK_INT(run("--table t", save, said), 2);
    CHECK_INT(run("--projector a --most 0", save, said), 2);
    CHECK_INT(run("--projector a --row t:5", save, said), 2);
    CHECK_CONTAINS(said, "usage: fleet-inspect");
    snprintf(option, sizeof option, "mkdir -p '%s' && : >'%s/.vectors.tsv.new'",
             test_path("board"), test_path("board"));
    CHECK_INT(test_shell(option, said, sizeof said), 0);
    snprintf(option, sizeof option, "--projector '%s'", test_path("board"));
    CHECK_INT(run(option, save, said), 0);
    check_known_rows();
    grown_close(&g);
}
