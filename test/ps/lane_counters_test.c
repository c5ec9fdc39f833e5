/* lane_counters_test.c - a lane's numbers have names that programs can rely on,
 * and another thread may read them at any time. */
#define SUITE lane_counters
#include "base/clock.h"
#include "fleet/job/handle.h"
#include "lane_kit.h"
#include "ps/host/server.h"
#include "ps_kit.h"
#include "test.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static const char *const names[] = {
#define FL_LANE_COUNTER(field, name) name,
#include "ps/server/lane_counters.def"
#undef FL_LANE_COUNTER
};
enum { N_NAME = sizeof names / sizeof *names };

static uint64_t value_of(const fl_lane_counts *n, const char *name)
{
    uint64_t value = 77;

    CHECK(fl_lane_counts_find(n, name, &value));
    return value;
}

TEST(names_are_of_the_kind_that_prometheus_has)
{
    for (int i = 0; i < N_NAME; i++) {
        size_t n = strlen(names[i]);

        CHECK(strncmp(names[i], "fleet_lane_", 11) == 0);
        CHECK(strcmp(names[i] + n - 6, "_total") == 0 ||
              strcmp(names[i] + n - 6, "_bytes") == 0 ||
              strcmp(names[i] + n - 13, "_microseconds") == 0);
        CHECK_INT(strspn(names[i], "abcdefghijklmnopqrstuvwxyz_0123456789"), n);
        for (int j = 0; j < i; j++)
            CHECK(strcmp(names[i], names[j]) != 0);
    }
}

TEST(each_number_is_found_by_its_name)
{
    const fl_lane_counts n = {.open_bytes = 1,
                              .answer_bytes = 3,
                              .steps = 4,
                              .gaps = 8,
                              .unanswered = 14};
    uint64_t value = 5;

    CHECK_INT(value_of(&n, "fleet_lane_open_bytes"), 1);
    CHECK_INT(value_of(&n, "fleet_lane_answer_bytes"), 3);
    CHECK_INT(value_of(&n, "fleet_lane_steps_total"), 4);
    CHECK_INT(value_of(&n, "fleet_lane_gaps_total"), 8);
    CHECK_INT(value_of(&n, "fleet_lane_unsent_answers_total"), 14);
    for (int i = 0; i < N_NAME; i++)
        CHECK(value_of(&n, names[i]) != 77);
    CHECK(!fl_lane_counts_find(&n, "fleet_lane_open", &value));
    CHECK(!fl_lane_counts_find(&n, "", &value));
    CHECK_INT(value, 5);
}

TEST(counts_of_lanes_add_up)
{
    fl_lane_counts all = {.steps = 1, .unanswered = 2};
    const fl_lane_counts one = {.steps = 10, .unanswered = 20, .open_bytes = 5};

    fl_lane_counts_add(&all, &one);
    CHECK_INT(all.steps, 11);
    CHECK_INT(all.unanswered, 22);
    CHECK_INT(all.open_bytes, 5);
}

/* --- another thread ------------------------------------------------------- */

typedef struct reader {
    const fl_ps_lane *lane;
    atomic_bool stop;
    bool wrong;
    uint64_t most;
} reader;

static void *read_on(void *arg)
{
    reader *r = arg;

    while (!atomic_load(&r->stop)) {
        fl_lane_counts n = fl_lane_counted(r->lane);

        r->wrong = r->wrong || n.steps < r->most || n.open_bytes > 10000 ||
                   n.answer_bytes > 100000;
        r->most = n.steps;
    }
    return NULL;
}

TEST(they_may_be_read_while_the_lane_works)
{
    pthread_t thread;
    reader r = {0};
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, false);
    r.lane = k.lane;
    CHECK(pthread_create(&thread, NULL, read_on, &r) == 0);
    for (uint64_t step = 1; step <= 500; step++) {
        lane_push(&k, 0, step, 5, 1);
        lane_hear_status(&k, 0, FL_ANSWER_OK);
    }
    atomic_store(&r.stop, true);
    pthread_join(thread, NULL);
    CHECK_INT(fl_lane_counted(k.lane).steps, 500);
    CHECK(!r.wrong && r.most <= 500);
    lane_close(&k);
}

TEST(the_longest_slice_is_the_longest_of_any_tick_and_lane)
{
    fl_lane_counts all = {.away = 50}, one;
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, false);
    fl_lane_note_socket(k.lane, 3, 700);
    fl_lane_note_socket(k.lane, 4, 20);
    one = fl_lane_counted(k.lane);
    CHECK_INT(one.away, 700);
    CHECK_INT(one.refused, 4);
    fl_lane_counts_add(&all, &one);
    CHECK_INT(all.away, 700);
    all.away = 900;
    fl_lane_counts_add(&all, &one);
    CHECK_INT(all.away, 900);
    lane_close(&k);
}

/* --- a server ------------------------------------------------------------- */

static _Atomic(struct fl_server *) server;

static fleet_status serve(ps_node *n)
{
    fleet_status status = fleet_init_server(n->s.f, NULL);

    atomic_store(&server, n->s.f->server);
    return status == FLEET_OK ? fleet_run_server(n->s.f) : status;
}

/* A tick notes it. */
static void wait_for_slice(int lane)
{
    fl_wait wait = fl_wait_for(20 * PS_SECOND);
    uint64_t slice = 0;

    while (slice == 0 && fl_wait_left(&wait) > 0) {
        CHECK(fl_server_count(server, lane,
                              "fleet_lane_longest_slice_microseconds", &slice));
        poll(NULL, 0, 5);
    }
    CHECK(slice > 0);
}

/* Steps of one worker, and of each lane. */
static fleet_status work(ps_node *n)
{
    fleet_status status = ps_begin(n);
    uint64_t value;

    if (status == FLEET_OK)
        status = ps_passes(n, 1);
    for (int lane = 0; lane < 2; lane++) {
        CHECK(fl_server_count(server, lane, "fleet_lane_steps_total", &value));
        CHECK(value > 5);
        CHECK(fl_server_count(server, lane, "fleet_lane_open_bytes", &value));
        CHECK_INT(value, 0);
        CHECK(!fl_server_count(server, lane, "fleet_lane_speed", &value));
        wait_for_slice(lane);
    }
    return status == FLEET_OK ? ps_end(n) : status;
}

TEST(a_server_tells_those_of_its_lanes)
{
    ps_job j = {.lanes = 2,
                .serve = serve,
                .work = work,
                .file = {scene_file("a.txt", 320, 1)}};

    ps_run(&j);
    ps_check(&j);
}
