/* check_spec_test.c - specs that cannot be. */
#define SUITE check_spec
#include "data/format/formats.h"
#include "data/layout/check_spec.h"
#include "data_kit.h"
#include "test.h"

#include <stddef.h>

static const char *const files[] = {"a", "b"};
static const char *const one[] = {"0"}, *const two[] = {"0", "1"},
                         *const named[] = {"price"}, *const null[] = {NULL};

static fl_stream_spec good(fleet_format format, const fleet_slot *slot, int n)
{
    return data_spec(format, slot, n, files, 2);
}

static const fleet_slot plain = {.name = "x"};

TEST(numbers_out_of_range_are_refused)
{
    fl_stream_spec s = good(FLEET_MULTISLOT, &plain, 1);

    CHECK_OK(fl_spec_check(&s));
#define BAD(field, value, words)                                               \
    do {                                                                       \
        fl_stream_spec bad = s;                                                \
        bad.field = value;                                                     \
        CHECK_FAILS(fl_spec_check(&bad), FLEET_EINVAL, words);                 \
    } while (0)
    BAD(n_thread, 0, "reader threads: expected 1 to 1024, got 0");
    BAD(n_thread, -1, "reader threads");
    BAD(n_thread, 5000, "reader threads");
    BAD(batch_size, 0, "batch size");
    BAD(batch_size, (int64_t)1 << 40, "batch size");
    BAD(shuffle, -1, "shuffle");
    BAD(share_count, 0, "share");
    BAD(share_index, 1, "share 1 of 1");
    BAD(share_index, -1, "share");
    BAD(n_file, -1, "files");
    BAD(files, NULL, "files");
    BAD(format, (fleet_format)9, "9 is no format");
}

static void refused(fleet_slot slot, bool csv, const char *words)
{
    fl_stream_spec s = good(csv ? FLEET_CSV : FLEET_MULTISLOT, &slot, 1);

    CHECK_FAILS(fl_spec_check(&s), FLEET_ECONFIG, words);
}

static const fleet_transform kinds[] = {FLEET_HASH, FLEET_LOG1P, FLEET_EQUALS,
                                        FLEET_STANDARDIZE, (fleet_transform)77};

TEST(weights_are_of_ids_of_any_number)
{
    const fleet_slot good_one = {
        .name = "x", .dtype = FLEET_INT64, .dim = -1, .weighted = 1};
    fl_stream_spec s = good(FLEET_MULTISLOT, &good_one, 1);

    CHECK_OK(fl_spec_check(&s));
    refused((fleet_slot){.name = "x", .dim = -1, .weighted = 1}, false,
            "slot \"x\": weights are for ids of any number");
    refused((fleet_slot){.name = "x", .dtype = FLEET_INT64, .weighted = 1},
            false, "slot \"x\": weights are for ids of any number");
}

TEST(slots_that_cannot_be_are_refused)
{
    fl_stream_spec s = good(FLEET_MULTISLOT, &plain, 0);

    CHECK_FAILS(fl_spec_check(&s), FLEET_ECONFIG, "needs slots");
    s = good(FLEET_MULTISLOT, (const fleet_slot[]){plain, plain}, 2);
    CHECK_FAILS(fl_spec_check(&s), FLEET_ECONFIG, "slot \"x\": stands twice");
    refused((fleet_slot){.name = NULL}, false, "without a name");
    refused((fleet_slot){.name = ""}, false, "without a name");
    refused((fleet_slot){.name = "x", .dtype = FLEET_INT32}, false, "int32");
    refused((fleet_slot){.name = "x", .dim = -2}, false, "got -2");
    refused((fleet_slot){.name = "x", .columns = one, .n_column = 1}, false,
            "only csv");
    refused((fleet_slot){.name = "x", .transforms = kinds, .n_transform = 1},
            false, "only csv");
}

TEST(columns_that_cannot_be_are_refused)
{
    refused((fleet_slot){.name = "x"}, true, "needs columns");
    refused((fleet_slot){.name = "x", .n_column = 1}, true, "a list");
    refused((fleet_slot){.name = "x", .columns = two, .n_column = 2}, true,
            "its dim is 1 but it has 2 columns");
    refused((fleet_slot){.name = "x", .dim = 2, .columns = one, .n_column = 1},
            true, "its dim is 2");
    refused((fleet_slot){.name = "x", .columns = named, .n_column = 1}, true,
            "got \"price\"");
    refused((fleet_slot){.name = "x", .columns = null, .n_column = 1}, true,
            "without a name");
    refused((fleet_slot){.name = "x",
                         .dim = -1,
                         .columns = two,
                         .n_column = 2,
                         .transforms = kinds,
                         .n_transform = 3},
            true, "3 transforms for 2 columns");
}

TEST(transforms_that_cannot_be_are_refused)
{
    refused((fleet_slot){.name = "x",
                         .columns = one,
                         .n_column = 1,
                         .transforms = kinds,
                         .n_transform = 1},
            true, "hash makes ids");
    refused((fleet_slot){.name = "x",
                         .dtype = FLEET_INT64,
                         .columns = one,
                         .n_column = 1,
                         .transforms = kinds + 1,
                         .n_transform = 1},
            true, "make numbers");
    refused((fleet_slot){.name = "x",
                         .dtype = FLEET_INT64,
                         .columns = one,
                         .n_column = 1,
                         .transforms = kinds + 3,
                         .n_transform = 1},
            true, "make numbers");
    refused((fleet_slot){.name = "x",
                         .columns = one,
                         .n_column = 1,
                         .transforms = kinds + 2,
                         .n_transform = 1},
            true, "equals needs texts");
    refused((fleet_slot){.name = "x",
                         .columns = one,
                         .n_column = 1,
                         .transforms = kinds + 2,
                         .n_transform = 1,
                         .equals = null,
                         .n_equals = 1},
            true, "is NULL");
    refused((fleet_slot){.name = "x",
                         .columns = one,
                         .n_column = 1,
                         .transforms = kinds + 4,
                         .n_transform = 1},
            true, "77 is no transform");
}

TEST(csv_options_are_checked)
{
    static const fleet_slot slot = {.name = "x", .columns = one, .n_column = 1};
    fl_stream_spec csv = good(FLEET_CSV, &slot, 1);
    fl_stream_spec other = good(FLEET_MULTISLOT, &plain, 1);

    CHECK_OK(fl_spec_check(&csv));
#define BAD_OPTION(base, field, value, words)                                  \
    do {                                                                       \
        fl_stream_spec bad = base;                                             \
        bad.field = value;                                                     \
        CHECK_FAILS(fl_spec_check(&bad), FLEET_ECONFIG, words);                \
    } while (0)
    BAD_OPTION(csv, separator, '\n', "separator");
    BAD_OPTION(csv, separator, '"', "separator");
    BAD_OPTION(csv, comment, ',', "comment");
    BAD_OPTION(csv, skip_lines, -1, "skip_lines");
    BAD_OPTION(other, header, 1, "header: only csv");
    BAD_OPTION(other, skip_lines, 1, "skip_lines: only csv");
    BAD_OPTION(other, comment, '#', "comment: only csv");
    BAD_OPTION(other, missing, "?", "missing: only csv");
    csv.separator = ';';
    csv.comment = ',';
    csv.missing = "NA";
    csv.skip_lines = 3;
    CHECK_OK(fl_spec_check(&csv));
}

TEST(statistics_must_fit_the_slots)
{
    static const fleet_transform t = FLEET_STANDARDIZE;
    static const fleet_slot slot = {.name = "x",
                                    .dim = 2,
                                    .columns = two,
                                    .n_column = 2,
                                    .transforms = &t,
                                    .n_transform = 1};
    double numbers[] = {1, 1, 1};
    fl_statistics s = {.n = 3, .mean = numbers, .deviation = numbers};
    fl_stream_spec spec = good(FLEET_CSV, &slot, 1);
    fl_stream *stream;

    spec.statistics = &s;
    CHECK_OK(fl_spec_check(&spec));
    CHECK_FAILS(fl_stream_open(&stream, &spec), FLEET_ECONFIG,
                "2 columns want it, but the statistics are of 3");
    s.n = 2;
    CHECK_FAILS(fl_stream_open(&stream, &spec), FLEET_ENOENT, "");
    spec.statistics = NULL;
    CHECK_FAILS(fl_stream_open(&stream, &spec), FLEET_ECONFIG,
                "there are no statistics");
}

TEST(criteo_and_idx_have_slots_of_their_own)
{
    const fleet_slot *slots;
    fl_stream_spec spec;
    int n;

    CHECK_OK(fl_format_own_slots(FLEET_CRITEO, NULL, &slots, &n));
    spec = good(FLEET_CRITEO, slots, n);
    CHECK_OK(fl_spec_check(&spec));
    spec.n_slot--;
    CHECK_FAILS(fl_spec_check(&spec), FLEET_ECONFIG, "have their own");
    spec = good(FLEET_CRITEO, slots + 1, n - 1);
    CHECK_FAILS(fl_spec_check(&spec), FLEET_ECONFIG, "have their own");
    spec = good(FLEET_IDX, slots, 2);
    CHECK_FAILS(fl_spec_check(&spec), FLEET_ECONFIG, "have their own");
    fl_format_free_own_slots(slots);
}
