/* made_slots_test.c - slots that are made of others: crossed ids, numbers in
 * buckets; words of a cell. */
#define SUITE made_slots
#include "data_kit.h"
#include "test.h"

#include <fleet/fleet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/cache_file.h"

static const char *const two[] = {"user", "words"};
static const char *const dense[] = {"dense"}, *const scores[] = {"scores"};
static const char *const three[] = {"user", "bucket", "words"};
static const float bounds[] = {-1, 0.5f, 18};

enum { USER, DENSE, WORDS, SCORES, CROSS, BUCKET, PIECES, THREE, N_SLOT };

static const fleet_slot slots[] = {
    [USER] = {.name = "user", .dtype = FLEET_INT64},
    [DENSE] = {.name = "dense", .dim = 2},
    [WORDS] = {.name = "words", .dtype = FLEET_INT64, .dim = -1},
    [SCORES] = {.name = "scores", .dim = -1},
    [CROSS] = {.name = "cross",
               .dtype = FLEET_INT64,
               .dim = -1,
               .from = two,
               .n_from = 2},
    [BUCKET] = {.name = "bucket",
                .dtype = FLEET_INT64,
                .dim = 2,
                .from = dense,
                .n_from = 1,
                .buckets = bounds,
                .n_bucket = 3},
    [PIECES] = {.name = "pieces",
                .dtype = FLEET_INT64,
                .dim = -1,
                .from = scores,
                .n_from = 1,
                .buckets = bounds,
                .n_bucket = 1},
    [THREE] = {.name = "three",
               .dtype = FLEET_INT64,
               .dim = -1,
               .from = three,
               .n_from = 3}};

static const char json[] =
    "{\"user\":7,\"dense\":[-1,0.4],\"words\":[10,11],\"scores\":[-2,-1,0]}\n"
    "{\"user\":8,\"dense\":[18,-1.5]}\n"
    "{\"user\":9,\"words\":[12],\"dense\":[0.5,17.9]}\n";

static const char multislot[] = "1 7 2 -1 0.4 2 10 11 3 -2 -1 0\n"
                                "1 8 2 18 -1.5 0 0\n"
                                "1 9 2 0.5 17.9 1 12 0\n";

static fl_stream_spec spec_of(fleet_format format)
{
    static const char *files[1];
    fl_stream_spec spec;

    files[0] =
        test_file("part-0", format == FLEET_MULTISLOT ? multislot : json);
    spec = data_spec(format, slots, N_SLOT, files, 1);
    spec.batch_size = 3;
    return spec;
}

/* XXH64 of the ids as they lie, with the slot's position. */
static int64_t crossed(int slot, const int64_t *id, int n)
{
    return (int64_t)fleet_hash_text((const char *)id, (size_t)n * 8,
                                    (uint64_t)slot);
}

static void check_crosses(const fl_batch *b)
{
    const int64_t *id = b->slot[CROSS].values, *at = b->slot[CROSS].offsets;
    const int64_t *all = b->slot[THREE].values;

    CHECK(at[1] == 2 && at[2] == 2 && at[3] == 3);
    CHECK(id[0] == crossed(CROSS, (int64_t[]){7, 10}, 2));
    CHECK(id[1] == crossed(CROSS, (int64_t[]){7, 11}, 2));
    CHECK(id[2] == crossed(CROSS, (int64_t[]){9, 12}, 2));
    CHECK_INT(b->slot[THREE].offsets[1], 4);
    CHECK_INT(b->slot[THREE].offsets[3], 6);
    CHECK(all[0] == crossed(THREE, (int64_t[]){7, 1, 10}, 3));
    CHECK(all[1] == crossed(THREE, (int64_t[]){7, 1, 11}, 3));
    CHECK(all[5] == crossed(THREE, (int64_t[]){9, 2, 12}, 3));
}

TEST(ids_are_crossed_and_numbers_get_buckets_in_each_format)
{
    static const fleet_format format[] = {FLEET_JSON_LINES, FLEET_MULTISLOT};

    for (int i = 0; i < 2; i++) {
        fl_stream_spec spec = spec_of(format[i]);
        const fl_batch *b = data_first(&spec);
        const int64_t want[] = {1, 1, 3, 0, 2, 2}, piece[] = {0, 1, 1};

        CHECK_INT(b->rows, 3);
        CHECK(memcmp(b->slot[BUCKET].values, want, sizeof want) == 0);
        CHECK(memcmp(b->slot[PIECES].values, piece, sizeof piece) == 0);
        CHECK(b->slot[PIECES].offsets[1] == 3);
        CHECK(b->slot[PIECES].offsets[3] == 3);
        check_crosses(b);
    }
}

TEST(caches_shuffles_and_threads_make_the_same)
{
    fl_stream_spec spec = spec_of(FLEET_JSON_LINES);
    fl_cache_state state = {false};

    for (int shuffle = 0; shuffle < 2; shuffle++) {
        data_dump want, got;

        spec.shuffle = shuffle * 2;
        spec.cache = NULL;
        want = data_read(&spec);
        CHECK_INT(want.rows, 3);
        spec.cache = &state;
        for (int i = 1; i < 3; i++) {
            got = data_read_n(spec, i);
            CHECK(data_same(&got, &want));
            free(got.bytes);
        }
        free(want.bytes);
    }
    CHECK(!state.is_off);
    CHECK(access(test_path("part-0.fleetcache"), R_OK) == 0);
    free(state.whole);
}

/* Which caches do not have: they need no other one. */
TEST(a_cache_is_of_what_lines_have)
{
    fl_stream_spec spec = spec_of(FLEET_JSON_LINES);
    const uint64_t key = fl_cache_key(&spec);

    spec.n_slot = CROSS;
    CHECK(fl_cache_key(&spec) == key);
    spec.n_slot = SCORES;
    CHECK(fl_cache_key(&spec) != key);
}

TEST(too_many_combinations_are_a_bad_line)
{
    static const char *const same[] = {"words", "words", "words"};
    static const fleet_slot wide[] = {
        {.name = "words", .dtype = FLEET_INT64, .dim = -1},
        {.name = "cross",
         .dtype = FLEET_INT64,
         .dim = -1,
         .from = same,
         .n_from = 3}};
    char text[4000], *to = text;
    const char *path;
    fl_stream_spec spec;
    data_dump d;

    to += sprintf(to, "{\"words\":1}\n{\"words\":[0");
    for (int i = 1; i < 102; i++)
        to += sprintf(to, ",%d", i);
    sprintf(to, "]}\n");
    path = test_file("part-0", text);
    spec = data_spec(FLEET_JSON_LINES, wide, 2, &path, 1);
    DATA_FAILS(&spec, FLEET_EFORMAT,
               "part-0:2: slot \"cross\": ", "at most 2^20 combinations");
    spec.max_bad_lines = 1;
    d = data_read(&spec);
    CHECK_INT(d.rows, 1);
    free(d.bytes);
}

static void refused(fleet_slot s, const char *words)
{
    fleet_slot all[N_SLOT + 1];
    fl_stream_spec spec = spec_of(FLEET_JSON_LINES);

    memcpy(all, slots, sizeof slots);
    all[N_SLOT] = s;
    spec.slots = all;
    spec.n_slot = N_SLOT + 1;
    DATA_FAILS(&spec, FLEET_ECONFIG, "slot \"x\": ", words);
}

TEST(slots_that_cannot_be_made_are_refused)
{
    static const char *const odd[] = {"user", "nobody", "three", "dense"};
    static const float falls[] = {1, 1}, one[] = {1};
    fleet_slot s = {
        .name = "x", .dtype = FLEET_INT64, .dim = -1, .from = odd, .n_from = 2};

    refused(s, "the name of a slot in front of it, got \"nobody\"");
    s.from = three;
    s.n_from = 1;
    refused(s, "2 to 8 slots that are crossed");
    s.from = odd + 2;
    s.n_from = 2;
    refused(s, "a slot of ids without weights, which \"dense\" is not");
    s.from = three;
    s.n_from = 3;
    s.dim = 5;
    refused(s, "expected a dim of -1");
    s.dim = -1;
    s.dtype = FLEET_FLOAT32;
    refused(s, "has ids without weights");
    s = (fleet_slot){.name = "x",
                     .dtype = FLEET_INT64,
                     .from = dense,
                     .n_from = 1,
                     .buckets = falls,
                     .n_bucket = 2};
    refused(s, "boundaries of buckets are finite and rise");
    s.buckets = one;
    s.n_bucket = 1;
    refused(s, "expected a dim of 2");
    s.from = two;
    refused(s, "a slot of numbers, which \"user\" is not");
    refused((fleet_slot){.name = "x"}, "stand behind it");
}

TEST(words_of_a_cell_are_ids)
{
    static const char *const column[] = {"0"};
    static const fleet_transform words = FLEET_WORDS;
    static const fleet_slot bag[] = {{.name = "bag",
                                      .dtype = FLEET_INT64,
                                      .dim = -1,
                                      .columns = column,
                                      .n_column = 1,
                                      .transforms = &words,
                                      .n_transform = 1}};
    static const char *const want[] = {"red",         "wine", "75", "cl",
                                       "caf\xC3\xA9", "it",   "s"};
    static const char *path;
    fl_stream_spec spec = data_spec(FLEET_CSV, bag, 1, &path, 1);
    const fl_batch *b;
    const int64_t *at, *id;

    path = test_file("part-0",
                     "Red-Wine (75 cl),1\n\"--\",2\n,3\nCAF\xC3\xA9 it's!,4\n");
    spec.batch_size = 4;
    b = data_first(&spec);
    at = b->slot[0].offsets;
    id = b->slot[0].values;
    CHECK(at[1] == 4 && at[2] == 4 && at[3] == 4);
    CHECK_INT(at[4], 7);
    for (int i = 0; i < 7; i++)
        CHECK(id[i] == (int64_t)fleet_hash_text(want[i], strlen(want[i]), 0));
}

TEST(without_memory_nothing_is_made)
{
    const fl_stream_spec spec = spec_of(FLEET_JSON_LINES);

    data_check_memory(&spec, 3);
}
