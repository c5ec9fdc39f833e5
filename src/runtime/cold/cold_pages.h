/* cold_pages.h - pages of a file, each of some spots of one size: which spots
 * have rows, and the images of pages that are filled or wait to be written. A
 * page that is half empty or more is filled again, its other rows stay where
 * they are: nothing is moved to make room, and the file is at most about twice
 * as long as its rows.
 *
 * One thread at a time, but for an image's bytes: one that waits to be written
 * does not change.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum {
    FL_COLD_MOST_SPOTS = 64,   /* of a page */
    FL_COLD_PAGE_BYTES = 4096, /* or one row, if that is longer */
    FL_COLD_EXTENT = 64        /* pages that a part gets at a time */
};

typedef struct fl_cold_image {
    struct fl_cold_image *next;
    uint32_t page;
    uint64_t room; /* spots that may still be taken */
    uint64_t has;  /* spots that it has; other spots' bytes mean nothing */
    char *bytes;
} fl_cold_image;

typedef struct fl_cold_pages {
    size_t spot_bytes, page_bytes;
    int n_spot;                      /* of a page */
    atomic_uint_least64_t *n_extent; /* of the file, shared by its parts */

    uint64_t *live;   /* by page: its spots that have rows */
    uint64_t *newest; /* by page: no row of it has changed since that version */
    uint8_t *is;      /* by page: FL_PAGE_... */
    uint32_t n;
    size_t live_capacity, newest_capacity, is_capacity;
    uint32_t *extent; /* where pages are, FL_COLD_EXTENT at a time */
    size_t extent_capacity;
    uint32_t *spare; /* pages that may be filled again */
    size_t n_spare, spare_capacity;

    fl_cold_image *open;  /* is filled */
    fl_cold_image *waits; /* to be written, the first one first */
    fl_cold_image *unused;
    int n_waits, most_waits;
    int n_image;

    int n_reader; /* of the file, without a lock: no hole is filled meanwhile */
    uint32_t *hole; /* that were left meanwhile */
    size_t n_hole, hole_capacity;
} fl_cold_pages;

/* A spot is a page's number and a place in it. */
static inline uint32_t fl_cold_spot(uint32_t page, int i)
{
    return page * FL_COLD_MOST_SPOTS + (uint32_t)i;
}

static inline uint32_t fl_cold_page_of(uint32_t spot)
{
    return spot / FL_COLD_MOST_SPOTS;
}

static inline int fl_cold_in_page(uint32_t spot)
{
    return (int)(spot % FL_COLD_MOST_SPOTS);
}

void fl_cold_pages_init(fl_cold_pages *p, size_t spot_bytes, int n_spot,
                        int most_waits, atomic_uint_least64_t *n_extent);
void fl_cold_pages_done(fl_cold_pages *p); /* all pages are empty again */

/* How many spots of that size a page has. */
int fl_cold_spots_of_page(size_t spot_bytes);

/* A spot for a row: *bytes of an image, to be filled at once. *bytes NULL: as
 * many images wait as may. FLEET_ENOMEM: nothing has changed. */
fleet_status fl_cold_pages_take(fl_cold_pages *p, uint32_t *spot, char **bytes);

/* The row of this spot, which was just taken, has changed at that version. */
void fl_cold_pages_changed(fl_cold_pages *p, uint32_t spot, uint64_t version);

/* May the row of this spot have changed since? */
bool fl_cold_pages_may_have(const fl_cold_pages *p, uint32_t spot,
                            uint64_t since);

/* The row of this spot is somewhere else now, or gone. */
void fl_cold_pages_leave(fl_cold_pages *p, uint32_t spot);

/* The spot's bytes, if they are in an image; NULL: they are in the file. */
const char *fl_cold_pages_find(const fl_cold_pages *p, uint32_t spot);

/* The first image that waits was written. */
void fl_cold_pages_written(fl_cold_pages *p);

/* Another thread begins, and has ended, to read spots of the file that have
 * rows now. */
void fl_cold_pages_read(fl_cold_pages *p);
void fl_cold_pages_was_read(fl_cold_pages *p);

/* Where in the file a spot is. */
int64_t fl_cold_pages_offset(const fl_cold_pages *p, uint32_t spot);
size_t fl_cold_pages_memory(const fl_cold_pages *p);
