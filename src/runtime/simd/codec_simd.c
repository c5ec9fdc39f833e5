/* codec_simd.c - the values of messages, written in fewer bytes and read back:
 * as float16, bfloat16, and int8 with a scale for each 256 of a row. Plain
 * loops without branches, which the compiler turns into vectors; all of them
 * round as IEEE says, so that every instruction set writes the same bytes. */
#include "runtime/simd/half_float.h"
#include "runtime/simd/simd.h"
#include "runtime/simd/vec.h"

void FL_SIMD(fl_simd_codec)(fl_simd *t);

/* Memory of messages may be at odd places. */
static inline void put16(char *to, int64_t i, uint16_t x)
{
    memcpy(to + i * (int64_t)sizeof x, &x, sizeof x);
}

static inline uint16_t get16(const char *from, int64_t i)
{
    uint16_t x;

    memcpy(&x, from + i * (int64_t)sizeof x, sizeof x);
    return x;
}

/* What was rounded away; nothing, where that is no number. */
static inline float rest_of(float x, float back)
{
    float rest = x - back;

    return (fl_bits_of(rest) & 0x7F800000) == 0x7F800000 ? 0.0f : rest;
}

/* Numbers that are too large become the largest, infinities stay. */
static inline float within_half(float x)
{
    const float most = 65504.0f;
    float near = x > most ? most : x < -most ? -most : x;

    return (fl_bits_of(x) & 0x7FFFFFFF) >= 0x7F800000 ? x : near;
}

#define WRITE16(name, to16, from16)                                            \
    static void name(void *out, float *a, bool rest, int64_t rows, int64_t n)  \
    {                                                                          \
        char *to = out;                                                        \
                                                                               \
        if (!rest)                                                             \
            for (int64_t i = 0; i < rows * n; i++)                             \
                put16(to, i, to16(a[i]));                                      \
        else                                                                   \
            for (int64_t i = 0; i < rows * n; i++) {                           \
                uint16_t x = to16(a[i]);                                       \
                                                                               \
                put16(to, i, x);                                               \
                a[i] = rest_of(a[i], from16(x));                               \
            }                                                                  \
    }

#define READ16(name, from16)                                                   \
    static void name(float *out, const void *a, int64_t rows, int64_t n)       \
    {                                                                          \
        for (int64_t i = 0; i < rows * n; i++)                                 \
            out[i] = from16(get16(a, i));                                      \
    }

static inline uint16_t to_f16_within(float x)
{
    return fl_to_f16(within_half(x));
}

WRITE16(write_f16, to_f16_within, fl_from_f16)
WRITE16(write_bf16, fl_to_bf16, fl_from_bf16)
READ16(read_f16, fl_from_f16)
READ16(read_bf16, fl_from_bf16)

/* --- int8 ------------------------------------------------------------------
 * A group is a scale, a bfloat16, and n bytes: x is about byte * scale. The
 * scale is the largest |x| / 127, rounded up, so that no number is beyond it;
 * NaN if a number is none or infinite. */

static inline float scale_of(const float *a, int64_t n)
{
    uint32_t most = 0, up;

    for (int64_t i = 0; i < n; i++) {
        uint32_t size = fl_bits_of(a[i]) & 0x7FFFFFFF;

        most = size > most ? size : most;
    }
    if (most >= 0x7F800000)
        return NAN;
    up = fl_bits_of(fl_float_of(most) / 127.0f) + 0xFFFF;
    return fl_float_of(up & 0xFFFF0000);
}

/* 1.5 * 2^23: what is added to it is rounded to an integer, to nearest even. */
#define ROUNDER 12582912.0f

static inline int8_t byte_of(float x, float by)
{
    float y = x * by;

    y = y > 127.0f ? 127.0f : y;
    y = y < -127.0f ? -127.0f : y;
    return (int8_t)(fl_bits_of(y + ROUNDER) - fl_bits_of(ROUNDER));
}

/* The bytes do not lie where the numbers do: a loop for each is a vector's. */
static inline void put_bytes(int8_t *restrict to, const float *restrict a,
                             float by, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = byte_of(a[i], by);
}

static inline void leave_rest(float *restrict a, const int8_t *restrict from,
                              float scale, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        a[i] = rest_of(a[i], (float)from[i] * scale);
}

/* A scale that has no inverse is of numbers that are as good as 0. */
static inline void write_group(char *out, float *a, bool rest, int64_t n)
{
    float scale = scale_of(a, n);
    float by = scale < 0x1p-126f ? 0.0f : 1.0f / scale;
    int8_t *to = (int8_t *)out + sizeof(uint16_t);

    put16(out, 0, (uint16_t)(fl_bits_of(scale) >> 16));
    put_bytes(to, a, by, n);
    if (rest)
        leave_rest(a, to, scale, n);
}

static inline void read_group(float *out, const char *a, int64_t n)
{
    const int8_t *from = (const int8_t *)a + sizeof(uint16_t);
    float scale = fl_from_bf16(get16(a, 0));

    for (int64_t i = 0; i < n; i++)
        out[i] = (float)from[i] * scale;
}

/* A group ends with its row. */
static inline int64_t group_at(int64_t i, int64_t n)
{
    return n - i < FL_INT8_GROUP ? n - i : FL_INT8_GROUP;
}

static void write_int8(void *out, float *a, bool rest, int64_t rows, int64_t n)
{
    char *to = out;

    for (int64_t r = 0; r < rows; r++, a += n)
        for (int64_t i = 0, k; i < n; i += k) {
            k = group_at(i, n);
            write_group(to, a + i, rest, k);
            to += (int64_t)sizeof(uint16_t) + k;
        }
}

static void read_int8(float *out, const void *a, int64_t rows, int64_t n)
{
    const char *from = a;

    for (int64_t r = 0; r < rows; r++, out += n)
        for (int64_t i = 0, k; i < n; i += k) {
            k = group_at(i, n);
            read_group(out + i, from, k);
            from += (int64_t)sizeof(uint16_t) + k;
        }
}

void FL_SIMD(fl_simd_codec)(fl_simd *t)
{
    t->write_f16 = write_f16;
    t->write_bf16 = write_bf16;
    t->write_int8 = write_int8;
    t->read_f16 = read_f16;
    t->read_bf16 = read_bf16;
    t->read_int8 = read_int8;
}
