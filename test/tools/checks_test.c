/* checks_test.c - the checks of the tree (tools/names, sizes, comments, layers,
 * bench/paddle_rows --check, test/mutants --check) find what they are for: each
 * is given a small tree with one planted breach, and the same tree without it.
 */
#define _GNU_SOURCE
#define SUITE checks
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OUTPUT = 4096 };

static void make_folders(const char *path)
{
    char part[PATH_MAX];

    for (const char *at = strchr(path, '/'); at; at = strchr(at + 1, '/')) {
        snprintf(part, sizeof part, "%s/%.*s", test_folder(), (int)(at - path),
                 path);
        mkdir(part, 0777);
    }
}

/* A file of the small tree; its folders are made. */
static void plant(const char *path, const char *text)
{
    make_folders(path);
    test_file(path, text);
}

/* The exit status of a check of the small tree; what it prints in `output`. */
static int run_check(const char *tool, const char *argument,
                     char output[OUTPUT])
{
    const char *root = getenv("FLEET_SOURCE");
    char command[2 * PATH_MAX + 100];

    if (!root)
        test_skip("set FLEET_SOURCE to the source folder");
    snprintf(command, sizeof command,
             "cd '%s' && python3 '%s/tools/%s' %s 2>&1", test_folder(), root,
             tool, argument);
    return test_shell(command, output, OUTPUT);
}

/* The check finds the breach, and says it in these words. */
static void check_finds(const char *tool, const char *argument,
                        const char *words)
{
    char output[OUTPUT];

    CHECK_INT(run_check(tool, argument, output), 1);
    CHECK_CONTAINS(output, words);
}

static void check_passes(const char *tool, const char *argument)
{
    char output[OUTPUT];

    if (run_check(tool, argument, output) != 0)
        test_fail(__FILE__, __LINE__, "%s", output);
}

/* --- names --------------------------------------------------------------- */

#define HEAD(name) "/* " name " - a file of the small tree. */\n"

/* What every check passes: a header, its file, a pass. */
static void plant_sound_tree(void)
{
    plant("src/base/box.h",
          HEAD("box.h") "#pragma once\n"
                        "typedef struct fl_box {\n"
                        "    int n;\n"
                        "} fl_box;\n"
                        "int fl_box_count(const fl_box *b);\n");
    plant("src/base/box.c", HEAD("box.c") "#include \"base/box.h\"\n\n"
                                          "static int take(const fl_box *b)\n"
                                          "{\n    return b->n;\n}\n\n"
                                          "int fl_box_count(const fl_box *b)\n"
                                          "{\n    return take(b);\n}\n");
    plant("src/runtime/plan/passes.def",
          HEAD("passes.def") "FL_PASS(fuse, FL_PASS_GRAPH)\n");
    plant("src/runtime/passes/fuse.c",
          HEAD("fuse.c") "int fl_pass_fuse(void)\n{\n    return 0;\n}\n");
}

TEST(a_sound_tree_passes)
{
    plant_sound_tree();
    check_passes("names", ".");
    check_passes("sizes", ".");
    check_passes("comments", ".");
}

TEST(a_type_with_two_definitions_is_found)
{
    plant_sound_tree();
    plant("src/net/crate.h", HEAD("crate.h") "typedef struct fl_box {\n"
                                             "    long n;\n"
                                             "} fl_box;\n");
    check_finds("names", ".", "type fl_box is also defined at");
}

TEST(a_header_without_pragma_once_is_found)
{
    plant_sound_tree();
    plant("src/net/crate.h", HEAD("crate.h") "int fl_crates;\n");
    check_finds("names", ".", "src/net/crate.h:1: no #pragma once");
}

TEST(a_base_name_in_two_folders_is_found)
{
    plant_sound_tree();
    plant("src/net/box.c", HEAD("box.c"));
    check_finds("names", ".", "box is also the name of");
}

TEST(a_prefix_of_two_enums_is_found)
{
    plant_sound_tree();
    plant("src/base/lane.h",
          HEAD("lane.h") "typedef enum fl_lane { FL_LANE_UP, FL_LANE_DOWN } "
                         "fl_lane;\n");
    plant("src/net/road.h",
          HEAD("road.h") "typedef enum fl_road { FL_LANE_LEFT, FL_LANE_RIGHT } "
                         "fl_road;\n");
    check_finds("names", ".", "prefix FL_LANE_ is also that of");
}

TEST(a_static_of_one_word_that_two_files_have_is_found)
{
    plant_sound_tree();
    plant("src/net/crate.c",
          HEAD("crate.c") "static int take(void)\n{\n    return 1;\n}\n");
    check_finds("names", ".", "static take() is also at");
}

TEST(a_function_defined_beside_another_header_is_found)
{
    plant_sound_tree();
    plant("src/base/box.c", HEAD("box.c"));
    plant("src/base/crate.c",
          HEAD("crate.c") "#include \"base/box.h\"\n\n"
                          "int fl_box_count(const fl_box *b)\n"
                          "{\n    return b->n;\n}\n");
    check_finds("names", ".", "fl_box_count() is defined in src/base/crate.c");
}

TEST(an_internal_header_serves_the_files_of_its_name)
{
    plant_sound_tree();
    plant("src/base/box_internal.h",
          HEAD("box_internal.h") "#pragma once\nint fl_box_weigh(void);\n");
    plant("src/base/box_weight.c",
          HEAD("box_weight.c") "int fl_box_weigh(void)\n{\n    return 1;\n}\n");
    check_passes("names", ".");
}

TEST(a_pass_without_a_file_of_its_name_is_found)
{
    plant_sound_tree();
    plant("src/runtime/plan/passes.def",
          HEAD("passes.def") "FL_PASS(fuse, FL_PASS_GRAPH)\n"
                             "FL_PASS(split, FL_PASS_GRAPH)\n");
    check_finds("names", ".", "no pass in src/runtime/passes/split.c");
}

TEST(a_word_that_the_glossary_does_not_have_is_found)
{
    plant_sound_tree();
    plant("docs/glossary.md",
          "| box | holds things | crate | `base/box.h` |\n");
    check_passes("names", ".");
    plant("docs/glossary.md", "A box.\n## Plain words\nbox\n");
    check_passes("names", ".");
    plant("docs/glossary.md", "A box holds things.\n");
    check_finds("names", ".", "docs/glossary.md does not have the word box");
}

TEST(a_noun_that_stands_twice_or_has_no_file_is_found)
{
    plant_sound_tree();
    plant("docs/glossary.md", "| box | holds things | crate | `base/box.h` |\n"
                              "| box | holds more | crate | `base/box.h` |\n");
    check_finds("names", ".", "the noun box stands twice");
    plant("docs/glossary.md",
          "| box | holds things | crate | `base/bag.h` |\n");
    check_finds("names", ".", "box: there is no file `base/bag.h`");
    plant("docs/glossary.md", "| box | holds things | crate | `base/box.h` |\n"
                              "| bag | holds more | sack | `base/box.h` |\n");
    check_finds("names", ".", "bag is not in src/base/box.h");
}

/* --- sizes --------------------------------------------------------------- */

/* `before`, n times the line, `after`. */
static void plant_long(const char *path, const char *before, const char *line,
                       int n, const char *after)
{
    size_t room = strlen(before) + (size_t)n * strlen(line) + strlen(after) + 1;
    char *text = malloc(room), *at = text;

    CHECK(text != NULL);
    at += sprintf(at, "%s", before);
    for (int i = 0; i < n; i++)
        at += sprintf(at, "%s", line);
    sprintf(at, "%s", after);
    plant(path, text);
    free(text);
}

TEST(a_function_of_61_lines_is_found)
{
    plant_long("src/base/long.c", HEAD("long.c") "int fl_long(void)\n{\n",
               "    ;\n", 57, "    return 0;\n}\n");
    check_passes("sizes", ".");
    plant_long("src/base/long.c", HEAD("long.c") "int fl_long(void)\n{\n",
               "    ;\n", 58, "    return 0;\n}\n");
    check_finds("sizes", ".", "a function of 61 lines");
}

TEST(a_file_of_601_lines_is_found)
{
    plant_long("src/base/long.h", HEAD("long.h"), "\n", 599, "");
    check_passes("sizes", ".");
    plant_long("src/base/long.h", HEAD("long.h"), "\n", 600, "");
    check_finds("sizes", ".", "src/base/long.h:1: 601 lines");
}

TEST(a_folder_of_31_files_is_found)
{
    char path[64];

    for (int i = 0; i < 31; i++) {
        snprintf(path, sizeof path, "src/base/f%d.c", i);
        plant(path, "\n");
        if (i == 29)
            check_passes("sizes", ".");
    }
    check_finds("sizes", ".", "src/base:1: 31 files");
}

TEST(a_folder_with_more_than_its_share_is_found)
{
    char path[64];

    for (int i = 0; i < 30; i++) {
        snprintf(path, sizeof path, "src/room%d/f.c", i);
        plant_long(path, "", "\n", 400, "");
    }
    check_passes("sizes", ".");
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "src/room0/g%d.c", i);
        plant_long(path, "", "\n", 500, "");
    }
    check_finds("sizes", ".", "src/room0:1: 2400 lines, 17 % of the source");
}

/* --- comments ------------------------------------------------------------ */

TEST(a_torn_bar_is_found)
{
    plant("src/base/a.c", HEAD("a.c") "/* --- parts ------------\n */\n");
    check_finds("comments", ".", "src/base/a.c:2: a torn bar");
}

TEST(a_torn_comment_is_found)
{
    plant("src/base/a.c", HEAD("a.c") "int a; /* of the last one\n"
                                      "          */\n");
    check_finds("comments", ".", "src/base/a.c:2: a torn comment");
}

TEST(a_comment_of_more_than_80_columns_is_found)
{
    plant_long("src/base/a.c", HEAD("a.c") "/* ", "a", 74, " */\n");
    check_passes("comments", ".");
    plant_long("src/base/a.c", HEAD("a.c") "/* ", "a", 75, " */\n");
    check_finds("comments", ".", "src/base/a.c:2: a comment of 81 columns");
}

TEST(a_title_that_only_says_where_else_to_look_is_found)
{
    plant("src/base/a.c", "/* a.c - see a.h. */\n");
    check_finds("comments", ".", "says only where else to look");
    plant("src/base/a.c", "/* b.c - numbers. */\n");
    check_finds("comments", ".", "no first comment that begins with the file");
}

TEST(a_comment_that_names_nothing_is_found)
{
    plant("src/base/a.c",
          HEAD("a.c") "/* Is there one? There are two, those rows,"
                      " and other ranks. */\n");
    check_passes("comments", ".");
    plant("src/base/a.c", HEAD("a.c") "/* It is\n * there. */\n");
    check_finds("comments", ".", "src/base/a.c:3: \"there\" names nothing");
    plant("src/base/a.c", HEAD("a.c") "/* Whoever waits. */\n");
    check_finds("comments", ".", "\"Whoever\" names nothing");
    plant("src/base/a.c", HEAD("a.c") "/* Those of the others. */\n");
    check_finds("comments", ".", "\"Those\" names nothing");
    plant("src/base/a.c", HEAD("a.c") "/* Those whose data ended. */\n");
    check_finds("comments", ".", "\"Those\" names nothing");
    plant("src/base/a.c", HEAD("a.c") "/* A piece may be so large. */\n");
    check_finds("comments", ".", "\"so large\" names nothing");
    plant("src/base/a.c", HEAD("a.c") "/* Whom it waits for. */\n");
    check_finds("comments", ".", "\"Whom\" names nothing");
}

/* --- README's rows beside Paddle Fleet ------------------------------------ */

/* README as it stands, its `row` put in place of the line that begins so. */
static void plant_readme(const char *line, const char *row)
{
    const char *root = getenv("FLEET_SOURCE");
    char command[2 * PATH_MAX + 200];

    if (!root)
        test_skip("set FLEET_SOURCE to the source folder");
    snprintf(command, sizeof command,
             "sed 's/^| %s.*$/%s/' '%s/README.md' >'%s/README.md'", line, row,
             root, test_folder());
    CHECK_INT(system(command), 0);
}

#define ROWS_SCRIPT "../bench/paddle_rows"
#define PADDLE_ROWS ROWS_SCRIPT, "--check README.md"

TEST(a_row_beside_paddle_without_a_script_is_found)
{
    plant_readme("", "&");
    check_passes(PADDLE_ROWS);
    plant_readme("port in use", "&\\n| clocks | stop | run |");
    check_finds(PADDLE_ROWS, "has no row for 'clocks'");
}

TEST(a_row_beside_paddle_that_readme_lacks_is_found)
{
    plant_readme("port in use", "");
    check_finds(PADDLE_ROWS, "README.md:1: no row 'port in use'");
}

TEST(a_row_without_paddle_says_so)
{
    char output[OUTPUT];

    setenv("FLEET_BENCH_VENVS", test_folder(), 1);
    CHECK_INT(run_check(ROWS_SCRIPT, "port no-server", output), 0);
    CHECK_CONTAINS(output, "{\"row\": \"no-server\", \"paddle\": null, "
                           "\"absent\": ");
    CHECK_CONTAINS(output, "\"row\": \"port\"");
}

/* --- planted bugs -------------------------------------------------------- */

#define MUTANTS "../test/mutants"

TEST(a_planted_bug_whose_old_text_is_gone_is_found)
{
    plant("src/base/box.c", "int n = 1;\n");
    plant("test/mutants.table", "= box-has-two base/box.c box/*\n"
                                "- int n = 1;\n"
                                "+ int n = 2;\n");
    check_passes(MUTANTS, "--check");
    plant("src/base/box.c", "int n = 1;\nint n = 1;\n");
    check_finds(MUTANTS, "--check", "box-has-two: its old text is 2 times");
    plant("src/base/box.c", "int m = 1;\n");
    check_finds(MUTANTS, "--check", "box-has-two: its old text is 0 times");
}

/* --- layers -------------------------------------------------------------- */

static void plant_object(const char *source, const char *header)
{
    char text[256];

    snprintf(text, sizeof text, "build/x.o: %s \\\n %s\n%s:\n", source, header,
             header);
    plant("build/x.d", text);
    plant(source, "\n");
}

TEST(a_room_that_includes_one_below_it_is_found)
{
    plant_object("src/runtime/passes/a.c", "src/runtime/plan/plan.h");
    check_passes("layers", "build");
    plant_object("src/runtime/plan/a.c", "src/runtime/passes/b.h");
    check_finds("layers", "build",
                "src/runtime/plan/a.c includes src/runtime/passes/b.h");
}

TEST(a_room_that_includes_its_neighbour_is_found)
{
    plant_object("src/ps/a.c", "src/net/message.h");
    check_passes("layers", "build");
    plant_object("src/ps/a.c", "src/ops/ops.h");
    check_finds("layers", "build", "src/ps/a.c includes src/ops/ops.h");
    plant_object("src/runtime/exec/a.c", "src/net/message.h");
    check_finds("layers", "build", "src/runtime/exec/a.c includes src/net");
}

TEST(a_folder_that_is_no_room_is_found)
{
    plant_object("src/attic/a.c", "src/base/error.h");
    check_finds("layers", "build", "src/attic/a.c is in no room");
}

TEST(a_library_outside_its_home_is_found)
{
    plant_object("src/base/json/json.c", "src/base/error.h");
    plant("src/base/json/json.c", "#include <cjson/cJSON.h>\n");
    check_passes("layers", "build");
    plant("src/fleet/init.c", "#include <cjson/cJSON.h>\n");
    check_finds("layers", "build", "src/fleet/init.c includes <cjson/>");
}
