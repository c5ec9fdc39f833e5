/* pool.c - the pool of thread.h.
 *
 * One word says what there is to do: a region's number, how many tasks it has
 * and which is next. Taking a task is one atomic addition to it, and because
 * the count travels in the same word, a thread that comes late to one region
 * can never take a task of the next by mistake.
 */
#define _GNU_SOURCE
#include "base/thread.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/pool.h"

/* One bit more than the number of tasks needs: threads that find none left have
 * counted on, and must not reach the field above. */
enum { TASK_BITS = 21, TASK_MASK = (1 << TASK_BITS) - 1 };
enum { REGION_MASK = (1 << (64 - 2 * TASK_BITS)) - 1 };
enum { SPIN_NS = 50000, YIELD_NS = 500000 };
enum { SPINS = 32 }; /* between two looks at the clock */

struct fl_pool {
    _Atomic uint64_t work; /* region | number of tasks | next task */
    fl_task *task;
    void *arg;
    _Alignas(FL_CACHE_LINE) _Atomic uint32_t remaining; /* tasks not yet done */
    _Atomic uint32_t waiting;                      /* the caller sleeps on it */
    _Alignas(FL_CACHE_LINE) _Atomic uint32_t turn; /* +1 per region; futex */
    _Atomic uint32_t sleepers;
    _Atomic bool stop;
    _Alignas(FL_CACHE_LINE) pthread_mutex_t owner;
    uint64_t region;
    int n_thread;
    pthread_t thread[];
};

typedef struct worker_start {
    fl_pool *pool;
    int index;
    _Atomic bool taken;
} worker_start;

static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Until the word is no longer `seen`, or time is up; returns the word. After a
 * while other threads that have work on this processor go first: a processor
 * that falls asleep takes longer to wake than most waits in the pool last. */
static uint32_t spin(_Atomic uint32_t *word, uint32_t seen)
{
    int64_t begin = fl_now_ns(), spent = 0;
    uint32_t now = seen;

    while (now == seen && spent < YIELD_NS) {
        if (spent > SPIN_NS)
            sched_yield();
        for (int i = 0; i < SPINS && now == seen; i++) {
            fl_relax_cpu();
            now = atomic_load_explicit(word, memory_order_acquire);
        }
        spent = fl_now_ns() - begin;
    }
    return now;
}

static bool has_task(uint64_t work)
{
    return (work & TASK_MASK) < (work >> TASK_BITS & TASK_MASK);
}

static void work_off(fl_pool *p, int thread)
{
    while (has_task(atomic_load_explicit(&p->work, memory_order_acquire))) {
        uint64_t work = atomic_fetch_add(&p->work, 1);

        if (!has_task(work))
            return;
        p->task(p->arg, (int)(work & TASK_MASK), thread);
        if (atomic_fetch_sub(&p->remaining, 1) == 1 && atomic_load(&p->waiting))
            futex_wake(&p->remaining);
    }
}

/* Spin for a while, then sleep until the next region. */
static void wait_for_work(fl_pool *p, uint32_t seen)
{
    if (spin(&p->turn, seen) != seen)
        return;
    atomic_fetch_add(&p->sleepers, 1);
    while (atomic_load(&p->turn) == seen)
        futex_wait(&p->turn, seen);
    atomic_fetch_sub(&p->sleepers, 1);
}

static void *worker_body(void *arg)
{
    worker_start *start = arg;
    fl_pool *p = start->pool;
    int thread = start->index;

    atomic_store(&start->taken, true);
    for (;;) {
        uint32_t seen = atomic_load(&p->turn);

        if (atomic_load(&p->stop))
            return NULL;
        work_off(p, thread);
        wait_for_work(p, seen);
    }
}

static void wake_all(fl_pool *p)
{
    atomic_fetch_add(&p->turn, 1);
    if (atomic_load(&p->sleepers))
        futex_wake(&p->turn);
}

fleet_status fl_pool_create(fl_pool **pool, int n_thread)
{
    fl_pool *p = fl_alloc(sizeof *p + (size_t)n_thread * sizeof p->thread[0]);

    *pool = NULL;
    if (!p)
        return FLEET_ENOMEM;
    pthread_mutex_init(&p->owner, NULL);
    p->n_thread = 1;
    while (p->n_thread < n_thread) {
        worker_start start = {p, p->n_thread, false};
        fleet_status s = fl_thread_start(&p->thread[p->n_thread], worker_body,
                                         &start, "the pool");
        if (s != FLEET_OK) {
            fl_pool_destroy(p);
            return s;
        }
        while (!atomic_load(&start.taken)) /* start lies on this stack */
            fl_relax_cpu();
        p->n_thread++;
    }
    *pool = p;
    return FLEET_OK;
}

void fl_pool_destroy(fl_pool *p)
{
    if (!p)
        return;
    atomic_store(&p->stop, true);
    wake_all(p);
    for (int i = 1; i < p->n_thread; i++)
        pthread_join(p->thread[i], NULL);
    pthread_mutex_destroy(&p->owner);
    fl_free(p);
}

int fl_pool_size(const fl_pool *p)
{
    return p ? p->n_thread : 1;
}

bool fl_pool_acquire(fl_pool *p)
{
    return p && pthread_mutex_trylock(&p->owner) == 0;
}

void fl_pool_release(fl_pool *p)
{
    pthread_mutex_unlock(&p->owner);
}

/* The caller is out of tasks; the last ones run elsewhere. */
static void await_others(fl_pool *p)
{
    uint32_t left = atomic_load(&p->remaining);

    while (left > 0) {
        uint32_t now = spin(&p->remaining, left);

        if (now == left) {
            atomic_store(&p->waiting, 1);
            if (atomic_load(&p->remaining) == left)
                futex_wait(&p->remaining, left);
            atomic_store(&p->waiting, 0);
            now = atomic_load(&p->remaining);
        }
        left = now;
    }
}

void fl_pool_run(fl_pool *p, int n, fl_task *task, void *arg)
{
    if (n == 1 || p->n_thread == 1) {
        for (int i = 0; i < n; i++)
            task(arg, i, 0);
        return;
    }
    p->task = task;
    p->arg = arg;
    atomic_store(&p->remaining, (uint32_t)n);
    p->region = (p->region + 1) & REGION_MASK;
    atomic_store(&p->work,
                 p->region << (2 * TASK_BITS) | (uint64_t)n << TASK_BITS);
    wake_all(p);
    work_off(p, 0);
    await_others(p);
}

void fl_pool_share(fl_pool *p, int n, fl_task *task, void *arg)
{
    if (fl_pool_acquire(p)) {
        fl_pool_run(p, n, task, arg);
        fl_pool_release(p);
        return;
    }
    for (int i = 0; i < n; i++)
        task(arg, i, 0);
}
