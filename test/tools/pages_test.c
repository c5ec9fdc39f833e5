/* pages_test.c - what pages of docs/ show as commands does what they say. */
#define SUITE pages
#include "test.h"

#include <stdio.h>
#include <stdlib.h>

TEST_LIMIT(the_tutorial_can_be_followed, 120)
{
    const char *root = getenv("FLEET_SOURCE");
    char command[9000], said[4096];

    if (!root)
        test_skip("set FLEET_SOURCE to the source folder");
    snprintf(command, sizeof command,
             "python3 '%s/test/run-page' '%s/docs/tutorial.md' '%s' 2>&1", root,
             root, test_beside("."));
    if (test_shell(command, said, sizeof said) != 0)
        CHECK_TEXT(said, "");
}

/* A page whose second command prints something else, and one that fails. */
TEST(a_page_that_is_wrong_is_named_with_its_line)
{
    const char *root = getenv("FLEET_SOURCE");
    char command[9000], said[4096];

    if (!root)
        test_skip("set FLEET_SOURCE to the source folder");
    snprintf(command, sizeof command, "python3 '%s/test/run-page' '%s' . 2>&1",
             root,
             test_file("page.md", "```console\n$ echo 1 2 3\n1...3\n"
                                  "$ echo 2\n3\n```\n"));
    CHECK_INT(test_shell(command, said, sizeof said), 1);
    CHECK_CONTAINS(said, "page.md:4: $ echo 2\n");
    test_file("page.md", "```console\n$ false\n```\n");
    CHECK_INT(test_shell(command, said, sizeof said), 1);
    CHECK_CONTAINS(said, "page.md:2: $ false\nexit status 1\n");
}
