/* tfrecord_test.c - TFRecord files of tf.Example: what features are to slots,
 * records that Python writes, and what is refused, with file, number of the
 * record and slot. */
#define _GNU_SOURCE
#define SUITE tfrecord
#include "data_kit.h"
#include "example_kit.h"
#include "test.h"

#include <fleet/fleet.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const fleet_slot slots[] = {
    {.name = "click", .required = 1},
    {.name = "dense", .dim = 2},
    {.name = "user", .dtype = FLEET_INT64},
    {.name = "words", .dtype = FLEET_INT64, .dim = -1},
    {.name = "scores", .dim = -1}};
enum { CLICK, DENSE, USER, WORDS, SCORES, N_SLOT };

static char room[1 << 20];

static fl_stream_spec spec_of(const char *end)
{
    static const char *files[1];

    files[0] = test_file_bytes("part-0", room, (size_t)(end - room));
    return data_spec(FLEET_TFRECORD, slots, N_SLOT, files, 1);
}

/* A record that is as it should be. */
static example plain(void)
{
    example e = {.n = 0};

    example_floats(&e, "click", (float[]){1}, 1);
    return e;
}

static char *put_plain(char *to)
{
    const example e = plain();

    return example_record(to, &e);
}

/* --- values --------------------------------------------------------------- */

static char *put_two(void)
{
    example a = {.n = 0}, b = {.n = 0};

    example_texts(&a, "unread", (const char *const[]){"x", "click"}, 2);
    example_ints(&a, "user", (int64_t[]){-1}, 1);
    example_floats(&a, "dense", (float[]){0.5f, -100}, 2);
    example_ints(&a, "words", (int64_t[]){3, 300, 1ll << 62}, 3);
    example_ints(&a, "click", (int64_t[]){1}, 1);
    example_floats(&a, "scores", (float[]){1.5f}, 1);
    example_texts(&b, "words", (const char *const[]){"red", ""}, 2);
    example_texts(&b, "user", (const char *const[]){"ann"}, 1);
    example_ints(&b, "scores", (int64_t[]){-7, 1 << 24}, 2);
    example_floats(&b, "click", (float[]){0}, 1);
    return example_record(example_record(room, &a), &b);
}

static int64_t hash_of(const char *text, int slot)
{
    return (int64_t)fleet_hash_text(text, strlen(text), (uint64_t)slot);
}

TEST(features_are_slots_by_their_names)
{
    fl_stream_spec spec = spec_of(put_two());
    const fl_batch *b = data_first(&spec);
    const float *click = b->slot[CLICK].values, *dense = b->slot[DENSE].values;
    const int64_t *user = b->slot[USER].values, *word = b->slot[WORDS].values;
    const float *score = b->slot[SCORES].values;

    CHECK_INT(b->rows, 2);
    CHECK(click[0] == 1 && click[1] == 0);
    CHECK(dense[0] == 0.5f && dense[1] == -100);
    CHECK(dense[2] == 0 && dense[3] == 0); /* it is missing */
    CHECK(user[0] == -1 && user[1] == hash_of("ann", USER));
    CHECK(b->slot[WORDS].offsets[1] == 3 && b->slot[WORDS].offsets[2] == 5);
    CHECK(word[0] == 3 && word[1] == 300 && word[2] == 1ll << 62);
    CHECK(word[3] == hash_of("red", WORDS) && word[4] == hash_of("", WORDS));
    CHECK(b->slot[SCORES].offsets[1] == 1 && b->slot[SCORES].offsets[2] == 3);
    CHECK(score[0] == 1.5f && score[1] == -7 && score[2] == 1 << 24);
}

/* As a proto2 writer has them: each value with its key; a list in two halves;
 * fields that the schema does not have; an entry whose value comes first. */
TEST(messages_may_be_written_in_other_ways)
{
    static const char three[] = "\x1a\x07\x08\x03\x08\xac\x02\x20"
                                "\x00";
    static const char halves[] = "\x12\x0f"
                                 "\x0d\x00\x00\xc0\x3f"     /* 1.5 */
                                 "\x0a\x08\x00\x00\x00\x40" /* 2 */
                                 "\x00\x00\x80\x40";        /* 4 */
    static const char first[] = "\x12\x05\x1a\x03\x0a\x01\x09\x0a\x04user";
    static const char twice[] = "\x1a\x03\x0a\x01\x05\x12\x06"
                                "\x0a\x04\x00\x00\x80\x3f"; /* 1 */
    example e = {.n = 0};
    const fl_batch *b;
    fl_stream_spec spec;

    example_feature(&e, "words", three, 9);
    example_feature(&e, "scores", halves, sizeof halves - 1);
    example_feature(&e, "click", twice, sizeof twice - 1);
    e.n = (size_t)(example_field(e.bytes + e.n, 1, first, sizeof first - 1) -
                   e.bytes);
    e.n = (size_t)(example_field(e.bytes + e.n, 9, "new", 3) - e.bytes);
    spec = spec_of(example_record(room, &e));
    b = data_first(&spec);
    CHECK_INT(b->slot[WORDS].offsets[1], 2);
    CHECK(((int64_t *)b->slot[WORDS].values)[1] == 300);
    CHECK_INT(b->slot[SCORES].offsets[1], 3);
    CHECK(((float *)b->slot[SCORES].values)[2] == 4);
    CHECK(((int64_t *)b->slot[USER].values)[0] == 9);
    CHECK(((float *)b->slot[CLICK].values)[0] == 1);
}

TEST(an_empty_feature_is_none_and_an_empty_file_has_no_records)
{
    example e = plain();
    fl_stream_spec spec;
    data_dump d;

    example_feature(&e, "words", "", 0);
    example_ints(&e, "user", NULL, 0);
    example_floats(&e, "dense", NULL, 0);
    spec = spec_of(example_record(room, &e));
    CHECK_INT(data_first(&spec)->slot[WORDS].offsets[1], 0);
    CHECK_INT(((int64_t *)data_first(&spec)->slot[USER].values)[0], 0);
    spec = spec_of(room);
    d = data_read(&spec);
    CHECK_INT(d.status, FLEET_EEND);
    CHECK_INT(d.rows, 0);
    free(d.bytes);
}

/* --- what is refused ------------------------------------------------------ */

/* The second of three records. */
static void refused(const example *e, const char *words, const char *more)
{
    char *end = put_plain(example_record(put_plain(room), e));
    fl_stream_spec spec = spec_of(end);

    DATA_FAILS(&spec, FLEET_EFORMAT, "part-0:2: ", words, more);
    spec.max_bad_lines = 1;
    for (int batch = 1; batch < 4; batch++) {
        data_dump d;

        spec.batch_size = batch;
        d = data_read(&spec);
        CHECK_INT(d.status, FLEET_EEND);
        CHECK_INT(d.rows, 2);
        free(d.bytes);
    }
}

TEST(features_of_another_kind_are_refused)
{
    example e = plain();

    example_floats(&e, "user", (float[]){3}, 1);
    refused(&e, "slot \"user\": expected ids (int64_list), or texts",
            "got \"float_list\"");
    e = plain();
    example_texts(&e, "dense", (const char *const[]){"1", "2"}, 2);
    refused(&e, "slot \"dense\": expected numbers (float_list or int64_list)",
            "got \"bytes_list\"");
    e = plain();
    example_floats(&e, "dense", (float[]){0, NAN}, 2);
    refused(&e, "slot \"dense\": expected a finite number", "got \"nan\"");
    e = plain();
    example_floats(&e, "dense", (float[]){-INFINITY, 1}, 2);
    refused(&e, "slot \"dense\": expected a finite number", "got \"inf\"");
    e = plain();
    example_ints(&e, "click", (int64_t[]){1}, 1);
    refused(&e, "slot \"click\": expected one feature of that name", "another");
}

TEST(too_many_and_too_few_values_are_refused)
{
    example e = plain();

    example_ints(&e, "user", (int64_t[]){3, 4}, 2);
    refused(&e, "slot \"user\": expected 1 values, as its dim", "");
    e = plain();
    example_floats(&e, "dense", (float[]){1}, 1);
    refused(&e, "slot \"dense\": expected 2 values, as its dim, or none", "");
    e = (example){.n = 0};
    example_ints(&e, "user", (int64_t[]){3}, 1);
    refused(&e, "slot \"click\": expected a value that is there",
            "got another record");
}

/* One byte changed, and the sum behind the record made right again. */
TEST(bytes_that_are_no_example_are_refused)
{
    static const struct {
        const char *bytes;
        size_t n;
    } bad[] = {{"\x0a\x05\x0a", 3}, /* longer than the record */
               {"\x0b\x01", 2},     /* a group */
               {"\x02\x00", 2},     /* field 0 */
               {"\x08", 1},         /* a key alone */
               {"\x0d\x01\x02", 3}, /* four bytes cut off */
               {"\x09\x01\x02", 3}, /* eight */
               {"\x12\x02\x0a", 3}, /* one byte longer */
               {"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12},
               {"\x0a\x02\x08\x01", 4},         /* Features.feature: a number */
               {"\x0a\x04\x0a\x02\x08\x01", 6}, /* its key: a number */
               {"\x08\x01", 2}};                /* Example.features: a number */

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *end = example_framed(put_plain(room), bad[i].bytes, bad[i].n);
        fl_stream_spec spec = spec_of(end);

        DATA_FAILS(&spec, FLEET_EFORMAT,
                   "part-0:2: ", "a message of protocol buffers");
    }
    for (int i = 0; i < 2; i++) { /* lists that are none */
        static const char list[2][8] = {"\x1a\x03\x0a\x01\xff",
                                        "\x12\x05\x0a\x03"};
        example e = plain();

        example_feature(&e, i ? "scores" : "words", list[i], i ? 7 : 5);
        refused(&e, i ? "slot \"scores\"" : "slot \"words\"",
                "a message of protocol buffers");
    }
}

/* --- frames --------------------------------------------------------------- */

static void damaged(const char *end, size_t at, fleet_status want,
                    const char *words)
{
    fl_stream_spec spec;

    room[at] ^= 4;
    spec = spec_of(end);
    DATA_FAILS(&spec, want, "part-0:2: ", words);
    room[at] ^= 4;
}

TEST(each_byte_of_a_record_is_summed)
{
    const size_t size = (size_t)(put_plain(room) - room);
    const char *end = put_plain(put_plain(put_plain(room)));

    for (size_t i = 0; i < 12; i++)
        damaged(end, size + i, FLEET_ECORRUPT,
                "a length with a wrong checksum");
    for (size_t i = 12; i < size; i++)
        damaged(end, size + i, FLEET_EFORMAT, "a record with the checksum");
}

TEST(a_record_with_a_wrong_sum_is_a_bad_line)
{
    const size_t size = (size_t)(put_plain(room) - room);
    const char *end = put_plain(put_plain(put_plain(room)));
    fl_stream_spec spec;
    data_dump d;

    room[size + 14] ^= 1;
    spec = spec_of(end);
    spec.max_bad_lines = 1;
    d = data_read(&spec);
    CHECK_INT(d.status, FLEET_EEND);
    CHECK_INT(d.rows, 2);
    free(d.bytes);
}

TEST(a_file_that_was_cut_is_named)
{
    const size_t size = (size_t)(put_plain(room) - room);

    for (size_t left = 1; left < size; left++) {
        fl_stream_spec spec;

        put_plain(put_plain(room));
        spec = spec_of(room + size + left);
        DATA_FAILS(&spec, FLEET_ECORRUPT, "part-0:2: the file ends inside ",
                   left < 12 ? "a record's length" : "a record of ");
    }
}

TEST(other_files_and_huge_records_are_refused)
{
    char *end = put_plain(room);
    fl_stream_spec spec = spec_of(stpcpy(room, "click:1 dense:2\n"));
    uint64_t huge = 64 << 20;
    char frame[100];

    DATA_FAILS(&spec, FLEET_ECORRUPT, "part-0:1: expected a record of TFRecord",
               "compressed, or of another format");
    example_framed(frame, NULL, 0);
    /* the sum of that length by a record of eight bytes that are it */
    example_framed(frame, &huge, 8);
    memcpy(room, &huge, 8);
    memcpy(room + 8, frame + 20, 4);
    spec = spec_of(end);
    DATA_FAILS(&spec, FLEET_EFORMAT, "part-0:1: a record of more than 64 MB");
}

/* As gzip does, by its length. */
TEST(a_file_may_begin_as_a_packed_one_does)
{
    enum { SIZE = 0x088b1f };
    static char bytes[SIZE], more[SIZE], file[SIZE + 16];
    const example e = plain();
    const char *files[] = {test_path("part-0")};
    char *end = example_field(bytes, 1, e.bytes, e.n);
    fl_stream_spec spec;

    end = example_field(end, 9, more, (size_t)(bytes + SIZE - end) - 4);
    CHECK(end == bytes + SIZE);
    end = example_framed(file, bytes, SIZE);
    CHECK(memcmp(file, "\x1f\x8b\x08", 3) == 0);
    test_file_bytes("part-0", file, (size_t)(end - file));
    spec = data_spec(FLEET_TFRECORD, slots, N_SLOT, files, 1);
    CHECK(((float *)data_first(&spec)->slot[CLICK].values)[0] == 1);
}

TEST(weights_and_csv_options_are_refused)
{
    static const fleet_slot weighted[] = {
        {.name = "w", .dtype = FLEET_INT64, .dim = -1, .weighted = 1}};
    fl_stream_spec spec = spec_of(put_plain(room));

    spec.slots = weighted;
    spec.n_slot = 1;
    DATA_FAILS(&spec, FLEET_ECONFIG, "slot \"w\": ", "without weights");
    spec = spec_of(put_plain(room));
    spec.header = 1;
    DATA_FAILS(&spec, FLEET_ECONFIG, "header: only csv files have it");
}

/* --- records of others, packed, shuffled, cached -------------------------- */

static const fleet_slot many[] = {
    {.name = "label"},
    {.name = "dense", .dim = 3},
    {.name = "words", .dtype = FLEET_INT64, .dim = -1},
    {.name = "texts", .dtype = FLEET_INT64, .dim = -1},
    {.name = "query", .dtype = FLEET_INT64}};

enum { ROWS = 2000 };

/* Lines of JSON, some of them long. */
static const char *json_lines(void)
{
    static const char *const text[] = {"red", "", "\\u00e9", "a b"};
    char *all = malloc(4 << 20), *to = all;
    uint64_t state = 3;
    const char *path;

    for (int i = 0; i < ROWS; i++) {
        const int n = i == 700 ? 60000 : (int)(data_random(&state) % 7);

        to += sprintf(to, "{\"label\":%d,\"words\":[", i % 2);
        for (int k = 0; k < n; k++)
            to += sprintf(to, "%s%llu", k ? "," : "",
                          (unsigned long long)data_random(&state) >>
                              data_random(&state) % 64);
        to += sprintf(to, "],\"texts\":[\"%s\",\"%llu\"]",
                      text[data_random(&state) % 4],
                      (unsigned long long)data_random(&state) % 100);
        if (i % 3)
            to += sprintf(to, ",\"dense\":[%g,-1e-3,%g]", i / 7.0, 3e38 / i);
        to += sprintf(to, ",\"query\":%d}\n", i);
    }
    *to = 0;
    path = test_file("lines", all);
    free(all);
    return path;
}

/* The same rows, by a script that has nothing of libfleet's. */
static const char *by_script(const char *lines, const char *name)
{
    const char *source = getenv("FLEET_SOURCE"), *onnx = getenv("FLEET_ONNX");
    const char *path = test_path(name);
    char command[2000], said[4000];

    if (!source || access("/usr/bin/python3", X_OK) != 0)
        test_skip("no FLEET_SOURCE, or no /usr/bin/python3");
    snprintf(command, sizeof command,
             "/usr/bin/python3 '%s/test/data/tfrecord_ref.py' '%s' '%s' '%s' "
             "2>&1",
             source, onnx ? onnx : "", lines, path);
    if (test_shell(command, said, sizeof said) != 0)
        test_fail(__FILE__, __LINE__, "%s", said);
    return path;
}

TEST(what_python_writes_is_what_json_lines_say)
{
    const char *lines = json_lines(), *plain = by_script(lines, "plain");
    const char *packed = by_script(lines, "packed.gz");
    fl_stream_spec spec =
        data_spec(FLEET_JSON_LINES, many, DATA_N(many), &lines, 1);
    data_dump want, got;

    spec.batch_size = 97;
    want = data_read(&spec);
    CHECK_INT(want.rows, ROWS);
    spec.format = FLEET_TFRECORD;
    for (int i = 0; i < 4; i++) {
        spec.files = i % 2 ? &packed : &plain;
        got = data_read_n(spec, 1 + i);
        CHECK_TEXT(got.error, want.error);
        CHECK(data_same(&got, &want));
        free(got.bytes);
    }
    free(want.bytes);
}

TEST(shuffled_and_cached_records_are_as_those_of_json)
{
    const char *lines = json_lines(), *path = by_script(lines, "records");
    fl_stream_spec spec =
        data_spec(FLEET_JSON_LINES, many, DATA_N(many), &lines, 1);
    fl_cache_state state = {false};
    data_dump want, got;

    spec.shuffle = 300;
    spec.batch_size = 64;
    want = data_read(&spec);
    spec.format = FLEET_TFRECORD;
    spec.files = &path;
    for (int i = 0; i < 3; i++) { /* no cache, one that is made, that one */
        spec.cache = i ? &state : NULL;
        got = data_read_n(spec, 2);
        CHECK(data_same(&got, &want));
        free(got.bytes);
    }
    CHECK(!state.is_off);
    CHECK(access(test_path("records.fleetcache"), R_OK) == 0);
    free(state.whole);
    free(want.bytes);
}

/* --- memory --------------------------------------------------------------- */

TEST(without_memory_reading_ends_with_an_error)
{
    const fl_stream_spec spec = spec_of(put_two());

    data_check_memory(&spec, 2);
}
