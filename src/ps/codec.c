/* codec.c - codecs by their number; the loops are in simd/codec_simd.c. */
#include "ps/codec.h"

#include <string.h>

#include "runtime/simd/simd.h"

size_t fl_codec_bytes(fl_codec codec, int64_t n)
{
    switch (codec) {
    case FL_CODEC_F16:
    case FL_CODEC_BF16:
        return (size_t)n * sizeof(uint16_t);
    case FL_CODEC_INT8:
        return (size_t)n + (size_t)((n + FL_INT8_GROUP - 1) / FL_INT8_GROUP) *
                               sizeof(uint16_t);
    default:
        return (size_t)n * sizeof(float);
    }
}

void fl_codec_write(fl_codec codec, void *to, float *values, bool rest,
                    int64_t rows, int64_t n)
{
    const fl_simd *simd = fl_simd_best();
    size_t bytes = (size_t)(rows * n) * sizeof *values;

    switch (codec) {
    case FL_CODEC_F16:
        simd->write_f16(to, values, rest, rows, n);
        break;
    case FL_CODEC_BF16:
        simd->write_bf16(to, values, rest, rows, n);
        break;
    case FL_CODEC_INT8:
        simd->write_int8(to, values, rest, rows, n);
        break;
    default:
        memcpy(to, values, bytes);
        if (rest)
            memset(values, 0, bytes);
    }
}

void fl_codec_read(fl_codec codec, float *to, const void *from, int64_t rows,
                   int64_t n)
{
    const fl_simd *simd = fl_simd_best();

    switch (codec) {
    case FL_CODEC_F16:
        simd->read_f16(to, from, rows, n);
        break;
    case FL_CODEC_BF16:
        simd->read_bf16(to, from, rows, n);
        break;
    case FL_CODEC_INT8:
        simd->read_int8(to, from, rows, n);
        break;
    default:
        memcpy(to, from, (size_t)(rows * n) * sizeof *to);
    }
}
