/* crc32c.h - CRC-32C (Castagnoli): the checksum of messages, of journals,
 * of TFRecord files. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Of the bytes, continued from `sum`; 0 at first. */
uint32_t fl_crc32c(uint32_t sum, const void *data, size_t size);

/* As TFRecord files and TensorBoard's have it: a sum over bytes that hold sums
 * is weak, so it is turned and moved. */
static inline uint32_t fl_crc32c_masked(const void *data, size_t size)
{
    const uint32_t sum = fl_crc32c(0, data, size);

    return (sum >> 15 | sum << 17) + 0xa282ead8u;
}

/* fl_crc32c() without the processor's instructions for it: for tests. */
uint32_t fl_crc32c_plain(uint32_t sum, const void *data, size_t size);
