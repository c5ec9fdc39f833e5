/* gpu_kit.c - see gpu_kit.h. */
#define _GNU_SOURCE
#define SUITE gpu_kit
#include "gpu_kit.h"
#include "test.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static gpu_kit_asks asks;

static bool is_emulated(void)
{
    return !getenv("FLEET_TEST_DEVICE");
}

const char *gpu_kit_folder(void)
{
    char path[4096];
    char *slash;

    if (is_emulated())
        return test_beside("emu");
    snprintf(path, sizeof path, "%s", getenv("FLEET_TEST_DEVICE"));
    slash = strrchr(path, '/');
    CHECK(slash != NULL);
    *slash = 0;
    return test_keep(path);
}

static void find(void *object, const char *name, void *function)
{
    void *at = dlsym(object, name);

    if (!at)
        test_fail(__FILE__, __LINE__, "%s", dlerror());
    memcpy(function, &at, sizeof at);
}

/* The very object that libfleet opens. */
static void find_control(void)
{
    char path[4200];
    void *object;

    snprintf(path, sizeof path, "%s/libfleet_cuda.so", gpu_kit_folder());
    object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object)
        test_fail(__FILE__, __LINE__, "%s", dlerror());
    find(object, "fl_emu_set_devices", &asks.set_devices);
    find(object, "fl_emu_set_major", &asks.set_major);
    find(object, "fl_emu_set_busy", &asks.set_busy);
    find(object, "fl_emu_fail_at", &asks.fail_at);
    find(object, "fl_emu_live_bytes", &asks.live_bytes);
    find(object, "fl_emu_launches", &asks.launches);
}

void gpu_kit_open(void)
{
    setenv("FLEET_PLUGIN_PATH", gpu_kit_folder(), 1);
    if (is_emulated())
        find_control();
}

const gpu_kit_asks *gpu_kit_control(void)
{
    if (!is_emulated())
        test_skip("only an emulated device does what this test asks for");
    return &asks;
}

void gpu_kit_close(void)
{
    if (is_emulated())
        CHECK_INT((int64_t)asks.live_bytes(), 0);
}
