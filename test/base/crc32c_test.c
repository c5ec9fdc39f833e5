/* crc32c_test.c - CRC-32C: the sums that RFC 3720 gives, with the processor's
 * instruction and without it. */
#define SUITE crc32c
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/hash.h"

static void fill_bytes(uint8_t *data, size_t size, uint64_t seed)
{
    for (size_t i = 0; i < size; i++)
        data[i] = (uint8_t)fl_mix(seed << 32 | (i + 1));
}

TEST(sums_are_crc_32c)
{
    uint8_t zeros[32] = {0}, ones[32], rising[32];

    memset(ones, 255, sizeof ones);
    for (int i = 0; i < 32; i++)
        rising[i] = (uint8_t)i;
    CHECK_INT(fl_crc32c(0, "123456789", 9), 0xe3069283);
    CHECK_INT(fl_crc32c(0, zeros, 32), 0x8a9136aa); /* RFC 3720, B.4 */
    CHECK_INT(fl_crc32c(0, ones, 32), 0x62a8ab43);
    CHECK_INT(fl_crc32c(0, rising, 32), 0x46dd794e);
    CHECK_INT(fl_crc32c(0, NULL, 0), 0);
    CHECK_INT(fl_crc32c_plain(0, "123456789", 9), 0xe3069283);
}

TEST(sums_with_and_without_the_instruction_are_equal)
{
    enum { SIZE = 40000 };
    uint8_t *data = malloc(SIZE);

    fill_bytes(data, SIZE, 1);
    for (size_t size = 0; size < 3000; size++)
        CHECK_INT(fl_crc32c(7, data + size % 9, size),
                  fl_crc32c_plain(7, data + size % 9, size));
    for (size_t size = SIZE - 20; size <= SIZE; size++)
        CHECK_INT(fl_crc32c(0, data, size), fl_crc32c_plain(0, data, size));
    free(data);
}

TEST(a_sum_may_be_continued_anywhere)
{
    enum { SIZE = 30000 };
    uint8_t *data = malloc(SIZE);
    uint32_t whole;

    fill_bytes(data, SIZE, 2);
    whole = fl_crc32c(0, data, SIZE);
    for (size_t at = 0; at <= SIZE; at += at < 1000 ? 1 : 997) {
        uint32_t sum = fl_crc32c(0, data, at);

        CHECK_INT(fl_crc32c(sum, data + at, SIZE - at), whole);
        CHECK_INT(fl_crc32c_plain(sum, data + at, SIZE - at), whole);
    }
    free(data);
}
