/* codec_keys.c - keys sorted by digits, and their distances written as bits. */
#include "ps/codec_keys.h"

#include <string.h>

enum { GROUP = 128, DIGITS = 8, DIGIT = 256 };

/* --- sorting -------------------------------------------------------------- */

typedef size_t digit_counts[DIGITS][DIGIT];

static void count_digits(const uint64_t *key, int64_t n, digit_counts count)
{
    memset(count, 0, sizeof(digit_counts));
    for (int64_t i = 0; i < n; i++)
        for (int d = 0; d < DIGITS; d++)
            count[d][key[i] >> 8 * d & (DIGIT - 1)]++;
}

/* One pass: *count becomes where each digit's keys begin. */
static void sort_by(int digit, const uint64_t *key, void *const *at, int64_t n,
                    size_t *count, uint64_t *to_key, void **to_at)
{
    size_t sum = 0;

    for (int i = 0; i < DIGIT; i++) {
        size_t here = count[i];

        count[i] = sum;
        sum += here;
    }
    for (int64_t i = 0; i < n; i++) {
        size_t to = count[key[i] >> 8 * digit & (DIGIT - 1)]++;

        to_key[to] = key[i];
        to_at[to] = at[i];
    }
}

void fl_keys_sort(uint64_t *key, void **at, int64_t n, uint64_t *scratch_key,
                  void **scratch_at)
{
    uint64_t *from = key, *to = scratch_key;
    void **from_at = at, **to_at = scratch_at;
    digit_counts count;

    if (n < 2)
        return;
    count_digits(key, n, count);
    for (int d = 0; d < DIGITS; d++) {
        uint64_t *other = from;
        void **other_at = from_at;

        if (count[d][from[0] >> 8 * d & (DIGIT - 1)] == (size_t)n)
            continue;
        sort_by(d, from, from_at, n, count[d], to, to_at);
        from = to;
        from_at = to_at;
        to = other;
        to_at = other_at;
    }
    if (from != key) {
        memcpy(key, from, (size_t)n * sizeof *key);
        memcpy(at, from_at, (size_t)n * sizeof *at);
    }
}

/* --- packing -------------------------------------------------------------- */

__extension__ typedef unsigned __int128 wide_bits;

size_t fl_keys_most_bytes(int64_t n)
{
    return n == 0 ? 0
                  : (size_t)n * sizeof(uint64_t) +
                        (size_t)((n + GROUP - 1) / GROUP);
}

static uint64_t distance_at(const uint64_t *key, int64_t i)
{
    return key[i] - key[i - 1] - 1;
}

static int width_of(const uint64_t *key, int64_t first, int64_t end)
{
    uint64_t all = 0;

    for (int64_t i = first; i < end; i++)
        all |= distance_at(key, i);
    return all ? 64 - __builtin_clzll(all) : 0;
}

/* The distances of keys first to end - 1, of `width` bits each. */
static uint8_t *pack_group(uint8_t *to, const uint64_t *key, int64_t first,
                           int64_t end, int width)
{
    wide_bits bits = 0;
    int n_bit = 0;

    *to++ = (uint8_t)width;
    for (int64_t i = first; i < end; i++) {
        bits |= (wide_bits)distance_at(key, i) << n_bit;
        n_bit += width;
        if (n_bit >= 64) {
            uint64_t low = (uint64_t)bits;

            memcpy(to, &low, sizeof low);
            to += sizeof low;
            bits >>= 64;
            n_bit -= 64;
        }
    }
    for (; n_bit > 0; n_bit -= 8, bits >>= 8)
        *to++ = (uint8_t)bits;
    return to;
}

size_t fl_keys_pack(void *out, const uint64_t *key, int64_t n)
{
    uint8_t *to = out;

    if (n == 0)
        return 0;
    memcpy(to, key, sizeof *key);
    to += sizeof *key;
    for (int64_t i = 1; i < n; i += GROUP) {
        int64_t end = n - i < GROUP ? n : i + GROUP;

        to = pack_group(to, key, i, end, width_of(key, i, end));
    }
    return (size_t)(to - (uint8_t *)out);
}

/* false: the keys do not rise, or bits beyond the last one are not 0. */
static bool unpack_group(uint64_t *key, int64_t first, int64_t end, int width,
                         const uint8_t *from, size_t size)
{
    uint64_t mask = width == 64 ? UINT64_MAX : (UINT64_C(1) << width) - 1;
    wide_bits bits = 0;
    int n_bit = 0;

    for (int64_t i = first; i < end; i++) {
        if (n_bit < width) {
            size_t some = size < sizeof(uint64_t) ? size : sizeof(uint64_t);
            uint64_t low = 0;

            memcpy(&low, from, some);
            bits |= (wide_bits)low << n_bit;
            n_bit += 8 * (int)some;
            from += some;
            size -= some;
        }
        key[i] = key[i - 1] + ((uint64_t)bits & mask) + 1;
        if (key[i] <= key[i - 1])
            return false;
        bits >>= width;
        n_bit -= width;
    }
    return bits == 0;
}

bool fl_keys_unpack(uint64_t *key, int64_t n, const void *packed, size_t size)
{
    const uint8_t *from = packed;

    if (n == 0 || size < sizeof *key)
        return n == 0 && size == 0;
    memcpy(key, from, sizeof *key);
    from += sizeof *key;
    size -= sizeof *key;
    for (int64_t i = 1; i < n; i += GROUP) {
        int64_t end = n - i < GROUP ? n : i + GROUP;
        size_t bytes;

        if (size == 0 || *from > 64)
            return false;
        bytes = ((size_t)(end - i) * *from + 7) / 8;
        if (size - 1 < bytes ||
            !unpack_group(key, i, end, *from, from + 1, bytes))
            return false;
        from += 1 + bytes;
        size -= 1 + bytes;
    }
    return size == 0;
}
