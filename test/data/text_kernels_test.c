/* text_kernels_test.c - the kernels of every instruction set against the plain
 * meaning of what they do. */
#define SUITE text_kernels
#include "data_kit.h"
#include "test.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "data/text/text_kernels.h"

enum { MOST = FL_WINDOW };

static char memory[FL_TEXT_PAD + MOST + FL_TEXT_PAD];
static char *const text = memory + FL_TEXT_PAD;

#define FOR_ALL_KERNELS(k)                                                     \
    for (const fl_kernels *k = fl_kernels_at(0); k; k = next_kernels(k))

static const fl_kernels *next_kernels(const fl_kernels *k)
{
    int i = 0;

    while (fl_kernels_at(i) != k)
        i++;
    return fl_kernels_at(i + 1);
}

TEST(a_variable_asks_for_a_plainer_table)
{
    setenv("FLEET_ISA", "plain", 1);
    CHECK_TEXT(fl_kernels_best()->isa, "plain");
    setenv("FLEET_ISA", "what", 1);
    CHECK(fl_kernels_best() == fl_kernels_at(0));
    unsetenv("FLEET_ISA");
    CHECK(fl_kernels_best() == fl_kernels_at(0));
}

TEST(bytes_are_found_wherever_they_stand)
{
    static uint32_t at[MOST + FL_SCAN_SLACK];
    uint64_t state = 1;

    FOR_ALL_KERNELS(k)
    for (int round = 0; round < 2000; round++) {
        uint32_t size = (uint32_t)(data_random(&state) % 300);
        unsigned every = 1 + (unsigned)(data_random(&state) % 20);
        char one = (char)data_random(&state);
        int n = 0;

        for (size_t i = 0; i < sizeof memory; i++)
            memory[i] = data_random(&state) % every ? (char)(one ^ 1) : one;
        int found = k->scan_byte(text, size, one, MOST, at);

        for (uint32_t i = 0; i < size; i++)
            if (text[i] == one)
                CHECK_INT(at[n++], i);
        CHECK_INT(found, n);
    }
}

TEST(the_search_for_bytes_ends_when_there_are_enough)
{
    uint32_t at[40 + FL_SCAN_SLACK];

    memset(memory, '\t', sizeof memory);
    FOR_ALL_KERNELS(k)
    {
        CHECK_INT(k->scan_byte(text, 1000, '\t', 1, at), 64);
        CHECK_INT(k->scan_byte(text, 1000, '\t', 40, at), 64);
        CHECK_INT(k->scan_byte(text, 63, '\t', 40, at), 63);
        CHECK_INT(k->scan_byte(text, 0, '\t', 40, at), 0);
    }
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\v' || c == '\f' || c == '\r' ||
           c == '\n';
}

TEST(tokens_lie_between_blanks)
{
    static fl_tokens t;
    uint64_t state = 2;

    FOR_ALL_KERNELS(k)
    for (int round = 0; round < 3000; round++) {
        uint32_t size = (uint32_t)(data_random(&state) % 200);
        bool at_end = data_random(&state) % 2;
        int n = 0;

        for (size_t i = 0; i < sizeof memory; i++) {
            uint64_t r = data_random(&state);

            memory[i] = r % 3 ? (char)(r >> 8) : "\t\v\f\r \b\016\037!"[r % 9];
        }
        int found = k->scan_tokens(text, size, at_end, &t);

        CHECK_INT(t.at[0], UINT32_MAX);
        for (uint32_t i = 0; i < size; i++)
            if (is_blank(text[i]))
                CHECK_INT(t.at[++n], i);
        if (at_end)
            CHECK_INT(t.at[++n], size);
        CHECK_INT(found, n);
    }
}

/* Tokens of the usual kind and of all others; how many. */
static int write_tokens(uint64_t *state, bool pairs)
{
    char *s = text;
    int n = 0;

    memset(memory, '9', sizeof memory);
    for (; n < 2 * FL_READ_MOST; n++) {
        uint64_t r = data_random(state);
        uint64_t value = r >> 20 & ((1ull << (r % 44)) - 1);

        if (pairs && n % 2 == 0 && r % 16)
            s += sprintf(s, "1 ");
        else if ((r >> 8) % 8 == 0)
            s += sprintf(s, "%.*s ", (int)(r >> 11 & 15),
                         &"-.e+,:/1234567890"[(r >> 16) % 8]);
        else if ((r >> 8) % 8 < 3)
            s += sprintf(s, "%.*g ", (int)(r % 9) + 1,
                         (double)(int64_t)r * 0x1p-60);
        else if ((r >> 8) % 8 == 3)
            s += sprintf(s, "-%" PRIu64 " ", value);
        else
            s += sprintf(s, "%" PRIu64 " ", value);
    }
    return n;
}

TEST(ids_are_read_as_one_by_one_or_left)
{
    static fl_tokens t;
    uint64_t out[FL_READ_MOST + FL_READ_SLACK], state = 3, want;

    FOR_ALL_KERNELS(k)
    for (int round = 0; round < 3000; round++) {
        int all = write_tokens(&state, false), n = (int)(state % 65);
        int from = all - n - 1;

        CHECK_INT(k->scan_tokens(text, MOST, true, &t), all + 1);
        uint64_t left = k->read_ids(text, t.at + from, n, out);

        CHECK(n == 64 || left >> n == 0);
        for (int i = 0; i < n; i++) {
            const char *s = text + (t.at[from + i] + 1);
            const char *end = text + t.at[from + i + 1];
            bool easy = fl_parse_short_u64(s, end, &want);

            CHECK_INT(left >> i & 1, !easy);
            if (easy)
                CHECK_INT(out[i], want);
        }
    }
}

TEST(floats_are_read_as_one_by_one_or_left)
{
    static fl_tokens t;
    uint64_t state = 4, whole;
    float out[FL_READ_MOST + FL_READ_SLACK], want;

    FOR_ALL_KERNELS(k)
    for (int round = 0; round < 5000; round++) {
        int all = write_tokens(&state, false), n = (int)(state % 65);
        int from = all - n - 1;

        k->scan_tokens(text, MOST, true, &t);
        uint64_t left = k->read_floats(text, t.at + from, n, out);

        CHECK(n == 64 || left >> n == 0);
        for (int i = 0; i < n; i++) {
            const char *s = text + (t.at[from + i] + 1);
            const char *end = text + t.at[from + i + 1];

            if (left >> i & 1) { /* no easy one may be left, but for a doubt */
                CHECK(!fl_parse_short_u64(s, end, &whole) || whole > 9999999);
                continue;
            }
            CHECK(fl_parse_float_any(s, end, &want));
            CHECK(memcmp(&want, &out[i], sizeof want) == 0);
        }
    }
}

TEST(single_ids_are_pairs_of_a_one_and_an_id)
{
    static fl_tokens t;
    uint64_t out[FL_READ_MOST + FL_READ_SLACK], state = 5, want;

    FOR_ALL_KERNELS(k)
    for (int round = 0; round < 3000; round++) {
        int n = (int)(state % 64);

        write_tokens(&state, true);
        k->scan_tokens(text, MOST, true, &t);
        uint64_t left = k->read_single_ids(text, t.at, n, out);

        CHECK(left >> n == 0);
        for (int i = 0; i < n; i++) {
            const char *count = text + (t.at[2 * i] + 1);
            const char *s = text + t.at[2 * i + 1] + 1;
            bool easy = s - count == 2 && *count == '1' &&
                        fl_parse_short_u64(s, text + t.at[2 * i + 2], &want);

            CHECK_INT(left >> i & 1, !easy);
            if (easy)
                CHECK_INT(out[i], want);
        }
    }
}

TEST(texts_of_eight_bytes_are_hashed_as_by_xxhash)
{
    uint64_t in[100], out[100], state = 6;

    FOR_ALL_KERNELS(k)
    for (int n = 0; n < 100; n++) {
        uint64_t seed = n % 3 ? (uint64_t)n : data_random(&state);

        for (int i = 0; i < n; i++)
            in[i] = data_random(&state);
        k->hash_eights(in, n, seed, out);
        for (int i = 0; i < n; i++)
            CHECK_INT(out[i], fl_hash(&in[i], 8, seed));
    }
}

TEST(a_product_scales_integers_of_seven_digits_as_the_quotient_does)
{
    const int step = test_fraction();

    for (int c = 0; c < FL_CRITEO_DENSE; c++) {
        const double low = fl_criteo_low[c], range = fl_criteo_range[c];
        const double scale = 1.0 / range;

        for (int i = 0; i <= 9999999; i += step) {
            float product = (float)((i - low) * scale);
            float quotient = (float)((i - low) / range);

            if (memcmp(&product, &quotient, sizeof product) != 0)
                test_fail(__FILE__, __LINE__, "%d in column %d", i, c);
        }
    }
}

/* A line of Criteo's with cells of all kinds, well-formed but for `cells`. */
static uint32_t write_criteo(uint64_t *state, int cells)
{
    char *s = text;

    memset(memory, '5', sizeof memory);
    for (int c = 0; c < cells; c++) {
        uint64_t r = data_random(state);

        if (c > 0)
            *s++ = '\t';
        if (r % 8 == 0)
            continue;
        if (r % 8 == 1)
            s += sprintf(s, "%.*s", (int)(r >> 8 & 15), "-1.5a 0\vxyz.-12345");
        else if (c <= FL_CRITEO_DENSE)
            s += sprintf(s, "%d", (int)(r >> 32) & ((1 << (r >> 8) % 28) - 1));
        else
            s += sprintf(s, "%08" PRIx32, (uint32_t)(r >> 16));
    }
    return (uint32_t)(s - text);
}

static void check_criteo_row(const fl_criteo_tile *t, int row,
                             const float *dense)
{
    const uint32_t *end = t->end[row];

    for (int c = 0; c < FL_CRITEO_CELLS; c++) {
        const char *s = c ? text + end[c - 1] + 1 : text, *e = text + end[c];
        const bool odd = t->odd[row] >> c & 1;
        uint64_t x = 0;

        if (c == 0) {
            CHECK_INT(odd, !(e - s == 1 && *s >= '0' && *s <= '9'));
            if (!odd)
                CHECK_INT(t->label[row], *s - '0');
        } else if (c <= FL_CRITEO_DENSE) {
            CHECK_INT(odd,
                      s != e && !(e - s < 8 && fl_parse_short_u64(s, e, &x)));
            if (!odd && s == e)
                CHECK(dense[c - 1] == 0.0f);
            else if (!odd)
                CHECK(dense[c - 1] ==
                      (float)(((double)x - fl_criteo_low[c - 1]) /
                              fl_criteo_range[c - 1]));
        } else {
            CHECK_INT(odd, e - s != 8);
            if (!odd)
                CHECK(t->text[c - 14][row] == fl_load8(s));
        }
    }
}

TEST(lines_of_criteo_are_cut_and_scaled)
{
    static fl_criteo_tile tile;
    static float dense[FL_CRITEO_TILE * FL_CRITEO_DENSE];
    uint64_t state = 7;

    FOR_ALL_KERNELS(k)
    for (int round = 0; round < 5000; round++) {
        int row = round % FL_CRITEO_TILE;
        int cells = round % 3 ? FL_CRITEO_CELLS : 30 + round % 20;
        uint32_t size = write_criteo(&state, cells);
        int n = k->criteo_cut(text, size, &tile, row);

        if (cells != FL_CRITEO_CELLS) {
            CHECK(cells < FL_CRITEO_CELLS ? n == cells : n > FL_CRITEO_CELLS);
            continue;
        }
        CHECK_INT(n, FL_CRITEO_CELLS);
        k->criteo_dense(&tile, row + 1, dense);
        check_criteo_row(&tile, row, dense + row * FL_CRITEO_DENSE);
    }
}
