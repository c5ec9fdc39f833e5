/* comm_test.c - groups of ranks: the kit on every implementation. */
#define _GNU_SOURCE
#define SUITE comm
#include "comm_kit.h"
#include "test.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "collective/open.h"
#include "collective/reduce_kernels.h"
#include "collective/shm/shm_internal.h"
#include "collective/single.h"

static const comm_kit_way shm = {"processes", true, &comm_kit_shm},
                          threads = {"threads", true, &comm_kit_shm},
                          mpi = {"mpi", false, NULL},
                          apart = {"mpi-apart", false, NULL},
                          apart_ordered = {"mpi-apart", true, NULL};

/* --- self ---------------------------------------------------------------- */

TEST(one_rank_is_a_group)
{
    fl_comm *p;

    for (const comm_kit_part *part = comm_kit_healthy; part->name; part++) {
        CHECK_OK(fl_comm_open("self", NULL, &p));
        CHECK_INT(p->size, 1);
        part->run(p);
        p->methods->destroy(p);
    }
}

TEST(one_rank_that_gives_up_goes_no_further)
{
    fl_comm *p;

    CHECK_OK(fl_comm_single(&p));
    p->methods->abort(p, "no more");
    p->methods->abort(p, "again");
    CHECK_FAILS(p->methods->barrier(p), FLEET_EPEER, "rank 0 gave up: no more");
    p->methods->destroy(p);
}

TEST(one_rank_is_told_what_it_does_wrong)
{
    int64_t five = 5, six = 6;
    char x[8] = {0}, y[8];
    fl_comm *p;

    CHECK_OK(fl_comm_single(&p));
    CHECK_FAILS(p->methods->recv(p, x, 1, 0, NULL), FLEET_ESTATE, "nothing");
    CHECK_OK(p->methods->send(p, x, 5, 0, NULL));
    CHECK_FAILS(p->methods->recv(p, x, 6, 0, NULL), FLEET_EINVAL,
                "sends 5 bytes to rank 0, which expects 6");
    CHECK_FAILS(p->methods->all_to_all_v(p, x, &five, y, &six, NULL),
                FLEET_EINVAL, "5 bytes for rank 0, which expects 6");
    p->methods->destroy(p);
}

TEST(groups_have_names)
{
    fl_comm *p;

    CHECK_FAILS(fl_comm_open("pigeons", NULL, &p), FLEET_ENOENT, "pigeons");
    CHECK(p == NULL);
    CHECK_FAILS(fl_comm_open("self", &(fl_comm_options){.deadline_ms = -1}, &p),
                FLEET_EINVAL, "a deadline of -1 ms");
}

/* --- how a rank waits ---------------------------------------------------- */

enum { WAITS = 50 };

static int64_t sleeps_of_thread(void)
{
    struct rusage u;

    CHECK_INT(getrusage(RUSAGE_THREAD, &u), 0);
    return u.ru_nvcsw; /* a thread that yields stays in the run queue */
}

/* Waits that were short by the clock, on however busy a machine. */
static void wait_for_a_late_rank(fl_comm *p)
{
    for (int i = 0; i < WAITS; i++) {
        int64_t began, slept;

        CHECK_OK(p->methods->barrier(p));
        began = fl_now_ns();
        while (p->rank == 1 && fl_now_ns() - began < 100000)
            ;
        slept = sleeps_of_thread();
        CHECK_OK(p->methods->barrier(p));
        if (fl_now_ns() - began < 400000)
            CHECK_INT(sleeps_of_thread(), slept);
    }
}

static void need_two_processors(void)
{
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
        test_skip("ranks on one processor sleep at once");
}

TEST(a_rank_does_not_sleep_for_one_that_is_a_little_late)
{
    const comm_kit_part part = {.name = "late", .run = wait_for_a_late_rank};

    need_two_processors();
    comm_kit_run(&part, shm, 2);
}

static int64_t processor_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000000000 + t.tv_nsec;
}

/* A rank that did not yield would wait with the processor that the other one
 * needs. */
static void wait_on_one_processor(fl_comm *p)
{
    int64_t began;
    cpu_set_t cpu;
    size_t first = 0;

    CHECK_INT(sched_getaffinity(0, sizeof cpu, &cpu), 0);
    while (!CPU_ISSET(first, &cpu))
        first++;
    CPU_ZERO(&cpu);
    CPU_SET(first, &cpu);
    CHECK_INT(sched_setaffinity(0, sizeof cpu, &cpu), 0);
    CHECK_OK(p->methods->barrier(p));
    began = processor_ns();
    for (int i = 0; i < WAITS; i++)
        CHECK_OK(p->methods->barrier(p));
    CHECK((processor_ns() - began) / WAITS < 200000);
}

TEST(a_rank_that_waits_lets_others_have_its_processor)
{
    const comm_kit_part part = {.name = "one processor",
                                .run = wait_on_one_processor};

    need_two_processors();
    comm_kit_run(&part, shm, 2);
}

/* --- the arithmetic ------------------------------------------------------ */

static void check_fold(fl_reduce_kernel *folder, fl_reduce how,
                       fl_wire_type type, int64_t n)
{
    enum { N = 3000, RANKS = 4 };
    static char x[RANKS][8 * N], want[8 * N], other[8 * N];
    const void *in[RANKS] = {x[0], x[1], x[2], x[3]};
    void *out[2] = {other, x[1]};

    for (int r = 0; r < RANKS; r++)
        comm_kit_fill(x[r], type, r, n);
    comm_kit_want(want, how, type, RANKS, 0, n);
    folder(&(fl_reduce_args){how, type, in, RANKS, out, 2, n > 1000, n});
    comm_kit_check(other, want, type, n, 0);
    comm_kit_check(x[1], want, type, n, 0);
}

TEST(sums_are_exact_on_every_instruction_set)
{
    for (int i = 0; fl_reduce_all()[i]; i++)
        for (fl_wire_type type = 0; type < FL_N_WIRE; type++)
            for (fl_reduce how = 0; how < FL_N_REDUCE; how++)
                if (how != FL_ALL_MEAN || type < FL_WIRE_I32 ||
                    type > FL_WIRE_U8) {
                    check_fold(fl_reduce_all()[i], how, type, 3000);
                    check_fold(fl_reduce_all()[i], how, type, 17);
                }
}

TEST(half_precision_survives_there_and_back)
{
    static uint16_t x[65536], y[65536];
    const void *in[1] = {x};
    void *out[1] = {y};

    for (int i = 0; i < 65536; i++)
        x[i] = (uint16_t)i;
    for (int i = 0; fl_reduce_all()[i]; i++)
        for (fl_wire_type type = FL_WIRE_F16; type <= FL_WIRE_BF16; type++) {
            fl_reduce_all()[i](&(fl_reduce_args){FL_ALL_SUM, type, in, 1, out,
                                                 1, false, 65536});
            comm_kit_check(y, x, type, 65536, 0);
        }
}

/* --- ranks of one host --------------------------------------------------- */

#define HEALTHY(part)                                                          \
    TEST_LIMIT(ranks_of_shared_memory_do_##part, 120)                          \
    {                                                                          \
        comm_kit_run_sizes(#part, shm, 1);                                     \
    }                                                                          \
    TEST_LIMIT(ranks_in_threads_do_##part, 120)                                \
    {                                                                          \
        comm_kit_run_sizes(#part, threads, 1);                                 \
    }
HEALTHY(reductions)
HEALTHY(moves)
HEALTHY(messages)
HEALTHY(works)
HEALTHY(forgotten)
HEALTHY(memory)
HEALTHY(late)
HEALTHY(split)
HEALTHY(refusals)
HEALTHY(by_groups)

/* 64 MB of each type, of one number of ranks: its chunks take their time. */
#define LARGE(part)                                                            \
    TEST_LIMIT(ranks_of_shared_memory_do_##part, 240)                          \
    {                                                                          \
        comm_kit_run(comm_kit_part_named(#part), shm, 3);                      \
    }                                                                          \
    TEST_LIMIT(ranks_in_threads_do_##part, 240)                                \
    {                                                                          \
        comm_kit_run(comm_kit_part_named(#part), threads, 2);                  \
    }
LARGE(large)
LARGE(large_scatter)
LARGE(large_broadcast)
LARGE(large_moves)

/* Rank 0's thread looks at its messages in the order of ranks: what comes from
 * rank 2 shows that it has looked at rank 1's, which will never come. */
static void outlive_rank_1(fl_comm *p)
{
    const fl_shm *s = fl_shm_of((fl_comm_base *)p);
    fl_work *work = NULL;
    char x = 0, y;

    if (p->rank == 0)
        CHECK_OK(p->methods->recv(p, &y, 1, 1, &work));
    CHECK_OK(p->methods->barrier(p));
    if (p->rank == 1)
        return;
    while (!atomic_load(&s->rank[1].has_left)) /* the test has a time limit */
        usleep(1000);
    if (p->rank == 2) {
        CHECK_OK(p->methods->send(p, &x, 1, 0, NULL));
        return;
    }
    CHECK_OK(p->methods->recv(p, &x, 1, 2, NULL));
    CHECK_FAILS(p->methods->wait(p, &work), FLEET_EPEER,
                "rank 1 has left the group");
}

TEST(a_rank_that_leaves_fails_what_waits_for_it_alone)
{
    static const comm_kit_part part = {.name = "outlive_rank_1",
                                       .run = outlive_rank_1};

    comm_kit_run(&part, shm, 3);
    comm_kit_run(&part, threads, 3);
}

/* One start of mpirun for all parts, a group after the other. */
static void under_mpi(const comm_kit_part *part, comm_kit_way way, int size)
{
    if (size > 3 && TEST_SLOWNESS > 10)
        test_skip("under ThreadSanitizer up to 3 ranks: 4 take 3 minutes");
    comm_kit_run(part, way, size);
}

#define UNDER_MPI(size)                                                        \
    TEST_LIMIT(size##_ranks_of_mpi_do_all, 240)                                \
    {                                                                          \
        under_mpi(&comm_kit_all, mpi, size);                                   \
    }                                                                          \
    TEST_LIMIT(size##_ranks_of_mpi_apart_do_all, 240)                          \
    {                                                                          \
        under_mpi(&comm_kit_all, apart, size);                                 \
    }                                                                          \
    TEST_LIMIT(size##_ranks_of_mpi_apart_keep_an_order, 240)                   \
    {                                                                          \
        under_mpi(comm_kit_part_named("reductions"), apart_ordered, size);     \
    }
UNDER_MPI(1)
UNDER_MPI(2)
UNDER_MPI(3)
UNDER_MPI(4)

/* --- how they fail ------------------------------------------------------- */

#define FAILING(part)                                                          \
    TEST_LIMIT(ranks_of_shared_memory_see_##part, 60)                          \
    {                                                                          \
        comm_kit_run_sizes(#part, shm, 2);                                     \
    }                                                                          \
    TEST_LIMIT(ranks_of_mpi_see_##part, 60)                                    \
    {                                                                          \
        comm_kit_run(comm_kit_part_named(#part), mpi, 2);                      \
    }                                                                          \
    TEST_LIMIT(ranks_of_mpi_apart_see_##part, 60)                              \
    {                                                                          \
        comm_kit_run(comm_kit_part_named(#part), apart, 3);                    \
    }

TEST_LIMIT(ranks_of_mpi_see_one_stays_out, 60)
{
    comm_kit_run(comm_kit_part_named("one_stays_out"), mpi, 3);
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
FAILING(late_sizes_differ)
FAILING(one_gives_up_late)
FAILING(one_never_begins)
FAILING(by_groups_one_gives_up)
FAILING(by_groups_one_is_killed)
FAILING(one_stays_away)
FAILING(one_splits_late)
FAILING(no_message_comes)
FAILING(one_is_killed)

/* --- how they go on ------------------------------------------------------- */

TEST_LIMIT(ranks_of_shared_memory_go_on_when_all_are_stopped, 60)
{
    comm_kit_run(comm_kit_part_named("all_are_stopped"), shm, 3);
}

TEST_LIMIT(ranks_of_mpi_go_on_when_all_are_stopped, 60)
{
    comm_kit_run(comm_kit_part_named("all_are_stopped"), mpi, 2);
}

TEST_LIMIT(ranks_of_mpi_apart_go_on_when_all_are_stopped, 60)
{
    comm_kit_run(comm_kit_part_named("all_are_stopped"), apart, 3);
}
