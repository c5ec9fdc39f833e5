/* gpu_run_test.c - test/gpu-run, which runs all that needs a GPU in one call:
 * without one it says so, a part that fails stops no other, and what it has
 * seen is kept. */
#define SUITE gpu_run
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"

enum { MOST = 4000 };

static int run(const char *arguments, char said[MOST])
{
    const char *source = getenv("FLEET_SOURCE");
    char command[2 * MOST];

    if (!source || !*source)
        test_skip("FLEET_SOURCE is not set, so test/gpu-run is absent");
    snprintf(command, sizeof command, "'%s/test/gpu-run' --out '%s' %s 2>&1",
             source, test_path("out"), arguments);
    return test_shell(command, said, MOST);
}

TEST(without_a_gpu_it_says_so)
{
    char said[MOST];

    if (access("/dev/nvidia0", F_OK) == 0)
        test_skip("this machine has a GPU");
    CHECK_INT(run("", said), 1);
    CHECK_CONTAINS(said, "no GPU, or no driver: ");
}

TEST(a_part_that_fails_stops_no_other_and_all_is_kept)
{
    char said[MOST], list[MOST], *text;
    size_t size;

    CHECK_INT(
        run("--device /nowhere/libfleet_cuda.so --only device,products", said),
        1);
    CHECK_CONTAINS(said, "gpu-run: device: FAILED");
    CHECK_CONTAINS(said, "gpu-run: products: FAILED");
    CHECK_OK(fl_file_read(test_path("out/summary.md"), &text, &size));
    CHECK_CONTAINS(text, "| device | FAILED | ");
    CHECK_CONTAINS(text, "| products | FAILED | ");
    fl_free(text);
    snprintf(list, sizeof list, "tar tzf '%s'", test_path("out/logs.tar.gz"));
    CHECK_INT(test_shell(list, said, MOST), 0);
    CHECK_TEXT(said, "device.log\nproducts.log\n");
}

TEST(what_there_is_no_time_for_is_skipped)
{
    char said[MOST];

    CHECK_INT(run("--device /nowhere/libfleet_cuda.so --minutes 0.1", said), 0);
    CHECK_CONTAINS(said, "gpu-run: build: skipped: no time is left");
    CHECK_CONTAINS(said, "gpu-run: nccl: skipped: build did not pass");
}

TEST(parts_that_it_does_not_have_are_named)
{
    char said[MOST];

    CHECK_INT(run("--device /nowhere/x.so --only nccl,drums", said), 1);
    CHECK_CONTAINS(said, "no part is called drums: there are build, device");
}
