/* codec_keys_test.c - keys of rows, sorted and packed: they come back, in fewer
 * bytes, and whatever else comes is refused, or some keys that rise. */
#define SUITE codec_keys
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "ps/codec_keys.h"

enum { MOST = 3000 };

static uint64_t hashed(uint64_t i)
{
    return fl_mix(i * 77 + 5);
}

static uint64_t dense(uint64_t i)
{
    return i * 40 + hashed(i) % 40; /* one id of 40 */
}

static uint64_t in_a_row(uint64_t i)
{
    return UINT64_MAX - MOST + i;
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Keys in any order, each with a pointer that knows it. */
static void make_keys(uint64_t (*of)(uint64_t), int64_t n, uint64_t *key,
                      void **at)
{
    static uint64_t number[MOST];

    for (int64_t i = 0; i < n; i++)
        number[i] = (uint64_t)i;
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = (int64_t)(hashed((uint64_t)i) % (uint64_t)(i + 1));
        uint64_t kept = number[i];

        number[i] = number[j];
        number[j] = kept;
    }
    for (int64_t i = 0; i < n; i++) {
        key[i] = of(number[i]);
        at[i] = (void *)(uintptr_t)(key[i] ^ 99);
    }
}

static uint64_t (*const kind[])(uint64_t) = {hashed, dense, in_a_row};

TEST(keys_are_sorted_with_what_belongs_to_them)
{
    static uint64_t key[MOST], want[MOST], scratch[MOST];
    static void *at[MOST], *other[MOST];

    for (int k = 0; k < 3; k++)
        for (int64_t n = 0; n <= MOST; n += n < 5 ? 1 : 599) {
            make_keys(kind[k], n, key, at);
            memcpy(want, key, sizeof key);
            qsort(want, (size_t)n, sizeof *want, ascending);
            fl_keys_sort(key, at, n, scratch, other);
            CHECK(memcmp(key, want, (size_t)n * sizeof *key) == 0);
            for (int64_t i = 0; i < n; i++)
                CHECK((uintptr_t)at[i] == (uintptr_t)(key[i] ^ 99));
        }
}

static size_t pack(uint64_t (*of)(uint64_t), int64_t n, uint64_t *key,
                   uint8_t *to)
{
    static uint64_t scratch[MOST];
    static void *at[MOST], *other[MOST];
    size_t size;

    make_keys(of, n, key, at);
    fl_keys_sort(key, at, n, scratch, other);
    size = fl_keys_pack(to, key, n);
    CHECK(size <= fl_keys_most_bytes(n));
    return size;
}

TEST(packed_keys_come_back)
{
    static uint64_t key[MOST], back[MOST];
    static uint8_t bytes[MOST * 9];

    for (int k = 0; k < 3; k++)
        for (int64_t n = 0; n <= MOST; n += n < 300 ? 1 : 599) {
            size_t size = pack(kind[k], n, key, bytes);

            CHECK(fl_keys_unpack(back, n, bytes, size));
            CHECK(memcmp(back, key, (size_t)n * sizeof *key) == 0);
        }
}

TEST(the_widest_and_the_narrowest_distances_come_back)
{
    const uint64_t key[] = {0, UINT64_MAX}, near[] = {7, 8, 9};
    uint64_t back[3];
    uint8_t bytes[40];

    CHECK_INT(fl_keys_pack(bytes, key, 2), 8 + 1 + 8);
    CHECK(fl_keys_unpack(back, 2, bytes, 17));
    CHECK(memcmp(back, key, sizeof key) == 0);
    CHECK_INT(fl_keys_pack(bytes, near, 3), 8 + 1);
    CHECK(fl_keys_unpack(back, 3, bytes, 9));
    CHECK(memcmp(back, near, sizeof near) == 0);
}

/* Bytes of a key: what docs/modes.md says. */
TEST(dense_ids_take_a_byte_and_hashes_a_little_less_than_eight)
{
    static uint64_t key[MOST];
    static uint8_t bytes[MOST * 9];

    CHECK(pack(dense, MOST, key, bytes) <= MOST * 5 / 4);
    CHECK(pack(hashed, MOST, key, bytes) <= MOST * 7);
    CHECK(pack(in_a_row, MOST, key, bytes) <= MOST / 100 + 8);
}

TEST(what_is_cut_or_longer_is_refused)
{
    static uint64_t key[MOST], back[MOST];
    static uint8_t bytes[MOST * 9];

    for (int k = 0; k < 3; k++) {
        size_t size = pack(kind[k], 300, key, bytes);

        for (size_t less = 1; less <= size; less++)
            CHECK(!fl_keys_unpack(back, 300, bytes, size - less));
        bytes[size] = 0;
        CHECK(!fl_keys_unpack(back, 300, bytes, size + 1));
        CHECK(!fl_keys_unpack(back, 299, bytes, size) || k == 2);
        CHECK(!fl_keys_unpack(back, 0, bytes, size));
    }
}

/* In a block of its size, so that AddressSanitizer sees a byte too much. */
TEST(any_bytes_do_no_harm)
{
    uint64_t back[300];
    int taken = 0;

    for (unsigned seed = 0; seed < 20000; seed++) {
        unsigned state = seed;
        size_t size = (size_t)rand_r(&state) % 60;
        int64_t n = rand_r(&state) % 300;
        uint8_t *bytes = malloc(size + 1);

        for (size_t i = 0; i < size; i++)
            bytes[i] = (uint8_t)(rand_r(&state) % (i == 8 ? 9 : 256));
        if (fl_keys_unpack(back, n, bytes, size)) {
            taken++;
            for (int64_t i = 1; i < n; i++)
                CHECK(back[i] > back[i - 1]);
        }
        free(bytes);
    }
    CHECK(taken > 0);
}

TEST(keys_that_do_not_rise_are_refused)
{
    uint64_t back[2];
    uint8_t bytes[17] = {0};

    memset(bytes, 255, 8); /* the first is the highest there is */
    bytes[8] = 64;
    CHECK(!fl_keys_unpack(back, 2, bytes, 17));
    bytes[7] = 0;
    CHECK(fl_keys_unpack(back, 2, bytes, 17));
    bytes[8] = 65;
    CHECK(!fl_keys_unpack(back, 2, bytes, 17));
    bytes[8] = 3; /* bits behind the last distance */
    bytes[9] = 8;
    CHECK(!fl_keys_unpack(back, 2, bytes, 10));
}
