/* buddy.c - the buddy allocator of buddy.h: lists of free blocks by size. */
#include "runtime/store/buddy.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/memory.h"

enum { UNIT_SHIFT = 7, FIRST_CHUNK = 9 }; /* 128 B; 64 KB */

typedef struct fl_buddy_block {
    struct fl_buddy_block *next, *previous;
} block;

typedef struct fl_buddy_chunk {
    struct fl_buddy_chunk *next;
    char *memory;
    int order;
    uint8_t empty[]; /* by unit: order + 1 of the free block that begins at it;
                        0: none does */
} chunk;

static size_t size_of(int order)
{
    return (size_t)1 << (UNIT_SHIFT + order);
}

static int order_of(size_t bytes)
{
    int order = 0;

    while (order < FL_BUDDY_ORDERS && size_of(order) < bytes)
        order++;
    return order;
}

static size_t unit_of(const chunk *c, const void *p)
{
    return (size_t)((const char *)p - c->memory) >> UNIT_SHIFT;
}

static void put_block(fl_buddy *b, chunk *c, void *p, int order)
{
    block *one = p;

    *one = (block){.next = b->empty[order]};
    if (one->next)
        one->next->previous = one;
    b->empty[order] = one;
    c->empty[unit_of(c, p)] = (uint8_t)(order + 1);
}

static void take_block(fl_buddy *b, chunk *c, void *p, int order)
{
    block *one = p;

    if (one->previous)
        one->previous->next = one->next;
    else
        b->empty[order] = one->next;
    if (one->next)
        one->next->previous = one->previous;
    c->empty[unit_of(c, p)] = 0;
}

static chunk *chunk_of(const fl_buddy *b, const void *p)
{
    const uintptr_t at = (uintptr_t)p;
    chunk *c = b->chunk;

    while (at < (uintptr_t)c->memory ||
           at >= (uintptr_t)c->memory + size_of(c->order))
        c = c->next;
    return c;
}

/* Chunks grow eightfold up to the largest. */
static bool add_chunk(fl_buddy *b, int order)
{
    int wanted = b->next_order > FIRST_CHUNK ? b->next_order : FIRST_CHUNK;
    chunk *c;

    if (wanted < order)
        wanted = order;
    c = fl_alloc(sizeof *c + ((size_t)1 << wanted));
    if (!c)
        return false;
    c->memory = fl_alloc(size_of(wanted));
    if (!c->memory) {
        fl_free(c);
        return false;
    }
    c->order = wanted;
    c->next = b->chunk;
    b->chunk = c;
    b->next_order =
        wanted + 3 < FL_BUDDY_ORDERS ? wanted + 3 : FL_BUDDY_ORDERS - 1;
    put_block(b, c, c->memory, wanted);
    return true;
}

/* Halve a free block until it is of that order. */
static void *cut_block(fl_buddy *b, int from, int order)
{
    char *p = (char *)b->empty[from];
    chunk *c = chunk_of(b, p);

    take_block(b, c, p, from);
    while (from > order) {
        from--;
        put_block(b, c, p + size_of(from), from);
    }
    return p;
}

void *fl_buddy_alloc(fl_buddy *b, size_t bytes)
{
    int order = order_of(bytes), from = order;

    if (order >= FL_BUDDY_ORDERS)
        return fl_alloc(bytes); /* huge pages of its own */
    while (from < FL_BUDDY_ORDERS && !b->empty[from])
        from++;
    if (from == FL_BUDDY_ORDERS) {
        if (!add_chunk(b, order))
            return NULL;
        from = b->chunk->order;
    }
    return memset(cut_block(b, from, order), 0, bytes);
}

void fl_buddy_free(fl_buddy *b, void *p, size_t bytes)
{
    int order = order_of(bytes);
    chunk *c;

    if (!p)
        return;
    if (order >= FL_BUDDY_ORDERS) {
        fl_free(p);
        return;
    }
    c = chunk_of(b, p);
    for (; order < c->order; order++) {
        size_t at = (size_t)((char *)p - c->memory) ^ size_of(order);
        char *buddy = c->memory + at;

        if (c->empty[at >> UNIT_SHIFT] != order + 1)
            break;
        take_block(b, c, buddy, order);
        p = buddy < (char *)p ? buddy : p;
    }
    put_block(b, c, p, order);
}

size_t fl_buddy_free_bytes(const fl_buddy *b)
{
    size_t bytes = 0;

    for (int order = 0; order < FL_BUDDY_ORDERS; order++)
        for (const block *one = b->empty[order]; one; one = one->next)
            bytes += size_of(order);
    return bytes;
}

void fl_buddy_done(fl_buddy *b)
{
    while (b->chunk) {
        chunk *next = b->chunk->next;

        fl_free(b->chunk->memory);
        fl_free(b->chunk);
        b->chunk = next;
    }
    *b = (fl_buddy){0};
}
