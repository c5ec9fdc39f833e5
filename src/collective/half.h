/* half.h - float16 and bfloat16 as sums of ranks read and write them, on the
 * processor and on a GPU to the same bits. */
#ifndef FL_COLLECTIVE_HALF_H
#define FL_COLLECTIVE_HALF_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define FL_HALF __host__ __device__ static inline
#else
#define FL_HALF static inline
#endif

FL_HALF uint32_t fl_bits_of(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof u);
    return u;
}

FL_HALF float fl_float_of(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof x);
    return x;
}

FL_HALF float fl_from_bf16(uint16_t x)
{
    return fl_float_of((uint32_t)x << 16);
}

/* To nearest even; a NaN stays one. */
FL_HALF uint16_t fl_to_bf16(float x)
{
    uint32_t u = fl_bits_of(x);
    uint32_t rounded = (u + 0x7FFF + (u >> 16 & 1)) >> 16;
    uint32_t nan = u >> 16 | 0x40;

    return (uint16_t)((u & 0x7FFFFFFF) > 0x7F800000 ? nan : rounded);
}

/* The exponent's bias is set right by a product, denormal numbers included. */
FL_HALF float fl_from_f16(uint16_t x)
{
    uint32_t u = (uint32_t)(x & 0x7FFF) << 13;
    uint32_t scaled = fl_bits_of(fl_float_of(u) * 0x1p112f);
    uint32_t whole = u >= 0x0F800000 ? u | 0x7F800000 : scaled;

    return fl_float_of(whole | (uint32_t)(x & 0x8000) << 16);
}

/* To nearest even. Below 2^-14 the last bit of float16 is 2^-24, which is that
 * of float32 between 0.5 and 1: adding 0.5 rounds there. */
FL_HALF uint16_t fl_to_f16(float x)
{
    uint32_t u = fl_bits_of(x), sign = u >> 16 & 0x8000, size = u & 0x7FFFFFFF;
    uint32_t small = fl_bits_of(fl_float_of(size) + 0.5f) - fl_bits_of(0.5f);
    uint32_t normal = (size - 0x38000000 + 0xFFF + (size >> 13 & 1)) >> 13;
    uint32_t r = size < 0x38800000 ? small : normal;

    r = size >= 0x47800000 ? 0x7C00 : r;
    r = size > 0x7F800000 ? 0x7E00 : r;
    return (uint16_t)(r | sign);
}

#endif
