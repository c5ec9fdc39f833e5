/* rng.c - see rng.h. */
#include "base/rng.h"

#include <math.h>

static void philox_round(uint32_t c[4], const uint32_t k[2])
{
    uint64_t a = (uint64_t)0xD2511F53u * c[0];
    uint64_t b = (uint64_t)0xCD9E8D57u * c[2];
    uint32_t c1 = c[1], c3 = c[3];

    c[0] = (uint32_t)(b >> 32) ^ c1 ^ k[0];
    c[1] = (uint32_t)b;
    c[2] = (uint32_t)(a >> 32) ^ c3 ^ k[1];
    c[3] = (uint32_t)a;
}

fl_rng4 fl_rng_block(uint64_t seed, uint64_t stream, uint64_t block)
{
    fl_rng4 r = {{(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)stream,
                  (uint32_t)(stream >> 32)}};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};

    for (int i = 0; i < 10; i++) {
        philox_round(r.v, key);
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
    return r;
}

__extension__ typedef unsigned __int128 wide;

uint64_t fl_rng_below(uint64_t seed, uint64_t stream, uint64_t index,
                      uint64_t n)
{
    fl_rng4 r = fl_rng_block(seed, stream, index);
    uint64_t x = (uint64_t)r.v[0] << 32 | r.v[1];

    return (uint64_t)(((wide)x * n) >> 64);
}

/* [low, high): the sum may round up to high. */
static float between(float low, float high, float unit)
{
    float x = low + (high - low) * unit;

    return x >= high && low < high ? nextafterf(high, low) : x;
}

void fl_rng_uniform(uint64_t seed, uint64_t stream, uint64_t index, float low,
                    float high, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i += 4) {
        fl_rng4 r = fl_rng_block(seed, stream, (index + (uint64_t)i) / 4);

        for (int64_t j = i; j < n && j < i + 4; j++)
            out[j] = between(low, high, fl_rng_unit(r.v[j - i]));
    }
}

/* Two normal deviates of two uniform words: Box and Muller 1958. */
static void box_muller(uint32_t a, uint32_t b, double out[2])
{
    double radius = sqrt(-2.0 * log(((double)a + 1.0) * 0x1p-32));
    double angle = 6.283185307179586 * ((double)b * 0x1p-32);

    out[0] = radius * cos(angle);
    out[1] = radius * sin(angle);
}

void fl_rng_normal(uint64_t seed, uint64_t stream, uint64_t index, float mean,
                   float deviation, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i += 4) {
        fl_rng4 r = fl_rng_block(seed, stream, (index + (uint64_t)i) / 4);
        double z[4];

        box_muller(r.v[0], r.v[1], z);
        box_muller(r.v[2], r.v[3], z + 2);
        for (int64_t j = i; j < n && j < i + 4; j++)
            out[j] = mean + deviation * (float)z[j - i];
    }
}

/* The first deviate inside two deviations, from a sequence of the element's
 * own: the words of its block, then of blocks far from all others. */
static float cut_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    for (uint64_t attempt = 0;; attempt++) {
        fl_rng4 r = fl_rng_block(seed, stream, index + (attempt << 48));
        double z[4];

        box_muller(r.v[0], r.v[1], z);
        box_muller(r.v[2], r.v[3], z + 2);
        for (int i = 0; i < 4; i++)
            if (z[i] >= -2.0 && z[i] <= 2.0)
                return (float)z[i];
    }
}

void fl_rng_truncated_normal(uint64_t seed, uint64_t stream, uint64_t index,
                             float mean, float deviation, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] =
            mean + deviation * cut_normal(seed, stream, index + (uint64_t)i);
}
