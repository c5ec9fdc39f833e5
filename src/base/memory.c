/* memory.c - the only allocator: zeroed, aligned, counted. */
#include "base/memory.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { HUGE_PAGE = 2 << 20, SMALL = 64 << 10 };

static _Atomic int64_t made;    /* allocations since fl_memory_fail_at() */
static _Atomic int64_t fail_at; /* 0: none */
static _Atomic bool fail_on;    /* every one after it as well */

void fl_memory_fail_at(int64_t n, bool sticky)
{
    atomic_store(&made, 0);
    atomic_store(&fail_on, sticky);
    atomic_store(&fail_at, n);
}

int64_t fl_memory_count(void)
{
    return atomic_load(&made);
}

static pthread_once_t looked = PTHREAD_ONCE_INIT;
static bool is_strict; /* the system promises no more than it has */

static void look_at_system(void)
{
    FILE *f = fopen("/proc/sys/vm/overcommit_memory", "re");

    is_strict = f && fgetc(f) == '2';
    if (f)
        fclose(f);
}

static bool has_limit(int resource)
{
    struct rlimit l;

    return getrlimit(resource, &l) != 0 || l.rlim_cur != RLIM_INFINITY;
}

bool fl_memory_is_limited(void)
{
    pthread_once(&looked, look_at_system);
    return is_strict || has_limit(RLIMIT_AS) || has_limit(RLIMIT_DATA);
}

/* A small block comes from where other libraries' small blocks come from; what
 * can be mapped is had by malloc(), too. A thread's first block may map 64 MB,
 * so it comes before the look at what is left. What is small is asked for with
 * each product and message: it goes by the last look at the limits. */
static bool is_spare(size_t size)
{
    static _Atomic bool is_limited = true;
    volatile char *block;
    void *at;

    if (size >= SMALL)
        is_limited = fl_memory_is_limited();
    if (!is_limited)
        return true;
    block = malloc(size < SMALL ? size : SMALL - 1);
    free((void *)(uintptr_t)block);
    if (!block || size < SMALL)
        return block != NULL;
    at = mmap(NULL, size, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at != MAP_FAILED)
        munmap(at, size);
    return at != MAP_FAILED;
}

fleet_status fl_memory_spare(size_t size, const char *what)
{
    if (!is_spare(size))
        return fl_fail(FLEET_ENOMEM, "out of memory: %s may take %zu bytes",
                       what, size);
    return FLEET_OK;
}

/* Looked at once a megabyte: a limit is met by what grows. */
static bool leaves_spare(size_t size)
{
    static _Atomic size_t taken;
    size_t before =
        atomic_fetch_add_explicit(&taken, size, memory_order_relaxed);

    return before >> 20 == (before + size) >> 20 || is_spare(FL_SPARE_BYTES);
}

void *fl_alloc(size_t size)
{
    size_t align = size >= HUGE_PAGE ? HUGE_PAGE : FL_CACHE_LINE;
    size_t whole = size ? (size + align - 1) / align * align : align;
    int64_t n = atomic_fetch_add_explicit(&made, 1, memory_order_relaxed) + 1;
    int64_t at = atomic_load_explicit(&fail_at, memory_order_relaxed);
    bool must_fail = at > 0 && n >= at && (n == at || atomic_load(&fail_on));
    void *p = NULL;

    if (whole >= size && !must_fail)
        p = aligned_alloc(align, whole);
    if (p && !leaves_spare(whole)) {
        free(p);
        p = NULL;
    }
    if (!p) {
        fl_fail(FLEET_ENOMEM, "out of memory: %zu bytes", size);
        return NULL;
    }
    if (align == HUGE_PAGE)
        madvise(p, whole, MADV_HUGEPAGE); /* a hint: may fail */
    memset(p, 0, whole);
    return p;
}

void *fl_alloc_array(size_t n, size_t size)
{
    size_t bytes;

    if (__builtin_mul_overflow(n, size, &bytes)) {
        fl_fail(FLEET_ENOMEM, "out of memory: %zu times %zu bytes", n, size);
        return NULL;
    }
    return fl_alloc(bytes);
}

void fl_free(void *p)
{
    free(p);
}

char *fl_strndup(const char *text, size_t length)
{
    char *copy = fl_alloc(length + 1);

    if (copy)
        memcpy(copy, text, length);
    return copy;
}

char *fl_strdup(const char *text)
{
    return fl_strndup(text, strlen(text));
}

fleet_status fl_grow(void *array, size_t *capacity, size_t n, size_t size)
{
    size_t more = *capacity + *capacity / 2;
    void *old, *new;

    if (n <= *capacity)
        return FLEET_OK;
    if (more < n)
        more = n;
    if (more < 8)
        more = 8;
    new = fl_alloc_array(more, size);
    if (!new)
        return FLEET_ENOMEM;
    memcpy(&old, array, sizeof old); /* array is the address of any pointer */
    if (old)
        memcpy(new, old, *capacity * size);
    memcpy(array, &new, sizeof new);
    fl_free(old);
    *capacity = more;
    return FLEET_OK;
}

/* --- arenas --------------------------------------------------------------- */

enum { CHUNK = 4000, ALIGN = 16 };

struct fl_arena_chunk {
    struct fl_arena_chunk *next;
    size_t used, size;
    _Alignas(ALIGN) char bytes[];
};

static struct fl_arena_chunk *new_chunk(fl_arena *a, size_t size)
{
    struct fl_arena_chunk *c = fl_alloc(sizeof *c + size);

    if (c) {
        c->size = size;
        c->next = a->chunk;
        a->chunk = c;
    }
    return c;
}

void *fl_arena_alloc(fl_arena *a, size_t size)
{
    struct fl_arena_chunk *c = a->chunk;
    void *p;

    if (size > SIZE_MAX - ALIGN - sizeof *c) {
        fl_fail(FLEET_ENOMEM, "out of memory: %zu bytes", size);
        return NULL;
    }
    size = (size + ALIGN - 1) / ALIGN * ALIGN;
    if (!c || c->size - c->used < size)
        c = new_chunk(a, size > CHUNK ? size : CHUNK);
    if (!c)
        return NULL;
    p = c->bytes + c->used;
    c->used += size;
    return p;
}

void *fl_arena_copy(fl_arena *a, const void *data, size_t size)
{
    void *p = fl_arena_alloc(a, size);

    if (p && size)
        memcpy(p, data, size);
    return p;
}

char *fl_arena_strdup(fl_arena *a, const char *text)
{
    return fl_arena_copy(a, text, strlen(text) + 1);
}

char *fl_arena_format(fl_arena *a, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return fl_arena_strdup(a, text);
}

void fl_arena_done(fl_arena *a)
{
    while (a->chunk) {
        struct fl_arena_chunk *next = a->chunk->next;

        fl_free(a->chunk);
        a->chunk = next;
    }
}
