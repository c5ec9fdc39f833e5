/* half_simd.c - float16 and back, as gradients travel. Loops without a branch,
 * which compilers turn into vectors of integers: no instruction set here says
 * that the processor converts.
 */
#include <string.h>

#include "runtime/simd.h"
#include "runtime/vec.h"

void FL_SIMD(fl_simd_half)(fl_simd *t);

static inline uint32_t bits_of(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float float_of(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof x);
    return x;
}

/* To nearest even. From 2^-14 on 13 bits are rounded off, with a carry into the
 * exponent where it must be; below, adding a half leaves float16's 24th binary
 * place as the last one of the sum. */
static inline uint16_t narrow(float x)
{
    uint32_t u = bits_of(x), size = u & 0x7FFFFFFF;
    uint32_t tiny = bits_of(float_of(size) + 0.5f) - bits_of(0.5f);
    uint32_t h = (size + 0xFFF + (size >> 13 & 1) - (112u << 23)) >> 13;

    h = size < bits_of(0x1p-14f) ? tiny : h;
    h = size >= bits_of(0x1p16f) ? 0x7C00 : h;
    h = size > 0x7F800000 ? 0x7E00 : h;
    return (uint16_t)(h | (u >> 16 & 0x8000));
}

/* The product sets the exponent right, of denormal numbers, too. */
static inline float widen(uint16_t h)
{
    uint32_t u = (h & 0x7FFFu) << 13;
    uint32_t number = bits_of(float_of(u) * 0x1p112f);

    u = u >= 0x7C00u << 13 ? u | 0x7F800000 : number;
    return float_of(u | (h & 0x8000u) << 16);
}

static void to_half(uint16_t *out, const float *a, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = narrow(a[i]);
}

static void from_half(float *out, const uint16_t *a, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = widen(a[i]);
}

void FL_SIMD(fl_simd_half)(fl_simd *t)
{
    t->to_half = to_half;
    t->from_half = from_half;
}
