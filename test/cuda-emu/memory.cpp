/* memory.cpp - memory of the emulated device and pinned memory, and copies. */
#include "cuda_runtime.h"

#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

#include "control.h"
#include "inside.h"

static std::mutex lock;

enum kind { PINNED, DEVICE, POOLED };

struct allocation {
    std::size_t bytes;
    kind is;
    bool device() const
    {
        return is != PINNED;
    }
};
static std::map<const char *, allocation> memory;

static std::size_t live_device_bytes()
{
    std::size_t sum = 0;

    for (const auto &m : memory)
        sum += m.second.device() ? m.second.bytes : 0;
    return sum;
}

/* The n-th does, and one more try of it; or there is not that much. */
static bool runs_out(std::size_t bytes, kind is)
{
    static std::size_t again;
    bool fails = fl_emu_is.fail_at > 0 && --fl_emu_is.fail_at == 0;

    if (fails || (fl_emu_is.failed && again == bytes + 1)) {
        again = fails ? bytes + 1 : 0;
        fl_emu_is.failed = true;
        return true;
    }
    again = 0;
    if (is == PINNED || fl_emu_is.most == 0)
        return false;
    if (is == POOLED) {
        std::size_t taken = bytes < fl_emu_is.cached ? bytes : fl_emu_is.cached;

        if (live_device_bytes() + fl_emu_is.cached - taken + bytes >
            fl_emu_is.most)
            return true;
        fl_emu_is.cached -= taken;
        return false;
    }
    return live_device_bytes() + fl_emu_is.cached + bytes > fl_emu_is.most;
}

static cudaError_t allocate(void **p, std::size_t bytes, kind is)
{
    std::lock_guard<std::mutex> held(lock);

    *p = nullptr;
    if (fl_emu_captures())
        return fl_emu_spoil("an allocation");
    if (runs_out(bytes, is))
        return fl_emu_error(cudaErrorMemoryAllocation, "out of memory");
    if (posix_memalign(p, 256, bytes + 1) != 0)
        return fl_emu_error(cudaErrorMemoryAllocation, "out of memory");
    std::memset(*p, 0xff, bytes);
    memory[static_cast<char *>(*p)] = {bytes, is};
    return cudaSuccess;
}

static cudaError_t release(void *p, kind is)
{
    std::lock_guard<std::mutex> held(lock);
    auto at = memory.find(static_cast<char *>(p));

    if (!p)
        return cudaSuccess;
    if (fl_emu_captures())
        return fl_emu_spoil("a free");
    if (at == memory.end() || at->second.is != is)
        return fl_emu_error(cudaErrorInvalidValue,
                            "%p is no %s memory to be freed", p,
                            is == PINNED   ? "pinned"
                            : is == POOLED ? "pooled"
                                           : "device");
    if (is == POOLED)
        fl_emu_is.cached += at->second.bytes;
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
    return at->second.device();
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
    return allocate(p, bytes, DEVICE);
}

cudaError_t cudaFree(void *p)
{
    if (p)
        fl_emu_wait_for_device("cudaFree");
    return release(p, DEVICE);
}

cudaError_t cudaMallocAsync(void **p, std::size_t bytes, cudaStream_t)
{
    return allocate(p, bytes, POOLED);
}

cudaError_t cudaFreeAsync(void *p, cudaStream_t s)
{
    if (fl_emu_captures(s))
        return fl_emu_spoil("cudaFreeAsync");
    fl_emu_enqueue(s, [=] { release(p, POOLED); });
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **p, std::size_t bytes)
{
    return allocate(p, bytes, PINNED);
}

cudaError_t cudaFreeHost(void *p)
{
    if (p)
        fl_emu_wait_for_device("cudaFreeHost");
    return release(p, PINNED);
}

cudaError_t cudaMemGetInfo(std::size_t *free, std::size_t *total)
{
    *total = FL_EMU_TOTAL;
    *free = FL_EMU_TOTAL - fl_emu_live_bytes();
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
    return at < m->first + m->second.bytes && !m->second.device();
}

/* The bytes are what they were when the copy was queued: what is pinned is read
 * when its turn comes. */
static unsigned long long sum_of(const void *p, std::size_t bytes)
{
    const unsigned char *at = static_cast<const unsigned char *>(p);
    unsigned long long sum = 0xcbf29ce484222325ull;

    for (std::size_t i = 0; i < bytes; i++)
        sum = (sum ^ at[i]) * 0x100000001b3ull;
    return sum;
}

std::function<void()> fl_emu_pinned_work(const fl_emu_work &w)
{
    unsigned long long sum = w.pinned ? sum_of(w.pinned, w.bytes) : 0;

    if (!w.pinned)
        return w.work;
    return [=] {
        if (!is_pinned(w.pinned))
            fl_emu_error(cudaErrorInvalidValue,
                         "pinned memory was freed before its copy was done");
        else if (sum_of(w.pinned, w.bytes) != sum)
            fl_emu_error(cudaErrorInvalidValue,
                         "pinned memory was written before its copy to the "
                         "device was done");
        else
            w.work();
    };
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
    if (kind == cudaMemcpyHostToDevice) {
        fl_emu_queue_pinned(
            s, {[=] { std::memmove(to, from, bytes); }, from, bytes});
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
        fl_emu_do_all(s);
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
    static char the_pool;

    *pool = reinterpret_cast<cudaMemPool_t>(&the_pool);
    return device < fl_emu_is.devices ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void *)
{
    return cudaSuccess;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t)
{
    std::lock_guard<std::mutex> held(lock);

    fl_emu_is.cached = 0;
    return cudaSuccess;
}
