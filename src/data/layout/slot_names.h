/* slot_names.h - which slot has a name, for formats whose lines name their
 * slots. */
#pragma once

#include <string.h>

#include "data/layout/layout.h"

typedef struct fl_slot_name {
    uint64_t word; /* its first eight bytes, with zeros behind a shorter one */
    const char *text;
    size_t size;
    int slot; /* -1: an empty place */
} fl_slot_name;

/* An open hash table: the place of a name, or one behind it. */
typedef struct fl_slot_names {
    fl_slot_name *place;
    size_t mask;
} fl_slot_names;

fleet_status fl_slot_names_init(fl_slot_names *n, const fl_layout *l);
void fl_slot_names_done(fl_slot_names *n);

static inline size_t fl_slot_name_place(const fl_slot_names *n, uint64_t word,
                                        size_t size)
{
    return ((word ^ size) * 0x9E3779B97F4A7C15u >> 32) & n->mask;
}

/* The slot called text[0, size), behind which eight bytes are readable; -1:
 * none is. */
static inline int fl_slot_names_find(const fl_slot_names *n, const char *text,
                                     size_t size)
{
    uint64_t word;

    memcpy(&word, text, sizeof word);
    if (size < 8)
        word &= ((uint64_t)1 << (8 * size)) - 1;
    for (size_t i = fl_slot_name_place(n, word, size); n->place[i].slot >= 0;
         i = (i + 1) & n->mask) {
        const fl_slot_name *p = &n->place[i];

        if (p->word == word && p->size == size &&
            (size <= 8 || memcmp(p->text, text, size) == 0))
            return p->slot;
    }
    return -1;
}
