/* filter_shape.c - the least counting Bloom filter that keeps what is stated of
 * it. */
#include "runtime/graph/filter_shape.h"

#include <math.h>

#include "base/hash.h"

enum { WORD_BITS = 24, MOST_HASH = 20, KEYS_OF_A_BLOCK = 256 };

/* log2(1 / rate), rounded: then about half of the counters are not 0, and the
 * filter takes the least memory. */
static int hashes_for(double rate)
{
    double bound = 0.35355339059327379; /* 2^-1.5 */
    int n = 1;

    for (; n < MOST_HASH && rate < bound; n++)
        bound /= 2;
    return n;
}

double fl_filter_positives(const fl_filter_shape *s, double keys)
{
    double chance = exp(-keys), unused = 1, sum = 0;
    int most = (int)(keys + 12 * sqrt(keys)) + 40;

    for (int n = 0; n < most; n++) { /* the block has n other keys */
        double all = 1;

        for (int i = 0; i < s->n_hash; i++)
            all *= 1 - unused;
        sum += chance * all;
        unused *= 1 - 1 / (double)s->slice;
        chance *= keys / (n + 1);
    }
    return sum;
}

/* Of 24 bits, and not 0. */
static float signature_of(const fl_filter_shape *s)
{
    const int64_t parts[] = {s->count, s->bits, s->n_hash,
                             s->slice, s->dim,  s->blocks};

    return (float)(fl_hash(parts, sizeof parts, 0) >> (64 - WORD_BITS) | 1);
}

fl_filter_shape fl_filter_shape_of(const fleet_entry *e, int buckets)
{
    fl_filter_shape s = {.count = e->count,
                         .bits = 1,
                         .n_hash = hashes_for(e->false_positive_rate),
                         .slice = 1};
    double keys = (double)e->most_keys / buckets;
    int64_t counters;

    while (((int64_t)1 << s.bits) <= s.count)
        s.bits++;
    s.per_word = WORD_BITS / s.bits;
    s.blocks = (int64_t)ceil(keys / KEYS_OF_A_BLOCK);
    keys /= (double)s.blocks;
    while (fl_filter_positives(&s, keys) > e->false_positive_rate)
        s.slice += s.slice / 32 + 1;
    counters = s.slice * s.n_hash;
    s.dim = 1 + (counters + s.per_word - 1) / s.per_word;
    s.signature = signature_of(&s);
    return s;
}
