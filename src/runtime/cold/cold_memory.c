/* cold_memory.c - pages of the system. */
#define _GNU_SOURCE
#include "runtime/cold/cold_memory.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory.h"

enum { HUGE_PAGE = 2 << 20 };

size_t fl_cold_memory_of(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    return (size + page - 1) / page * page;
}

/* fl_alloc() may refuse it: what libfleet leaves to other libraries, and tests
 * of memory that runs out. */
static fleet_status may_have(size_t size)
{
    void *p = fl_alloc(1);

    fl_free(p);
    return p ? fl_memory_spare(size + FL_SPARE_BYTES, "a table with a cap")
             : FLEET_ENOMEM;
}

static void *none(size_t size)
{
    fl_fail(FLEET_ENOMEM, "out of memory: %zu bytes", size);
    return NULL;
}

void *fl_cold_memory_new(size_t size)
{
    size_t whole = fl_cold_memory_of(size);
    void *p;

    if (may_have(whole) != FLEET_OK)
        return NULL;
    p = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
             -1, 0);
    if (p == MAP_FAILED)
        return none(whole);
    if (whole >= HUGE_PAGE)
        madvise(p, whole, MADV_HUGEPAGE); /* a hint: may fail */
    return p;
}

void fl_cold_memory_free(void *p, size_t size)
{
    if (p)
        munmap(p, fl_cold_memory_of(size));
}

/* ThreadSanitizer does not see mremap(): it takes what was written before in
 * the place where bytes go for theirs. */
static void *move(void *p, size_t is, size_t whole)
{
#ifdef __SANITIZE_THREAD__
    void *to = mmap(NULL, whole, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (to != MAP_FAILED) {
        memcpy(to, p, is < whole ? is : whole);
        munmap(p, is);
    }
    return to;
#else
    return mremap(p, is, whole, MREMAP_MAYMOVE);
#endif
}

void *fl_cold_memory_widen(void *p, size_t old, size_t size)
{
    size_t is = fl_cold_memory_of(old), whole = fl_cold_memory_of(size);

    if (!p)
        return fl_cold_memory_new(size);
    if (is == whole)
        return p;
    if (may_have(whole - is) != FLEET_OK)
        return NULL;
    p = move(p, is, whole);
    return p == MAP_FAILED ? none(whole) : p;
}
