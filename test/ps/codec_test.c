/* codec_test.c - values in fewer bytes: how far what is read is from what was
 * written, that nothing but rounding is lost, and that each instruction set
 * writes the same bytes, wherever they lie. */
#define SUITE codec
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ps/codec.h"
#include "runtime/simd/simd.h"

enum { MOST = 700 };

static const fl_codec narrow[] = {FL_CODEC_F16, FL_CODEC_BF16, FL_CODEC_INT8};

static float noise(int64_t i)
{
    return (float)sin((double)i * 12.9898 + 1) * 1.7f;
}

static void fill(float *x, int64_t n, float size)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = noise(i) * size;
}

static float largest(const float *x, int64_t n)
{
    float most = 0;

    for (int64_t i = 0; i < n; i++)
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    return most;
}

TEST(bytes_are_those_of_the_table_in_the_docs)
{
    CHECK_INT(fl_codec_bytes(FL_CODEC_F32, 16), 64);
    CHECK_INT(fl_codec_bytes(FL_CODEC_F16, 16), 32);
    CHECK_INT(fl_codec_bytes(FL_CODEC_BF16, 16), 32);
    CHECK_INT(fl_codec_bytes(FL_CODEC_INT8, 16), 18);
    CHECK_INT(fl_codec_bytes(FL_CODEC_INT8, 256), 258);
    CHECK_INT(fl_codec_bytes(FL_CODEC_INT8, 257), 261);
    CHECK_INT(fl_codec_of_rows(FL_CODEC_INT8, 2), FL_CODEC_BF16);
    CHECK_INT(fl_codec_of_rows(FL_CODEC_INT8, 3), FL_CODEC_INT8);
    CHECK_INT(fl_codec_of_rows(FL_CODEC_F32, 1), FL_CODEC_F32);
}

/* Of numbers of any size, but of denormals of float16. */
static void check_error(fl_codec codec, int64_t n, float size)
{
    float x[MOST], back[MOST];
    char bytes[MOST * 4];

    fill(x, n, size);
    fl_codec_write(codec, bytes, x, false, 1, n);
    fl_codec_read(codec, back, bytes, 1, n);
    for (int64_t i = 0; i < n; i++) {
        int64_t group = i / FL_INT8_GROUP * FL_INT8_GROUP;
        int64_t k = n - group < FL_INT8_GROUP ? n - group : FL_INT8_GROUP;
        float most = codec == FL_CODEC_F16 ? fabsf(x[i]) * 0x1p-11f + 0x1p-25f
                     : codec == FL_CODEC_BF16 ? fabsf(x[i]) * 0x1p-8f
                                              : largest(x + group, k) / 252;

        if (!(fabsf(back[i] - x[i]) <= most))
            test_fail(__FILE__, __LINE__, "codec %d: %a became %a", codec,
                      (double)x[i], (double)back[i]);
    }
}

TEST(what_is_read_is_near_what_was_written)
{
    for (int c = 0; c < 3; c++)
        for (int64_t n = 1; n < MOST; n += n < 40 ? 1 : 73) {
            check_error(narrow[c], n, 1);
            check_error(narrow[c], n, 1000);
            if (narrow[c] != FL_CODEC_F16) {
                check_error(narrow[c], n, 1e-12f);
                check_error(narrow[c], n, 1e20f);
            }
        }
}

/* To the bit: a rounding error of so few bits is a float. */
TEST(what_was_rounded_away_is_left_behind)
{
    float x[MOST], rest[MOST], back[MOST];
    char bytes[MOST * 4];

    for (int c = 0; c < 3; c++)
        for (int64_t n = 1; n < MOST; n += 97) {
            fill(x, n, 3);
            memcpy(rest, x, sizeof rest);
            fl_codec_write(narrow[c], bytes, rest, true, 1, n);
            fl_codec_read(narrow[c], back, bytes, 1, n);
            for (int64_t i = 0; i < n; i++)
                CHECK_NEAR((double)rest[i], (double)(x[i] - back[i]), 0);
            CHECK(largest(rest, n) > 0);
        }
}

TEST(as_floats_all_is_as_it_was)
{
    float x[40], back[40], was[40];

    fill(x, 40, 3);
    memcpy(was, x, sizeof x);
    fl_codec_write(FL_CODEC_F32, back, x, true, 5, 8);
    CHECK(memcmp(was, back, sizeof was) == 0);
    CHECK_NEAR((double)largest(x, 40), 0, 0);
    fl_codec_read(FL_CODEC_F32, x, back, 5, 8);
    CHECK(memcmp(was, x, sizeof was) == 0);
}

/* A row is written alike wherever it stands: so it does not matter how rows are
 * shared out to messages. */
TEST(rows_are_written_each_for_itself)
{
    enum { ROWS = 7, DIM = 19 };
    float x[ROWS * DIM];
    char all[MOST * 4], one[DIM * 4];

    fill(x, ROWS * DIM, 1);
    for (int i = 0; i < DIM; i++)
        x[3 * DIM + i] *= 1000;
    for (int c = 0; c < 3; c++) {
        size_t width = fl_codec_bytes(narrow[c], DIM);

        fl_codec_write(narrow[c], all, x, false, ROWS, DIM);
        for (int r = 0; r < ROWS; r++) {
            fl_codec_write(narrow[c], one, x + r * DIM, false, 1, DIM);
            CHECK(memcmp(one, all + (size_t)r * width, width) == 0);
        }
    }
}

static fl_to_codec *writer_of(const fl_simd *t, fl_codec codec)
{
    return codec == FL_CODEC_F16    ? t->write_f16
           : codec == FL_CODEC_BF16 ? t->write_bf16
                                    : t->write_int8;
}

static fl_from_codec *reader_of(const fl_simd *t, fl_codec codec)
{
    return codec == FL_CODEC_F16    ? t->read_f16
           : codec == FL_CODEC_BF16 ? t->read_bf16
                                    : t->read_int8;
}

TEST(all_instruction_sets_write_and_read_the_same_at_any_place)
{
    static const float odd[] = {0.0f,     -0.0f,    1e-40f, INFINITY, -INFINITY,
                                65519.0f, 65520.0f, 1e9f,   -1e9f,    3e38f,
                                6e-8f,    -1e-45f,  0.5f,   127.0f,   NAN};
    enum { N = 283, ODD = sizeof odd / sizeof *odd };
    const fl_simd *const *first = fl_simd_all();
    float x[2 * N], rest[2][2 * N], back[2][2 * N];
    char bytes[2][2 * N * 4 + 8];

    fill(x, 2 * N, 2);
    for (int i = 0; i < ODD; i++) /* one in a group of its own */
        x[N + i] = odd[i];
    for (int c = 0; c < 3; c++)
        for (const fl_simd *const *t = first; *t; t++) {
            size_t size = 2 * fl_codec_bytes(narrow[c], N);
            int at = t == first ? 0 : 1;

            memcpy(rest[at], x, sizeof x);
            writer_of(*t, narrow[c])(bytes[at] + at, rest[at], true, 2, N);
            reader_of(*t, narrow[c])(back[at], bytes[at] + at, 2, N);
            if (at == 0)
                continue;
            CHECK(memcmp(bytes[0], bytes[1] + 1, size) == 0);
            CHECK(memcmp(rest[0], rest[1], sizeof x) == 0);
            CHECK(memcmp(back[0], back[1], sizeof x) == 0);
        }
}

/* And not into numbers that look well. */
TEST(what_is_not_finite_stays_so_and_leaves_no_rest)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};

    for (int c = 0; c < 3; c++)
        for (int b = 0; b < 3; b++) {
            float x[4] = {1, bad[b], 2, 3}, back[4];
            char bytes[16];

            fl_codec_write(narrow[c], bytes, x, true, 1, 4);
            fl_codec_read(narrow[c], back, bytes, 1, 4);
            CHECK(!isfinite(back[1]));
            CHECK_NEAR((double)x[1], 0, 0);
            CHECK(isfinite(x[0]) && isfinite(x[2]) && isfinite(x[3]));
        }
}

TEST(what_is_too_large_for_float16_is_its_largest_and_the_rest_is_left)
{
    float x[2] = {100000, -70000}, back[2];
    char bytes[8];

    fl_codec_write(FL_CODEC_F16, bytes, x, true, 1, 2);
    fl_codec_read(FL_CODEC_F16, back, bytes, 1, 2);
    CHECK_NEAR((double)back[0], 65504, 0);
    CHECK_NEAR((double)back[1], -65504, 0);
    CHECK_NEAR((double)x[0], 100000 - 65504, 0);
    CHECK_NEAR((double)x[1], -70000 + 65504, 0);
}
