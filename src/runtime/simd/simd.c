/* simd.c - the tables of simd.h: one table per instruction set, picked by
 * cpuid. */
#include "runtime/simd/simd.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* Each *_simd.c fills in its part of a table, once per instruction set. */
#define FILL(isa_, level_)                                                     \
    void fl_simd_math_##isa_(fl_simd *t);                                      \
    void fl_simd_activations_##isa_(fl_simd *t);                               \
    void fl_simd_unaries_##isa_(fl_simd *t);                                   \
    void fl_simd_half_##isa_(fl_simd *t);                                      \
    void fl_simd_codec_##isa_(fl_simd *t);                                     \
    void fl_simd_storage_##isa_(fl_simd *t);                                   \
    void fl_simd_hash_##isa_(fl_simd *t);                                      \
                                                                               \
    static const fl_simd *fill_##isa_(fl_simd *t)                              \
    {                                                                          \
        t->isa = #isa_;                                                        \
        t->level = level_;                                                     \
        fl_simd_math_##isa_(t);                                                \
        fl_simd_activations_##isa_(t);                                         \
        fl_simd_unaries_##isa_(t);                                             \
        fl_simd_half_##isa_(t);                                                \
        fl_simd_codec_##isa_(t);                                               \
        fl_simd_storage_##isa_(t);                                             \
        fl_simd_hash_##isa_(t);                                                \
        return t;                                                              \
    }
FILL(plain, FL_ISA_PLAIN)
#if defined(__x86_64__)
FILL(avx2, FL_ISA_AVX2)
FILL(avx512, FL_ISA_AVX512)
#endif

static fl_simd table[3];
static const fl_simd *usable[4]; /* the best first */
static const fl_simd *best;
static bool has_bf16;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int n_usable(void)
{
    int n = 0;

#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        usable[n++] = fill_avx512(&table[0]);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        usable[n++] = fill_avx2(&table[1]);
#endif
    return n;
}

static bool cpu_has_bf16(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;

    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & bit_AVX512BF16);
#else
    return false;
#endif
}

static void make_tables(void)
{
    const char *wanted = getenv("FLEET_ISA");
    int n = n_usable();

    usable[n++] = fill_plain(&table[2]);
    best = usable[0];
    for (int i = 0; wanted && i < n; i++)
        if (strcmp(usable[i]->isa, wanted) == 0)
            best = usable[i];
    has_bf16 = best == &table[0] && cpu_has_bf16() &&
               !(wanted && strcmp(wanted, "avx512") == 0);
}

const fl_simd *fl_simd_best(void)
{
    pthread_once(&once, make_tables);
    return best;
}

bool fl_simd_has_bf16(void)
{
    pthread_once(&once, make_tables);
    return has_bf16;
}

const fl_simd *const *fl_simd_all(void)
{
    pthread_once(&once, make_tables);
    return usable;
}
