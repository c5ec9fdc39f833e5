/* libsvm_test.c - lines of LIBSVM and SVM-light: features as weighted ids or as
 * one dense slot, queries, classes, and what is refused with file, line number
 * and slot. */
#define SUITE libsvm
#include "data_kit.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

static const fleet_slot weighted[] = {
    {.name = "label"},
    {.name = "x", .dtype = FLEET_INT64, .dim = -1, .weighted = 1}};
static const fleet_slot plain[] = {
    {.name = "label", .dtype = FLEET_INT64},
    {.name = "x", .dtype = FLEET_INT64, .dim = -1}};
static const fleet_slot dense[] = {{.name = "label"}, {.name = "x", .dim = 4}};
static const fleet_slot ranked[] = {{.name = "grade"},
                                    {.name = "qid", .dtype = FLEET_INT64},
                                    {.name = "x", .dim = 4}};

static fl_stream_spec spec_of(const fleet_slot *slots, int n, const char *text)
{
    static const char *files[1];

    files[0] = test_file("part-0", text);
    return data_spec(FLEET_LIBSVM, slots, n, files, 1);
}

TEST(features_are_ids_with_their_values_as_weights)
{
    fl_stream_spec spec = spec_of(weighted, 2,
                                  "-1 3:0.5 18446744073709551615:-2\n"
                                  "# no sample\n \t# nor this\n"
                                  "+1.5 0:1e-3 0:7 # 4:5\n");
    const fl_batch *b = data_first(&spec);
    const float *label = b->slot[0].values, *weight = b->slot[1].weights;
    const int64_t *id = b->slot[1].values, *offset = b->slot[1].offsets;

    CHECK_INT(b->rows, 2);
    CHECK(label[0] == -1.0f && label[1] == 1.5f);
    CHECK(offset[0] == 0 && offset[1] == 2 && offset[2] == 4);
    CHECK(id[0] == 3 && id[1] == -1 && id[2] == 0 && id[3] == 0);
    CHECK(weight[0] == 0.5f && weight[1] == -2.0f);
    CHECK(weight[2] == 1e-3f && weight[3] == 7.0f);
}

TEST(an_index_is_the_place_in_a_dense_slot)
{
    fl_stream_spec spec = spec_of(dense, 2, "1 3:5 \n0\n2 0:1 1:2 3:-0.5");
    const fl_batch *b;
    const float *x;

    spec.batch_size = 3;
    b = data_first(&spec);
    x = b->slot[1].values;
    CHECK_INT(b->rows, 3);
    CHECK(memcmp(x, (float[12]){0, 0, 0, 5, 0, 0, 0, 0, 1, 2, 0, -0.5f},
                 12 * sizeof *x) == 0);
}

/* Batches' memory is used again: what was there before must not be seen. */
TEST(an_index_that_is_missing_is_0_in_every_batch)
{
    char text[400 * 12], *to = text;
    fl_stream_spec spec;
    fleet_status status;
    fl_stream *s = NULL;
    fl_batch *b;
    int n = 0;

    for (int i = 0; i < 400; i++)
        to += i % 3 ? sprintf(to, "1\n") : sprintf(to, "1 %d:%d\n", i % 4, i);
    spec = spec_of(dense, 2, text);
    CHECK_OK(fl_stream_open(&s, &spec));
    while ((status = fl_stream_next(s, &b)) == FLEET_OK) {
        for (int64_t k = 0; k < 4 * b->rows; k++) {
            const int row = n + (int)k / 4;
            const bool there = row % 3 == 0 && row % 4 == k % 4;

            CHECK(((const float *)b->slot[1].values)[k] ==
                  (there ? (float)row : 0));
        }
        n += (int)b->rows;
        fl_stream_release(s, b);
    }
    CHECK_STATUS(status, FLEET_EEND);
    CHECK_INT(n, 400);
    fl_stream_close(s);
}

TEST(a_query_is_a_slot_of_its_own)
{
    fl_stream_spec spec = spec_of(ranked, 3, "2 qid:17 0:1\n0 qid:18 3:1\n");
    const fl_batch *b = data_first(&spec);
    const int64_t *query = b->slot[1].values;

    CHECK(query[0] == 17 && query[1] == 18);
    CHECK(((const float *)b->slot[2].values)[7] == 1.0f);
}

TEST(minus_one_is_class_0)
{
    fl_stream_spec spec = spec_of(plain, 2, "-1 1:1\n+1 2:1.0\n");
    const fl_batch *b = data_first(&spec);
    const int64_t *label = b->slot[0].values, *id = b->slot[1].values;

    CHECK(label[0] == 0 && label[1] == 1);
    CHECK(id[0] == 1 && id[1] == 2 && b->slot[1].weights == NULL);
}

/* Every line but this one is well-formed. */
static void refused(const fleet_slot *slots, int n, const char *line,
                    const char *words, const char *more)
{
    char text[1000];
    fl_stream_spec spec;

    snprintf(text, sizeof text, "#\n\n%s\n", line);
    spec = spec_of(slots, n, text);
    DATA_FAILS(&spec, FLEET_EFORMAT, "part-0:3: ", words, more);
}

TEST(bad_lines_are_refused_with_file_line_and_slot)
{
    static const char index[] = "expected index:value";

    refused(weighted, 2, "x 1:2", "slot \"label\"", "a finite number");
    refused(weighted, 2, "1:2 3:4", "slot \"label\"", "got \"1:2\"");
    refused(plain, 2, "0.5 3:1", "slot \"label\"", "a class");
    refused(plain, 2, "-2 3:1", "slot \"label\"", "got \"-2\"");
    refused(weighted, 2, "1 7", index, "got \"7\"");
    refused(weighted, 2, "1 7:", index, "got \"7:\"");
    refused(weighted, 2, "1 :7", index, "got \":7\"");
    refused(weighted, 2, "1 -7:1", index, "got \"-7:1\"");
    refused(weighted, 2, "1 7:nan", index, "got \"7:nan\"");
    refused(weighted, 2, "1 7:1:1", index, "got \"7:1:1\"");
    refused(weighted, 2, "1 7:1#", index, "got \"7:1#\"");
    refused(weighted, 2, "1 qid:4 7:1", "a slot \"qid\" in front",
            "got \"qid:4\"");
    refused(plain, 2, "1 7:2", "slot \"x\": expected the value 1", "\"7:2\"");
    refused(dense, 2, "1 4:1", "an index below 4", "got \"4:1\"");
    refused(dense, 2, "1 2:1 2:1", "from 3 on", "got \"2:1\"");
    refused(dense, 2, "1 2:1 1:1", "above the one before it", "got \"1:1\"");
    refused(ranked, 3, "1 0:1", "slot \"qid\"", "got \"0:1\"");
    refused(ranked, 3, "1", "slot \"qid\"", "the end of the line");
    refused(ranked, 3, "1 qid:x 0:1", "slot \"qid\"", "got \"qid:x\"");
    refused(ranked, 3, "1 # qid:4", "slot \"qid\"", "the end of the line");
}

TEST(lines_without_a_label_begin_with_their_features)
{
    fl_stream_spec spec = spec_of(weighted + 1, 1, "3:2\n\n# none\n");
    data_dump d = data_read(&spec);

    CHECK_STATUS(d.status, FLEET_EEND);
    CHECK_INT(d.rows, 1);
    spec = spec_of(ranked + 1, 2, "qid:3 0:2\n");
    CHECK_INT(*(const int64_t *)data_first(&spec)->slot[0].values, 3);
}

static void slots_refused(const fleet_slot *slots, int n, const char *words)
{
    fl_stream_spec spec = spec_of(slots, n, "1 1:1\n");

    DATA_FAILS(&spec, FLEET_ECONFIG, words);
}

TEST(other_slots_are_refused)
{
    static const fleet_slot three[] = {
        {.name = "a"}, {.name = "b"}, {.name = "x", .dim = 3}};
    static const fleet_slot late[] = {{.name = "qid", .dtype = FLEET_INT64},
                                      {.name = "a"},
                                      {.name = "x", .dim = 3}};
    static const fleet_slot floats[] = {
        {.name = "a"}, {.name = "qid"}, {.name = "x", .dim = 3}};
    static const fleet_slot wide[] = {{.name = "a", .dim = 2},
                                      {.name = "x", .dim = 3}};
    static const fleet_slot asked[] = {{.name = "a", .required = 1},
                                       {.name = "x", .dim = 3}};

    slots_refused(dense, 1, "slot \"label\": the last slot");
    slots_refused(ranked, 2, "slot \"qid\": the last slot");
    slots_refused(three, 3, "in this order");
    slots_refused(late, 3, "in this order");
    slots_refused(floats, 3, "expected int64");
    slots_refused(wide, 2, "slot \"a\": expected dim 1");
    slots_refused(asked, 2, "slot \"a\": required");
}
