/* rng.c - random numbers of whole sequences. */
#include "base/rng.h"

__extension__ typedef unsigned __int128 wide;

uint64_t fl_rng_below(uint64_t seed, uint64_t stream, uint64_t index,
                      uint64_t n)
{
    fl_rng4 r = fl_rng_block(seed, stream, index);
    uint64_t x = (uint64_t)r.v[0] << 32 | r.v[1];

    return (uint64_t)(((wide)x * n) >> 64);
}

typedef void draw_four(uint64_t seed, uint64_t stream, uint64_t block, float a,
                       float b, float out[4]);

static inline void fill_sequence(draw_four *draw, uint64_t seed,
                                 uint64_t stream, uint64_t index, float a,
                                 float b, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i += 4) {
        float four[4];

        draw(seed, stream, (index + (uint64_t)i) / 4, a, b, four);
        for (int64_t j = i; j < n && j < i + 4; j++)
            out[j] = four[j - i];
    }
}

void fl_rng_uniform(uint64_t seed, uint64_t stream, uint64_t index, float low,
                    float high, float *out, int64_t n)
{
    fill_sequence(fl_rng_four_uniform, seed, stream, index, low, high, out, n);
}

void fl_rng_normal(uint64_t seed, uint64_t stream, uint64_t index, float mean,
                   float deviation, float *out, int64_t n)
{
    fill_sequence(fl_rng_four_normal, seed, stream, index, mean, deviation, out,
                  n);
}

void fl_rng_truncated_normal(uint64_t seed, uint64_t stream, uint64_t index,
                             float mean, float deviation, float *out, int64_t n)
{
    fill_sequence(fl_rng_four_cut_normal, seed, stream, index, mean, deviation,
                  out, n);
}
