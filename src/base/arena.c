/* arena.c - many small objects, freed at once. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

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
