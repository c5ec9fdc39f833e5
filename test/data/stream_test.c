/* stream_test.c - the order of batches: files, threads, shuffles, shares;
 * and streams that are closed, held, or out of memory. */
#define _GNU_SOURCE
#define SUITE stream
#include "data_kit.h"
#include "test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"

static const fleet_slot slots[] = {
    {.name = "n", .dtype = FLEET_INT64, .dim = 1},
    {.name = "tags", .dtype = FLEET_INT64, .dim = -1},
    {.name = "x"}};

/* Sample n, with blank lines now and then. */
static char *put_sample(char *s, int n)
{
    s += sprintf(s, "1 %d %d", n, 1 + n % 5);
    for (int i = 0; i <= n % 5; i++)
        s += sprintf(s, " %d", n * 10 + i);
    s += sprintf(s, " 1 0.%d\n%s", n, n % 11 ? "" : " \n\n");
    return s;
}

static const char *samples(const char *name, int from, int to, bool packed)
{
    char *text = malloc((size_t)(to - from + 1) * 100), *s = text;
    const char *path;

    for (int i = from; i < to; i++)
        s = put_sample(s, i);
    if (s > text && to % 2)
        s--; /* no newline in the end */
    path = packed ? data_gz(name, text, (size_t)(s - text))
                  : test_file_bytes(name, text, (size_t)(s - text));
    free(text);
    return path;
}

static const char *files[1000];

/* Files with n samples each on average, packed or not, some empty. */
static fl_stream_spec spec_of(int n_file, int n, int *total)
{
    uint64_t state = 1;
    int at = 0;

    for (int i = 0; i < n_file; i++) {
        char name[32];
        int more =
            i % 5 == 2 ? 0 : (int)(data_random(&state) % (uint64_t)(2 * n));

        snprintf(name, sizeof name, "part-%03d%s", i, i % 3 ? "" : ".gz");
        files[i] = samples(name, at, at + more, i % 3 == 0);
        at += more;
    }
    *total = at;
    return data_spec(FLEET_MULTISLOT, slots, DATA_N(slots), files, n_file);
}

static int64_t first_id(const fl_batch *b, int64_t row)
{
    return ((const int64_t *)b->slot[0].values)[row];
}

TEST(batches_go_on_across_files)
{
    int total;
    fl_stream_spec spec = spec_of(20, 50, &total);
    fl_stream *s;
    fl_batch *b;
    int64_t n = 0, batches = 0;

    spec.batch_size = 64;
    CHECK_OK(fl_stream_open(&s, &spec));
    while (fl_stream_next(s, &b) == FLEET_OK) {
        CHECK_INT(b->index, batches++);
        CHECK_INT(b->rows, total - n < 64 ? total - n : 64);
        for (int64_t i = 0; i < b->rows; i++, n++) {
            const int64_t *from = b->slot[1].offsets + i;

            CHECK_INT(first_id(b, i), n);
            CHECK_INT(from[1] - from[0], 1 + n % 5);
            CHECK_INT(((const int64_t *)b->slot[1].values)[from[0]], n * 10);
        }
        fl_stream_release(s, b);
    }
    CHECK_INT(n, total);
    fl_stream_close(s);
}

/* Batches that are passed over: those after them are as they were. */
static void check_tail(fl_stream_spec spec, const data_dump *all, int64_t first)
{
    data_dump tail;

    spec.first_batch = first;
    tail = data_read_n(spec, 3);
    CHECK_STATUS(tail.status, FLEET_EEND);
    CHECK_INT(tail.batches, first < all->batches ? all->batches - first : 0);
    CHECK(tail.size <= all->size);
    if (tail.size > 0)
        CHECK(memcmp(tail.bytes, all->bytes + all->size - tail.size,
                     tail.size) == 0);
    free(tail.bytes);
}

TEST(batches_that_are_passed_over_change_no_other_one)
{
    int total;
    fl_stream_spec spec = spec_of(6, 60, &total);

    spec.batch_size = 7;
    spec.share_count = 2;
    spec.seed = 5;
    for (spec.shuffle = 0; spec.shuffle < 100; spec.shuffle += 33)
        for (spec.share_index = 0; spec.share_index < 2; spec.share_index++) {
            data_dump all = data_read_n(spec, 1);

            CHECK(all.batches > 10);
            check_tail(spec, &all, 1);
            check_tail(spec, &all, 9);
            check_tail(spec, &all, all.batches);
            check_tail(spec, &all, all.batches + 3);
            free(all.bytes);
        }
}

TEST(threads_do_not_change_the_batches)
{
    static const char *const commands[] = {NULL, "cat -", "awk 1"};
    int total;
    fl_stream_spec spec = spec_of(9, 300, &total);

    const int step = TEST_SLOWNESS > 10 ? 2 : 1;

    for (int c = 0; c < DATA_N(commands); c += step)
        for (int64_t shuffle = 0; shuffle < 1000; shuffle = 10 * shuffle + 7)
            for (int64_t share = 0; share < 3; share += step) {
                data_dump one, other;

                spec.pipe_command = commands[c];
                spec.shuffle = shuffle;
                spec.seed = 5;
                spec.share_count = share ? 3 : 1;
                spec.share_index = share;
                spec.batch_size = 10;
                one = data_read_n(spec, 1);
                CHECK_STATUS(one.status, FLEET_EEND);
                for (int n = 2; n < 9; n += 2) {
                    other = data_read_n(spec, n);
                    CHECK(data_same(&one, &other));
                    free(other.bytes);
                }
                free(one.bytes);
            }
}

TEST(every_sample_is_in_just_one_share)
{
    int total, seen = 0;
    fl_stream_spec spec = spec_of(5, 100, &total);
    char *got = calloc(1, (size_t)total);

    spec.batch_size = 7;
    spec.share_count = 4;
    spec.n_thread = 2;
    spec.shuffle = 20;
    for (; spec.share_index < 4; spec.share_index++) {
        fl_stream *s;
        fl_batch *b;
        int64_t index = spec.share_index;

        CHECK_OK(fl_stream_open(&s, &spec));
        for (; fl_stream_next(s, &b) == FLEET_OK; index += 4) {
            CHECK_INT(b->index, index);
            for (int64_t i = 0; i < b->rows; i++) {
                CHECK(!got[first_id(b, i)]);
                got[first_id(b, i)] = 1;
                seen++;
            }
            fl_stream_release(s, b);
        }
        fl_stream_close(s);
    }
    CHECK_INT(seen, total);
    free(got);
}

/* --- shuffle -------------------------------------------------------------- */

/* The ids in their order. */
static int *order_of(fl_stream_spec spec, int total)
{
    int *order = malloc((size_t)total * sizeof *order), n = 0;
    fl_stream *s;
    fl_batch *b;

    CHECK_OK(fl_stream_open(&s, &spec));
    while (fl_stream_next(s, &b) == FLEET_OK) {
        for (int64_t i = 0; i < b->rows; i++)
            order[n++] = (int)first_id(b, i);
        fl_stream_release(s, b);
    }
    fl_stream_close(s);
    CHECK_INT(n, total);
    return order;
}

TEST(a_shuffle_is_a_permutation_and_a_function_of_its_seed)
{
    int total, *a, *b, *c, moved = 0, differ = 0;
    fl_stream_spec spec = spec_of(4, 500, &total);
    char *seen = calloc(1, (size_t)total);

    spec.shuffle = 100;
    spec.seed = 1;
    a = order_of(spec, total);
    spec.batch_size = 33;
    spec.n_thread = 3;
    b = order_of(spec, total);
    spec.seed = 2;
    c = order_of(spec, total);
    for (int i = 0; i < total; i++) {
        CHECK(!seen[a[i]]);
        seen[a[i]] = 1;
        CHECK_INT(a[i], b[i]);
        differ += a[i] != c[i];
        moved += a[i] != i;
        CHECK(a[i] <= i + 100); /* it cannot come before it was read */
    }
    CHECK(moved > total * 9 / 10);
    CHECK(differ > total * 9 / 10);
    free(a);
    free(b);
    free(c);
    free(seen);
}

TEST(a_buffer_that_holds_all_shuffles_all)
{
    int total, *a, first_half = 0;
    fl_stream_spec spec = spec_of(3, 700, &total);

    spec.shuffle = 1000000;
    a = order_of(spec, total);
    for (int i = 0; i < total / 2; i++)
        first_half += a[i] < total / 2;
    CHECK(first_half > total / 5 && first_half < total * 3 / 10);
    free(a);
    spec.shuffle = 1; /* changes nothing */
    a = order_of(spec, total);
    for (int i = 0; i < total; i++)
        CHECK_INT(a[i], i);
    free(a);
}

/* Each of the samples should come first about equally often. */
TEST(a_shuffle_is_fair)
{
    int total, *a, count[10] = {0};
    fl_stream_spec spec;

    files[0] = samples("ten", 0, 10, false);
    spec = data_spec(FLEET_MULTISLOT, slots, DATA_N(slots), files, 1);
    total = 10;
    spec.shuffle = 10;
    if (TEST_SLOWNESS > 10)
        test_skip("a shuffle of ten has no threads");
    for (spec.seed = 0; spec.seed < 1000; spec.seed++) {
        a = order_of(spec, total);
        count[a[0]]++;
        free(a);
    }
    for (int i = 0; i < 10; i++)
        CHECK(count[i] > 60 && count[i] < 140);
}

/* --- odd files ------------------------------------------------------------ */

TEST(without_a_sample_the_end_comes_at_once)
{
    const char *empty[] = {test_file("a", ""), test_file("b", "\n \r\n\t\n"),
                           data_gz("c.gz", "", 0)};
    fl_stream_spec spec =
        data_spec(FLEET_MULTISLOT, slots, DATA_N(slots), empty, 3);

    for (int n = 0; n <= 3; n++)
        for (int64_t shuffle = 0; shuffle < 10; shuffle += 5) {
            data_dump d;

            spec.n_file = n;
            spec.shuffle = shuffle;
            d = data_read_n(spec, 1 + n);
            CHECK_STATUS(d.status, FLEET_EEND);
            CHECK_INT(d.batches, 0);
        }
}

TEST(many_small_files_are_one_stream)
{
    int total = 0;
    fl_stream_spec spec = spec_of(600, 2, &total);
    data_dump one, other;

    spec.batch_size = 32;
    one = data_read_n(spec, 1);
    CHECK_STATUS(one.status, FLEET_EEND);
    CHECK_INT(one.rows, total);
    other = data_read_n(spec, 4);
    CHECK(data_same(&one, &other));
    spec.n_file = 60;
    spec.pipe_command = "cat -";
    one = data_read_n(spec, 1);
    other = data_read_n(spec, 4);
    CHECK_STATUS(one.status, FLEET_EEND);
    CHECK(data_same(&one, &other));
}

/* Lines on every side of the ends of the blocks that are read. */
TEST(lines_may_cross_blocks)
{
    static const fleet_slot slot = {
        .name = "x", .dtype = FLEET_INT64, .dim = -1};
    const size_t size = (size_t)5 << 20;
    char *text = malloc(size + 100), *s = text;
    uint64_t state = 3;
    int64_t rows = 0, sum = 0;
    fl_stream_spec spec;
    fl_stream *stream;
    fl_batch *b;

    while ((size_t)(s - text) < size - (2 << 20)) {
        int n = 1 + (int)(data_random(&state) % (rows % 100 ? 20 : 40000));

        s += sprintf(s, "%d", n);
        for (int i = 0; i < n; i++)
            s += sprintf(s, " %d", n % 10);
        *s++ = '\n';
        sum += (int64_t)n * (n % 10);
        rows++;
    }
    files[0] = test_file_bytes("long", text, (size_t)(s - text));
    spec = data_spec(FLEET_MULTISLOT, &slot, 1, files, 1);
    for (int round = 0; round < 6; round++) {
        spec.n_thread = 1 + round % 2 * 3;
        spec.pipe_command = round / 2 == 1 ? "cat -" : NULL;
        spec.shuffle = round / 2 == 2 ? 50 : 0;
        spec.batch_size = 3 + round;
        CHECK_OK(fl_stream_open(&stream, &spec));
        int64_t left = sum, n = 0;
        while (fl_stream_next(stream, &b) == FLEET_OK) {
            const int64_t *v = b->slot[0].values;

            for (int64_t i = 0; i < b->slot[0].offsets[b->rows]; i++)
                left -= v[i];
            n += b->rows;
            fl_stream_release(stream, b);
        }
        CHECK_INT(n, rows);
        CHECK_INT(left, 0);
        fl_stream_close(stream);
    }
    free(text);
}

TEST(a_line_without_end_is_an_error)
{
    int total;
    fl_stream_spec spec = spec_of(1, 10, &total);

    spec.pipe_command = "cat; yes 1 | tr -d '\\n'";
    for (spec.n_thread = 1; spec.n_thread < 4; spec.n_thread += 2)
        DATA_FAILS(&spec, FLEET_EFORMAT, files[0], "more than 64 MB");
}

/* --- the caller's side ---------------------------------------------------- */

TEST(an_error_comes_after_the_batches_before_it_and_again)
{
    int total;
    fl_stream_spec spec = spec_of(6, 100, &total);
    data_dump one, other;

    files[3] = test_file("bad", "1 5 1 6 1 x\n");
    spec.batch_size = 10;
    for (spec.shuffle = 0; spec.shuffle < 100; spec.shuffle += 60) {
        one = data_read_n(spec, 1);
        other = data_read_n(spec, 4);
        CHECK_STATUS(one.status, FLEET_EFORMAT);
        CHECK_CONTAINS(one.error, "/bad:1: slot \"x\"");
        CHECK(one.batches > 3);
        CHECK(data_same(&one, &other));
    }
}

TEST(four_batches_may_be_held)
{
    int total;
    fl_stream_spec spec = spec_of(4, 100, &total);
    fl_batch *held[5];
    fl_stream *s;

    spec.n_thread = 2;
    CHECK_OK(fl_stream_open(&s, &spec));
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 4; i++)
            CHECK_OK(fl_stream_next(s, &held[i]));
        CHECK_FAILS(fl_stream_next(s, &held[4]), FLEET_ESTATE, "held");
        CHECK(held[4] == NULL);
        for (int i = 0; i < 4; i++)
            CHECK_INT(first_id(held[i], 0), 8 * round + 2 * i);
        for (int i = 3; i >= 0; i--)
            fl_stream_release(s, held[i]);
        fl_stream_release(s, NULL);
    }
    CHECK_OK(fl_stream_next(s, &held[0])); /* and be held until the end */
    fl_stream_close(s);
    fl_stream_close(NULL);
}

TEST(a_stream_can_be_closed_at_any_time)
{
    static const char *const commands[] = {NULL, "cat -", "sleep 9; cat",
                                           "cat; sleep 9", "yes"};
    int total, fds = data_open_fds();
    fl_stream_spec spec = spec_of(12, 200, &total);
    uint64_t state = 9;

    for (int round = 0; round < 120 / test_fraction(); round++) {
        int n = (int)(data_random(&state) % 20);
        fl_stream *s;
        fl_batch *b;

        spec.n_thread = 1 + round % 5;
        spec.shuffle = round % 3 * 40;
        spec.pipe_command = commands[round % DATA_N(commands)];
        CHECK_OK(fl_stream_open(&s, &spec));
        if (round % DATA_N(commands) < 2)
            while (n-- > 0 && fl_stream_next(s, &b) == FLEET_OK)
                fl_stream_release(s, b);
        else
            usleep((unsigned)(data_random(&state) % 4000));
        fl_stream_close(s);
        CHECK(!data_children());
        CHECK_INT(data_open_fds(), fds);
    }
}

TEST(a_stream_stays_with_its_process)
{
    int total, ends[2];
    fl_stream_spec spec = spec_of(3, 100, &total);
    fleet_status got = FLEET_OK;
    fl_stream *s;
    fl_batch *b;
    pid_t child;

    spec.pipe_command = "cat -";
    CHECK_OK(fl_stream_open(&s, &spec));
    CHECK_OK(fl_stream_next(s, &b));
    CHECK(pipe(ends) == 0);
    child = fork();
    if (child == 0) {
        got = fl_stream_next(s, &b);
        fl_stream_release(s, b);
        fl_stream_close(s);
        CHECK(write(ends[1], &got, sizeof got) == sizeof got);
        _exit(0);
    }
    CHECK(read(ends[0], &got, sizeof got) == sizeof got);
    CHECK_STATUS(got, FLEET_ESTATE);
    waitpid(child, NULL, 0);
    fl_stream_release(s, b);
    CHECK_OK(fl_stream_next(s, &b));
    CHECK_INT(first_id(b, 0), 2);
    fl_stream_close(s);
}

/* --- memory --------------------------------------------------------------- */

TEST(once_settled_batches_need_no_memory)
{
    enum { LINES = 40000 };
    char *text = malloc((size_t)LINES * 40), *s = text;
    fl_stream_spec spec;

    for (int i = 0; i < LINES; i++)
        s += sprintf(s, "1 %d 3 1 2 3 1 %d\n", 100000 + i, i % 9);
    files[0] = test_file_bytes("even", text, (size_t)(s - text));
    spec = data_spec(FLEET_MULTISLOT, slots, DATA_N(slots), files, 1);
    spec.batch_size = 16;
    for (int round = 0; round < 4; round++) {
        fl_stream *stream;
        fl_batch *b;
        int n = 0;

        spec.n_thread = 1 + round % 2;
        spec.shuffle = round / 2 * 100;
        CHECK_OK(fl_stream_open(&stream, &spec));
        for (; fl_stream_next(stream, &b) == FLEET_OK; n++) {
            fl_stream_release(stream, b);
            if (n == LINES / 16 / 2)
                fl_memory_fail_at(0, false); /* counts from here */
        }
        CHECK_INT(n, LINES / 16);
        CHECK(fl_memory_count() < n / 100); /* a box or block used late */
        fl_stream_close(stream);
    }
    free(text);
}

TEST(without_memory_a_stream_ends_with_an_error)
{
    const int step = 1 + (test_fraction() > 1) * 6;
    int total, fds = data_open_fds();
    fl_stream_spec spec = spec_of(4, 10, &total);

    for (int round = 0; round < 4; round++) {
        fleet_status status = FLEET_ENOMEM;

        spec.n_thread = 1 + round % 2 * 2;
        spec.shuffle = round % 2 * 5;
        spec.pipe_command = round / 2 ? "cat -" : NULL;
        for (int n = 1; status == FLEET_ENOMEM; n += step) {
            data_dump d;

            fl_memory_fail_at(n, n % 2);
            d = data_read(&spec);
            fl_memory_fail_at(0, false);
            status = d.status;
            if (status != FLEET_ENOMEM)
                CHECK_STATUS(status, FLEET_EEND);
            free(d.bytes);
            CHECK(!data_children());
            CHECK_INT(data_open_fds(), fds);
        }
    }
}
