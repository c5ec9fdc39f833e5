/* gpu_test.c - the first request for a GPU: it is opened once for the whole
 * process, or what is missing is said. The GPU is the emulated one, as the
 * plug-in beside the suite. */
#define SUITE gpu
#include "gpu_kit.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/device/gpu.h"

static fleet_status open_first(fl_gpu **g)
{
    static const fl_device_options o;

    return fl_gpu_open(0, &o, g);
}

TEST(it_is_opened_once_and_shared)
{
    static const fl_device_options strict = {.strict_fp32 = true};
    fl_gpu *a, *b, *c;

    gpu_kit_open();
    CHECK_OK(open_first(&a));
    CHECK_OK(open_first(&b));
    CHECK_OK(fl_gpu_open(0, &strict, &c));
    CHECK(a == b && a != c);
    CHECK_CONTAINS(a->d->name, gpu_kit_name());
    CHECK_OK(fl_gpu_wait(a));
    fl_gpu_close(a);
    fl_gpu_close(b);
    fl_gpu_close(c);
    gpu_kit_close();
}

TEST(rows_are_copied_between_the_memories)
{
    float x[6] = {1, 2, 3, 4, 5, 6}, y[6] = {0};
    void *there;
    fl_gpu *g;

    gpu_kit_open();
    CHECK_OK(open_first(&g));
    fl_gpu_lock(g);
    CHECK_OK(g->m->alloc(g->d, g->queue, sizeof x, &there));
    CHECK_OK(
        fl_gpu_copy(g, &(fl_gpu_rows){there, x, 12, 12, 12, 2, FL_TO_DEVICE}));
    CHECK_OK(
        fl_gpu_copy(g, &(fl_gpu_rows){y, there, 12, 12, 8, 2, FL_TO_HOST}));
    CHECK_OK(fl_gpu_copy_queued(g));
    CHECK_OK(fl_gpu_wait_copies(g));
    CHECK(y[0] == 1 && y[1] == 2 && y[2] == 0 && y[3] == 4 && y[4] == 5);
    g->m->free(g->d, g->queue, there);
    fl_gpu_unlock(g);
    fl_gpu_close(g);
    gpu_kit_close();
}

/* --- what is missing ------------------------------------------------------ */

TEST(no_plug_in_is_said)
{
    fl_gpu *g;

    setenv("FLEET_PLUGIN_PATH", test_folder(), 1);
    CHECK_FAILS(open_first(&g), FLEET_ENODEVICE,
                "no GPU can be used without libfleet_cuda.so");
    CHECK(g == NULL);
}

TEST(no_driver_is_said)
{
    fl_gpu *g;

    gpu_kit_open();
    gpu_kit_control()->set_devices(-1);
    CHECK_FAILS(open_first(&g), FLEET_ENODEVICE, "no NVIDIA driver");
    CHECK(g == NULL);
    gpu_kit_close();
}

TEST(a_folder_that_has_no_plug_in_is_said_by_the_one_that_was_opened)
{
    fl_gpu *g;

    gpu_kit_open();
    CHECK_OK(open_first(&g));
    fl_gpu_close(g);
    setenv("FLEET_PLUGIN_PATH", test_folder(), 1);
    gpu_kit_control()->set_devices(-1);
    CHECK_FAILS(open_first(&g), FLEET_ENODEVICE, "no NVIDIA driver");
    CHECK_CONTAINS(fleet_last_error(), "(FLEET_PLUGIN_PATH, ");
    CHECK_CONTAINS(fleet_last_error(), ", has no libfleet_cuda.so)");
    gpu_kit_control()->set_devices(1);
    gpu_kit_close();
}

TEST(no_gpu_is_said)
{
    fl_gpu *g;

    gpu_kit_open();
    gpu_kit_control()->set_devices(0);
    CHECK_FAILS(open_first(&g), FLEET_ENODEVICE, "but no GPU");
    gpu_kit_close();
}

TEST(a_gpu_that_is_not_there_is_said)
{
    fl_gpu *g;

    gpu_kit_open();
    CHECK_FAILS(fl_gpu_open(3, &(fl_device_options){0}, &g), FLEET_ENODEVICE,
                "there is no device 3; there are 1");
    gpu_kit_close();
}

TEST(a_gpu_that_is_too_old_is_said)
{
    fl_gpu *g;

    gpu_kit_open();
    gpu_kit_control()->set_major(7);
    CHECK_FAILS(open_first(&g), FLEET_ENODEVICE,
                "compute capability 7.0; 8.0 or more is needed");
    gpu_kit_close();
}

/* The real plug-in, where it was built and there is no driver. */
TEST(the_real_plug_in_says_what_is_missing_here)
{
    const char *source = getenv("FLEET_SOURCE");
    char folder[4096], path[4200];
    fl_gpu *g;

    snprintf(folder, sizeof folder, "%s/lib", source && *source ? source : ".");
    snprintf(path, sizeof path, "%s/libfleet_cuda.so", folder);
    if (access(path, R_OK) != 0)
        test_skip("no CUDA plug-in was built here");
    setenv("FLEET_PLUGIN_PATH", folder, 1);
    if (open_first(&g) == FLEET_OK)
        test_skip("there is a GPU here");
    CHECK_FAILS(open_first(&g), FLEET_ENODEVICE, "cuda: ");
}

TEST(a_gpu_is_opened_without_taking_memory)
{
    fl_gpu *g;

    gpu_kit_open();
    gpu_kit_control()->fail_at(1);
    CHECK_OK(open_first(&g));
    CHECK(!gpu_kit_control()->failed());
    gpu_kit_control()->fail_at(0);
    fl_gpu_close(g);
    gpu_kit_close();
}
