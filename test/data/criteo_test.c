/* criteo_test.c - Criteo's log: scaling, ids, missing cells, bad lines. */
#define SUITE criteo
#include "data_kit.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "data/format/formats.h"

static fl_stream_spec spec_of(const char *text)
{
    static const char *files[1];
    static const fleet_slot *slots;
    static int n;

    files[0] = test_file("day_0", text);
    if (!slots)
        CHECK_OK(fl_format_own_slots(FLEET_CRITEO, NULL, &slots, &n));
    return data_spec(FLEET_CRITEO, slots, n, files, 1);
}

static const float *floats(const fl_batch *b, int slot)
{
    return b->slot[slot].values;
}

static uint64_t id(const fl_batch *b, int slot, int row)
{
    return ((const uint64_t *)b->slot[slot].values)[row];
}

/* 26 texts, each with a tab before it */
#define TEXTS                                                                  \
    "\t68fd1e64\t80e26c9b\tfb936136\t7b4723c4\t25c83c98\t7e0ccccf\tde7995b8"   \
    "\t1f89b562\ta73ee510\ta8cd5504\tb2cb9c98\t37c9c164\t2824a5f6\t1adce6ef"   \
    "\t8ba8b39a\t891b62e7\te5ba7672\tf54016b9\t21ddcdc9\tb1252a9d\t07b5194c"   \
    "\t\t3a171ecb\tc5c50484\te8b83407\t9727dd16"

TEST(the_slots_are_those_that_the_header_names)
{
    const fleet_slot *slots;
    int n;

    CHECK_OK(fl_format_own_slots(FLEET_CRITEO, NULL, &slots, &n));
    CHECK_INT(n, 28);
    CHECK_TEXT(slots[0].name, "label");
    CHECK_INT(slots[0].dtype, FLEET_INT64);
    CHECK_TEXT(slots[1].name, "dense_input");
    CHECK_INT(slots[1].dim, 13);
    CHECK_TEXT(slots[2].name, "1");
    CHECK_TEXT(slots[27].name, "26");
    CHECK_INT(slots[27].dtype, FLEET_INT64);
    fl_format_free_own_slots(slots);
    CHECK_OK(fl_format_own_slots(FLEET_MULTISLOT, NULL, &slots, &n));
    CHECK(slots == NULL);
    CHECK_INT(n, 0);
}

/* The first line of the Kaggle set. */
TEST(integers_are_scaled_and_texts_hashed_with_the_slots_position)
{
    static const float want[] = {1 / 20.0f,   4 / 603.0f,      5 / 100.0f,
                                 0,           1382 / 64000.0f, 4 / 500.0f,
                                 15 / 100.0f, 2 / 50.0f,       181 / 500.0f,
                                 1 / 10.0f,   2 / 10.0f,       0,
                                 2 / 50.0f};
    fl_stream_spec spec =
        spec_of("0\t1\t1\t5\t0\t1382\t4\t15\t2\t181\t1\t2\t\t2" TEXTS "\n");
    const fl_batch *b = data_first(&spec);

    CHECK_INT(b->rows, 1);
    CHECK_INT(id(b, 0, 0), 0);
    CHECK_CLOSE(floats(b, 1), want, 13, 1e-7);
    CHECK(floats(b, 1)[4] == (float)(1382 / 64000.0));
    CHECK(id(b, 2, 0) == fl_hash("68fd1e64", 8, 2));
    CHECK(id(b, 27, 0) == fl_hash("9727dd16", 8, 27));
    CHECK(id(b, 23, 0) == fl_hash("", 0, 23));
    CHECK(id(b, 2, 0) == fleet_hash_text("68fd1e64", 8, 2));
}

TEST(a_missing_integer_is_0_after_scaling)
{
    fl_stream_spec spec = spec_of("1\t\t\t\t\t\t\t\t\t\t\t\t\t" TEXTS "\r\n");
    const fl_batch *b = data_first(&spec);

    CHECK_INT(id(b, 0, 0), 1);
    for (int i = 0; i < 13; i++)
        CHECK(floats(b, 1)[i] == 0.0f);
}

TEST(integers_of_any_kind_are_scaled_as_doubles)
{
    fl_stream_spec spec = spec_of(
        "1\t-1\t-3\t-2\t99999999\t123456789012\t2.5\t1e2\t+7\t83886085\t"
        "007\t0\t10000000\t-0" TEXTS "\n");
    const float *x = floats(data_first(&spec), 1);

    CHECK(x[0] == (float)(-1 / 20.0));
    CHECK(x[1] == 0.0f);
    CHECK(x[2] == (float)(-2 / 100.0));
    CHECK(x[3] == (float)(99999999 / 50.0));
    CHECK(x[4] == (float)(123456789012 / 64000.0));
    CHECK(x[5] == (float)(2.5 / 500.0));
    CHECK(x[6] == 1.0f);
    CHECK(x[7] == (float)(7 / 50.0));
    CHECK(x[8] == (float)(83886085 / 500.0));
    CHECK(x[9] == (float)(7 / 10.0));
    CHECK(x[11] == (float)(10000000 / 10.0));
    CHECK(x[12] == 0.0f);
}

TEST(texts_of_any_length_are_hashed)
{
    char line[3000] = "1\t1\t1\t1\t1\t1\t1\t1\t1\t1\t1\t1\t1\t1";
    char *s = line + strlen(line);
    const fl_batch *b;
    fl_stream_spec spec;

    for (int i = 0; i < 26; i++)
        s += sprintf(s, "\t%.*s", i * 3,
                     "abcdefghijklmnopqrstuvwxyz 0123456789"
                     "ABCDEFGHIJKLMNOPQRSTUVWXYZ.-=+*/[](){}");
    spec = spec_of(line);
    b = data_first(&spec);
    for (int i = 0; i < 26; i++)
        CHECK(id(b, 2 + i, 0) ==
              fl_hash("abcdefghijklmnopqrstuvwxyz 0123456789"
                      "ABCDEFGHIJKLMNOPQRSTUVWXYZ.-=+*/[](){}",
                      (size_t)i * 3, (uint64_t)i + 2));
}

static void refused(const char *line, const char *words, const char *more)
{
    char text[2000];
    fl_stream_spec spec;

    snprintf(text, sizeof text,
             "0\t1\t1\t5\t0\t1382\t4\t15\t2\t181\t1\t2\t\t2" TEXTS "\n%s\n"
             "0\t1\t1\tbad\t0\t1382\t4\t15\t2\t181\t1\t2\t\t2" TEXTS "\n",
             line);
    spec = spec_of(text);
    spec.batch_size = 100;
    DATA_FAILS(&spec, FLEET_EFORMAT, "day_0:2: ", words, more);
}

TEST(bad_lines_are_refused_with_file_line_and_slot)
{
    refused("x\t1\t1\t5\t0\t1382\t4\t15\t2\t181\t1\t2\t\t2" TEXTS,
            "slot \"label\"", "got \"x\"");
    refused("\t1\t1\t5\t0\t1382\t4\t15\t2\t181\t1\t2\t\t2" TEXTS,
            "slot \"label\"", "an integer from 0");
    refused("-1\t1\t1\t5\t0\t1382\t4\t15\t2\t181\t1\t2\t\t2" TEXTS,
            "slot \"label\"", "got \"-1\"");
    refused("nan\t1\t1\t5\t0\t1382\t4\t15\t2\t181\t1\t2\t\t2" TEXTS,
            "slot \"label\"", "got \"nan\"");
    refused("1\t1\t1\t5\t0\t13 82\t4\t15\t2\t181\t1\t2\t\t2" TEXTS,
            "slot \"dense_input\"", "got \"13 82\"");
    refused("1\tinf\t1\t5\t0\t1382\t4\t15\t2\t181\t1\t2\t\t2" TEXTS,
            "slot \"dense_input\"", "got \"inf\"");
    refused("1\t1e300\t1\t5\t0\t1382\t4\t15\t2\t181\t1\t2\t\t2" TEXTS,
            "slot \"dense_input\"", "float32");
    refused("1\t-\t1\t5\t0\t1382\t4\t15\t2\t181\t1\t2\t\t2" TEXTS,
            "slot \"dense_input\"", "got \"-\"");
    refused("1\t1\t1\t5\t0\t1382\t4\t15\t2\t181\t1\t2\t\t2" TEXTS "\t",
            "40 cells", "41");
    refused("1\t1\t1\t5\t0\t1382\t4\t15\t2\t181\t1\t2" TEXTS, "40 cells", "38");
    refused("1", "40 cells", "1 here");
}

TEST(a_batch_of_any_size_gives_the_same_values)
{
    enum { LINES = 1000 };
    char *text = malloc(LINES * 500), *s = text;
    uint64_t state = 3;
    int64_t size = 0;
    data_dump one;
    fl_stream_spec spec;

    for (int i = 0; i < LINES; i++) {
        s += sprintf(s, "%d", i % 2);
        for (int c = 0; c < 39; c++) {
            uint64_t r = data_random(&state);

            *s++ = '\t';
            if (r % 5 == 0)
                continue;
            s += c < 13 ? sprintf(s, "%d", (int)(r >> 40) % 100 - 3)
                        : sprintf(s, "%0*x", 6 + (int)(r % 4),
                                  (unsigned)(r >> 32));
        }
        *s++ = '\n';
    }
    *s = 0;
    spec = spec_of(text);
    spec.batch_size = LINES;
    one = data_read(&spec);
    CHECK_INT(one.rows, LINES);
    for (spec.batch_size = 1; spec.batch_size < 100; spec.batch_size += 31) {
        fl_stream *stream;
        fl_batch *b;
        int64_t row = 0;

        CHECK_OK(fl_stream_open(&stream, &spec));
        while (fl_stream_next(stream, &b) == FLEET_OK) {
            for (int i = 0; i < 28; i++) {
                size_t bytes = i == 1 ? 13 * 4 : 8;
                size_t before = 16;

                for (int j = 0; j < i; j++)
                    before += (j == 1 ? 52 : 8) * (size_t)LINES;
                CHECK(!memcmp(b->slot[i].values,
                              one.bytes + before + (size_t)row * bytes,
                              (size_t)b->rows * bytes));
            }
            row += b->rows;
            fl_stream_release(stream, b);
        }
        fl_stream_close(stream);
        size += row;
    }
    CHECK_INT(size, 4 * LINES);
    free(text);
}
