/* runtime.cpp - see runtime.h. */
#include "cuda_runtime.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>

#include "block.h"
#include "control.h"
#include "inside.h"

/* --- what tests ask for --------------------------------------------------- */

/* Of processes that no test asks: FLEET_EMU_DEVICES, FLEET_EMU_LATE,
 * FLEET_EMU_SEED. */
static int said(const char *name, int otherwise)
{
    const char *text = std::getenv(name);

    return text ? std::atoi(text) : otherwise;
}

fl_emu_control fl_emu_is = {said("FLEET_EMU_DEVICES", 1),
                            said("FLEET_EMU_LATE", 0) != 0,
                            (unsigned long long)said("FLEET_EMU_SEED", 0)};
static fl_emu_control &control = fl_emu_is;

/* One of n by the seed. Threads of the host take numbers as they come. */
unsigned fl_emu_roll(unsigned n)
{
    unsigned long long x = __atomic_add_fetch(
        &control.rolled, 0x9E3779B97F4A7C15ull, __ATOMIC_RELAXED);

    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ x >> 27) * 0x94D049BB133111EBull;
    return (unsigned)((x ^ x >> 31) % n);
}

static std::mutex lock;
static std::set<const void *> kept;

void fl_emu_keep(const void *object)
{
    std::lock_guard<std::mutex> held(lock);

    kept.insert(object);
}

void fl_emu_forget(const void *object)
{
    std::lock_guard<std::mutex> held(lock);

    kept.erase(object);
}

void fl_emu_set_seed(unsigned long long seed)
{
    control.seed = seed;
    control.rolled = seed;
}

void fl_emu_set_devices(int n)
{
    control.devices = n;
}

void fl_emu_set_major(int major)
{
    control.major = major;
}

void fl_emu_set_reverse(bool reverse)
{
    control.reverse = reverse;
}

void fl_emu_set_late(bool late)
{
    control.late = late;
}

void fl_emu_set_busy(bool busy)
{
    control.busy = busy;
}

void fl_emu_fail_at(int n)
{
    control.fail_at = n;
    control.failed = false;
}

bool fl_emu_failed(void)
{
    return control.failed;
}

void fl_emu_set_memory(std::size_t bytes)
{
    control.most = bytes;
}

void fl_emu_set_pools(bool has)
{
    control.pools = has;
}

void fl_emu_lose_after(int kernels)
{
    control.lose_after = kernels;
}

long fl_emu_hangs(void)
{
    return __atomic_load_n(&control.hangs, __ATOMIC_RELAXED);
}

void fl_emu_counted(long launches, long switches)
{
    if (control.lose_after > 0)
        control.lose_after--;
    __atomic_fetch_add(&control.launches, launches, __ATOMIC_RELAXED);
    __atomic_fetch_add(&control.switches, switches, __ATOMIC_RELAXED);
}

long fl_emu_launches(void)
{
    return __atomic_load_n(&control.launches, __ATOMIC_RELAXED);
}

long fl_emu_nodes(void)
{
    return __atomic_load_n(&control.nodes, __ATOMIC_RELAXED);
}

long fl_emu_switches(void)
{
    return __atomic_load_n(&control.switches, __ATOMIC_RELAXED);
}

long fl_emu_queued(void)
{
    return __atomic_load_n(&control.queued, __ATOMIC_RELAXED);
}

long fl_emu_waiting(void)
{
    return __atomic_load_n(&control.waiting, __ATOMIC_SEQ_CST);
}

/* --- errors --------------------------------------------------------------- */

static thread_local cudaError_t last;
static thread_local char last_text[400];

cudaError_t fl_emu_error(cudaError_t e, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    std::vsnprintf(last_text, sizeof last_text, format, list);
    va_end(list);
    return last = e;
}

bool fl_emu_is_lost()
{
    return control.lose_after == 0;
}

cudaError_t fl_emu_lost()
{
    return fl_emu_error(cudaErrorIllegalAddress,
                        "an illegal memory access was encountered");
}

/* What would wait for a device that never ends does so in vain. */
void fl_emu_wait_for_device(const char *call)
{
    if (!control.busy)
        return;
    std::fprintf(stderr, "emulated device: %s never returns\n", call);
    __atomic_fetch_add(&control.hangs, 1, __ATOMIC_RELAXED);
}

cudaError_t cudaGetLastError()
{
    cudaError_t e = fl_emu_is_lost() ? fl_emu_lost() : last;

    last = cudaSuccess;
    return e;
}

const char *cudaGetErrorString(cudaError_t e)
{
    switch (e) {
    case cudaSuccess:
        return "no error";
    case cudaErrorNoDevice:
        return "no CUDA-capable device is detected";
    case cudaErrorInsufficientDriver:
        return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorInvalidDevice:
        return "invalid device ordinal";
    case cudaErrorNotReady:
        return "device not ready";
    default:
        return last_text;
    }
}

/* --- devices -------------------------------------------------------------- */

thread_local int fl_emu_device;

cudaError_t fl_emu_need_devices()
{
    return control.devices < 0    ? cudaErrorInsufficientDriver
           : control.devices == 0 ? cudaErrorNoDevice
                                  : cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = control.devices < 0 ? 0 : control.devices;
    return fl_emu_need_devices();
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = control.devices < 0 ? 0 : CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= control.devices)
        return cudaErrorInvalidDevice;
    fl_emu_device = device;
    return fl_emu_is_lost() ? fl_emu_lost() : cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr, int device)
{
    *value = control.pools;
    return device < control.devices ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = fl_emu_device;
    return fl_emu_need_devices();
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device)
{
    if (device < 0 || device >= control.devices)
        return cudaErrorInvalidDevice;
    *p = cudaDeviceProp();
    std::snprintf(p->name, sizeof p->name, "emulated");
    p->totalGlobalMem = FL_EMU_TOTAL;
    p->sharedMemPerBlock = FL_EMU_MOST_SHARED;
    p->major = control.major;
    p->multiProcessorCount = 4;
    p->warpSize = warpSize;
    p->maxThreadsPerBlock = FL_EMU_MOST_THREADS;
    p->l2CacheSize = 1 << 20;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int size, int device)
{
    if (device < 0 || device >= control.devices)
        return cudaErrorInvalidDevice;
    std::snprintf(id, (std::size_t)size, "0000:%02x:00.0", device + 1);
    return cudaSuccess;
}
