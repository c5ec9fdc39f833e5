/* leases_test.c - streams whose batches come by leases: together they have each
 * batch once, whoever gets which lease; one that goes on has the rest. */
#define SUITE leases
#include "data_kit.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"

enum { LINES = 1003, MOST = 300, WORKERS = 3 };

static const fleet_slot slots[] = {
    {.name = "n", .dtype = FLEET_INT64, .dim = 1}};

/* Who asks, and the leases that it was given. */
typedef struct asker {
    int64_t *next, lease[MOST];
    int64_t n; /* leases that it has */
    int asked;
    bool backwards;
} asker;

static fleet_status next_lease(void *job, int64_t number, int64_t *lease)
{
    asker *a = job;

    a->asked++;
    if (a->backwards && number == 2) {
        *lease = a->lease[1];
        return FLEET_OK;
    }
    CHECK(number <= a->n && number < MOST);
    if (number == a->n)
        a->lease[a->n++] = (*a->next)++;
    *lease = a->lease[number];
    return FLEET_OK;
}

static fleet_status well(void *job)
{
    (void)job;
    return FLEET_OK;
}

static fl_stream_spec spec_of(asker *a, int64_t batches)
{
    static const char *file;
    char *text = malloc((size_t)LINES * 12), *end = text;
    fl_stream_spec spec;

    for (int i = 0; i < LINES; i++)
        end += sprintf(end, "1 %d\n", i);
    file = test_file("lines.txt", text);
    free(text);
    spec = data_spec(FLEET_MULTISLOT, slots, DATA_N(slots), &file, 1);
    spec.batch_size = 4;
    spec.next_lease = next_lease;
    spec.lease_batches = batches;
    spec.job_status = well;
    spec.job = a;
    return spec;
}

static void count_rows(const fl_batch *b, int *seen)
{
    const int64_t *n = b->slot[0].values;

    for (int64_t i = 0; i < b->rows; i++)
        seen[n[i]]++;
}

static void check_each_once(const int *seen)
{
    for (int i = 0; i < LINES; i++)
        CHECK_INT(seen[i], 1);
}

/* Streams that are read in turn, as the seed has it, each until its end; what a
 * lease has is read before the next one is asked for. */
static void share_out(int64_t batches, int n_thread, int64_t shuffle,
                      uint64_t seed)
{
    int64_t next = 0, had[WORKERS] = {0};
    int seen[LINES] = {0}, open = WORKERS;
    asker a[WORKERS];
    fl_stream *s[WORKERS];
    fl_batch *b;

    memset(a, 0, sizeof a);
    for (int i = 0; i < WORKERS; i++) {
        fl_stream_spec spec = spec_of(&a[i], batches);

        a[i].next = &next;
        spec.n_thread = n_thread;
        spec.shuffle = shuffle;
        spec.seed = seed;
        CHECK_OK(fl_stream_open(&s[i], &spec));
    }
    for (uint64_t t = 0; open > 0; t++) {
        /* worker 0 ten times as often as all others */
        uint64_t luck = fl_rng_below(seed, 9, t, 10 + WORKERS - 1);
        int i = luck < 10 ? 0 : (int)luck - 9;
        fleet_status status;

        if (!s[i])
            continue;
        status = fl_stream_next(s[i], &b);
        if (status == FLEET_EEND) {
            fl_stream_close(s[i]);
            s[i] = NULL;
            open--;
            continue;
        }
        CHECK_OK(status);
        count_rows(b, seen);
        had[i]++;
        CHECK_INT(a[i].n, (had[i] - 1) / batches + 1);
        fl_stream_release(s[i], b);
    }
    check_each_once(seen);
    for (int i = 1; i < WORKERS; i++)
        CHECK(had[0] > 2 * had[i]);
}

TEST(streams_have_each_line_once_and_a_slow_one_has_fewer)
{
    share_out(1, 1, 0, 1);
    share_out(3, 1, 0, 2);
    share_out(7, 3, 0, 3);
    share_out(2, 2, 100, 4);
    share_out(1000, 1, 0, 6); /* all is one worker's */
}

/* The order within a lease is that of the pass, shuffled or not. */
TEST(the_leases_of_one_stream_are_the_pass_as_it_is)
{
    for (int64_t shuffle = 0; shuffle <= 100; shuffle += 100) {
        int64_t next = 0;
        asker a = {.next = &next};
        fl_stream_spec spec = spec_of(&a, 5), all;
        data_dump x, y;

        spec.shuffle = shuffle;
        spec.seed = 3;
        all = spec;
        all.next_lease = NULL;
        x = data_read(&spec);
        y = data_read(&all);
        CHECK(data_same(&x, &y));
        CHECK_INT(x.rows, LINES);
    }
}

/* A cache that is missing is made of the whole file, without a question. */
TEST(leases_are_of_a_cache_as_of_its_file)
{
    int64_t next = 0;
    asker a = {.next = &next};
    fl_cache_state state = {0};
    fl_stream_spec spec = spec_of(&a, 5), text = spec;
    data_dump x, y;

    text.next_lease = NULL;
    spec.cache = &state;
    x = data_read(&spec);
    y = data_read(&text);
    CHECK(data_same(&x, &y));
    CHECK_INT(x.rows, LINES);
    CHECK_INT(a.n, (LINES + 3) / 4 / 5 + 1);
    fl_free(state.whole);
}

/* It has leases 1, 4 and 5, say, asks for them once more, and has the batches
 * behind those that it passes over, also where they are parsed for it. */
TEST(a_stream_that_goes_on_asks_for_its_leases_again)
{
    static const int place[] = {2, 3, 8, 9, 10, 11, 12, 13, 14};

    for (int64_t first = 0; first < 9; first++)
        for (int drops = 0; drops < 2; drops++) {
            int64_t next = 6;
            asker a = {.next = &next, .lease = {1, 4, 5}, .n = 3};
            fl_stream_spec spec = spec_of(&a, 2);
            fl_stream *s;
            fl_batch *b;

            spec.first_batch = first;
            spec.max_bad_lines = drops;
            CHECK_OK(fl_stream_open(&s, &spec));
            CHECK_OK(fl_stream_next(s, &b));
            CHECK_INT(b->index, place[first]);
            CHECK_INT(a.asked, first / 2 + 1);
            fl_stream_release(s, b);
            fl_stream_close(s);
        }
}

TEST(a_stream_that_waits_for_its_lease_can_be_closed)
{
    int64_t next = 0;
    asker a = {.next = &next};
    fl_stream_spec spec = spec_of(&a, 1);
    fl_stream *s;
    fl_batch *b;

    spec.n_thread = 3;
    CHECK_OK(fl_stream_open(&s, &spec));
    fl_stream_close(s); /* none was asked for */
    CHECK_INT(a.asked, 0);
    CHECK_OK(fl_stream_open(&s, &spec));
    CHECK_OK(fl_stream_next(s, &b));
    CHECK_INT(a.asked, 1);
    fl_stream_close(s);
}

TEST(a_lease_that_lies_behind_another_one_is_no_lease)
{
    int64_t next = 0;
    asker a = {.next = &next, .backwards = true};
    fl_stream_spec spec = spec_of(&a, 1);
    fl_stream *s;
    fl_batch *b;

    CHECK_OK(fl_stream_open(&s, &spec));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(fl_stream_next(s, &b));
        fl_stream_release(s, b);
    }
    CHECK_FAILS(fl_stream_next(s, &b), FLEET_EFORMAT,
                "lease 1 of the data has come behind lease 1");
    fl_stream_close(s);
}

TEST(memory_that_runs_out_ends_a_stream_by_leases)
{
    int64_t next = 0;
    asker a = {.next = &next};
    fl_stream_spec spec = spec_of(&a, 100);

    data_check_memory(&spec, LINES);
}
