/* permutation.h - a shuffled order of any number of things as a function:
 * nothing is stored, and both directions take the same time.
 *
 * A Feistel network over the smallest even number of bits that holds them,
 * applied again until the result is one of them (Black and Rogaway 2002,
 * Ciphers with arbitrary finite domains). */
#pragma once

#include <stdint.h>

enum { FL_PERMUTATION_ROUNDS = 8 };

typedef struct fl_permutation {
    uint64_t n;
    int half; /* bits of each half of a number */
    uint64_t key[FL_PERMUTATION_ROUNDS];
} fl_permutation;

/* Of 0 .. n - 1, n below 2^62. */
void fl_permutation_init(fl_permutation *p, uint64_t n, uint64_t seed);

/* What stands at place i, and at which place x stands. */
uint64_t fl_permutation_at(const fl_permutation *p, uint64_t i);
uint64_t fl_permutation_place(const fl_permutation *p, uint64_t x);
