/* memory.h - the only allocator of libfleet, and arenas of what it gives.
 *
 * Everything comes zeroed and aligned to a cache line. NULL means that there is
 * no memory; the text of the error is then set. Blocks of 2 MB and more ask the
 * kernel for huge pages.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define FL_WATCHED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(FL_WATCHED)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, size)   ((void)(p), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(p, size) ((void)(p), (void)(size))
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum { FL_CACHE_LINE = 64 };

void *fl_alloc(size_t size); /* size 0 gives a block too */
void *fl_alloc_array(size_t n, size_t size);
void fl_free(void *p);
char *fl_strdup(const char *text);
char *fl_strndup(const char *text, size_t length);

/* Make room for at least n elements in *array, growing by half; old elements
 * stay, new ones are zero. *capacity counts elements. */
fleet_status fl_grow(void *array, size_t *capacity, size_t n, size_t size);

/* fl_alloc() for functions that return a status. */
#define FL_NEW(p, size)                                                        \
    ((*(p) = fl_alloc(size)) != NULL ? FLEET_OK : FLEET_ENOMEM)

/* FLEET_ENOMEM unless this process may take `size` bytes more now, found out by
 * trying; `what` wants them. Other libraries end the process when they get no
 * memory, so they are called only where there is more than they take. What
 * fl_alloc() gives leaves FL_SPARE_BYTES for what their own threads take at any
 * time. Below 64 KB it costs as much as malloc(), and where memory is not
 * limited nothing. */
enum { FL_SPARE_BYTES = 8 << 20 };
fleet_status fl_memory_spare(size_t size, const char *what);

/* May the system refuse this process memory (RLIMIT_AS, RLIMIT_DATA, strict
 * overcommit)? Elsewhere it gives address space until none is left. */
bool fl_memory_is_limited(void);

/* Tests: let the n-th allocation from now on fail (1 is the next; 0 turns it
 * off) and every later one too when sticky; count those made since. */
void fl_memory_fail_at(int64_t n, bool sticky);
int64_t fl_memory_count(void);

/* Memory that is not in use: under AddressSanitizer a touch of it is reported
 * as if it had been freed, elsewhere nothing happens. */
static inline void fl_hide(void *p, size_t size)
{
    ASAN_POISON_MEMORY_REGION(p, size);
}

static inline void fl_show(void *p, size_t size)
{
    ASAN_UNPOISON_MEMORY_REGION(p, size);
}

/* --- arenas: many small objects with one lifetime ------------------------- */

typedef struct fl_arena {
    struct fl_arena_chunk *chunk; /* newest first */
} fl_arena;

void *fl_arena_alloc(fl_arena *a, size_t size); /* zeroed; NULL: no memory */
void *fl_arena_copy(fl_arena *a, const void *data, size_t size);
char *fl_arena_strdup(fl_arena *a, const char *text);
char *fl_arena_format(fl_arena *a, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void fl_arena_done(fl_arena *a);

#ifdef __cplusplus
}
#endif
