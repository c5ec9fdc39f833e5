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
 * The bucket of a row is the top bits, its place in the bucket the low ones. */
FL_EVERYWHERE uint64_t fl_mix(uint64_t key)
{
    key ^= key >> 33;
    key *= 0xff51afd7ed558ccdULL;
    key ^= key >> 33;
    key *= 0xc4ceb9fe1a85ec53ULL;
    key ^= key >> 33;
    return key;
}

/* A random number of this process and moment: the kernel's. */
uint64_t fl_nonce(void);
