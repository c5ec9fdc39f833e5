/* cold_index.h - where rows are in a file, by hash: 6 bytes for each, without
 * its key. Rows of a group are sorted by tag, 16 bits of their hash; a row that
 * is looked for is one of the rows with its tag, or unknown.
 *
 * All groups lie in one array, each with some room behind it: when a group has
 * used up its own, all of them get room again. One thread at a time.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fl_cold_entry {
    uint16_t tag;
    uint32_t spot;
} __attribute__((packed)) fl_cold_entry;

typedef struct fl_cold_index {
    fl_cold_entry *entry;
    uint32_t *first; /* by group, and where the last one's room ends */
    uint32_t *n;     /* by group */
    uint32_t n_group;
    int64_t count;
} fl_cold_index;

fleet_status fl_cold_index_open(fl_cold_index *x, uint32_t n_group);
void fl_cold_index_done(fl_cold_index *x);
void fl_cold_index_clear(fl_cold_index *x);

/* FLEET_ENOMEM: it is as it was. */
fleet_status fl_cold_index_put(fl_cold_index *x, uint32_t group, uint16_t tag,
                               uint32_t spot);

/* The least spot of that tag that is not below `from`. */
bool fl_cold_index_next(const fl_cold_index *x, uint32_t group, uint16_t tag,
                        uint32_t from, uint32_t *spot);
void fl_cold_index_remove(fl_cold_index *x, uint32_t group, uint16_t tag,
                          uint32_t spot);
size_t fl_cold_index_bytes(const fl_cold_index *x);
