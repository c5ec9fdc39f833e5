/* reduce_kernels.c - the variants of reduce_kernels_simd.c, picked by cpuid. */
#include "collective/reduce_kernels.h"

#include <pthread.h>

void fl_reduce_kernel_plain(const fl_reduce_args *f);
void fl_reduce_kernel_avx2(const fl_reduce_args *f);
void fl_reduce_kernel_avx512(const fl_reduce_args *f);

static fl_reduce_kernel *usable[4]; /* the best first */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find_usable(void)
{
    int n = 0;

#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        usable[n++] = fl_reduce_kernel_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        usable[n++] = fl_reduce_kernel_avx2;
#endif
    usable[n] = fl_reduce_kernel_plain;
}

fl_reduce_kernel *const *fl_reduce_all(void)
{
    pthread_once(&once, find_usable);
    return usable;
}

void fl_reduce_run(const fl_reduce_args *f)
{
    fl_reduce_all()[0](f);
}
