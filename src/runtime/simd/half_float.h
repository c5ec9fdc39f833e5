/* half_float.h - float32 as float16 and bfloat16 and back, rounded to nearest
 * even. Without a branch, so that compilers turn loops of them into vectors of
 * integers: no instruction set that is asked for says that the processor
 * converts. */
#pragma once

#include <stdint.h>
#include <string.h>

#include "base/host_device.h"

FL_EVERYWHERE uint32_t fl_bits_of(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof u);
    return u;
}

FL_EVERYWHERE float fl_float_of(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof x);
    return x;
}

/* A NaN stays one. */
FL_EVERYWHERE uint16_t fl_to_bf16(float x)
{
    uint32_t u = fl_bits_of(x);
    uint32_t rounded = (u + 0x7FFF + (u >> 16 & 1)) >> 16;
    uint32_t nan = u >> 16 | 0x40;

    return (uint16_t)((u & 0x7FFFFFFF) > 0x7F800000 ? nan : rounded);
}

FL_EVERYWHERE float fl_from_bf16(uint16_t x)
{
    return fl_float_of((uint32_t)x << 16);
}

/* From 2^-14 on 13 bits are rounded off, with a carry into the exponent where
 * it must be. Below 2^-14 the last bit of float16 is 2^-24, as is the last bit
 * of float32 between 0.5 and 1: adding 0.5 rounds at that bit. */
FL_EVERYWHERE uint16_t fl_to_f16(float x)
{
    uint32_t u = fl_bits_of(x), size = u & 0x7FFFFFFF;
    uint32_t tiny = fl_bits_of(fl_float_of(size) + 0.5f) - fl_bits_of(0.5f);
    uint32_t h = (size + 0xFFF + (size >> 13 & 1) - (112u << 23)) >> 13;

    h = size < fl_bits_of(0x1p-14f) ? tiny : h;
    h = size >= fl_bits_of(0x1p16f) ? 0x7C00 : h;
    h = size > 0x7F800000 ? 0x7E00 : h;
    return (uint16_t)(h | (u >> 16 & 0x8000));
}

/* The product sets the exponent right, of denormal numbers, too. */
FL_EVERYWHERE float fl_from_f16(uint16_t h)
{
    uint32_t u = (h & 0x7FFFu) << 13;
    uint32_t number = fl_bits_of(fl_float_of(u) * 0x1p112f);

    u = u >= 0x7C00u << 13 ? u | 0x7F800000 : number;
    return fl_float_of(u | (h & 0x8000u) << 16);
}
