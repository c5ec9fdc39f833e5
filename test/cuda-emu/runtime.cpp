/* runtime.cpp - see runtime.h. */
#include "cuda_runtime.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include "block.h"
#include "control.h"

struct task {
    std::function<void()> work;
    std::function<bool()> is_ready; /* empty: it is */
    long after;                     /* so many of others have ended */
};
struct fl_emu_stream {
    int device;
    long begun, ended;         /* by others */
    std::recursive_mutex lock; /* of the rest, and who does it */
    std::deque<task> work;     /* not done yet */
    long done;
};
struct fl_emu_event {
    double at; /* seconds; 0: not recorded */
    cudaStream_t stream;
    long begun; /* the stream's when it was recorded */
    long after; /* so much of its work */
};

/* --- what tests ask for --------------------------------------------------- */

/* Of processes that no test asks: FLEET_EMU_DEVICES, FLEET_EMU_LATE. */
static int said(const char *name, int otherwise)
{
    const char *text = std::getenv(name);

    return text ? std::atoi(text) : otherwise;
}

static struct {
    int devices = said("FLEET_EMU_DEVICES", 1);
    bool reverse = false, busy = false, late = said("FLEET_EMU_LATE", 0) != 0;
    int fail_at = 0, major = 9;
    long launches = 0, switches = 0, queued = 0, waiting = 0;
} control;
static std::mutex lock;

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
}

bool fl_emu_reversed()
{
    return control.reverse;
}

void fl_emu_counted(long launches, long switches)
{
    __atomic_fetch_add(&control.launches, launches, __ATOMIC_RELAXED);
    __atomic_fetch_add(&control.switches, switches, __ATOMIC_RELAXED);
}

long fl_emu_launches(void)
{
    return __atomic_load_n(&control.launches, __ATOMIC_RELAXED);
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

cudaError_t cudaGetLastError()
{
    cudaError_t e = last;

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

static thread_local int current;
static const std::size_t TOTAL = (std::size_t)1 << 34;

static cudaError_t need_devices()
{
    return control.devices < 0    ? cudaErrorInsufficientDriver
           : control.devices == 0 ? cudaErrorNoDevice
                                  : cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = control.devices < 0 ? 0 : control.devices;
    return need_devices();
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
    current = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current;
    return need_devices();
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device)
{
    if (device < 0 || device >= control.devices)
        return cudaErrorInvalidDevice;
    *p = cudaDeviceProp();
    std::snprintf(p->name, sizeof p->name, "emulated");
    p->totalGlobalMem = TOTAL;
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

/* --- memory --------------------------------------------------------------- */

struct allocation {
    std::size_t bytes;
    bool device;
};
static std::map<const char *, allocation> memory;

static cudaError_t allocate(void **p, std::size_t bytes, bool device)
{
    std::lock_guard<std::mutex> held(lock);

    *p = nullptr;
    if (fl_emu_captures())
        return fl_emu_spoil("an allocation");
    if (control.fail_at > 0 && --control.fail_at == 0)
        return fl_emu_error(cudaErrorMemoryAllocation, "out of memory");
    *p = std::malloc(bytes + 1);
    if (!*p)
        return fl_emu_error(cudaErrorMemoryAllocation, "out of memory");
    std::memset(*p, 0xff, bytes);
    memory[static_cast<char *>(*p)] = {bytes, device};
    return cudaSuccess;
}

/* --- what is queued ------------------------------------------------------- */

static const timespec pause = {0, 20000};

static long begun(cudaStream_t s)
{
    return s ? __atomic_load_n(&s->begun, __ATOMIC_SEQ_CST) : 0;
}

static bool has_ended(cudaStream_t s, long until)
{
    return !s || __atomic_load_n(&s->ended, __ATOMIC_SEQ_CST) >= until;
}

static void put_off(cudaStream_t s, task t)
{
    s->work.push_back(std::move(t));
    __atomic_fetch_add(&control.waiting, 1, __ATOMIC_SEQ_CST);
}

/* What comes behind work of others waits for its end, as on a real stream: who
 * queues it does not. */
static void enqueue(cudaStream_t s, task t)
{
    if (!s) {
        while (t.is_ready && !t.is_ready())
            nanosleep(&pause, nullptr);
        t.work();
        return;
    }
    std::lock_guard<std::recursive_mutex> held(s->lock);
    t.after = begun(s);
    if (control.late || !s->work.empty() || !has_ended(s, t.after) ||
        (t.is_ready && !t.is_ready()))
        put_off(s, std::move(t));
    else
        t.work();
}

void fl_emu_queue(cudaStream_t s, std::function<void()> work)
{
    if (fl_emu_captured(s, work))
        return;
    __atomic_fetch_add(&control.queued, 1, __ATOMIC_RELAXED);
    enqueue(s, {std::move(work), nullptr, 0});
}

/* Do what is first on it, if that is ready; false: it is not. */
static bool do_first(cudaStream_t s, long after, bool *more)
{
    std::lock_guard<std::recursive_mutex> held(s->lock);

    *more = s->done < after && !s->work.empty();
    if (!*more)
        return true;
    task &first = s->work.front();
    if (!has_ended(s, first.after) || (first.is_ready && !first.is_ready()))
        return false;
    std::function<void()> work = std::move(first.work);
    s->work.pop_front();
    s->done++;
    work();
    __atomic_fetch_sub(&control.waiting, 1, __ATOMIC_SEQ_CST);
    return true;
}

/* As far as it can be done now: is it? */
static bool do_until(cudaStream_t s, long after)
{
    bool more = s != nullptr;

    while (more)
        if (!do_first(s, after, &more))
            return false;
    return true;
}

/* So much of its work there is, done or not. */
static long queued(cudaStream_t s)
{
    if (!s)
        return 0;
    std::lock_guard<std::recursive_mutex> held(s->lock);
    return s->done + (long)s->work.size();
}

static cudaError_t do_all(cudaStream_t s)
{
    long until = begun(s), after = queued(s);

    while (!do_until(s, after) || !has_ended(s, until))
        nanosleep(&pause, nullptr);
    return cudaGetLastError();
}

static cudaError_t release(void *p, bool device)
{
    std::lock_guard<std::mutex> held(lock);
    auto at = memory.find(static_cast<char *>(p));

    if (!p)
        return cudaSuccess;
    if (fl_emu_captures())
        return fl_emu_spoil("a free");
    if (at == memory.end() || at->second.device != device)
        return fl_emu_error(cudaErrorInvalidValue,
                            "%p is no %s memory to be freed", p,
                            device ? "device" : "pinned");
    memory.erase(at);
    std::free(p);
    return cudaSuccess;
}

std::size_t fl_emu_live_bytes(void)
{
    std::lock_guard<std::mutex> held(lock);
    std::size_t sum = 0;

    for (const auto &m : memory)
        sum += m.second.bytes;
    return sum;
}

/* Are these bytes the device's? *whole: do they lie in one allocation? */
static bool is_device(const void *p, std::size_t bytes, bool *whole)
{
    std::lock_guard<std::mutex> held(lock);
    const char *begin = static_cast<const char *>(p);
    auto at = memory.upper_bound(begin);

    *whole = true;
    if (at == memory.begin())
        return false;
    --at;
    if (begin >= at->first + at->second.bytes + (at->second.bytes == 0))
        return false;
    *whole = begin + bytes <= at->first + at->second.bytes;
    return at->second.device;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *a, const void *p)
{
    bool whole;

    a->type = is_device(p, 1, &whole) ? cudaMemoryTypeDevice
                                      : cudaMemoryTypeUnregistered;
    return cudaSuccess;
}

bool fl_emu_has(const void *p, std::size_t bytes)
{
    bool whole;

    return bytes == 0 || (is_device(p, bytes, &whole) && whole);
}

static cudaError_t check_side(const char *call, const void *p,
                              std::size_t bytes, bool device)
{
    bool whole, is = is_device(p, bytes, &whole);

    if (bytes == 0)
        return cudaSuccess;
    if (is != device)
        return fl_emu_error(cudaErrorInvalidMemcpyDirection,
                            "%s: %p is memory of the %s", call, p,
                            is ? "device" : "host");
    if (!whole)
        return fl_emu_error(cudaErrorInvalidValue,
                            "%s: %zu bytes at %p reach past their allocation",
                            call, bytes, p);
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **p, std::size_t bytes)
{
    return allocate(p, bytes, true);
}

cudaError_t cudaFree(void *p)
{
    return release(p, true);
}

cudaError_t cudaMallocAsync(void **p, std::size_t bytes, cudaStream_t)
{
    return allocate(p, bytes, true);
}

cudaError_t cudaFreeAsync(void *p, cudaStream_t s)
{
    if (fl_emu_captures(s))
        return fl_emu_spoil("cudaFreeAsync");
    enqueue(s, {[=] { release(p, true); }, nullptr, 0});
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **p, std::size_t bytes)
{
    return allocate(p, bytes, false);
}

cudaError_t cudaFreeHost(void *p)
{
    return release(p, false);
}

cudaError_t cudaMemGetInfo(std::size_t *free, std::size_t *total)
{
    *total = TOTAL;
    *free = TOTAL - fl_emu_live_bytes();
    return cudaSuccess;
}

static bool is_pinned(const void *p)
{
    std::lock_guard<std::mutex> held(lock);
    const char *at = static_cast<const char *>(p);
    auto m = memory.upper_bound(at);

    if (m == memory.begin())
        return false;
    --m;
    return at < m->first + m->second.bytes && !m->second.device;
}

/* As it is now where a real copy may not look later. */
static cudaError_t queue_copy(void *to, const void *from, std::size_t bytes,
                              cudaMemcpyKind kind, cudaStream_t s)
{
    const char *begin = static_cast<const char *>(from);
    const void *host = kind == cudaMemcpyDeviceToHost ? to : from;
    bool pinned = kind != cudaMemcpyDeviceToDevice && is_pinned(host);

    if (kind != cudaMemcpyDeviceToDevice && !pinned && fl_emu_captures(s))
        return fl_emu_spoil("a copy of memory that is not pinned");
    if (kind == cudaMemcpyHostToDevice && !pinned) {
        std::vector<char> now(begin, begin + bytes);

        fl_emu_queue(s, [=] { std::memcpy(to, now.data(), bytes); });
        return cudaSuccess;
    }
    fl_emu_queue(s, [=] {
        if (pinned && !is_pinned(host))
            fl_emu_error(cudaErrorInvalidValue,
                         "pinned memory was freed before its copy was done");
        else
            std::memmove(to, from, bytes);
    });
    if (kind == cudaMemcpyDeviceToHost && !pinned)
        do_all(s);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, std::size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t s)
{
    bool whole, any = kind == cudaMemcpyDefault;
    bool to_device = any ? is_device(to, bytes, &whole) : kind & 1;
    bool from_device =
        any ? is_device(from, bytes, &whole) : kind >= cudaMemcpyDeviceToHost;
    cudaError_t e = check_side("cudaMemcpyAsync", to, bytes, to_device);

    if (e == cudaSuccess)
        e = check_side("cudaMemcpyAsync", from, bytes, from_device);
    if (e == cudaSuccess && bytes > 0)
        e = queue_copy(to, from, bytes, kind, s);
    return e;
}

cudaError_t cudaMemcpy2DAsync(void *to, std::size_t ld_to, const void *from,
                              std::size_t ld_from, std::size_t bytes,
                              std::size_t rows, cudaMemcpyKind kind,
                              cudaStream_t s)
{
    cudaError_t e = cudaSuccess;

    if (bytes > ld_to || bytes > ld_from)
        return fl_emu_error(cudaErrorInvalidValue,
                            "cudaMemcpy2DAsync: rows of %zu bytes lie %zu and "
                            "%zu apart",
                            bytes, ld_to, ld_from);
    for (std::size_t i = 0; i < rows && e == cudaSuccess; i++)
        e = cudaMemcpyAsync(static_cast<char *>(to) + i * ld_to,
                            static_cast<const char *>(from) + i * ld_from,
                            bytes, kind, s);
    return e;
}

cudaError_t cudaMemsetAsync(void *p, int value, std::size_t bytes,
                            cudaStream_t s)
{
    cudaError_t e = check_side("cudaMemsetAsync", p, bytes, true);

    if (e == cudaSuccess && bytes > 0)
        fl_emu_queue(s, [=] { std::memset(p, value, bytes); });
    return e;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device)
{
    *pool = nullptr;
    return device < control.devices ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void *)
{
    return cudaSuccess;
}

/* --- streams and events --------------------------------------------------- */

static double now()
{
    timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
    *s = new (std::nothrow) fl_emu_stream();
    if (!*s)
        return fl_emu_error(cudaErrorMemoryAllocation, "out of memory");
    (*s)->device = current;
    return need_devices();
}

long fl_emu_stream_begin(void *stream)
{
    cudaStream_t s = static_cast<cudaStream_t>(stream);
    std::lock_guard<std::recursive_mutex> held(s->lock);

    __atomic_fetch_add(&s->begun, 1, __ATOMIC_SEQ_CST);
    return queued(s);
}

bool fl_emu_stream_reach(void *stream, long after)
{
    return do_until(static_cast<cudaStream_t>(stream), after);
}

void fl_emu_stream_end(void *stream)
{
    __atomic_fetch_add(&static_cast<cudaStream_t>(stream)->ended, 1,
                       __ATOMIC_SEQ_CST);
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    if (s && fl_emu_captures(s))
        return fl_emu_spoil("cudaStreamDestroy");
    do_all(s);
    delete s;
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t s)
{
    if (fl_emu_captures(s))
        return fl_emu_spoil("cudaStreamQuery");
    if (control.busy || !has_ended(s, begun(s)) || !do_until(s, queued(s)))
        return fl_emu_error(cudaErrorNotReady, "not ready"); /* kept, too */
    return cudaGetLastError();
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    if (fl_emu_captures(s))
        return fl_emu_spoil("cudaStreamSynchronize");
    return do_all(s);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
    cudaStream_t other = e->stream;
    long after = e->after, begun = e->begun;

    if (fl_emu_captures(s))
        return fl_emu_spoil("cudaStreamWaitEvent");
    enqueue(s,
            {[] {},
             [=] { return do_until(other, after) && has_ended(other, begun); },
             0});
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
    *e = static_cast<cudaEvent_t>(std::calloc(1, sizeof **e));
    return *e ? cudaSuccess
              : fl_emu_error(cudaErrorMemoryAllocation, "out of memory");
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    std::free(e);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    if (fl_emu_captures(s))
        return fl_emu_spoil("cudaEventRecord");
    e->stream = s;
    e->begun = begun(s);
    e->at = now();
    e->after = queued(s);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
    if (fl_emu_captures())
        return fl_emu_spoil("cudaEventQuery");
    if (control.busy || !do_until(e->stream, e->after) ||
        !has_ended(e->stream, e->begun))
        return fl_emu_error(cudaErrorNotReady, "not ready"); /* kept, too */
    return cudaGetLastError();
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    if (from->at <= 0 || to->at <= 0)
        return fl_emu_error(cudaErrorInvalidValue, "an event not recorded");
    *ms = (float)((to->at - from->at) * 1e3);
    return cudaSuccess;
}
