/* hidden_id.c - names of ids. */
#include "hidden_id.h"

#include "base/rng_draw.h"

enum { OF_NAMES = 4 << 16 }; /* sequences of the seed, one for each slot */

/* The finalizer of MurmurHash3 for 32 bits, a bijection; slots begin with
 * words of their own. */
uint32_t hidden_id(uint64_t seed, int slot, int64_t rank)
{
    fl_rng4 r = fl_rng_block(seed, OF_NAMES, (uint64_t)slot);
    uint32_t x = (uint32_t)rank ^ r.v[0];

    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x ^ x >> 16;
}
