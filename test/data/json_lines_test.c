/* json_lines_test.c - an object a line: numbers, texts, arrays and weights,
 * what is passed over, and what is refused with file, line number and slot. */
#define SUITE json_lines
#include "data_kit.h"
#include "test.h"

#include <fleet/fleet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const fleet_slot slots[] = {
    {.name = "click", .required = 1},
    {.name = "dense", .dim = 2},
    {.name = "user", .dtype = FLEET_INT64},
    {.name = "words", .dtype = FLEET_INT64, .dim = -1},
    {.name = "tags", .dtype = FLEET_INT64, .dim = -1, .weighted = 1}};
enum { CLICK, DENSE, USER, WORDS, TAGS };

static fl_stream_spec spec_of(const char *text)
{
    static const char *files[1];

    files[0] = test_file("part-0", text);
    return data_spec(FLEET_JSON_LINES, slots, DATA_N(slots), files, 1);
}

static int64_t hash_of(const char *text, int slot)
{
    return (int64_t)fleet_hash_text(text, strlen(text), (uint64_t)slot);
}

TEST(values_are_found_by_their_keys)
{
    fl_stream_spec spec = spec_of(
        "{\"click\":true,\"user\":18446744073709551615,\"dense\":[0.5,-1e2],"
        "\"words\":[3,\"red\"],\"x\":{\"click\":[1,{\"a\":null}]}}\r\n"
        " {\"tags\" : [[7,0.5],8 , [\"b\",-2]], \"click\":0,\"words\":\"one\","
        "\"user\":null} \n");
    const fl_batch *b = data_first(&spec);
    const float *click = b->slot[CLICK].values, *dense = b->slot[DENSE].values;
    const int64_t *user = b->slot[USER].values, *word = b->slot[WORDS].values;
    const int64_t *tag = b->slot[TAGS].values;
    const float *weight = b->slot[TAGS].weights;

    CHECK_INT(b->rows, 2);
    CHECK(click[0] == 1.0f && click[1] == 0.0f);
    CHECK(dense[0] == 0.5f && dense[1] == -100.0f);
    CHECK(dense[2] == 0.0f && dense[3] == 0.0f);
    CHECK(user[0] == -1 && user[1] == 0);
    CHECK(b->slot[WORDS].offsets[1] == 2 && b->slot[WORDS].offsets[2] == 3);
    CHECK(word[0] == 3 && word[1] == hash_of("red", WORDS));
    CHECK(word[2] == hash_of("one", WORDS));
    CHECK(b->slot[TAGS].offsets[1] == 0 && b->slot[TAGS].offsets[2] == 3);
    CHECK(tag[0] == 7 && tag[1] == 8 && tag[2] == hash_of("b", TAGS));
    CHECK(weight[0] == 0.5f && weight[1] == 1.0f && weight[2] == -2.0f);
}

TEST(texts_mean_what_their_escapes_say)
{
    fl_stream_spec spec =
        spec_of("{\"click\":1,\"w\\u006Frds\":[\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\","
                "\"\\u00e9\\u20AC\\ud83d\\ude00\",\"\\u0000\"]}\n");
    const fl_batch *b = data_first(&spec);
    const int64_t *word = b->slot[WORDS].values;

    CHECK_INT(b->slot[WORDS].offsets[1], 3);
    CHECK(word[0] == hash_of("a\"\\/\b\f\n\r\t", WORDS));
    CHECK(word[1] == hash_of("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", WORDS));
    CHECK(word[2] == (int64_t)fleet_hash_text("", 1, WORDS));
}

static void refused(const char *line, const char *words, const char *more)
{
    char text[3000];
    fl_stream_spec spec;

    snprintf(text, sizeof text, "{\"click\":1}\n%s\n{\"click\":1}\n", line);
    spec = spec_of(text);
    DATA_FAILS(&spec, FLEET_EFORMAT, "part-0:2: ", words, more);
}

TEST(lines_that_are_no_objects_are_refused)
{
    refused("[1]", "an object of JSON", "got \"[1]\"");
    refused("{\"click\":1", "a comma or }", "the end of the line");
    refused("{\"click\":1,}", "a key in quotes", "got \"}\"");
    refused("{click:1}", "a key in quotes", "got \"click:1}\"");
    refused("{\"click\" 1}", "a colon behind the key", "got \"1}\"");
    refused("{\"click\":1} x", "the end of the line", "got \"x\"");
    refused("{\"click\":1 \"a\":2}", "a comma or }", "got \"\"a\":2}\"");
    refused("{\"click\":1,\"a\":\"x}", "a string that ends", "got");
    refused("{\"click\":1,\"a\":\"x\001\"}", "a string that ends", "got");
    refused("{\"click\":1,\"a\":[1,2}", "a comma or ]", "got \"}\"");
    refused("{\"click\":1,\"a\":{\"b\":1]}", "a comma or }", "got \"]}\"");
    refused("{\"click\":1,\"a\":{\"b\" 1}}", "a colon", "got \"1}}\"");
    refused("{\"click\":1,\"a\":nil}", "expected a value", "got \"nil}\"");
    refused("{\"click\":1,\"a\":}", "expected a value", "got \"}\"");
    refused("{\"click\":1,\"a\":[[1],]}", "expected a value", "got \"]}\"");
}

TEST(values_that_do_not_fit_their_slot_are_refused)
{
    refused("{\"click\":\"1\"}", "slot \"click\": expected a finite number",
            "got \"1\"");
    refused("{\"click\":NaN}", "slot \"click\"", "got \"NaN\"");
    refused("{\"click\":[1,1]}", "slot \"click\": expected 1 values", "click");
    refused("{\"click\":null}", "slot \"click\"", "a value that is there");
    refused("{\"user\":1}", "slot \"click\"", "a value that is there");
    refused("{\"click\":1,\"click\":1}", "slot \"click\"", "stands twice");
    refused("{\"click\":1,\"words\":[],\"words\":[]}", "slot \"words\"",
            "stands twice");
    refused("{\"click\":1,\"dense\":[1]}", "slot \"dense\"", "2 values");
    refused("{\"click\":1,\"user\":-1}", "slot \"user\": expected an id",
            "got \"-1\"");
    refused("{\"click\":1,\"user\":1.5}", "slot \"user\"", "got \"1.5\"");
    refused("{\"click\":1,\"user\":{}}", "slot \"user\"", "a value");
    refused("{\"click\":1,\"user\":[[1,2]]}", "slot \"user\"", "a value");
    refused("{\"click\":1,\"words\":[\"\\x\"]}", "JSON's escapes", "\\x");
    refused("{\"click\":1,\"words\":[\"\\ud800\"]}", "JSON's escapes", "d800");
    refused("{\"click\":1,\"words\":[\"\\udc00\"]}", "JSON's escapes", "dc00");
    refused("{\"click\":1,\"words\":[\"\\u12\"]}", "JSON's escapes", "u12");
    refused("{\"click\":1,\"words\":[1 2]}", "a comma or ]", "got \"2]}\"");
    refused("{\"click\":1,\"tags\":[[1]]}", "a comma and the id's weight", "]");
    refused("{\"click\":1,\"tags\":[[1,x]]}", "a finite number", "got \"x\"");
    refused("{\"click\":1,\"tags\":[[1,2,3]]}", "] behind the id's weight",
            "got \",3]]}\"");
}

/* Also numbers that no float of any size is. */
TEST(numbers_of_keys_without_a_slot_are_passed_over)
{
    fl_stream_spec spec =
        spec_of("{\"click\":1,\"a\":1e400,\"b\":[-1E+999,0.5e-7777]}\n");

    CHECK_INT(data_first(&spec)->rows, 1);
    refused("{\"click\":1,\"a\":1e}", "expected a value", "got \"1e}\"");
    refused("{\"click\":1,\"a\":1.e999}", "expected a value", "got");
    refused("{\"click\":1,\"a\":01e999}", "expected a value", "got");
    refused("{\"click\":1e400}", "slot \"click\": expected a finite number",
            "got \"1e400\"");
}

/* What is passed over is at most so deep, and brackets of both kinds count. */
static char *deep(int n)
{
    char *text = malloc((size_t)n * 10 + 100), *to = text;

    to = stpcpy(to, "{\"click\":1,\"x\":");
    for (int i = 0; i < n; i++)
        to = stpcpy(to, i % 2 ? "{\"a\":" : "[");
    to = stpcpy(to, "0");
    for (int i = n - 1; i >= 0; i--)
        to = stpcpy(to, i % 2 ? "}" : "]");
    stpcpy(to, "}");
    return text;
}

TEST(values_are_passed_over_to_a_depth_of_64)
{
    char *most = deep(64), *more = deep(65);
    fl_stream_spec spec = spec_of(most);

    CHECK_INT(data_read(&spec).rows, 1);
    refused(more, "values at most 64 deep", "got");
    free(most);
    free(more);
}
