/* scan_vec.h - finds certain bytes in 64 bytes of text, in the instructions of
 * the set FL_ISA. */
#pragma once

#include <stdint.h>

#include "data/text/text_kernels.h"

#ifndef FL_ISA
#define FL_ISA 0 /* for editors and linters */
#endif

#if FL_ISA > 0
#include <immintrin.h>
#endif

#ifndef FL_VBMI2
#define FL_VBMI2 0
#endif

/* Of the functions that call put_places(). */
#if FL_VBMI2
#define FL_TARGET __attribute__((target("avx512vbmi2")))
#else
#define FL_TARGET
#endif

#if FL_ISA > 0

static inline __m256i load_half(const void *p)
{
    return _mm256_loadu_si256(p);
}

#endif

/* Bit i of the result: p[i] is the byte, or is blank. */
#if FL_ISA == 512

static inline uint64_t match_byte(const char *p, char one)
{
    return _mm512_cmpeq_epi8_mask(_mm512_loadu_si512(p), _mm512_set1_epi8(one));
}

static inline uint64_t match_blank(const char *p)
{
    __m512i v = _mm512_loadu_si512(p);
    __m512i from_tab = _mm512_sub_epi8(v, _mm512_set1_epi8('\t'));

    return _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8(' ')) |
           _mm512_cmple_epu8_mask(from_tab, _mm512_set1_epi8('\r' - '\t'));
}

/* Write the places of mask's bits, counted from base; how many there are. */
#if FL_VBMI2

static inline __m512i places_of(__m128i in_64, uint32_t base)
{
    return _mm512_add_epi32(_mm512_cvtepu8_epi32(in_64),
                            _mm512_set1_epi32((int)base));
}

FL_TARGET static inline int put_places(uint64_t mask, uint32_t base,
                                       uint32_t *at)
{
    static const uint8_t first[64] = {
        0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
        16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
        32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47,
        48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
    __m512i all = _mm512_maskz_compress_epi8(mask, _mm512_loadu_si512(first));
    int n = __builtin_popcountll(mask);

    _mm512_storeu_si512(at, places_of(_mm512_castsi512_si128(all), base));
    _mm512_storeu_si512(at + 16,
                        places_of(_mm512_extracti32x4_epi32(all, 1), base));
    if (n <= 32)
        return n;
    _mm512_storeu_si512(at + 32,
                        places_of(_mm512_extracti32x4_epi32(all, 2), base));
    _mm512_storeu_si512(at + 48,
                        places_of(_mm512_extracti32x4_epi32(all, 3), base));
    return n;
}

#else

static inline int put_places(uint64_t mask, uint32_t base, uint32_t *at)
{
    const __m512i first =
        _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    int n = 0;

    for (int i = 0; i < 4; i++) {
        __mmask16 part = (__mmask16)(mask >> (16 * i));
        __m512i place =
            _mm512_add_epi32(first, _mm512_set1_epi32((int)base + 16 * i));

        _mm512_storeu_si512(at + n, _mm512_maskz_compress_epi32(part, place));
        n += __builtin_popcount(part);
    }
    return n;
}

#endif

#else

#if FL_ISA == 256

static inline uint64_t two_masks(__m256i low, __m256i high)
{
    return (uint32_t)_mm256_movemask_epi8(low) |
           (uint64_t)(uint32_t)_mm256_movemask_epi8(high) << 32;
}

static inline uint64_t match_byte(const char *p, char one)
{
    __m256i o = _mm256_set1_epi8(one);

    return two_masks(_mm256_cmpeq_epi8(load_half(p), o),
                     _mm256_cmpeq_epi8(load_half(p + 32), o));
}

/* '\t' .. '\r' less '\t' is at most 4: the smaller of it and 4 is itself. */
static inline __m256i is_blank(__m256i v)
{
    __m256i from_tab = _mm256_sub_epi8(v, _mm256_set1_epi8('\t'));
    __m256i near = _mm256_min_epu8(from_tab, _mm256_set1_epi8('\r' - '\t'));

    return _mm256_or_si256(_mm256_cmpeq_epi8(v, _mm256_set1_epi8(' ')),
                           _mm256_cmpeq_epi8(near, from_tab));
}

static inline uint64_t match_blank(const char *p)
{
    return two_masks(is_blank(load_half(p)), is_blank(load_half(p + 32)));
}

#else

/* The top bits of a word's bytes, moved together. */
static inline uint64_t top_bits(uint64_t y)
{
    return ((y >> 7) * 0x0102040810204080u) >> 56;
}

static inline uint64_t match_byte(const char *p, char one)
{
    uint64_t mask = 0;

    for (int i = 0; i < 8; i++) {
        uint64_t t = fl_load8(p + 8 * i) ^ FL_BYTES((unsigned char)one);
        uint64_t low = FL_BYTES(0x7F);

        mask |= top_bits(~(((t & low) + low) | t | low)) << (8 * i);
    }
    return mask;
}

static inline uint64_t match_blank(const char *p)
{
    uint64_t mask = match_byte(p, ' ');

    for (int i = 0; i < 8; i++) {
        uint64_t t = fl_load8(p + 8 * i), low = t & FL_BYTES(0x7F);
        uint64_t from = low + FL_BYTES(0x80 - '\t');
        uint64_t past = low + FL_BYTES(0x80 - '\r' - 1);

        mask |= top_bits(from & ~past & ~t & FL_BYTES(0x80)) << (8 * i);
    }
    return mask;
}

#endif

static inline int put_places(uint64_t mask, uint32_t base, uint32_t *at)
{
    int n = __builtin_popcountll(mask);

    while (mask) {
        *at++ = base + (uint32_t)__builtin_ctzll(mask);
        mask &= mask - 1;
    }
    return n;
}

#endif

/* Bits of the first `left` bytes. */
static inline uint64_t first_bits(uint64_t mask, uint32_t left)
{
    return left < 64 ? mask & ~(~0ull << left) : mask;
}
