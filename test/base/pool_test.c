/* pool_test.c - the thread pool: every task once, whatever the threads do. */
#define SUITE pool
#include "test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/thread.h"
#include "base/pool.h"

static fl_pool *pool_of(int n)
{
    fl_pool *pool;

    CHECK_OK(fl_pool_create(&pool, n));
    CHECK_INT(fl_pool_size(pool), n);
    return pool;
}

/* Tasks count how often they ran; plain memory, so that the sanitizer sees
 * whether a region's results are handed over. */
typedef struct counts {
    int *count;
    int n_thread;
    _Atomic bool bad_thread;
} counts;

static void count_up(void *arg, int task, int thread)
{
    counts *c = arg;

    c->count[task]++;
    if (thread < 0 || thread >= c->n_thread)
        atomic_store(&c->bad_thread, true);
}

/* So many regions of n tasks: each task must have run once in each. */
static void check_regions(int n_thread, int n, int regions)
{
    counts c = {calloc((size_t)n, sizeof(int)), n_thread, false};
    fl_pool *pool = pool_of(n_thread);

    CHECK(fl_pool_acquire(pool));
    for (int r = 1; r <= regions; r++) {
        fl_pool_run(pool, n, count_up, &c);
        for (int i = 0; i < n; i++)
            CHECK_INT(c.count[i], r);
    }
    CHECK(!atomic_load(&c.bad_thread));
    fl_pool_release(pool);
    fl_pool_destroy(pool);
    free(c.count);
}

TEST(a_pool_of_one_works_alone)
{
    check_regions(1, 100, 10);
}

TEST(every_task_runs_once_in_each_of_thousands_of_regions)
{
    static const int tasks[] = {1, 2, 3, 7, 64};

    for (int threads = 2; threads <= 8; threads++)
        for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++)
            check_regions(threads, tasks[i], 2000 / threads);
}

TEST(regions_of_many_tasks_are_shared_out)
{
    check_regions(2, 200000, 3);
    check_regions(4, 200000, 3);
}

/* The largest numbers that are allowed: threads that look for a task after the
 * last one must not find the first one again. */
TEST(the_largest_regions_run_every_task_once)
{
    for (int n = (1 << 20) - 4; n < 1 << 20; n++)
        check_regions(8, n, 1);
}

TEST(a_region_without_tasks_returns)
{
    counts c = {NULL, 3, false};
    fl_pool *pool = pool_of(3);

    CHECK(fl_pool_acquire(pool));
    fl_pool_run(pool, 0, count_up, &c);
    fl_pool_release(pool);
    fl_pool_destroy(pool);
}

/* --- results ------------------------------------------------------------- */

typedef struct chain {
    int64_t in[64], out[64];
} chain;

static void next_of_all(void *arg, int task, int thread)
{
    chain *c = arg;
    int64_t sum = 0;

    (void)thread;
    for (int i = 0; i < 64; i++)
        sum += c->in[i];
    c->out[task] = (sum * 31 + task) % 1000003;
}

static int64_t run_chain(int n_thread)
{
    fl_pool *pool = pool_of(n_thread);
    chain c = {{1}, {0}};

    CHECK(fl_pool_acquire(pool));
    for (int r = 0; r < 3000; r++) {
        fl_pool_run(pool, 64, next_of_all, &c);
        memcpy(c.in, c.out, sizeof c.in);
    }
    fl_pool_release(pool);
    fl_pool_destroy(pool);
    return c.in[63];
}

TEST(a_region_sees_all_that_the_one_before_wrote)
{
    int64_t want = run_chain(1);

    for (int threads = 2; threads <= 5; threads++)
        CHECK_INT(run_chain(threads), want);
}

/* --- uneven tasks -------------------------------------------------------- */

static void nap(int64_t ns)
{
    struct timespec t = {ns / 1000000000, ns % 1000000000};

    nanosleep(&t, NULL);
}

static void uneven(void *arg, int task, int thread)
{
    if (task % 7 == 0)
        nap(2000000); /* the caller runs out of tasks and sleeps */
    count_up(arg, task, thread);
}

TEST(a_caller_waits_for_tasks_of_very_uneven_length)
{
    counts c = {calloc(15, sizeof(int)), 3, false};
    fl_pool *pool = pool_of(3);

    CHECK(fl_pool_acquire(pool));
    for (int r = 1; r <= 20; r++) {
        fl_pool_run(pool, 15, uneven, &c);
        for (int i = 0; i < 15; i++)
            CHECK_INT(c.count[i], r);
    }
    fl_pool_release(pool);
    fl_pool_destroy(pool);
    free(c.count);
}

TEST(threads_that_fell_asleep_between_regions_wake)
{
    counts c = {calloc(64, sizeof(int)), 4, false};
    fl_pool *pool = pool_of(4);

    CHECK(fl_pool_acquire(pool));
    for (int r = 1; r <= 4; r++) {
        nap(200000000); /* the scene: longer than they spin */
        fl_pool_run(pool, 64, uneven, &c);
        for (int i = 0; i < 64; i++)
            CHECK_INT(c.count[i], r);
    }
    fl_pool_release(pool);
    fl_pool_destroy(pool);
    free(c.count);
}

/* --- callers ------------------------------------------------------------- */

TEST(a_pool_serves_one_caller_at_a_time)
{
    fl_pool *pool = pool_of(2);

    CHECK(fl_pool_acquire(pool));
    CHECK(!fl_pool_acquire(pool));
    fl_pool_release(pool);
    CHECK(fl_pool_acquire(pool));
    fl_pool_release(pool);
    CHECK(!fl_pool_acquire(NULL));
    CHECK_INT(fl_pool_size(NULL), 1);
    fl_pool_destroy(pool);
    fl_pool_destroy(NULL);
}

typedef struct caller {
    fl_pool *pool;
    counts c;
    int shared, alone;
} caller;

/* Regions on the pool when it is free, else on this thread. */
static void *call_often(void *arg)
{
    caller *me = arg;

    for (int r = 0; r < 500; r++) {
        bool mine = fl_pool_acquire(me->pool);

        if (mine)
            fl_pool_run(me->pool, 50, count_up, &me->c);
        for (int i = 0; !mine && i < 50; i++)
            count_up(&me->c, i, 0);
        if (mine)
            fl_pool_release(me->pool);
        me->shared += mine;
        me->alone += !mine;
    }
    return NULL;
}

TEST(several_callers_share_a_pool)
{
    enum { CALLERS = 4 };
    fl_pool *pool = pool_of(3);
    caller all[CALLERS] = {0};
    pthread_t thread[CALLERS];
    int shared = 0;

    for (int i = 0; i < CALLERS; i++) {
        all[i].pool = pool;
        all[i].c.count = calloc(50, sizeof(int));
        all[i].c.n_thread = 3;
        pthread_create(&thread[i], NULL, call_often, &all[i]);
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(thread[i], NULL);
        for (int j = 0; j < 50; j++)
            CHECK_INT(all[i].c.count[j], 500);
        CHECK_INT(all[i].shared + all[i].alone, 500);
        shared += all[i].shared;
        free(all[i].c.count);
    }
    CHECK(shared > 0);
    fl_pool_destroy(pool);
}

/* --- lifecycle ----------------------------------------------------------- */

TEST(pools_come_and_go)
{
    counts c = {calloc(8, sizeof(int)), 8, false};

    for (int i = 0; i < 200; i++) {
        fl_pool *pool = pool_of(1 + i % 8);

        if (i % 3 == 0 && fl_pool_acquire(pool)) {
            fl_pool_run(pool, 8, count_up, &c);
            fl_pool_release(pool);
        }
        fl_pool_destroy(pool);
    }
    CHECK_INT(c.count[0], 67);
    free(c.count);
}

TEST(a_pool_without_memory_is_none)
{
    fl_pool *pool = (fl_pool *)&pool;

    fl_memory_fail_at(1, false);
    CHECK_STATUS(fl_pool_create(&pool, 3), FLEET_ENOMEM);
    CHECK(pool == NULL);
}

static void see_signals(void *arg, int task, int thread)
{
    _Atomic int *open = arg;
    sigset_t mask;

    (void)task;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    if (thread > 0 && !sigismember(&mask, SIGTERM))
        atomic_fetch_add(open, 1);
    nap(1000000);
}

TEST(signals_are_left_to_the_hosts_threads)
{
    fl_pool *pool = pool_of(4);
    _Atomic int open = 0;
    sigset_t mask;

    CHECK(fl_pool_acquire(pool));
    fl_pool_run(pool, 32, see_signals, &open);
    fl_pool_release(pool);
    fl_pool_destroy(pool);
    CHECK_INT(atomic_load(&open), 0);
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    CHECK(!sigismember(&mask, SIGTERM));
}

TEST(there_is_at_least_one_processor)
{
    CHECK(fl_cpu_count() >= 1);
}

TEST(a_child_of_fork_is_another_generation)
{
    uint64_t mine = fl_fork_generation();
    int status = -1;
    pid_t child = fork();

    if (child == 0)
        _exit(fl_fork_generation() == mine + 1 ? 0 : 1);
    waitpid(child, &status, 0);
    CHECK_INT(status, 0);
    CHECK(fl_fork_generation() == mine);
}
