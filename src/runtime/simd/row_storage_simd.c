/* row_storage_simd.c - weights of rows in fewer bits, read and written: loops
 * without branches, of which the compiler makes vectors. The arithmetic is that
 * of integers, or exact: the bits are the same on every instruction set. */
#include "runtime/simd/row_storage.h"

#include <math.h>
#include <string.h>

#include "runtime/simd/half_float.h"
#include "runtime/simd/simd.h"
#include "runtime/simd/vec.h"

void FL_SIMD(fl_simd_storage)(fl_simd *t);

/* 32 random bits of a column: MurmurHash3's finalizer. */
static inline uint32_t random_of(uint64_t seed, int64_t i)
{
    uint32_t h = (uint32_t)seed + (uint32_t)i * 0x9E3779B9u;

    h ^= (uint32_t)(seed >> 32);
    h = (h ^ h >> 16) * 0x85EBCA6Bu;
    h = (h ^ h >> 13) * 0xC2B2AE35u;
    return h ^ h >> 16;
}

/* --- 16 bits -------------------------------------------------------------- */

static void read_f16(float *out, const float *row, int64_t n)
{
    const uint16_t *from = (const uint16_t *)(const void *)row;

    for (int64_t i = 0; i < n; i++)
        out[i] = fl_from_f16(from[i]);
}

static void read_bf16(float *out, const float *row, int64_t n)
{
    const uint16_t *from = (const uint16_t *)(const void *)row;

    for (int64_t i = 0; i < n; i++)
        out[i] = fl_from_bf16(from[i]);
}

/* A finite number stays one. */
static inline uint16_t finite_f16(uint16_t h, float x)
{
    uint32_t size = fl_bits_of(x) & 0x7FFFFFFF;
    uint16_t most = (uint16_t)((h & 0x8000) | 0x7BFF);

    return size < 0x7F800000 && (h & 0x7FFF) > 0x7BFF ? most : h;
}

static inline uint16_t finite_bf16(uint16_t h, float x)
{
    uint32_t size = fl_bits_of(x) & 0x7FFFFFFF;
    uint16_t most = (uint16_t)((h & 0x8000) | 0x7F7F);

    return size < 0x7F800000 && (h & 0x7FFF) > 0x7F7F ? most : h;
}

/* 13 bits are dropped, after random ones were added to them. Below 2^-14 the
 * last bit is 2^-24: what is left beyond it is compared with them. */
static inline uint16_t random_f16(float x, uint32_t random)
{
    uint32_t u = fl_bits_of(x), size = u & 0x7FFFFFFF, r = random >> 19;
    float tiny = size < fl_bits_of(0x1p-14f) ? fl_float_of(size) * 0x1p24f : 0;
    uint32_t whole = (uint32_t)(int32_t)tiny;
    uint32_t up = (tiny - (float)(int32_t)whole) * 8192.0f > (float)(int32_t)r;
    uint32_t h = (size + r - (112u << 23)) >> 13;

    h = size < fl_bits_of(0x1p-14f) ? whole + up : h;
    h = size >= fl_bits_of(0x1p16f) ? 0x7C00 : h;
    h = size > 0x7F800000 ? 0x7E00 : h;
    return (uint16_t)(h | (u >> 16 & 0x8000));
}

static inline uint16_t random_bf16(float x, uint32_t random)
{
    uint32_t u = fl_bits_of(x), size = u & 0x7FFFFFFF;
    uint32_t h = (u + (random >> 16)) >> 16;

    h = size >= 0x7F800000 ? u >> 16 : h;
    return (uint16_t)(size > 0x7F800000 ? h | 0x40 : h);
}

static void write_f16(float *row, const float *w, int64_t n,
                      const uint64_t *seed)
{
    uint16_t *to = (uint16_t *)(void *)row;
    const uint64_t s = seed ? *seed : 0;

    if (seed)
        for (int64_t i = 0; i < n; i++)
            to[i] = finite_f16(random_f16(w[i], random_of(s, i)), w[i]);
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = finite_f16(fl_to_f16(w[i]), w[i]);
    if (n % 2)
        to[n] = 0;
}

static void write_bf16(float *row, const float *w, int64_t n,
                       const uint64_t *seed)
{
    uint16_t *to = (uint16_t *)(void *)row;
    const uint64_t s = seed ? *seed : 0;

    if (seed)
        for (int64_t i = 0; i < n; i++)
            to[i] = finite_bf16(random_bf16(w[i], random_of(s, i)), w[i]);
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = finite_bf16(fl_to_bf16(w[i]), w[i]);
    if (n % 2)
        to[n] = 0;
}

/* --- 8 bits --------------------------------------------------------------- */

/* The least power of two that brings a number of that size to 127 at most; NaN
 * for what is not finite. */
static float scale_for(float size)
{
    float scale;
    int e;

    if (!(size < INFINITY))
        return NAN;
    if (size == 0.0f)
        return 0x1p-126f;
    (void)frexpf(size, &e); /* size < 2^e */
    e -= 7;
    scale = ldexpf(1.0f, e < -126 ? -126 : e);
    return size > 127.0f * scale ? 2.0f * scale : scale;
}

/* NaN, if there is one. */
static float largest_of(const float *w, int64_t n)
{
    uint32_t most = 0;

    for (int64_t i = 0; i < n; i++) {
        uint32_t size = fl_bits_of(w[i]) & 0x7FFFFFFF;

        most = size > most ? size : most;
    }
    return fl_float_of(most);
}

static void read_int8(float *out, const float *row, int64_t n)
{
    const int8_t *from = (const int8_t *)(const void *)(row + 1);
    const float scale = row[0];

    for (int64_t i = 0; i < n; i++)
        out[i] = (float)from[i] * scale;
}

static inline int8_t to_int8(float at, float up)
{
    float x = at + up;

    x = x > 127.0f ? 127.0f : x;
    x = x < -127.0f ? -127.0f : x;
    return (int8_t)(int32_t)x;
}

/* Below 128 in size, so that it fits into an integer. */
static inline float floor_of(float q)
{
    float whole = (float)(int32_t)q;

    return whole > q ? whole - 1.0f : whole;
}

static void write_int8(float *row, const float *w, int64_t n,
                       const uint64_t *seed)
{
    int8_t *to = (int8_t *)(void *)(row + 1);
    const float scale = scale_for(largest_of(w, n));
    const float by = scale == scale ? 1.0f / scale : 0.0f;
    const uint64_t s = seed ? *seed : 0;

    row[fl_storage_words(FLEET_ROW_INT8, n) - 1] = 0; /* what is left over */
    row[0] = scale;
    if (scale != scale)
        memset(to, 0, (size_t)n);
    else if (seed)
        for (int64_t i = 0; i < n; i++) {
            float q = w[i] * by, at = floor_of(q);
            float r = (float)(int32_t)(random_of(s, i) >> 16);

            to[i] = to_int8(at, (q - at) * 65536.0f > r ? 1.0f : 0.0f);
        }
    else
        for (int64_t i = 0; i < n; i++) {
            float q = w[i] * by, at = floor_of(q);

            to[i] = to_int8(at, q - at >= 0.5f ? 1.0f : 0.0f);
        }
}

/* --- any ------------------------------------------------------------------ */

static void read_weights(fleet_row_storage s, float *out, const float *row,
                         int64_t dim)
{
    if (s == FLEET_ROW_FLOAT16)
        read_f16(out, row, dim);
    else if (s == FLEET_ROW_BFLOAT16)
        read_bf16(out, row, dim);
    else if (s == FLEET_ROW_INT8)
        read_int8(out, row, dim);
    else
        memcpy(out, row, (size_t)dim * sizeof *out);
}

static void write_weights(fleet_row_storage s, float *row, const float *w,
                          int64_t dim, const uint64_t *seed)
{
    if (s == FLEET_ROW_FLOAT16)
        write_f16(row, w, dim, seed);
    else if (s == FLEET_ROW_BFLOAT16)
        write_bf16(row, w, dim, seed);
    else if (s == FLEET_ROW_INT8)
        write_int8(row, w, dim, seed);
    else
        memcpy(row, w, (size_t)dim * sizeof *row);
}

void FL_SIMD(fl_simd_storage)(fl_simd *t)
{
    t->read_weights = read_weights;
    t->write_weights = write_weights;
}
