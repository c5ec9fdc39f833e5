/* text_kernels.c - picks a table of kernels by cpuid. */
#include "data/text/text_kernels.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

extern const fl_kernels fl_kernels_plain;

const double fl_criteo_low[FL_CRITEO_LANES] = {0, -3};
const double fl_criteo_range[FL_CRITEO_LANES] = {
    20, 603, 100, 50, 64000, 500, 100, 50, 500, 10, 10, 10, 50, 1, 1, 1};

#if defined(__x86_64__)

extern const fl_kernels fl_kernels_avx2, fl_kernels_avx512, fl_kernels_vbmi2;

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

const fl_kernels *fl_kernels_at(int i)
{
    const fl_kernels *usable[5] = {NULL};
    int n = 0;

    if (has_avx512() && __builtin_cpu_supports("avx512vbmi2"))
        usable[n++] = &fl_kernels_vbmi2;
    if (has_avx512())
        usable[n++] = &fl_kernels_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        usable[n++] = &fl_kernels_avx2;
    usable[n++] = &fl_kernels_plain;
    return i < n ? usable[i] : NULL;
}

#else

const fl_kernels *fl_kernels_at(int i)
{
    return i == 0 ? &fl_kernels_plain : NULL;
}

#endif

const fl_kernels *fl_kernels_best(void)
{
    const char *wanted = getenv("FLEET_ISA");

    for (int i = 0; wanted && fl_kernels_at(i); i++)
        if (strcmp(fl_kernels_at(i)->isa, wanted) == 0)
            return fl_kernels_at(i);
    return fl_kernels_at(0);
}
