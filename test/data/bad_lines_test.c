/* bad_lines_test.c - lines that are left out: each once, whatever threads,
 * shares and batches there are; what is said of them; and the one that is too
 * many. */
#define SUITE bad_lines
#include "data_kit.h"
#include "test.h"

#include <fleet/fleet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

enum { LINES = 600 };

static const fleet_slot slots[] = {
    {.name = "id", .dtype = FLEET_INT64},
    {.name = "ids", .dtype = FLEET_INT64, .dim = -1}};

/* Line i, from 1 on, of "1 i 1 i"; those in `is_bad` have a word in it. */
static bool is_bad[LINES + 1];

static int make_bad(uint64_t seed, int of_a_hundred)
{
    int n = 0;

    for (int i = 1; i <= LINES; i++) {
        is_bad[i] = data_random(&seed) % 100 < (uint64_t)of_a_hundred;
        n += is_bad[i];
    }
    return n;
}

static const char *write_lines(void)
{
    char *text = malloc(LINES * 40), *to = text;
    const char *path;

    for (int i = 1; i <= LINES; i++)
        to += sprintf(to, is_bad[i] ? "1 %d 1 x\n" : "1 %d 1 7\n", i);
    path = test_file("part-0", text);
    free(text);
    return path;
}

static char said[20000];
static int n_said;

static void hear(void *user, fleet_log_level level, const char *line)
{
    (void)user;
    if (level != FLEET_LOG_WARNING || n_said > (int)sizeof said - 2000)
        return;
    n_said += sprintf(said + n_said, "%s\n", line);
}

static fl_log log_to = {.level = FLEET_LOG_WARNING,
                        .callback = hear,
                        .lock = PTHREAD_MUTEX_INITIALIZER};

static fl_stream_spec spec_of(const char *const *files, int64_t most)
{
    fl_stream_spec spec =
        data_spec(FLEET_MULTISLOT, slots, DATA_N(slots), files, 1);

    n_said = 0;
    said[0] = 0;
    spec.max_bad_lines = most;
    spec.log = &log_to;
    return spec;
}

/* Every good line of the spec's share exactly once, and their number of bad
 * ones. */
static int64_t read_ids(const fl_stream_spec *spec, int *times)
{
    fl_stream *s = NULL;
    fleet_status status;
    int64_t bad;
    fl_batch *b;

    CHECK_OK(fl_stream_open(&s, spec));
    while ((status = fl_stream_next(s, &b)) == FLEET_OK) {
        CHECK(b->rows > 0);
        for (int64_t i = 0; i < b->rows; i++) {
            const int64_t id = ((const int64_t *)b->slot[0].values)[i];

            CHECK(id >= 1 && id <= LINES && !is_bad[id]);
            CHECK(spec->shuffle > 0 || (id - 1) / spec->batch_size == b->index);
            times[id]++;
        }
        fl_stream_release(s, b);
    }
    CHECK_STATUS(status, FLEET_EEND);
    CHECK_STATUS(fl_stream_next(s, &b), FLEET_EEND);
    bad = fl_stream_bad_lines(s);
    fl_stream_close(s);
    return bad;
}

TEST(good_lines_come_once_and_bad_ones_are_counted)
{
    static const int of_a_hundred[] = {1, 30, 97};

    for (int i = 0; i < 3; i++) {
        const int n = make_bad((uint64_t)i, of_a_hundred[i]);
        const char *path = write_lines();

        for (int threads = 1; threads <= 3; threads += 2)
            for (int64_t batch = 1; batch <= 100; batch *= 10)
                for (int shuffle = 0; shuffle <= 50; shuffle += 50) {
                    fl_stream_spec spec = spec_of(&path, LINES);
                    int times[LINES + 1] = {0};

                    spec.n_thread = threads;
                    spec.batch_size = batch;
                    spec.shuffle = shuffle;
                    CHECK_INT(read_ids(&spec, times), n);
                    for (int k = 1; k <= LINES; k++)
                        CHECK_INT(times[k], !is_bad[k]);
                }
    }
}

TEST(each_share_counts_its_own)
{
    const int n = make_bad(3, 20);
    const char *path = write_lines();
    int times[LINES + 1] = {0};
    int64_t bad = 0;

    for (int64_t i = 0; i < 3; i++) {
        fl_stream_spec spec = spec_of(&path, LINES);

        spec.batch_size = 7;
        spec.share_index = i;
        spec.share_count = 3;
        bad += read_ids(&spec, times);
    }
    CHECK_INT(bad, n);
    for (int k = 1; k <= LINES; k++)
        CHECK_INT(times[k], !is_bad[k]);
}

/* From any place on the rest is what it was, and the number that of the whole
 * pass; batches of bad lines alone count for nothing. */
TEST(a_pass_that_goes_on_counts_as_a_whole_one)
{
    const int n = make_bad(4, 60);
    const char *path = write_lines();
    fl_stream_spec spec = spec_of(&path, LINES);
    data_dump all;

    spec.batch_size = 2;
    all = data_read(&spec);
    CHECK(all.batches < LINES / 2);
    for (int64_t first = 1; first <= all.batches; first += 13) {
        fl_stream *s = NULL;
        data_dump rest;
        fl_batch *b;

        spec.first_batch = first;
        rest = data_read_n(spec, 3);
        CHECK_INT(rest.batches, all.batches - first);
        CHECK(memcmp(rest.bytes, all.bytes + all.size - rest.size, rest.size) ==
              0);
        CHECK_OK(fl_stream_open(&s, &spec));
        while (fl_stream_next(s, &b) == FLEET_OK)
            fl_stream_release(s, b);
        CHECK_INT(fl_stream_bad_lines(s), n);
        fl_stream_close(s);
    }
}

TEST(the_first_ones_are_logged_and_then_their_number)
{
    const char *path;
    int times[LINES + 1] = {0}, told = 0;
    const char *at;

    make_bad(5, 0);
    for (int i = 3; i <= 51; i += 8) /* 3, 11, ..., 51: seven */
        is_bad[i] = true;
    path = write_lines();
    for (int batch = 1; batch <= 100; batch += 99) {
        fl_stream_spec spec = spec_of(&path, 7);

        spec.batch_size = batch;
        spec.n_thread = 3;
        CHECK_INT(read_ids(&spec, times), 7);
        told = 0;
        for (at = said; (at = strstr(at, "left out: ")) != NULL; at++, told++) {
            char where[40];

            snprintf(where, sizeof where, "part-0:%d: slot \"ids\"",
                     3 + 8 * told);
            CHECK_CONTAINS(at, where);
        }
        CHECK_INT(told, 5);
        CHECK_CONTAINS(said, "7 bad lines were left out of this pass "
                             "(max_bad_lines 7)");
    }
}

TEST(one_too_many_is_an_error_in_its_place)
{
    const char *path;

    make_bad(6, 0);
    is_bad[10] = is_bad[20] = is_bad[30] = true;
    path = write_lines();
    for (int threads = 1; threads <= 3; threads += 2) {
        fl_stream_spec spec = spec_of(&path, 2);
        data_dump d;

        spec.n_thread = threads;
        d = data_read(&spec);
        CHECK_STATUS(d.status, FLEET_EFORMAT);
        CHECK_INT(d.rows, 26); /* of 28 lines in 14 batches */
        CHECK_CONTAINS(d.error, "3 bad lines, of which max_bad_lines lets 2 be "
                                "left out: ");
        CHECK_CONTAINS(d.error, "part-0:30: slot \"ids\"");
        spec.max_bad_lines = 0;
        d = data_read(&spec);
        CHECK_INT(d.rows, 8);
        CHECK_CONTAINS(d.error, "part-0:10: slot \"ids\"");
    }
}

TEST(a_value_out_of_bounds_is_a_bad_line_too)
{
    const fl_slot_bounds bounds[] = {{.ids_below = 100}, {.ids_below = 8}};
    const char *path;
    fl_stream_spec spec;
    data_dump d;

    make_bad(7, 0);
    path = write_lines();
    spec = spec_of(&path, LINES);
    spec.bounds = bounds;
    spec.batch_size = 40;
    d = data_read(&spec);
    CHECK_STATUS(d.status, FLEET_EEND);
    CHECK_INT(d.rows, 99);
}

TEST(other_errors_are_errors_as_ever)
{
    const char *path = test_file_bytes("x.gz", "\x1f\x8b\x08\0\0\0", 6);
    fl_stream_spec spec = spec_of(&path, LINES);

    DATA_FAILS(&spec, FLEET_ECORRUPT, "x.gz");
    spec.max_bad_lines = -1;
    DATA_FAILS(&spec, FLEET_EINVAL, "max_bad_lines: expected 0 or more");
}

TEST(means_are_of_the_lines_that_have_numbers)
{
    const char *path = test_file("a.csv", "1\nx\n3\n5,\n-\n");
    const fleet_slot slot[] = {
        {.name = "x",
         .columns = (const char *const[]){"0"},
         .n_column = 1,
         .transforms = (const fleet_transform[]){FLEET_STANDARDIZE},
         .n_transform = 1}};
    fl_stream_spec spec = data_spec(FLEET_CSV, slot, 1, &path, 1);
    fl_statistics s;

    spec.max_bad_lines = 2;
    CHECK_OK(fl_stream_statistics(&spec, &s));
    CHECK(s.mean[0] == 3.0);
    fl_statistics_done(&s);
    spec.max_bad_lines = 1;
    CHECK_FAILS(fl_stream_statistics(&spec, &s), FLEET_EFORMAT, "2 bad lines");
}

TEST(without_memory_the_stream_ends_with_an_error)
{
    const char *path;
    fleet_status status;
    fl_batch *b;
    int n = 0;

    make_bad(8, 50);
    path = write_lines();
    do {
        fl_stream_spec spec = spec_of(&path, LINES);
        fl_stream *s = NULL;

        spec.batch_size = 300;
        fl_memory_fail_at(++n, false);
        status = fl_stream_open(&s, &spec);
        while (status == FLEET_OK &&
               (status = fl_stream_next(s, &b)) == FLEET_OK)
            fl_stream_release(s, b);
        fl_memory_fail_at(0, false);
        fl_stream_close(s);
        CHECK(status == FLEET_ENOMEM || status == FLEET_EEND);
    } while (status == FLEET_ENOMEM);
    CHECK(n > 20);
}
