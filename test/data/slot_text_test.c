/* slot_text_test.c - tokens NAME:VALUE: slots in any order, what a line does
 * not have, and what is refused with file, line number and slot. */
#define SUITE slot_text
#include "data_kit.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

static const fleet_slot slots[] = {
    {.name = "click", .required = 1},
    {.name = "dense_feature", .dim = 2},
    {.name = "1", .dtype = FLEET_INT64},
    {.name = "a_name_of_some_length", .dtype = FLEET_INT64, .dim = -1},
    {.name = "a_name_of_other_length",
     .dtype = FLEET_INT64,
     .dim = -1,
     .weighted = 1}};

static fl_stream_spec spec_of(const char *text)
{
    static const char *files[1];

    files[0] = test_file("part-0", text);
    return data_spec(FLEET_SLOT_TEXT, slots, DATA_N(slots), files, 1);
}

TEST(slots_come_in_any_order_and_others_are_passed_over)
{
    fl_stream_spec spec = spec_of(
        "1:7 click:1 a_name_of_some_length:5 dense_feature:0.5 noise:x:y "
        "dense_feature:-1 a_name_of_some_length:6\n"
        "a_name_of_other_length:3:0.5 a_name_of_some_lengti:1 click:0 "
        "a_name_of_other_length:4\n");
    const fl_batch *b = data_first(&spec);
    const float *click = b->slot[0].values, *dense = b->slot[1].values;
    const int64_t *one = b->slot[2].values, *some = b->slot[3].values;
    const int64_t *other = b->slot[4].values;

    CHECK(click[0] == 1.0f && click[1] == 0.0f);
    CHECK(dense[0] == 0.5f && dense[1] == -1.0f);
    CHECK(dense[2] == 0.0f && dense[3] == 0.0f); /* the line has none */
    CHECK(one[0] == 7 && one[1] == 0);
    CHECK(b->slot[3].offsets[1] == 2 && b->slot[3].offsets[2] == 2);
    CHECK(some[0] == 5 && some[1] == 6);
    CHECK(b->slot[4].offsets[1] == 0 && b->slot[4].offsets[2] == 2);
    CHECK(other[0] == 3 && other[1] == 4);
    CHECK(b->slot[4].weights[0] == 0.5f && b->slot[4].weights[1] == 1.0f);
}

/* Buffers are used again: what the batch before has left must not be seen. */
TEST(a_slot_that_is_missing_is_zeros_in_every_batch)
{
    char text[300 * 60], *to = text;
    fl_stream_spec spec;
    fl_stream *s = NULL;
    fl_batch *b;

    for (int i = 0; i < 300; i++)
        to += sprintf(to, i % 2 ? "click:1\n"
                                : "click:1 1:9 dense_feature:3 "
                                  "dense_feature:4\n");
    spec = spec_of(text);
    spec.batch_size = 1;
    CHECK_OK(fl_stream_open(&s, &spec));
    for (int i = 0; i < 300; i++) {
        CHECK_OK(fl_stream_next(s, &b));
        CHECK(*(const int64_t *)b->slot[2].values == (i % 2 ? 0 : 9));
        CHECK(((const float *)b->slot[1].values)[0] == (i % 2 ? 0 : 3));
        CHECK(((const float *)b->slot[1].values)[1] == (i % 2 ? 0 : 4));
        fl_stream_release(s, b);
    }
    fl_stream_close(s);
}

static void refused(const char *line, const char *words, const char *more)
{
    char text[1000];
    fl_stream_spec spec;

    snprintf(text, sizeof text, "click:1\n%s\nclick:1\n", line);
    spec = spec_of(text);
    DATA_FAILS(&spec, FLEET_EFORMAT, "part-0:2: ", words, more);
}

TEST(bad_lines_are_refused_with_file_line_and_slot)
{
    refused("click", "expected name:value", "got \"click\"");
    refused(":1 click:1", "expected name:value", "got \":1\"");
    refused("1:2", "slot \"click\": expected a value that is there", "1:2");
    refused("click:1 click:1", "slot \"click\": expected 1 values", "click");
    refused("click:", "slot \"click\": expected a finite number", "got \"\"");
    refused("click:x", "slot \"click\"", "got \"x\"");
    refused("click:1 1:-2", "slot \"1\": expected an id", "got \"-2\"");
    refused("click:1 1:2:3", "slot \"1\"", "got \"2:3\"");
    refused("click:1 dense_feature:1", "slot \"dense_feature\"",
            "2 values, as its dim, or none");
    refused("click:1 a_name_of_other_length:3:x", "id:weight", "got \"3:x\"");
}

TEST(names_that_no_token_can_have_are_refused)
{
    const fleet_slot odd[] = {{.name = "a:b"}};
    fl_stream_spec spec = spec_of("a:1\n");

    spec.slots = odd;
    spec.n_slot = 1;
    DATA_FAILS(&spec, FLEET_ECONFIG, "slot \"a:b\"", "no colons and blanks");
}
