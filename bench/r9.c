/* r9.c - R9: heap allocations of a step once capacities have settled. malloc
 * and its kin are interposed here; an allocation counts for the library whose
 * code asked for it. Those of oneDNN and OpenMP are printed apart. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>

#include "model.h"

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void *__libc_memalign(size_t align, size_t size);

static _Atomic int counting;
static _Atomic long by_fleet, by_onednn, by_others;

/* Called with the caller's address, which tells the library. */
static void count(const void *caller)
{
    Dl_info info;

    if (!atomic_load(&counting))
        return;
    if (!dladdr(caller, &info) || !info.dli_fname)
        by_others++;
    else if (strstr(info.dli_fname, "libfleet"))
        by_fleet++;
    else if (strstr(info.dli_fname, "dnnl") || strstr(info.dli_fname, "gomp") ||
             strstr(info.dli_fname, "stdc++"))
        by_onednn++;
    else
        by_others++;
}

void *malloc(size_t size)
{
    count(__builtin_return_address(0));
    return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    count(__builtin_return_address(0));
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
    count(__builtin_return_address(0));
    return __libc_realloc(p, size);
}

void *aligned_alloc(size_t align, size_t size)
{
    count(__builtin_return_address(0));
    return __libc_memalign(align, size);
}

int posix_memalign(void **p, size_t align, size_t size)
{
    count(__builtin_return_address(0));
    *p = __libc_memalign(align, size);
    return *p ? 0 : 12;
}

int main(void)
{
    enum { STEPS = 200 };
    static bench b = {.o = BENCH_DEFAULTS};

    b.o.fc = "128,64";
    open_bench(&b);
    for (int i = 0; i < 2 * b.n_batch; i++)
        step(&b);
    atomic_store(&counting, 1);
    for (int i = 0; i < STEPS; i++)
        step(&b);
    atomic_store(&counting, 0);
    printf(
        "{\"id\":\"R9\",\"ratio\":%.3f,\"floor\":0,\"goal\":0,\"ours\":%.3f,"
        "\"peer\":null,\"unit\":\"allocations per step, at most\","
        "\"peer_name\":\"absolute\",\"rounds\":%d,\"onednn_and_openmp\":%.1f,"
        "\"others\":%.3f}\n",
        (double)by_fleet / STEPS, (double)by_fleet / STEPS, STEPS,
        (double)by_onednn / STEPS, (double)by_others / STEPS);
    close_bench(&b);
    return 0;
}
