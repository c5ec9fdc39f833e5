/* filter_shape.h - how large a counting Bloom filter of keys is, so that of the
 * keys that it has counted no more than a stated part seem to have come more
 * often than they have.
 *
 * Fan, Cao, Almeida, Broder 2000, Summary Cache: each key adds to n_hash
 * counters, and has come at most as often as the least of them says. The
 * counters of a key are in one block of its bucket (Putze, Sanders, Singler
 * 2007), each in a part of it of its own, of `slice` counters; a block is a row
 * of a table, and its counters are integers of 24 bits in its floats, which
 * floats are exact for.
 */
#pragma once

#include <fleet/nn.h>

typedef struct fl_filter_shape {
    int64_t count;   /* what counters stop at */
    int bits;        /* of a counter */
    int per_word;    /* counters in the 24 bits of a float */
    int n_hash;      /* counters of a key */
    int64_t slice;   /* counters that each of them is one of */
    int64_t dim;     /* floats of a block: its signature, then counters */
    int64_t blocks;  /* of a bucket */
    float signature; /* of all of these: a block of another shape has another */
} fl_filter_shape;

/* Of an entry that is a Bloom filter, for a table with that number of
 * buckets. */
fl_filter_shape fl_filter_shape_of(const fleet_entry *e, int buckets);

/* The part of new keys whose counters other keys have used, once that many
 * keys have come to a block on average: they come by chance, so a block's
 * number of keys follows Poisson's law. */
double fl_filter_positives(const fl_filter_shape *s, double keys);
