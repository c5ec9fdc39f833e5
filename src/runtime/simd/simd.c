/* simd.c - the tables of simd.h: one table per instruction set, picked by
 * cpuid. */
#include "runtime/simd/simd.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* Each *_simd.c fills in its part of a table, once per instruction set. */
void fl_simd_math_plain(fl_simd *t);
void fl_simd_bf16_plain(fl_simd *t);
void fl_simd_activations_plain(fl_simd *t);
void fl_simd_math_avx2(fl_simd *t);
void fl_simd_bf16_avx2(fl_simd *t);
void fl_simd_activations_avx2(fl_simd *t);
void fl_simd_math_avx512(fl_simd *t);
void fl_simd_bf16_avx512(fl_simd *t);
void fl_simd_activations_avx512(fl_simd *t);
void fl_simd_half_plain(fl_simd *t);
void fl_simd_half_avx2(fl_simd *t);
void fl_simd_half_avx512(fl_simd *t);

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
        __builtin_cpu_supports("avx512vl")) {
        table[0].isa = "avx512";
        table[0].level = FL_ISA_AVX512;
        fl_simd_math_avx512(&table[0]);
        fl_simd_bf16_avx512(&table[0]);
        fl_simd_activations_avx512(&table[0]);
        fl_simd_half_avx512(&table[0]);
        usable[n++] = &table[0];
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        table[1].isa = "avx2";
        table[1].level = FL_ISA_AVX2;
        fl_simd_math_avx2(&table[1]);
        fl_simd_bf16_avx2(&table[1]);
        fl_simd_activations_avx2(&table[1]);
        fl_simd_half_avx2(&table[1]);
        usable[n++] = &table[1];
    }
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

    table[2].isa = "plain";
    table[2].level = FL_ISA_PLAIN;
    fl_simd_math_plain(&table[2]);
    fl_simd_bf16_plain(&table[2]);
    fl_simd_activations_plain(&table[2]);
    fl_simd_half_plain(&table[2]);
    usable[n++] = &table[2];
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
