/* rng_draw.h - how rng.h's numbers are drawn: four elements of a sequence at a
 * time, with the same bits on CPUs and GPUs. The functions that a library of
 * either would round its own way are sums of their series. */
#pragma once

#include <math.h>
#include <stdint.h>

#include "base/host_device.h"

typedef struct fl_rng4 {
    uint32_t v[4];
} fl_rng4;

FL_EVERYWHERE void fl_rng_round(uint32_t c[4], const uint32_t k[2])
{
    uint64_t a = (uint64_t)0xD2511F53u * c[0];
    uint64_t b = (uint64_t)0xCD9E8D57u * c[2];
    uint32_t c1 = c[1], c3 = c[3];

    c[0] = (uint32_t)(b >> 32) ^ c1 ^ k[0];
    c[1] = (uint32_t)b;
    c[2] = (uint32_t)(a >> 32) ^ c3 ^ k[1];
    c[3] = (uint32_t)a;
}

FL_EVERYWHERE fl_rng4 fl_rng_block(uint64_t seed, uint64_t stream,
                                   uint64_t block)
{
    fl_rng4 r = {{(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)stream,
                  (uint32_t)(stream >> 32)}};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};

    for (int i = 0; i < 10; i++) {
        fl_rng_round(r.v, key);
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
    return r;
}

/* [0, 1) with 24 bits */
FL_EVERYWHERE float fl_rng_unit(uint32_t bits)
{
    return (float)(bits >> 8) * 0x1p-24f;
}

/* [low, high): the sum may round up to high. */
FL_EVERYWHERE float fl_rng_between(float low, float high, float unit)
{
    float x = low + (high - low) * unit;

    return x >= high && low < high ? nextafterf(high, low) : x;
}

/* log((a + 1) / 2^32): m times a power of 2 with m near 1, and
 * log m = 2 (s + s^3 / 3 + s^5 / 5 + ...), s = (m - 1) / (m + 1). */
FL_EVERYWHERE double fl_rng_log(uint32_t a)
{
    double m = ((double)a + 1.0) * 0x1p-32, power = 0, series = 0, s;

    while (m < 0.7071067811865476) {
        m *= 2;
        power -= 1;
    }
    s = (m - 1.0) / (m + 1.0);
    for (int i = 10; i > 0; i--)
        series = (series + 1.0 / (2 * i + 1)) * (s * s);
    return 2.0 * s + 2.0 * s * series + power * 0.6931471805599453;
}

/* The sine and the cosine of 2 pi b / 2^32: by Taylor's series up to 1/8 of the
 * circle, from where b's upper bits turn and mirror them exactly. */
FL_EVERYWHERE void fl_rng_turn(uint32_t b, double *sine, double *cosine)
{
    uint32_t eighth = b >> 29, rest = b & 0x1fffffffu;
    double x = (double)(eighth & 1 ? 0x20000000u - rest : rest) *
               (6.283185307179586 * 0x1p-32);
    double s = 1, c = 1;

    for (int i = 8; i > 0; i--) {
        s = 1.0 - s * (x * x) / (2 * i * (2 * i + 1));
        c = 1.0 - c * (x * x) / (2 * i * (2 * i - 1));
    }
    s *= x;
    *sine = (eighth + 1) & 2 ? c : s;
    *cosine = (eighth + 1) & 2 ? s : c;
    if (eighth >= 4)
        *sine = -*sine;
    if (eighth >= 2 && eighth < 6)
        *cosine = -*cosine;
}

/* Two normal deviates of two uniform words: Box and Muller 1958. */
FL_EVERYWHERE void fl_rng_normal_pair(uint32_t a, uint32_t b, double out[2])
{
    double radius = sqrt(-2.0 * fl_rng_log(a)), sine, cosine;

    fl_rng_turn(b, &sine, &cosine);
    out[0] = radius * cosine;
    out[1] = radius * sine;
}

FL_EVERYWHERE void fl_rng_normal_words(const fl_rng4 *r, double z[4])
{
    fl_rng_normal_pair(r->v[0], r->v[1], z);
    fl_rng_normal_pair(r->v[2], r->v[3], z + 2);
}

/* --- elements 4 block .. 4 block + 3 of a sequence ------------------------ */

FL_EVERYWHERE void fl_rng_four_uniform(uint64_t seed, uint64_t stream,
                                       uint64_t block, float low, float high,
                                       float out[4])
{
    fl_rng4 r = fl_rng_block(seed, stream, block);

    for (int i = 0; i < 4; i++)
        out[i] = fl_rng_between(low, high, fl_rng_unit(r.v[i]));
}

FL_EVERYWHERE void fl_rng_four_normal(uint64_t seed, uint64_t stream,
                                      uint64_t block, float mean,
                                      float deviation, float out[4])
{
    fl_rng4 r = fl_rng_block(seed, stream, block);
    double z[4];

    fl_rng_normal_words(&r, z);
    for (int i = 0; i < 4; i++)
        out[i] = mean + deviation * (float)z[i];
}

/* The first deviate inside two deviations, from a sequence of the element's
 * own: the words of its block, then of blocks far from all elements' blocks. */
FL_EVERYWHERE float fl_rng_cut_normal(uint64_t seed, uint64_t stream,
                                      uint64_t index)
{
    for (uint64_t attempt = 0;; attempt++) {
        fl_rng4 r = fl_rng_block(seed, stream, index + (attempt << 48));
        double z[4];

        fl_rng_normal_words(&r, z);
        for (int i = 0; i < 4; i++)
            if (z[i] >= -2.0 && z[i] <= 2.0)
                return (float)z[i];
    }
}

FL_EVERYWHERE void fl_rng_four_cut_normal(uint64_t seed, uint64_t stream,
                                          uint64_t block, float mean,
                                          float deviation, float out[4])
{
    for (uint64_t i = 0; i < 4; i++)
        out[i] =
            mean + deviation * fl_rng_cut_normal(seed, stream, 4 * block + i);
}
