/* buddy.c - the buddy allocator of buddy.h: lists of free blocks by size. */
#include "base/alloc/buddy.h"

#include <stdint.h>
#include <string.h>

#include "base/memory.h"

enum { UNIT = 128, FIRST_CHUNK = 9 }; /* bytes; 64 KB, or three times that */

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

/* Of the smallest block. */
static size_t unit_of(const fl_buddy *b)
{
    return b->by_three ? 3 * UNIT : UNIT;
}

static size_t size_of(const fl_buddy *b, int order)
{
    return unit_of(b) << order;
}

static int order_of(const fl_buddy *b, size_t bytes)
{
    int order = 0;

    while (order < FL_BUDDY_ORDERS && size_of(b, order) < bytes)
        order++;
    return order;
}

/* Units from the chunk's first one. */
static size_t place_of(const fl_buddy *b, const chunk *c, const void *p)
{
    return (size_t)((const char *)p - c->memory) / unit_of(b);
}

static void put_block(fl_buddy *b, chunk *c, void *p, int order)
{
    block *one = p;

    *one = (block){.next = b->empty[order]};
    if (one->next)
        one->next->previous = one;
    b->empty[order] = one;
    c->empty[place_of(b, c, p)] = (uint8_t)(order + 1);
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
    c->empty[place_of(b, c, p)] = 0;
}

static chunk *chunk_of(const fl_buddy *b, const void *p)
{
    const uintptr_t at = (uintptr_t)p;
    chunk *c = b->chunk;

    while (at < (uintptr_t)c->memory ||
           at >= (uintptr_t)c->memory + size_of(b, c->order))
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
    c->memory = fl_alloc(size_of(b, wanted));
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
        put_block(b, c, p + size_of(b, from), from);
    }
    return p;
}

void *fl_buddy_alloc(fl_buddy *b, size_t bytes)
{
    int order = order_of(b, bytes), from = order;

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

static void free_chunk(chunk *c)
{
    fl_free(c->memory);
    fl_free(c);
}

/* It is one free block, which is in no list. */
static void drop_chunk(fl_buddy *b, const chunk *c)
{
    chunk **at = &b->chunk, *gone;

    while (*at != c)
        at = &(*at)->next;
    gone = *at;
    *at = gone->next;
    free_chunk(gone);
}

void fl_buddy_free(fl_buddy *b, void *p, size_t bytes)
{
    int order = order_of(b, bytes);
    chunk *c;

    if (!p)
        return;
    if (order >= FL_BUDDY_ORDERS) {
        fl_free(p);
        return;
    }
    c = chunk_of(b, p);
    for (; order < c->order; order++) {
        size_t at = place_of(b, c, p) ^ (size_t)1 << order;
        char *buddy = c->memory + at * unit_of(b);

        if (c->empty[at] != order + 1)
            break;
        take_block(b, c, buddy, order);
        p = buddy < (char *)p ? buddy : p;
    }
    if (order == c->order && b->chunk->next)
        drop_chunk(b, c);
    else
        put_block(b, c, p, order);
}

size_t fl_buddy_free_bytes(const fl_buddy *b)
{
    size_t bytes = 0;

    for (int order = 0; order < FL_BUDDY_ORDERS; order++)
        for (const block *one = b->empty[order]; one; one = one->next)
            bytes += size_of(b, order);
    return bytes;
}

void fl_buddy_done(fl_buddy *b)
{
    while (b->chunk) {
        chunk *next = b->chunk->next;

        free_chunk(b->chunk);
        b->chunk = next;
    }
    *b = (fl_buddy){.by_three = b->by_three};
}
