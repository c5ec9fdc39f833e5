/* hash.h - hashing: XXH64 for bytes, a mixer for 64-bit keys, and numbers that
 * cannot be guessed. The only <xxhash.h>. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/host_device.h"

uint64_t fl_hash(const void *data, size_t size, uint64_t seed);

/* XXH64 over pieces; the state is opaque and small. */
typedef struct fl_hasher {
    uint64_t opaque[11];
} fl_hasher;

void fl_hasher_init(fl_hasher *h, uint64_t seed);
void fl_hasher_add(fl_hasher *h, const void *data, size_t size);
uint64_t fl_hasher_end(const fl_hasher *h);

/* Spread a key over all 64 bits (the finalizer of MurmurHash3, a bijection).
 * The top bits are the bucket of a row; indexes mix once more, secretly. */
FL_EVERYWHERE uint64_t fl_mix(uint64_t key)
{
    key ^= key >> 33;
    key *= 0xff51afd7ed558ccdULL;
    key ^= key >> 33;
    key *= 0xc4ceb9fe1a85ec53ULL;
    key ^= key >> 33;
    return key;
}

/* Its inverse. */
FL_EVERYWHERE uint64_t fl_unmix(uint64_t hash)
{
    hash ^= hash >> 33;
    hash *= 0x9cb4b2f8129337dbULL;
    hash ^= hash >> 33;
    hash *= 0x4f74430c22a54005ULL;
    hash ^= hash >> 33;
    return hash;
}

/* A random number of this process and moment: the kernel's. */
uint64_t fl_nonce(void);

/* fl_mix() is known to all, and can be inverted: keys can be chosen, any number
 * of them, that meet in one place of a hash index. So an index mixes once more,
 * with a secret of the process, which is drawn before the first index is
 * made. */
void fl_secret_draw(void);
extern uint64_t fl_secret[2];

/* Of fl_mix(key): all bits depend on all of its bits, and on the secret. */
FL_EVERYWHERE uint64_t fl_mix_with(uint64_t hash, uint64_t add, uint64_t times)
{
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)(hash ^ add) * times;

    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t fl_mix_secretly(uint64_t hash)
{
    return fl_mix_with(hash, fl_secret[0], fl_secret[1]);
}

/* A number below n, by the top bits of the hash: in place of a remainder, which
 * takes a division (Lemire 2019, Fast random integer generation in an
 * interval). */
static inline uint64_t fl_hash_below(uint64_t hash, uint64_t n)
{
    __extension__ typedef unsigned __int128 wide;

    return (uint64_t)((wide)hash * n >> 64);
}
