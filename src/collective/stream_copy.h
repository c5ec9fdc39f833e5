/* stream_copy.h - copies to memory that another processor reads next, by
 * non-temporal stores, which bypass this processor's caches. Taking back a
 * cache line that the reader still has costs more than writing it to memory (of
 * 43 KB on an EPYC 9004: 25 us against 1.4). */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>
#include <string.h>

#include "base/clock.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

enum { FL_STREAM_COPY_LEAST = 2048, FL_STREAM_COPY_LINE = 64 };

#if defined(__x86_64__)
static inline void fl_copy_lines_(char *to, const char *from, size_t n)
{
    for (size_t i = 0; i < n; i += FL_STREAM_COPY_LINE)
        for (size_t j = i; j < i + FL_STREAM_COPY_LINE; j += sizeof(__m128i))
            _mm_stream_si128((__m128i *)(to + j),
                             _mm_loadu_si128((const __m128i *)(from + j)));
    _mm_sfence(); /* before any other rank may read it */
}
#endif

static inline void fl_copy_nontemporal(void *to, const void *from, size_t n)
{
#if defined(__x86_64__)
    size_t head = (FL_STREAM_COPY_LINE - (uintptr_t)to % FL_STREAM_COPY_LINE) %
                  FL_STREAM_COPY_LINE;
    size_t whole;

    if (n >= FL_STREAM_COPY_LEAST) {
        whole = (n - head) / FL_STREAM_COPY_LINE * FL_STREAM_COPY_LINE;
        memcpy(to, from, head);
        fl_copy_lines_((char *)to + head, (const char *)from + head, whole);
        to = (char *)to + head + whole;
        from = (const char *)from + head + whole;
        n -= head + whole;
    }
#endif
    memcpy(to, from, n);
}

enum { FL_STREAM_COPY_SLOW_NS = 12 /* a line */, FL_STREAM_COPY_TURNS = 64 };

typedef struct fl_stream_copy {
    int turns; /* how many more copies are non-temporal */
    int64_t began_ns;
} fl_stream_copy;

/* Is this copy non-temporal? */
static inline bool fl_stream_copy_begin(fl_stream_copy *s)
{
    if (s->turns > 0)
        return true;
    s->began_ns = fl_now_ns();
    return false;
}

static inline void fl_stream_copy_end(fl_stream_copy *s, int64_t bytes)
{
    if (s->turns > 0)
        s->turns--;
    else if (bytes >= FL_STREAM_COPY_LEAST &&
             (fl_now_ns() - s->began_ns) * FL_STREAM_COPY_LINE >
                 bytes * FL_STREAM_COPY_SLOW_NS)
        s->turns = FL_STREAM_COPY_TURNS;
}

static inline void fl_stream_copy_run(fl_stream_copy *s, void *to,
                                      const void *from, int64_t bytes)
{
    if (fl_stream_copy_begin(s))
        fl_copy_nontemporal(to, from, (size_t)bytes);
    else if (bytes > 0)
        memcpy(to, from, (size_t)bytes);
    fl_stream_copy_end(s, bytes);
}
