/* map.h - names to pointers, in the order in which they were put. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct fl_map_entry {
    char *name; /* the map's own copy */
    void *value;
} fl_map_entry;

typedef struct fl_map {
    fl_map_entry *entry; /* n of them, in order */
    size_t n, capacity;
    uint32_t *slot; /* open addressing; index + 1 of an entry, 0 is free */
    size_t n_slot;
} fl_map;

/* FLEET_EEXIST when the map has the name already; it is then unchanged. */
fleet_status fl_map_put(fl_map *m, const char *name, void *value);
void *fl_map_get(const fl_map *m, const char *name); /* NULL: no such name */
/* The entries in the order of their names, for fl_free(). */
fl_map_entry *fl_map_sorted(const fl_map *m);
void fl_map_done(fl_map *m); /* not the values */
