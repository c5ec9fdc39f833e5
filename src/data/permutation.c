/* permutation.c - rounds of a network, in both directions. */
#include "data/permutation.h"

#include "base/hash.h"

void fl_permutation_init(fl_permutation *p, uint64_t n, uint64_t seed)
{
    p->n = n;
    p->half = 1;
    while ((uint64_t)1 << 2 * p->half < n)
        p->half++;
    for (uint64_t i = 0; i < FL_PERMUTATION_ROUNDS; i++)
        p->key[i] = fl_hash(&i, sizeof i, seed);
}

static uint64_t walk_forth(const fl_permutation *p, uint64_t x)
{
    const uint64_t mask = ((uint64_t)1 << p->half) - 1;
    uint64_t left = x >> p->half, right = x & mask, next;

    for (int i = 0; i < FL_PERMUTATION_ROUNDS; i++) {
        next = left ^ (fl_mix(right ^ p->key[i]) & mask);
        left = right;
        right = next;
    }
    return left << p->half | right;
}

static uint64_t walk_back(const fl_permutation *p, uint64_t x)
{
    const uint64_t mask = ((uint64_t)1 << p->half) - 1;
    uint64_t left = x >> p->half, right = x & mask, next;

    for (int i = FL_PERMUTATION_ROUNDS; i-- > 0;) {
        next = right ^ (fl_mix(left ^ p->key[i]) & mask);
        right = left;
        left = next;
    }
    return left << p->half | right;
}

uint64_t fl_permutation_at(const fl_permutation *p, uint64_t i)
{
    do
        i = walk_forth(p, i);
    while (i >= p->n);
    return i;
}

uint64_t fl_permutation_place(const fl_permutation *p, uint64_t x)
{
    do
        x = walk_back(p, x);
    while (x >= p->n);
    return x;
}
