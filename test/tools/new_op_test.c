/* new_op_test.c - tools/new-op: in a copy of the files that it changes, what it
 * makes compiles, is in every list, and passes the checks of the tree. */
#define _GNU_SOURCE
#define SUITE new_op
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <limits.h>

enum { OUTPUT = 8192 };

static int in_copy(const char *command, char output[OUTPUT])
{
    char whole[3 * PATH_MAX];

    snprintf(whole, sizeof whole, "S='%s'; cd '%s' && { %s; } 2>&1",
             getenv("FLEET_SOURCE"), test_folder(), command);
    return test_shell(whole, output, OUTPUT);
}

static void copy_tree(void)
{
    char output[OUTPUT];

    if (!getenv("FLEET_SOURCE"))
        test_skip("set FLEET_SOURCE to the source folder");
    if (in_copy("cd \"$S\" && cp --parents tools/new-op include/fleet/ops.h "
                "docs/glossary.md src/ops/ops.def src/fleet/onnx/onnx_ops.def "
                "src/runtime/device/cuda/cuda_kernels.def test/kit/op_kit.[ch] "
                "\"$OLDPWD\" && mkdir -p \"$OLDPWD/src/ops/norm\" "
                "\"$OLDPWD/src/ops/math\" \"$OLDPWD/test/ops\"",
                output) != 0)
        test_fail(__FILE__, __LINE__, "%s", output);
}

/* Exits with 0, or what it says. */
static void check_does(const char *command)
{
    char output[OUTPUT];

    if (in_copy(command, output) != 0)
        test_fail(__FILE__, __LINE__, "%s: %s", command, output);
}

static void check_refuses(const char *command, const char *words)
{
    char output[OUTPUT];

    CHECK_INT(in_copy(command, output), 1);
    CHECK_CONTAINS(output, words);
}

#define COMPILES(file)                                                         \
    check_does("cc -std=gnu17 -Wall -Wextra -Werror -fsyntax-only -Iinclude "  \
               "-Isrc -Itest/kit -I\"$S/include\" -I\"$S/src\" "               \
               "-I\"$S/test/kit\" " file)

TEST(a_skeleton_compiles_and_is_in_every_list)
{
    copy_tree();
    check_does("tools/new-op fold norm");
    COMPILES("src/ops/norm/fold.c");
    COMPILES("test/ops/fold_test.c");
    COMPILES("test/kit/op_kit.c");
    check_does("grep -qx 'FL_OP(fold)' src/ops/ops.def");
    check_does("grep -q 'FL_ONNX_NOT(fold, ' src/fleet/onnx/onnx_ops.def");
    check_does("grep -q 'FLEET_API fleet_var .fleet_fold(' "
               "include/fleet/ops.h");
    check_does("grep FL_CUDA_F src/runtime/device/cuda/cuda_kernels.def | "
               "LC_ALL=C sort -c");
    check_does("grep -q '(fold)' src/runtime/device/cuda/cuda_kernels.def");
    check_does("for t in names sizes comments; do python3 \"$S/tools/$t\" "
               "\"$PWD\" | grep 'fold[._]' && exit 1; done; true");
}

TEST(until_it_has_a_reference_it_fails)
{
    copy_tree();
    check_does("tools/new-op fold");
    check_does("grep -q 'test_fail(.*fold has no reference' "
               "test/ops/fold_test.c");
    check_does("grep -q ' fold_cases, *NULL' test/kit/op_kit.c || "
               "grep -q '^ *fold_cases,$' test/kit/op_kit.c");
}

TEST(what_cannot_be_is_refused_and_changes_nothing)
{
    copy_tree();
    check_does("mkdir before && cp -r include src test before");
    check_refuses("tools/new-op Fold", "\"Fold\": expected lower case words");
    check_refuses("tools/new-op fold nowhere", "expected a folder of src/ops");
    check_refuses("tools/new-op matmul", "has fleet_matmul already");
    check_refuses("tools/new-op fold ../..", "expected a folder of src/ops");
    check_refuses("tools/new-op int", "a word of C");
    check_refuses("tools/new-op norm", "has norm_cases already");
    check_refuses("tools/new-op reverse", "has FL_CUDA_FAMILY(reverse)");
    check_refuses("tools/new-op", "new-op NAME [FOLDER]");
    check_does("touch src/ops/norm/fold.cu");
    check_refuses("tools/new-op fold norm", "fold.cu is there already");
    check_does("rm src/ops/norm/fold.cu && for d in include src test; do "
               "diff -r $d before/$d || exit 1; done");
}
