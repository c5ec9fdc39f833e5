/* nccl_lib.c - NCCL's functions, found at run time. */
#define _GNU_SOURCE
#include "collective/nccl/nccl_lib.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "collective/nccl/nccl_gpu.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fl_nccl_lib opened; /* once its version is known */

static fleet_status find_all(void *object, const char *path, fl_nccl_lib *lib)
{
#define FIND(result, name, arguments)                                          \
    *(void **)&lib->name = dlsym(object, "nccl" #name);                        \
    if (!lib->name)                                                            \
        return fl_fail(FLEET_EUNSUPPORTED,                                     \
                       "nccl: %s does not have nccl" #name                     \
                       ": NCCL 2.14 or newer is needed",                       \
                       path);
    FL_NCCL_MAP(FIND)
#undef FIND
    return FLEET_OK;
}

static fleet_status check_version(const char *path, fl_nccl_lib *lib)
{
    int version = 0, code = lib->GetVersion(&version);

    if (code != FL_NCCL_OK || version < FL_NCCL_LEAST)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "nccl: %s is version code %d (%s): NCCL 2.14 (%d) or "
                       "newer is needed",
                       path, version, lib->GetErrorString(code), FL_NCCL_LEAST);
    lib->version = version;
    return FLEET_OK;
}

/* The real one would find no GPU, and say so in its own words. */
static fleet_status check_sign(void *object)
{
    const char *sign = fl_cu_nccl_sign();
    Dl_info info;

    if (!sign || dlsym(object, sign))
        return FLEET_OK;
    return fl_fail(FLEET_EUNSUPPORTED,
                   "nccl: these GPUs are emulated, and %.300s is not for such: "
                   "expected FLEET_NCCL_PATH to be the folder of the one that "
                   "make builds beside the emulated plug-in, nccl",
                   dladdr(dlsym(object, "ncclGetVersion"), &info)
                       ? info.dli_fname
                       : "libnccl.so.2");
}

static fleet_status open_library(void)
{
    static const char name[] = "libnccl.so.2";
    const char *folder = getenv("FLEET_NCCL_PATH");
    char path[4096];
    fl_nccl_lib lib = {0};
    void *object;

    if (folder && *folder)
        snprintf(path, sizeof path, "%.4000s/%s", folder, name);
    else
        snprintf(path, sizeof path, "%s", name);
    object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "nccl: ranks on GPUs need NCCL's %s, which was looked "
                       "for %s: %s",
                       name,
                       folder && *folder ? "in FLEET_NCCL_PATH"
                                         : "by the loader (FLEET_NCCL_PATH "
                                           "names its folder)",
                       dlerror());
    FL_TRY(find_all(object, path, &lib));
    FL_TRY(check_version(path, &lib));
    FL_TRY(check_sign(object));
    opened = lib;
    return FLEET_OK;
}

fleet_status fl_nccl_lib_open(const fl_nccl_lib **lib)
{
    fleet_status status = FLEET_OK;

    pthread_mutex_lock(&lock);
    if (opened.version == 0)
        status = open_library();
    pthread_mutex_unlock(&lock);
    *lib = status == FLEET_OK ? &opened : NULL;
    return status;
}
