/* multislot_test.c - MultiSlot lines: what they say, and what is refused
 * with file, line number and slot. */
#define SUITE multislot
#include "data_kit.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const fleet_slot slots[] = {
    {.name = "words", .dtype = FLEET_INT64, .dim = -1},
    {.name = "label"},
    {.name = "dense", .dtype = FLEET_FLOAT32, .dim = 3},
    {.name = "tags", .dtype = FLEET_FLOAT32, .dim = -1},
};

static fl_stream_spec spec_of(const char *text)
{
    static const char *files[1];

    files[0] = test_file("part-0", text);
    return data_spec(FLEET_MULTISLOT, slots, DATA_N(slots), files, 1);
}

TEST(values_and_offsets_stand_as_in_the_line)
{
    fl_stream_spec spec =
        spec_of("3 1926 8 17 1 1 3 0.5 -1 2e1 1 7\n"
                "1 18446744073709551615 1 0 3 1 2 3 2 .25 1e-3\n");
    const fl_batch *b = data_first(&spec);
    const int64_t *words = b->slot[0].values;
    const float *dense = b->slot[2].values, *tags = b->slot[3].values;

    CHECK_INT(b->index, 0);
    CHECK_INT(b->rows, 2);
    CHECK_INT(b->slot[0].offsets[0], 0);
    CHECK_INT(b->slot[0].offsets[1], 3);
    CHECK_INT(b->slot[0].offsets[2], 4);
    CHECK_INT(words[0], 1926);
    CHECK_INT(words[2], 17);
    CHECK_INT(words[3], -1); /* 2^64 - 1 */
    CHECK(((const float *)b->slot[1].values)[0] == 1.0f);
    CHECK(b->slot[1].offsets == NULL);
    CHECK(dense[0] == 0.5f && dense[1] == -1.0f && dense[2] == 20.0f);
    CHECK(dense[3] == 1.0f && dense[5] == 3.0f);
    CHECK_INT(b->slot[3].offsets[2], 3);
    CHECK(tags[0] == 7.0f && tags[1] == 0.25f && tags[2] == 1e-3f);
}

TEST(any_blanks_may_stand_between_values)
{
    fl_stream_spec plain = spec_of("2 5 6 1 1 3 1 2 3 1 4\n");
    data_dump a = data_read(&plain), b;
    fl_stream_spec odd =
        spec_of("\n  \t\n \t2  5\t\t6 1   1 3 1 \v2 3\f1 4  \t\r\n\r\n   ");

    b = data_read(&odd);
    CHECK_STATUS(a.status, FLEET_EEND);
    CHECK(data_same(&a, &b));
}

TEST(the_last_line_needs_no_newline)
{
    fl_stream_spec spec = spec_of("1 5 1 1 3 1 2 3 1 4\n1 6 1 0 3 1 2 3 1 4");
    data_dump d = data_read(&spec);

    CHECK_STATUS(d.status, FLEET_EEND);
    CHECK_INT(d.rows, 2);
}

TEST(a_byte_order_mark_is_no_part_of_the_first_count)
{
    fl_stream_spec spec = spec_of("\xEF\xBB\xBF"
                                  "1 5 1 1 3 1 2 3 1 4\r\n");
    data_dump d = data_read(&spec);

    CHECK_STATUS(d.status, FLEET_EEND);
    CHECK_INT(d.rows, 1);
}

/* Every line but this one is well-formed. */
static void refused(const char *line, const char *words, const char *more)
{
    char text[1000];
    fl_stream_spec spec;

    snprintf(text, sizeof text,
             "1 5 1 1 3 1 2 3 1 4\n\n%s\n1 5 1 1 3 1 2 3 1 4\n", line);
    spec = spec_of(text);
    DATA_FAILS(&spec, FLEET_EFORMAT, "part-0:3: ", words, more);
    spec.n_thread = 3;
    DATA_FAILS(&spec, FLEET_EFORMAT, "part-0:3: ", words, more);
}

TEST(bad_lines_are_refused_with_file_line_and_slot)
{
    refused("-1 5 1 1 3 1 2 3 1 4", "slot \"words\"", "got \"-1\"");
    refused("1 -5 1 1 3 1 2 3 1 4", "slot \"words\"", "got \"-5\"");
    refused("1 3.7 1 1 3 1 2 3 1 4", "slot \"words\"", "got \"3.7\"");
    refused("1 x 1 1 3 1 2 3 1 4", "slot \"words\"", "got \"x\"");
    refused("1 18446744073709551616 1 1 3 1 2 3 1 4", "slot \"words\"",
            "2^64 - 1");
    refused("99999999999999999999 5 1 1 3 1 2 3 1 4", "slot \"words\"",
            "a count of values");
    refused("9999999 5 1 1 3 1 2 3 1 4", "slot \"words\"", "end of the line");
    refused("99999999999 5 1 1 3 1 2 3 1 4", "slot \"words\"", "a count");
    refused("1 5 2 1 1 3 1 2 3 1 4", "slot \"label\"", "a count of 1");
    refused("1 5 1 1 2 1 2 1 4", "slot \"dense\"", "a count of 3");
    refused("1 5 1 1 3 1 2 x 1 4", "slot \"dense\"", "got \"x\"");
    refused("1 5 1 1 3 1 nan 3 1 4", "slot \"dense\"", "got \"nan\"");
    refused("1 5 1 1 3 1 -inf 3 1 4", "slot \"dense\"", "got \"-inf\"");
    refused("1 5 1 1 3 1 1e39 3 1 4", "slot \"dense\"", "a finite number");
    refused("1 5 1 1 3 1 2", "slot \"dense\"", "the end of the line");
    refused("1 5 1 1 3 1 2 3", "slot \"tags\"", "the end of the line");
    refused("1 5 1 1 3 1 2 3 2 4", "slot \"tags\"", "the end of the line");
    refused("1 5 1 1 3 1 2 3 1 4 5",
            "the end of the line after the last of the 4 slots that the "
            "dataset has, \"tags\"",
            "got \"5\"");
    refused("words", "slot \"words\"", "got \"words\"");
    refused("1 \x01 1 1 3 1 2 3 1 4", "slot \"words\"", "got \"?\"");
}

TEST(a_ragged_slot_may_be_empty)
{
    fl_stream_spec spec = spec_of("0 1 1 3 1 2 3 0\n"
                                  "2 7 8 1 1 3 1 2 3 1 4\n"
                                  "0 1 0 3 4 5 6 0\n");
    const fl_batch *b;

    spec.batch_size = 3;
    b = data_first(&spec);
    CHECK_INT(b->rows, 3);
    CHECK_INT(b->slot[0].offsets[1], 0);
    CHECK_INT(b->slot[0].offsets[2], 2);
    CHECK_INT(b->slot[0].offsets[3], 2);
    CHECK_INT(((const int64_t *)b->slot[0].values)[1], 8);
    CHECK_INT(b->slot[3].offsets[1], 0);
    CHECK_INT(b->slot[3].offsets[3], 1);
    CHECK(((const float *)b->slot[2].values)[6] == 4.0f);
}

TEST(a_slot_of_fixed_width_may_not_be_empty)
{
    refused("1 5 0 3 1 2 3 1 4", "slot \"label\"", "a count of 1, as its dim");
}

/* --- weights -------------------------------------------------------------- */

static const fleet_slot weighted_slots[] = {
    {.name = "before", .dtype = FLEET_INT64, .dim = 1},
    {.name = "rated", .dtype = FLEET_INT64, .dim = -1, .weighted = 1},
    {.name = "after", .dtype = FLEET_INT64, .dim = -1},
};

static fl_stream_spec weighted_spec(const char *text)
{
    static const char *files[1];

    files[0] = test_file("part-0", text);
    return data_spec(FLEET_MULTISLOT, weighted_slots, DATA_N(weighted_slots),
                     files, 1);
}

TEST(an_id_may_have_a_weight_and_without_one_it_has_1)
{
    static const float want[] = {0.5f, 1.0f, -20.0f, 0.25f, 0.0f};
    fl_stream_spec spec =
        weighted_spec("1 1 3 10:0.5 11 12:-2e1 1 2\n"
                      "1 1 0 1 3\n"
                      "1 1 2 18446744073709551615:.25 0:0 1 4\n");
    const fl_batch *b;
    const int64_t *id;

    spec.batch_size = 3;
    b = data_first(&spec);
    id = b->slot[1].values;
    CHECK_INT(b->slot[1].offsets[1], 3);
    CHECK_INT(b->slot[1].offsets[2], 3);
    CHECK_INT(b->slot[1].offsets[3], 5);
    CHECK(id[0] == 10 && id[1] == 11 && id[2] == 12 && id[3] == -1 && !id[4]);
    for (int i = 0; i < 5; i++)
        CHECK(b->slot[1].weights[i] == want[i]);
    CHECK(b->slot[0].weights == NULL && b->slot[2].weights == NULL);
    CHECK_INT(((const int64_t *)b->slot[2].values)[2], 4);
}

TEST(a_bad_weight_is_refused_with_line_and_slot)
{
    static const char *const bad[] = {"7:",     "7:x",    "7:nan", "7:inf",
                                      "7:1e39", "7:0.5x", ":0.5",  "-7:1",
                                      "7:1:2",  "x:1",    "7;1",   ":"};

    for (int i = 0; i < DATA_N(bad); i++) {
        char text[200], got[40];
        fl_stream_spec spec;

        snprintf(text, sizeof text, "1 1 1 2:3 1 4\n1 1 2 1 %s 1 4\n", bad[i]);
        snprintf(got, sizeof got, "got \"%s\"", bad[i]);
        spec = weighted_spec(text);
        DATA_FAILS(&spec, FLEET_EFORMAT, "part-0:2: slot \"rated\"",
                   "id:weight with a finite number", got);
    }
}

TEST(weights_stand_in_weighted_slots_alone)
{
    fl_stream_spec spec = weighted_spec("1 1 1 2 1 4:0.5\n");

    DATA_FAILS(&spec, FLEET_EFORMAT, "part-0:1: slot \"after\"",
               "got \"4:0.5\"");
    spec = weighted_spec("1 1 2 2:1\n");
    DATA_FAILS(&spec, FLEET_EFORMAT, "part-0:1: slot \"rated\"",
               "more values, as its count says");
}

/* --- ids that have a bound ------------------------------------------------ */

TEST(an_id_out_of_bounds_is_refused_with_file_line_and_slot)
{
    static const fl_slot_bounds below[] = {{10, 0}, {20, 0}, {0, 0}};
    fl_stream_spec spec = weighted_spec("1 9 2 19:0.5 0 1 99\n"
                                        "1 0 0 1 99\n\n"
                                        "1 2 3 20:3 1 2 0\n");

    spec.bounds = below;
    spec.batch_size = 3;
    DATA_FAILS(&spec, FLEET_EFORMAT, "part-0:4: slot \"rated\"",
               "expected an id below 20, got \"20\"");
    spec = weighted_spec("1 9 0 0\n1 18446744073709551615 0 0\n");
    spec.bounds = below;
    DATA_FAILS(&spec, FLEET_EFORMAT, "part-0:2: slot \"before\"",
               "expected an id below 10, got \"18446744073709551615\"");
    spec.bounds = NULL;
    CHECK_INT(data_first(&spec)->rows, 2);
}

static fl_stream_spec labelled_spec(const char *text)
{
    static const fl_slot_bounds bounds[] = {{0, 3}, {0, 1}};
    static const fleet_slot of[] = {{.name = "class", .dtype = FLEET_INT64},
                                    {.name = "clicked"}};
    static const char *files[1];
    fl_stream_spec spec;

    files[0] = test_file("part-0", text);
    spec = data_spec(FLEET_MULTISLOT, of, DATA_N(of), files, 1);
    spec.bounds = bounds;
    return spec;
}

TEST(a_label_out_of_bounds_is_refused_with_file_line_and_slot)
{
    fl_stream_spec spec = labelled_spec("1 3 1 1\n\n1 4 1 0\n");

    DATA_FAILS(&spec, FLEET_EFORMAT, "part-0:3: slot \"class\"",
               "expected a label from 0 to 3, got \"4\"");
    spec = labelled_spec("1 3 1 0.5\n1 0 1 -0.25\n");
    DATA_FAILS(&spec, FLEET_EFORMAT, "part-0:2: slot \"clicked\"",
               "expected a label from 0 to 1, got \"-0.25\"");
    spec = labelled_spec("1 3 1 0.5\n1 0 1 1.5\n");
    DATA_FAILS(&spec, FLEET_EFORMAT, "part-0:2: slot \"clicked\"",
               "got \"1.5\"");
    spec = labelled_spec("1 3 1 1\n1 0 1 0\n");
    CHECK_INT(data_first(&spec)->rows, 2);
}

TEST(a_long_wrong_text_is_clipped)
{
    char text[3000] = "1 ";
    fl_stream_spec spec;

    memset(text + 2, 'y', 2500);
    strcpy(text + 2502, " 1 1 3 1 2 3 1 4\n");
    spec = spec_of(text);
    DATA_FAILS(&spec, FLEET_EFORMAT, "part-0:1: slot \"words\"", "yyyy...\"");
    CHECK(strlen(fleet_last_error()) < 400);
}

TEST(a_nul_byte_is_no_blank)
{
    static const char text[] = "1 5\0 1 1 3 1 2 3 1 4\n";
    const char *files[] = {test_file_bytes("nul", text, sizeof text - 1)};
    fl_stream_spec spec =
        data_spec(FLEET_MULTISLOT, slots, DATA_N(slots), files, 1);

    DATA_FAILS(&spec, FLEET_EFORMAT, "nul:1: slot \"words\"", "got \"5?\"");
}

/* Lines longer than what is cut at once, with all the kinds of tokens that the
 * kernels leave over. */
TEST(lines_of_any_length_are_read)
{
    enum { N = 20000 };
    char *text = malloc((size_t)N * 60), *s = text;
    uint64_t state = 1;
    fl_stream_spec spec;
    const fl_batch *b;

    s += sprintf(s, "%d", N);
    for (int i = 0; i < N; i++)
        s += sprintf(s, "%*s%llu", 1 + (int)(data_random(&state) % 3), "",
                     (unsigned long long)i << i % 50);
    s += sprintf(s, " 1 1 3 1 2 3 %d", N);
    for (int i = 0; i < N; i++)
        s += sprintf(s, "%*s%.*g", i % 40 ? 1 : 3000 / (1 + i / 40), "",
                     1 + i % 17, i / 7.0);
    spec = spec_of(text);
    spec.batch_size = 1;
    b = data_first(&spec);
    CHECK_INT(b->slot[0].offsets[1], N);
    CHECK_INT(b->slot[3].offsets[1], N);
    for (int i = 0; i < N; i++) {
        char number[60];

        CHECK_INT(((const int64_t *)b->slot[0].values)[i],
                  (int64_t)((uint64_t)i << i % 50));
        snprintf(number, sizeof number, "%.*g", 1 + i % 17, i / 7.0);
        CHECK(((const float *)b->slot[3].values)[i] == strtof(number, NULL));
    }
    free(text);
}

TEST(a_token_may_be_longer_than_a_window)
{
    char *text = malloc(20000), *s = text + 2;
    fl_stream_spec spec;
    const fl_batch *b;

    memcpy(text, "1 ", 2);
    memset(s, '0', 9000);
    strcpy(s + 9000, "42 1 1 3 1 0.");
    s += 9000 + strlen(s + 9000);
    memset(s, '0', 5000);
    strcpy(s + 5000, "1e5001 3 1 4\n");
    spec = spec_of(text);
    b = data_first(&spec);
    CHECK_INT(((const int64_t *)b->slot[0].values)[0], 42);
    CHECK(((const float *)b->slot[2].values)[1] == 1.0f);
    free(text);
}

/* Side by side, single ids are read by a kernel of their own. */
TEST(slots_with_single_ids_give_what_one_by_one_gives)
{
    enum { SLOTS = 70, LINES = 300 };
    static fleet_slot many[SLOTS];
    static char names[SLOTS][16], text[LINES * SLOTS * 64];
    static int64_t want[SLOTS][LINES * 3];
    static int used[SLOTS];
    const char *files[1];
    uint64_t state = 2;
    char *s = text;
    const fl_batch *b;
    fl_stream_spec spec;

    for (int i = 0; i < SLOTS; i++) {
        snprintf(names[i], sizeof names[i], "s%d", i);
        many[i] = (fleet_slot){
            .name = names[i], .dtype = FLEET_INT64, .dim = i % 3 ? -1 : 1};
    }
    for (int line = 0; line < LINES; line++) {
        for (int i = 0; i < SLOTS; i++) {
            int n = i % 3 && data_random(&state) % 9 == 0 ? 3 : 1;

            s += sprintf(s, "%s%d", data_random(&state) % 50 ? " " : "  ", n);
            while (n-- > 0) {
                int64_t id = (int64_t)(data_random(&state) >>
                                       (data_random(&state) % 7 ? 44 : 1));

                s += sprintf(s, " %lld", (long long)id);
                want[i][used[i]++] = id;
            }
        }
        *s++ = '\n';
    }
    files[0] = test_file_bytes("many", text, (size_t)(s - text));
    spec = data_spec(FLEET_MULTISLOT, many, SLOTS, files, 1);
    spec.batch_size = LINES;
    b = data_first(&spec);
    CHECK_INT(b->rows, LINES);
    for (int i = 0; i < SLOTS; i++) {
        if (i % 3)
            CHECK_INT(b->slot[i].offsets[LINES], used[i]);
        CHECK(!memcmp(b->slot[i].values, want[i], (size_t)used[i] * 8));
    }
}
