/* language.h - the words of CUDA C++ that kernels are written in. */
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

/* Blocks run one after the other on one thread: what a block shares lies there
 * once. */
#define __shared__ thread_local

struct uint3 {
    unsigned x, y, z;
};
/* Hidden, so that one call finds all of a library's: what is opened later has
 * its thread's variables by a call. */
#define FL_EMU_THREAD __attribute__((visibility("hidden"))) __thread
extern FL_EMU_THREAD uint3 threadIdx, blockIdx, blockDim, gridDim;
enum { warpSize = 32 };

#define FL_EMU_VECTOR(type, name)                                              \
    struct alignas(2 * sizeof(type)) name##2                                   \
    {                                                                          \
        type x, y;                                                             \
    };                                                                         \
    struct alignas(sizeof(type) < 8 ? 4 * sizeof(type) : 16) name##4           \
    {                                                                          \
        type x, y, z, w;                                                       \
    };                                                                         \
    static inline name##2 make_##name##2(type x, type y)                       \
    {                                                                          \
        return name##2 {x, y};                                                 \
    }                                                                          \
    static inline name##4 make_##name##4(type x, type y, type z, type w)       \
    {                                                                          \
        return name##4 {x, y, z, w};                                           \
    }
FL_EMU_VECTOR(float, float)
FL_EMU_VECTOR(double, double)
FL_EMU_VECTOR(int, int)
FL_EMU_VECTOR(unsigned, uint)
#undef FL_EMU_VECTOR

/* --- barriers, shuffles, votes ------------------------------------------- */

enum fl_emu_meeting {
    FL_EMU_SYNC,
    FL_EMU_SHUFFLE,
    FL_EMU_BALLOT,
    FL_EMU_MATCH
};

/* Wait for the whole block. */
void __syncthreads();

/* Wait for the lanes of the mask; what comes back is the value of lane `from`,
 * or the lanes whose value is not 0, or those with the same value. */
uint64_t fl_emu_meet(fl_emu_meeting what, unsigned mask, uint64_t value,
                     int from);
int fl_emu_lane();

static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    fl_emu_meet(FL_EMU_SYNC, mask, 0, 0);
}

static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    return (unsigned)fl_emu_meet(FL_EMU_BALLOT, mask, predicate != 0, 0);
}

static inline int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}

static inline int __all_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) == mask;
}

template <class T> static inline uint64_t fl_emu_bits(T value)
{
    uint64_t bits = 0;

    static_assert(sizeof value <= sizeof bits, "a shuffle takes eight bytes");
    __builtin_memcpy(&bits, &value, sizeof value);
    return bits;
}

template <class T> static inline unsigned __match_any_sync(unsigned mask, T v)
{
    return (unsigned)fl_emu_meet(FL_EMU_MATCH, mask, fl_emu_bits(v), 0);
}

template <class T>
static inline T fl_emu_shuffle(unsigned mask, T value, int from)
{
    uint64_t bits = fl_emu_meet(FL_EMU_SHUFFLE, mask, fl_emu_bits(value), from);
    T got;

    __builtin_memcpy(&got, &bits, sizeof got);
    return got;
}

/* The first lane of a group of `width`. */
static inline int fl_emu_first(int width)
{
    return fl_emu_lane() & ~(width - 1);
}

template <class T>
static inline T __shfl_sync(unsigned mask, T value, int from, int width = 32)
{
    return fl_emu_shuffle(mask, value,
                          fl_emu_first(width) + (from & (width - 1)));
}

template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int by, int width = 32)
{
    int from = fl_emu_lane() ^ by;

    if (from >= fl_emu_first(width) + width)
        from = fl_emu_lane();
    return fl_emu_shuffle(mask, value, from);
}

template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned by,
                                 int width = 32)
{
    int from = fl_emu_lane() + (int)by;

    if (from >= fl_emu_first(width) + width)
        from = fl_emu_lane();
    return fl_emu_shuffle(mask, value, from);
}

template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned by,
                               int width = 32)
{
    int from = fl_emu_lane() - (int)by;

    if (from < fl_emu_first(width))
        from = fl_emu_lane();
    return fl_emu_shuffle(mask, value, from);
}

/* --- atomics: they give what was there before ----------------------------- */

#define FL_EMU_ATOMIC(name, type, builtin)                                     \
    static inline type name(type *p, type value)                               \
    {                                                                          \
        return builtin(p, value, __ATOMIC_RELAXED);                            \
    }
#define FL_EMU_ATOMIC_IF(name, type, better)                                   \
    static inline type name(type *p, type value)                               \
    {                                                                          \
        type old = __atomic_load_n(p, __ATOMIC_RELAXED);                       \
                                                                               \
        if (value better old)                                                  \
            __atomic_store_n(p, value, __ATOMIC_RELAXED);                      \
        return old;                                                            \
    }
#define FL_EMU_ATOMICS(type)                                                   \
    FL_EMU_ATOMIC(atomicAdd, type, __atomic_fetch_add)                         \
    FL_EMU_ATOMIC(atomicExch, type, __atomic_exchange_n)                       \
    FL_EMU_ATOMIC(atomicOr, type, __atomic_fetch_or)                           \
    FL_EMU_ATOMIC_IF(atomicMax, type, >)                                       \
    FL_EMU_ATOMIC_IF(atomicMin, type, <)                                       \
    static inline type atomicCAS(type *p, type expected, type value)           \
    {                                                                          \
        __atomic_compare_exchange_n(p, &expected, value, false,                \
                                    __ATOMIC_RELAXED, __ATOMIC_RELAXED);       \
        return expected;                                                       \
    }
FL_EMU_ATOMICS(int)
FL_EMU_ATOMICS(unsigned)
FL_EMU_ATOMICS(unsigned long long)
#undef FL_EMU_ATOMIC
#undef FL_EMU_ATOMIC_IF
#undef FL_EMU_ATOMICS

static inline void __threadfence()
{
}

/* --- loads, bits, arithmetic ---------------------------------------------- */

template <class T> static inline T __ldg(const T *p)
{
    return *p;
}

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}

template <class T> static inline T min(T a, T b)
{
    return b < a ? b : a;
}
template <class T> static inline T max(T a, T b)
{
    return a < b ? b : a;
}
