/* crc32c.c - CRC-32C, computed by table, eight bytes at a time, and by the
 * processor's own instruction where there is one.
 *
 * That instruction takes three cycles and can be started in each, so three
 * streams run side by side. The sums of two neighbours are joined by moving the
 * first one past the length of the second: a linear map, a table per byte. */
#include "base/crc32c.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "bytes as they lie");

#define POLYNOMIAL 0x82f63b78u

enum {
    /* Bytes of one of three streams: long ones cost few joins, short ones
     * leave little to a single stream. */
    LONG = 4096,
    SHORT = 256
};

static uint32_t by_byte[8][256];
static uint32_t past_long[4][256], past_short[4][256];
static bool has_instruction;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_byte_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t sum = i;

        for (int bit = 0; bit < 8; bit++)
            sum = sum & 1 ? sum >> 1 ^ POLYNOMIAL : sum >> 1;
        by_byte[0][i] = sum;
    }
    for (int k = 1; k < 8; k++)
        for (int i = 0; i < 256; i++) {
            uint32_t sum = by_byte[k - 1][i];

            by_byte[k][i] = sum >> 8 ^ by_byte[0][sum & 255];
        }
}

/* The map is linear: 32 images make all other images. */
static void make_past(uint32_t table[4][256], int length)
{
    for (int k = 0; k < 4; k++)
        for (int i = 1; i < 256; i++) {
            int rest = i & (i - 1);
            uint32_t sum = (uint32_t)i << 8 * k;

            for (int n = 0; !rest && n < length; n++)
                sum = sum >> 8 ^ by_byte[0][sum & 255];
            table[k][i] = rest ? table[k][rest] ^ table[k][i ^ rest] : sum;
        }
}

static void make_tables(void)
{
    make_byte_tables();
    make_past(past_long, LONG);
    make_past(past_short, SHORT);
#ifdef __x86_64__
    __builtin_cpu_init();
    has_instruction = __builtin_cpu_supports("sse4.2");
#endif
}

static uint64_t word_at(const uint8_t *data)
{
    uint64_t word;

    memcpy(&word, data, 8);
    return word;
}

static uint32_t sum_plain(uint32_t sum, const uint8_t *data, size_t size)
{
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t word = word_at(data) ^ sum;

        sum = 0;
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++)
            sum ^= by_byte[7 - k][word >> 8 * k & 255];
    }
    for (; size > 0; data++, size--)
        sum = sum >> 8 ^ by_byte[0][(sum ^ *data) & 255];
    return sum;
}

uint32_t fl_crc32c_plain(uint32_t sum, const void *data, size_t size)
{
    pthread_once(&once, make_tables);
    return ~sum_plain(~sum, data, size);
}

#ifdef __x86_64__

#include <nmmintrin.h>

static uint64_t move_past(uint32_t past[4][256], uint64_t sum)
{
    return past[0][sum & 255] ^ past[1][sum >> 8 & 255] ^
           past[2][sum >> 16 & 255] ^ past[3][sum >> 24 & 255];
}

/* Three streams of `length` bytes each. */
__attribute__((target("sse4.2"))) static uint64_t three(uint64_t sum,
                                                        const uint8_t *data,
                                                        size_t length,
                                                        uint32_t past[4][256])
{
    uint64_t second = 0, third = 0;

    for (size_t i = 0; i < length; i += 8) {
        sum = _mm_crc32_u64(sum, word_at(data + i));
        second = _mm_crc32_u64(second, word_at(data + length + i));
        third = _mm_crc32_u64(third, word_at(data + 2 * length + i));
    }
    return move_past(past, move_past(past, sum) ^ second) ^ third;
}

__attribute__((target("sse4.2"))) static uint32_t by_instruction(
    uint32_t from, const uint8_t *data, size_t size)
{
    uint64_t sum = from;

    for (; size >= 3 * LONG; data += 3 * LONG, size -= 3 * LONG)
        sum = three(sum, data, LONG, past_long);
    for (; size >= 3 * SHORT; data += 3 * SHORT, size -= 3 * SHORT)
        sum = three(sum, data, SHORT, past_short);
    for (; size >= 8; data += 8, size -= 8)
        sum = _mm_crc32_u64(sum, word_at(data));
    for (; size > 0; data++, size--)
        sum = _mm_crc32_u8((uint32_t)sum, *data);
    return (uint32_t)sum;
}

#else

#define by_instruction sum_plain /* not called: there is no instruction */

#endif

uint32_t fl_crc32c(uint32_t sum, const void *data, size_t size)
{
    pthread_once(&once, make_tables);
    return has_instruction ? ~by_instruction(~sum, data, size)
                           : ~sum_plain(~sum, data, size);
}
