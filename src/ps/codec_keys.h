/* codec_keys.h - keys of rows, sorted, as the distances between them: what a
 * message takes for n different 64-bit keys, in place of 8 n bytes.
 *
 *   packed = first key (u64), groups
 *   group  = width (u8), 128 distances or the rest of them, of `width` bits
 *            each, in bytes from the lowest bit on
 *
 * A distance is key - key before - 1. Dense ids of a table take a byte or less;
 * n hashes some 64 - log2(n) + 2 bits. Sorting is by digits, the least
 * significant first, and leaves out digits that are alike in all keys. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* By rising key; `at`, and the two arrays of n that are scratch, go with it. */
void fl_keys_sort(uint64_t *key, void **at, int64_t n, uint64_t *scratch_key,
                  void **scratch_at);

/* The most bytes that n packed keys take. */
size_t fl_keys_most_bytes(int64_t n);

/* n keys, each higher than the one before; how many bytes were written. */
size_t fl_keys_pack(void *to, const uint64_t *key, int64_t n);

/* n keys, of all of these bytes; false: the bytes are something else. */
bool fl_keys_unpack(uint64_t *key, int64_t n, const void *from, size_t size);
