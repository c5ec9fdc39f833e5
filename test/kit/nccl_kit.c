/* nccl_kit.c - see nccl_kit.h. */
#define _GNU_SOURCE
#define SUITE nccl_kit
#include "nccl_kit.h"
#include "device_kit.h"
#include "rank_keys_kit.h"
#include "test.h"

#include <dlfcn.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collective/open.h"
#include "collective/nccl/nccl_internal.h"
#include "collective/nccl/nccl_options.h"
#include "cuda-emu/control.h"

/* --- the library --------------------------------------------------------- */

static void *symbol(const char *name)
{
    char path[4096];
    void *object, *found;

    snprintf(path, sizeof path, "%s/libnccl.so.2", getenv("FLEET_NCCL_PATH"));
    object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object)
        test_fail(__FILE__, __LINE__, "%s", dlerror());
    found = dlsym(object, name);
    CHECK(found != NULL);
    return found;
}

void nccl_kit_use(const char *name, int devices)
{
    static const fl_nccl_emu_device device = {fl_emu_stream_begin,
                                              fl_emu_stream_reach,
                                              fl_emu_stream_end, fl_emu_has};
    void (*connect)(const fl_nccl_emu_device *);

    setenv("FLEET_NCCL_PATH", test_beside(name), 1);
    *(void **)&connect = symbol("fl_nccl_emu_connect");
    connect(&device);
    fl_emu_set_devices(devices);
}

void nccl_kit_fault(fl_nccl_emu_fault fault)
{
    void (*set)(fl_nccl_emu_fault);

    *(void **)&set = symbol("fl_nccl_emu_set_fault");
    set(fault);
}

int nccl_kit_live(void)
{
    int (*live)(void);

    *(void **)&live = symbol("fl_nccl_emu_live");
    return live();
}

int nccl_kit_begun(void)
{
    int (*begun)(void);

    *(void **)&begun = symbol("fl_nccl_emu_begun");
    return begun();
}

/* --- a place ------------------------------------------------------------- */

typedef struct rendezvous_point {
    int listener;
    char address[FL_RENDEZVOUS_NAME + 8];
    const char *keys; /* their folder; NULL: none */
} rendezvous_point;

static void use_plug_in(int size)
{
    char *path = strdup(getenv("FLEET_TEST_DEVICE"));

    device_kit_need_gpus(size, true);
    setenv("FLEET_PLUGIN_PATH", dirname(path), 1);
    free(path);
}

static void *prepare(int size)
{
    rendezvous_point *m = calloc(1, sizeof *m);
    char bound[FL_RENDEZVOUS_NAME];

    CHECK(m != NULL);
    if (device_kit_is_emulated())
        nccl_kit_use("nccl", size);
    else
        use_plug_in(size);
    CHECK_OK(fl_rendezvous_listen("tcp://127.0.0.1:0", &m->listener, bound));
    snprintf(m->address, sizeof m->address, "tcp://%s", bound);
    return m;
}

static void *prepare_keys(int size)
{
    rendezvous_point *m = prepare(size);
    char name[40];

    snprintf(name, sizeof name, "keys-of-%d", size);
    m->keys = rank_keys_make(name, size);
    return m;
}

static fleet_status open_bare(void *shared, const fl_comm_options *options,
                              int rank, int size, fl_comm **p)
{
    const rendezvous_point *m = shared;
    fl_comm_options o = *options;
    fl_rank_keys keys = {.of = NULL};
    fleet_status status;

    o.rank = rank;
    o.device = device_kit_gpu_of(rank);
    o.size = size;
    o.address = m->address;
    o.job = "kit";
    if (rank == 0)
        CHECK((o.listener = dup(m->listener)) > 0);
    if (m->keys) {
        rank_keys_read(&keys, m->keys, rank, size);
        o.keys = &keys;
    }
    status = device_kit_is_emulated() ? fl_nccl_open(&o, p)
                                      : fl_comm_open("nccl", &o, p);
    rank_keys_done(&keys);
    return status;
}

static fleet_status open_staged(void *shared, const fl_comm_options *options,
                                int rank, int size, fl_comm **p)
{
    fl_comm *inner;

    CHECK_OK(open_bare(shared, options, rank, size, &inner));
    return nccl_kit_stage(inner, device_kit_gpu_of(rank), p);
}

static void clean(void *shared, int size)
{
    rendezvous_point *m = shared;

    (void)size;
    close(m->listener);
    free(m);
}

const comm_kit_place nccl_place = {prepare, open_staged, clean,
                                   device_kit_most_ranks},
                     nccl_host_place = {prepare, open_bare, clean,
                                        device_kit_most_ranks},
                     nccl_keys_place = {prepare_keys, open_bare, clean,
                                        device_kit_most_ranks};
