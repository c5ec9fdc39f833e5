/* nccl_test.c - ranks on GPUs: the kit of groups on the emulated device and the
 * emulated NCCL (with FLEET_TEST_DEVICE: on real ones), and how NCCL fails. */
#define SUITE nccl
#include "cuda-emu/control.h"
#include "device_kit.h"
#include "nccl_kit.h"
#include "rank_keys_kit.h"
#include "test.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "collective/nccl/nccl_internal.h"
#include "collective/nccl/nccl_options.h"

static const comm_kit_way apart = {"processes", false, &nccl_place},
                          apart_ordered = {"processes", true, &nccl_place},
                          threads = {"threads", false, &nccl_place},
                          threads_ordered = {"threads", true, &nccl_place},
                          host = {"threads", false, &nccl_host_place},
                          host_apart = {"processes", false, &nccl_host_place},
                          keys_apart = {"processes", false, &nccl_keys_place},
                          keys = {"threads", false, &nccl_keys_place};

/* Ranks of one process would share its queue of a real GPU. */
static void run_ranks(const comm_kit_part *part, comm_kit_way way, int size)
{
    if (strcmp(way.name, "threads") == 0 && !device_kit_is_emulated())
        device_kit_need_gpus(size, false);
    comm_kit_run(part, way, size);
}

/* Threads show lost memory and races. */
#define HEALTHY(part)                                                          \
    TEST_LIMIT(ranks_do_##part, 240)                                           \
    {                                                                          \
        comm_kit_run_sizes(#part, apart, 1);                                   \
    }                                                                          \
    TEST_LIMIT(ranks_in_threads_do_##part, 120)                                \
    {                                                                          \
        run_ranks(comm_kit_part_named(#part), threads, 3);                     \
    }
HEALTHY(reductions)
HEALTHY(moves)
HEALTHY(messages)
HEALTHY(works)
HEALTHY(forgotten)
HEALTHY(memory)
HEALTHY(split)
HEALTHY(refusals)

/* 64 MB of each type: copied to the GPU and back, they take their time. */
TEST_LIMIT(ranks_do_large, 240)
{
    run_ranks(comm_kit_part_named("large"), apart, 2);
}

TEST_LIMIT(ranks_in_threads_do_large_scatter, 240)
{
    run_ranks(comm_kit_part_named("large_scatter"), threads, 3);
}

TEST_LIMIT(ranks_keep_an_order, 240)
{
    comm_kit_run_sizes("reductions", apart_ordered, 1);
}

TEST_LIMIT(ranks_in_threads_keep_an_order, 120)
{
    run_ranks(comm_kit_part_named("reductions"), threads_ordered, 3);
}

/* The same, of what lies in the host's memory. get_memory() gives a GPU's. */
#define OF_THE_HOST(part)                                                      \
    TEST_LIMIT(ranks_do_##part##_of_the_host, 120)                             \
    {                                                                          \
        run_ranks(comm_kit_part_named(#part), host, 1);                        \
        run_ranks(comm_kit_part_named(#part), host, 3);                        \
    }
OF_THE_HOST(reductions)
OF_THE_HOST(moves)
OF_THE_HOST(messages)
OF_THE_HOST(works)
OF_THE_HOST(forgotten)
OF_THE_HOST(split)

#define WITH_KEYS(part)                                                        \
    TEST_LIMIT(ranks_with_keys_do_##part, 120)                                 \
    {                                                                          \
        rank_keys_need();                                                      \
        run_ranks(comm_kit_part_named(#part), keys_apart, 3);                  \
        run_ranks(comm_kit_part_named(#part), keys, 3);                        \
    }
WITH_KEYS(messages)
WITH_KEYS(works)
WITH_KEYS(split)
WITH_KEYS(refusals)

#define FAILING(part)                                                          \
    TEST_LIMIT(ranks_see_##part, 60)                                           \
    {                                                                          \
        comm_kit_run_sizes(#part, apart, 2);                                   \
    }
FAILING(sizes_differ)
FAILING(large_and_small)
FAILING(types_differ)
FAILING(calls_differ)
FAILING(order_differs)
FAILING(roots_differ)
FAILING(messages_differ)
FAILING(pairs_differ)
FAILING(one_gives_up)
FAILING(one_gives_up_later)
FAILING(one_stays_away)
FAILING(one_splits_late)
FAILING(no_message_comes)
FAILING(one_is_killed)

/* Not the emulated NCCL's threads, but ranks in processes of their own. */
TEST_LIMIT(ranks_go_on_when_all_are_stopped, 60)
{
    run_ranks(comm_kit_part_named("all_are_stopped"), apart, 2);
}

/* --- how NCCL fails ------------------------------------------------------ */

enum { SHORT_MS = 1500 };

static bool is_last(const fl_comm *p)
{
    return p->rank == p->size - 1;
}

static fleet_status reduce(fl_comm *p)
{
    float x[100] = {0};

    return p->methods->all_reduce(p, FL_ALL_SUM, FL_WIRE_F32, x, x, 100, NULL);
}

static void last_one_meets_an_error(fl_comm *p)
{
    CHECK_OK(p->methods->barrier(p));
    if (is_last(p))
        nccl_kit_fault(FL_NCCL_EMU_FAILS);
    CHECK_FAILS(reduce(p), FLEET_EPEER, "as the test has asked for");
    CHECK_FAILS(p->methods->barrier(p), FLEET_EPEER, "as the test has");
}

static void last_one_hangs(fl_comm *p)
{
    int64_t began = fl_now_ms();

    CHECK_OK(p->methods->barrier(p));
    if (is_last(p))
        nccl_kit_fault(FL_NCCL_EMU_HANGS);
    CHECK_FAILS(reduce(p), FLEET_ETIMEDOUT,
                "all_reduce(sum of 100 f32) of rank");
    CHECK_CONTAINS(fleet_last_error(), "was not done within");
    CHECK(fl_now_ms() - began < 2 * p->deadline_ms);
}

static void last_one_dies_inside(fl_comm *p)
{
    int64_t began = fl_now_ms();
    float x[100] = {0};
    fl_work *work;

    CHECK_OK(p->methods->barrier(p));
    if (is_last(p)) {
        nccl_kit_fault(FL_NCCL_EMU_HANGS);
        CHECK_OK(p->methods->all_reduce(p, FL_ALL_SUM, FL_WIRE_F32, x, x, 100,
                                        &work));
        while (nccl_kit_begun() == 0)
            usleep(1000);
        raise(SIGKILL);
    }
    CHECK_FAILS(reduce(p), FLEET_EPEER, "is dead or cut off");
    CHECK(fl_now_ms() - began < p->deadline_ms / 2);
    CHECK_INT(fl_emu_waiting(), 0); /* x is the caller's again */
}

/* A message that both have posted hangs: it is over on the GPU, too, when the
 * call has failed, although the group has not ended. */
static void a_message_hangs(fl_comm *p)
{
    char x[100] = {0};

    CHECK_OK(p->methods->barrier(p));
    nccl_kit_fault(FL_NCCL_EMU_HANGS);
    if (p->rank == 0)
        CHECK(p->methods->send(p, x, sizeof x, 1, NULL) != FLEET_OK);
    else
        CHECK(p->methods->recv(p, x, sizeof x, 0, NULL) != FLEET_OK);
    CHECK_CONTAINS(fleet_last_error(), "did not come within");
    CHECK_INT(nccl_kit_live(), 0);
}

/* An abort that does not return is left alone. */
static void an_abort_hangs(fl_comm *p)
{
    int64_t began = fl_now_ms();

    CHECK_OK(p->methods->barrier(p));
    nccl_kit_fault(FL_NCCL_EMU_DEAF);
    CHECK_FAILS(reduce(p), FLEET_ETIMEDOUT, "was not done within");
    CHECK(fl_now_ms() - began < 3 * p->deadline_ms + 3000);
}

static const comm_kit_part error = {.name = "error",
                                    .run = last_one_meets_an_error,
                                    .fails = true},
                           hang = {.name = "hang",
                                   .run = last_one_hangs,
                                   .fails = true,
                                   .deadline_ms = SHORT_MS},
                           death = {.name = "death",
                                    .run = last_one_dies_inside,
                                    .fails = true,
                                    .is_killed = true,
                                    .deadline_ms = 4000};

static const comm_kit_part message_hang = {.name = "message_hang",
                                           .run = a_message_hangs,
                                           .fails = true,
                                           .deadline_ms = SHORT_MS},
                           abort_hang = {.name = "abort_hang",
                                         .run = an_abort_hangs,
                                         .fails = true,
                                         .deadline_ms = SHORT_MS};

static void needs_emulation(void)
{
    if (!device_kit_is_emulated())
        test_skip("only the emulated NCCL does what this test asks for");
}

TEST(an_error_of_its_own_becomes_that_of_all_ranks)
{
    needs_emulation();
    for (int size = 2; size <= 4; size++)
        run_ranks(&error, apart, size);
}

/* Also behind other work on the queue: sums in an order are made of exchanges,
 * and what lies in the host's memory is copied. */
static void run_ways(const comm_kit_part *part)
{
    const struct {
        comm_kit_way way;
        int size;
    } of[] = {{apart, 2}, {apart, 4}, {apart_ordered, 3}, {host_apart, 3}};
    enum { N = sizeof of / sizeof *of };
    pid_t child[N];

    needs_emulation();
    for (int i = 0; i < N; i++)
        child[i] = comm_kit_begin(part, of[i].way, of[i].size);
    for (int i = 0; i < N; i++)
        comm_kit_end(part, child[i]);
}

TEST(what_hangs_ends_at_the_deadline)
{
    run_ways(&hang);
}

TEST(a_message_that_hangs_is_aborted)
{
    needs_emulation();
    run_ranks(&message_hang, apart, 2);
}

TEST(an_abort_that_hangs_is_not_waited_for)
{
    needs_emulation();
    run_ranks(&abort_hang, apart, 2);
}

TEST(a_rank_that_dies_inside_a_call_is_named_at_once)
{
    run_ways(&death);
}

static void nothing(fl_comm *p)
{
    CHECK_OK(p->methods->barrier(p));
}

/* --- rank 0 leaves first ------------------------------------------------- */

/* Long after rank 0 has returned the other ranks find each other, by what runs
 * in its process. */
static void messages_go_on_without_rank_0(fl_comm *p)
{
    char x[100] = {0};

    CHECK_OK(p->methods->barrier(p));
    if (p->rank == 0)
        return;
    usleep(100000);
    for (int i = 0; i < 20; i++) {
        int other = 3 - p->rank;

        if (p->rank == 1)
            CHECK_OK(p->methods->send(p, x, sizeof x, other, NULL));
        CHECK_OK(p->methods->recv(p, x, sizeof x, other, NULL));
        if (p->rank == 2)
            CHECK_OK(p->methods->send(p, x, sizeof x, other, NULL));
    }
}

/* Rank 2 says nothing for longer than the server waits for it. */
static void a_message_that_never_comes(fl_comm *p)
{
    int64_t began = fl_now_ms();
    char x;

    CHECK_OK(p->methods->barrier(p));
    if (p->rank == 1)
        CHECK_FAILS(p->methods->recv(p, &x, 1, 2, NULL), FLEET_EPEER,
                    "rank 0 has ended its group");
    if (p->rank == 2)
        usleep(3000000);
    CHECK(fl_now_ms() - began < p->deadline_ms / 2);
}

static const comm_kit_part go_on = {.name = "go_on",
                                    .run = messages_go_on_without_rank_0},
                           in_vain = {.name = "in_vain",
                                      .run = a_message_that_never_comes,
                                      .deadline_ms = 40000};

TEST(messages_of_other_ranks_go_on_when_rank_0_has_left)
{
    run_ranks(&go_on, apart, 3);
}

TEST(a_message_that_nobody_matches_ends_soon_after_rank_0)
{
    run_ranks(&in_vain, apart, 3);
}

TEST(nothing_is_left_when_groups_have_ended)
{
    const comm_kit_part part = {.name = "nothing", .run = nothing};

    needs_emulation();
    run_ranks(&part, threads, 3);
    run_ranks(comm_kit_part_named("one_gives_up"), threads, 3);
    CHECK_INT(nccl_kit_live(), 0);
    CHECK_INT((int64_t)fl_emu_live_bytes(), 0);
}

/* --- what is missing ----------------------------------------------------- */

static const fl_comm_options alone = {.deadline_ms = SHORT_MS};

static void check_refused(const fl_comm_options *o, fleet_status code,
                          const char *words)
{
    fl_comm *p;

    CHECK_FAILS(fl_nccl_open(o, &p), code, words);
    CHECK(p == NULL);
}

TEST(without_the_library_it_says_where_it_looked)
{
    needs_emulation();
    setenv("FLEET_NCCL_PATH", "/nowhere", 1);
    check_refused(&alone, FLEET_EUNSUPPORTED, "/nowhere/libnccl.so.2");
    CHECK_CONTAINS(fleet_last_error(), "FLEET_NCCL_PATH");
}

TEST(a_library_that_is_too_old_is_refused)
{
    needs_emulation();
    nccl_kit_use("nccl-old", 1);
    check_refused(&alone, FLEET_EUNSUPPORTED, "version code 21212");
    CHECK_CONTAINS(fleet_last_error(), "2.14");
}

TEST(a_library_that_lacks_a_function_is_refused)
{
    needs_emulation();
    nccl_kit_use("nccl-less", 1);
    check_refused(&alone, FLEET_EUNSUPPORTED, "ncclGetLastError");
}

TEST(a_library_for_real_gpus_is_refused_by_emulated_ones)
{
    needs_emulation();
    setenv("FLEET_NCCL_PATH", test_beside("nccl-other"), 1);
    check_refused(&alone, FLEET_EUNSUPPORTED, "these GPUs are emulated, and /");
    CHECK_CONTAINS(fleet_last_error(),
                   "nccl-other/libnccl.so.2 is not for such: expected "
                   "FLEET_NCCL_PATH to be the folder");
}

TEST(a_device_that_is_not_there_is_named)
{
    fl_comm_options o = alone;

    needs_emulation();
    nccl_kit_use("nccl", 1);
    o.device = 3;
    check_refused(&o, FLEET_ENODEVICE, "rank 0 has no device 3");
}

TEST(what_cannot_be_asked_for_is_refused)
{
    fl_comm_options o = alone;
    char name[200];

    needs_emulation();
    nccl_kit_use("nccl", 1);
    o.size = 2;
    o.rank = 2;
    check_refused(&o, FLEET_EINVAL, "rank 2 of 2");
    o.rank = 0;
    check_refused(&o, FLEET_EINVAL, "cannot meet at");
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = 0;
    o.job = name;
    check_refused(&o, FLEET_EINVAL, "199 characters");
}

TEST(an_environment_that_takes_deadlines_away_is_refused)
{
    needs_emulation();
    nccl_kit_use("nccl", 1);
    setenv("NCCL_COMM_BLOCKING", "1", 1);
    check_refused(&alone, FLEET_EUNSUPPORTED, "NCCL_COMM_BLOCKING=1");
    unsetenv("NCCL_COMM_BLOCKING");
}

TEST(a_start_that_does_not_end_ends_at_the_deadline)
{
    needs_emulation();
    nccl_kit_use("nccl", 1);
    nccl_kit_fault(FL_NCCL_EMU_SLOW_START);
    check_refused(&alone, FLEET_ETIMEDOUT, "ncclCommInitRankConfig");
    CHECK_INT(nccl_kit_live(), 0);
}

/* --- a caller's stream --------------------------------------------------- */

/* What is queued behind work of others on it is not done before that is. */
TEST(a_call_comes_after_what_the_caller_has_queued)
{
    const float before = 1, later = 2;
    fl_work *work;
    device_kit k;
    float *in, *out;
    fl_comm *p;

    needs_emulation();
    nccl_kit_use("nccl", 1);
    device_kit_open(&k, true);
    in = device_kit_make(&k, &before, sizeof before);
    out = device_kit_make(&k, &before, sizeof before);
    CHECK_OK(fl_nccl_open(&alone, &p));
    fl_emu_stream_begin(k.q);
    CHECK_OK(p->methods->after(p, k.q));
    CHECK_OK(
        p->methods->all_reduce(p, FL_ALL_SUM, FL_WIRE_F32, in, out, 1, &work));
    usleep(30000); /* for a call that does not wait to show it */
    memcpy(in, &later, sizeof later);
    fl_emu_stream_end(k.q);
    CHECK_OK(p->methods->wait(p, &work));
    CHECK(*out == later);
    p->methods->destroy(p);
    device_kit_drop(&k, in);
    device_kit_drop(&k, out);
    device_kit_close(&k);
}
