/* comm_kit_misuse.c - how groups of ranks must fail: see comm_kit.h. All ranks
 * hear of it, in the same words, and of every call after it. */
#define SUITE comm_kit_misuse
#include "comm_kit.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"

enum { SHORT_MS = 1500 };

/* Deadlines until one that stays away comes: the others' begin when they have
 * left what came before, on a busy machine seconds after it. */
enum { LONG_AWAY = 4 };

static bool is_last(const fl_comm *p)
{
    return p->rank == p->size - 1;
}

/* The call has failed with that code and words; so does any other. */
static void check_failed(fl_comm *p, fleet_status got, fleet_status want,
                         const char *words)
{
    char text[1000];
    float x = 0;
    fl_work *work = NULL;

    CHECK_STATUS(got, want);
    CHECK_CONTAINS(fleet_last_error(), words);
    snprintf(text, sizeof text, "%s", fleet_last_error());
    CHECK_STATUS(p->methods->barrier(p), want);
    CHECK_TEXT(fleet_last_error(), text);
    CHECK_STATUS(
        p->methods->all_reduce(p, FL_ALL_SUM, FL_WIRE_F32, &x, &x, 1, &work),
        want);
    CHECK_TEXT(fleet_last_error(), text);
    CHECK(work == NULL);
}

static void sizes_differ(fl_comm *p)
{
    int64_t n = is_last(p) ? 999 : 1000;
    float *x = calloc((size_t)n, sizeof *x);

    check_failed(
        p, p->methods->all_reduce(p, FL_ALL_SUM, FL_WIRE_F32, x, x, n, NULL),
        FLEET_EINVAL, "all_reduce(sum of 999 f32)");
    CHECK_CONTAINS(fleet_last_error(), "rank 0 calls all_reduce(sum of 1000");
    free(x);
}

/* One needs more pieces than the other. */
static void large_and_small(fl_comm *p)
{
    int64_t n = is_last(p) ? 3 : 1000000;
    float *x = calloc((size_t)n, sizeof *x);
    fl_work *work;

    CHECK_OK(
        p->methods->all_reduce(p, FL_ALL_SUM, FL_WIRE_F32, x, x, n, &work));
    check_failed(p, p->methods->wait(p, &work), FLEET_EINVAL,
                 "all_reduce(sum of 3 f32)");
    free(x);
}

static void types_differ(fl_comm *p)
{
    fl_wire_type type = is_last(p) ? FL_WIRE_I32 : FL_WIRE_F32;
    float x[4] = {0};

    check_failed(p, p->methods->all_reduce(p, FL_ALL_MAX, type, x, x, 4, NULL),
                 FLEET_EINVAL, "all_reduce(max of 4 i32)");
}

static void calls_differ(fl_comm *p)
{
    char x[400] = {0};
    fleet_status status = is_last(p)
                              ? p->methods->broadcast(p, x, 40, 0, NULL)
                              : p->methods->all_gather(p, x, x, 40, NULL);

    check_failed(p, status, FLEET_EINVAL, "broadcast(40 bytes from rank 0)");
    CHECK_CONTAINS(fleet_last_error(), "rank 0 calls all_gather(40 bytes)");
}

/* The last rank is a call behind. */
static void order_differs(fl_comm *p)
{
    float x[100] = {0};

    CHECK_OK(p->methods->barrier(p));
    if (!is_last(p))
        check_failed(p, p->methods->barrier(p), FLEET_EINVAL,
                     "rank 0 calls barrier");
    else
        check_failed(
            p,
            p->methods->all_reduce(p, FL_ALL_SUM, FL_WIRE_F32, x, x, 100, NULL),
            FLEET_EINVAL, "rank 0 calls barrier");
}

static void roots_differ(fl_comm *p)
{
    char x[4] = {0};

    check_failed(p, p->methods->broadcast(p, x, 4, is_last(p), NULL),
                 FLEET_EINVAL, "broadcast(4 bytes from rank 1)");
}

static void messages_differ(fl_comm *p)
{
    char x[8] = {0};
    fleet_status status = FLEET_OK;

    if (p->rank == 0)
        status = p->methods->send(p, x, 8, 1, NULL);
    else if (p->rank == 1)
        status = p->methods->recv(p, x, 4, 0, NULL);
    if (status == FLEET_OK) /* what was sent may have left before it came */
        status = p->methods->barrier(p);
    check_failed(p, status, FLEET_EINVAL,
                 "rank 0 sends 8 bytes to rank 1, which expects 4");
}

static void pairs_differ(fl_comm *p)
{
    char in[64] = {0}, out[64];
    int64_t to[8] = {0}, from[8] = {0};
    fleet_status status;

    if (p->rank == 0)
        to[1] = 5;
    if (p->rank == 1)
        from[0] = 6;
    status = p->methods->all_to_all_v(p, in, to, out, from, NULL);
    if (status == FLEET_OK)
        status = p->methods->barrier(p);
    check_failed(p, status, FLEET_EINVAL,
                 "rank 0 sends 5 bytes to rank 1, which expects 6");
}

static void one_gives_up(fl_comm *p)
{
    int64_t began = fl_now_ms();

    p->methods->barrier(p); /* another rank may be through it, and gone */
    if (is_last(p))
        p->methods->abort(p, "the disk is full");
    check_failed(p, p->methods->barrier(p), FLEET_EPEER, "the disk is full");
    CHECK_CONTAINS(fleet_last_error(), "gave up");
    CHECK(fl_now_ms() - began < p->deadline_ms / 2);
}

/* While all others are in a call with work, and one sleeps in its wait. */
static void one_gives_up_later(fl_comm *p)
{
    static float x[1000];
    fl_work *work;

    p->methods->barrier(p); /* another rank may be through it, and gone */
    if (is_last(p)) {
        usleep(100000); /* so that they sleep; true in any case */
        p->methods->abort(p, "no more");
        check_failed(p, p->methods->barrier(p), FLEET_EPEER, "no more");
        return;
    }
    CHECK_OK(
        p->methods->all_reduce(p, FL_ALL_SUM, FL_WIRE_F32, x, x, 1000, &work));
    check_failed(p, p->methods->wait(p, &work), FLEET_EPEER, "no more");
}

/* In memory that all map a rank may hear of it when it begins, or waits. */
static fleet_status reduce_late(fl_comm *p, int64_t n)
{
    fl_work *work;
    void *x;

    CHECK_OK(p->methods->get_memory(p, 4000, &x));
    FL_TRY(p->methods->all_reduce(p, FL_ALL_SUM, FL_WIRE_F32, x, x, n, &work));
    return p->methods->wait(p, &work);
}

static void late_sizes_differ(fl_comm *p)
{
    check_failed(p, reduce_late(p, is_last(p) ? 999 : 1000), FLEET_EINVAL,
                 "all_reduce(sum of 999 f32)");
    CHECK_CONTAINS(fleet_last_error(), "rank 0 calls all_reduce(sum of 1000");
}

/* The others have begun, and wait. */
static void one_gives_up_late(fl_comm *p)
{
    void *x;

    if (!is_last(p)) {
        check_failed(p, reduce_late(p, 1000), FLEET_EPEER, "no more");
        return;
    }
    CHECK_OK(p->methods->get_memory(p, 4000, &x));
    usleep(100000); /* so that they sleep; true in any case */
    p->methods->abort(p, "no more");
    check_failed(p, p->methods->barrier(p), FLEET_EPEER, "no more");
}

static void stay_away(const fl_comm *p)
{
    int64_t began = fl_now_ms();

    while (fl_now_ms() - began < LONG_AWAY * p->deadline_ms)
        usleep(10000);
}

static void one_never_begins(fl_comm *p)
{
    void *x;

    if (!is_last(p)) {
        check_failed(p, reduce_late(p, 1000), FLEET_ETIMEDOUT,
                     "did not come within");
        return;
    }
    CHECK_OK(p->methods->get_memory(p, 4000, &x)); /* all have come */
    stay_away(p);
    check_failed(p, p->methods->barrier(p), FLEET_ETIMEDOUT,
                 "all_reduce(sum of 1000 f32)");
}

static fleet_status split_all(fl_comm *p)
{
    fl_comm *child;
    fleet_status status = p->methods->split(p, 0, 0, &child);

    CHECK((child == NULL) == (status != FLEET_OK));
    return status;
}

/* It comes to that call when the other ranks have given up. */
static void come_late(fl_comm *p, fleet_status (*call)(fl_comm *p))
{
    char who[80];
    int64_t began;

    snprintf(who, sizeof who, "rank %d did not come within %lld ms",
             p->size - 1, (long long)p->deadline_ms);
    CHECK_OK(p->methods->barrier(p));
    began = fl_now_ms();
    if (is_last(p))
        stay_away(p);
    check_failed(p, call(p), FLEET_ETIMEDOUT, who);
    CHECK(is_last(p) || fl_now_ms() - began < 3 * p->deadline_ms);
}

static void one_stays_away(fl_comm *p)
{
    come_late(p, p->methods->barrier);
}

static void one_splits_late(fl_comm *p)
{
    come_late(p, split_all);
}

static void no_message_comes(fl_comm *p)
{
    char x;

    if (p->rank == 0)
        check_failed(p, p->methods->recv(p, &x, 1, 1, NULL), FLEET_ETIMEDOUT,
                     "did not come within");
    else
        check_failed(p, p->methods->barrier(p), FLEET_ETIMEDOUT, "within");
}

static void one_is_killed(fl_comm *p)
{
    bool sees =
        strcmp(p->methods->name, "mpi") != 0 || !getenv("FLEET_MPI_WINDOW");
    int64_t began = fl_now_ms();
    fleet_status status;
    char who[40];

    p->methods->barrier(p); /* another rank may be through it, and gone */
    if (is_last(p))
        raise(SIGKILL);
    snprintf(who, sizeof who, "rank %d ", p->size - 1);
    status = p->methods->barrier(p);
    if (sees) {
        check_failed(p, status, FLEET_EPEER, who);
        CHECK_CONTAINS(fleet_last_error(), "is dead");
        CHECK(fl_now_ms() - began < p->deadline_ms / 2);
    } else {
        CHECK(status == FLEET_EPEER || status == FLEET_ETIMEDOUT);
        check_failed(p, status, status, who);
        CHECK(fl_now_ms() - began < p->deadline_ms * 2);
    }
}

/* --- all are stopped ------------------------------------------------------ */

/* A process that stops this one for longer than a deadline. */
static pid_t stop_me(const fl_comm *p)
{
    const pid_t me = getpid();
    pid_t child = test_fork();

    if (child == 0) {
        usleep(200000); /* so that ranks wait by then; true in any case */
        kill(me, SIGSTOP);
        usleep((useconds_t)(p->deadline_ms * 3 / 2 * 1000));
        kill(me, SIGCONT);
        _exit(0);
    }
    return child;
}

static void is_over(pid_t stopper)
{
    CHECK(waitpid(stopper, NULL, 0) == stopper);
}

/* Each time rank 0 comes last, once all go on. */
static void all_are_stopped(fl_comm *p)
{
    pid_t stopper;
    char x = 7;

    CHECK_OK(p->methods->barrier(p));
    stopper = stop_me(p);
    if (p->rank == 0) {
        is_over(stopper);
        for (int r = 1; r < p->size; r++)
            CHECK_OK(p->methods->send(p, &x, 1, r, NULL));
    } else {
        CHECK_OK(p->methods->recv(p, &x, 1, 0, NULL));
        is_over(stopper);
    }
    CHECK_OK(p->methods->barrier(p));
    stopper = stop_me(p);
    if (p->rank == 0)
        is_over(stopper);
    CHECK_OK(p->methods->barrier(p));
    if (p->rank > 0)
        is_over(stopper);
    CHECK_OK(p->methods->barrier(p));
}

const comm_kit_part comm_kit_misused[] = {
    {.name = "all_are_stopped", .run = all_are_stopped, .deadline_ms = 2000},
    {.name = "sizes_differ", .run = sizes_differ, .fails = true},
    {.name = "large_and_small", .run = large_and_small, .fails = true},
    {.name = "types_differ", .run = types_differ, .fails = true},
    {.name = "calls_differ", .run = calls_differ, .fails = true},
    {.name = "order_differs", .run = order_differs, .fails = true},
    {.name = "roots_differ", .run = roots_differ, .fails = true},
    {.name = "messages_differ", .run = messages_differ, .fails = true},
    {.name = "pairs_differ", .run = pairs_differ, .fails = true},
    {.name = "one_gives_up", .run = one_gives_up, .fails = true},
    {.name = "one_gives_up_later", .run = one_gives_up_later, .fails = true},
    {.name = "late_sizes_differ", .run = late_sizes_differ, .fails = true},
    {.name = "one_gives_up_late", .run = one_gives_up_late, .fails = true},
    {.name = "one_never_begins",
     .run = one_never_begins,
     .fails = true,
     .deadline_ms = SHORT_MS},
    {.name = "one_stays_out",
     .fails = true,
     .stays_out = true,
     .deadline_ms = SHORT_MS},
    {.name = "by_groups_one_gives_up",
     .run = comm_kit_by_groups_one_gives_up,
     .fails = true},
    {.name = "by_groups_one_is_killed",
     .run = comm_kit_by_groups_one_is_killed,
     .fails = true,
     .is_killed = true,
     .deadline_ms = 4000},
    {.name = "one_stays_away",
     .run = one_stays_away,
     .fails = true,
     .deadline_ms = SHORT_MS},
    {.name = "one_splits_late",
     .run = one_splits_late,
     .fails = true,
     .deadline_ms = SHORT_MS},
    {.name = "no_message_comes",
     .run = no_message_comes,
     .fails = true,
     .deadline_ms = SHORT_MS},
    {.name = "one_is_killed",
     .run = one_is_killed,
     .fails = true,
     .is_killed = true,
     .deadline_ms = 4000},
    {0},
};
