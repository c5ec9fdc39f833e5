/* arena.h - many small objects with one lifetime. */
#pragma once

#include <stddef.h>

typedef struct fl_arena {
    struct fl_arena_chunk *chunk; /* newest first */
} fl_arena;

void *fl_arena_alloc(fl_arena *a, size_t size); /* zeroed; NULL: no memory */
void *fl_arena_copy(fl_arena *a, const void *data, size_t size);
char *fl_arena_strdup(fl_arena *a, const char *text);
char *fl_arena_format(fl_arena *a, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void fl_arena_done(fl_arena *a);
