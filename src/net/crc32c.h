/* crc32c.h - CRC-32C (Castagnoli): the checksum of messages. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Of the bytes, continued from `sum`; 0 at first. */
uint32_t fl_crc32c(uint32_t sum, const void *data, size_t size);

/* The same without the processor's instructions for it: for tests. */
uint32_t fl_crc32c_plain(uint32_t sum, const void *data, size_t size);
