/* mpi_thread.c - MPI_Init_thread() waits for all ranks, with no deadline: so it
 * is called by a thread of its own, and the caller waits for it until a
 * deadline. MPI wants to be ended by the thread that began it, which stays. */
#define _GNU_SOURCE
#include <pthread.h>
#include <time.h>

#include "base/clock.h"
#include "base/thread.h"
#include "collective/mpi/mpi_internal.h"

enum { LOOK_NS = 50000000 };

/* Of the process: a thread whose MPI_Init_thread() never returns goes on to use
 * it. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool has_begun, ends, has_ended;
    int code;
} mpi = {.lock = PTHREAD_MUTEX_INITIALIZER,
         .changed = PTHREAD_COND_INITIALIZER};

static void set_state(bool *what)
{
    pthread_mutex_lock(&mpi.lock);
    *what = true;
    pthread_cond_broadcast(&mpi.changed);
    pthread_mutex_unlock(&mpi.lock);
}

static void wait_for(const bool *what)
{
    pthread_mutex_lock(&mpi.lock);
    while (!*what)
        pthread_cond_wait(&mpi.changed, &mpi.lock);
    pthread_mutex_unlock(&mpi.lock);
}

static void *run_mpi(void *arg)
{
    int level; /* asked for where it matters: mpi_comm.c */

    (void)arg;
    mpi.code = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    set_state(&mpi.has_begun);
    if (mpi.code != MPI_SUCCESS)
        return NULL;
    wait_for(&mpi.ends);
    MPI_Finalize();
    set_state(&mpi.has_ended);
    return NULL;
}

/* A while from now, on the clock that waits are on. */
static struct timespec soon(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += LOOK_NS;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

static bool begins_within(int64_t ms)
{
    fl_wait wait = fl_wait_for(ms);
    bool has_begun;

    pthread_mutex_lock(&mpi.lock);
    while (!mpi.has_begun && fl_wait_left(&wait) > 0) {
        const struct timespec until = soon();

        pthread_cond_clockwait(&mpi.changed, &mpi.lock, CLOCK_MONOTONIC,
                               &until);
    }
    has_begun = mpi.has_begun;
    pthread_mutex_unlock(&mpi.lock);
    return has_begun;
}

fleet_status fl_mpi_init(int64_t deadline_ms)
{
    pthread_t thread;
    bool has_begun;

    FL_TRY(fl_thread_start(&thread, run_mpi, NULL, "MPI"));
    pthread_detach(thread);
    has_begun = begins_within(deadline_ms);
    if (has_begun && mpi.code == MPI_SUCCESS)
        return FLEET_OK;
    fl_mpi_give_up();
    return has_begun ? fl_mpi_fail(mpi.code, "MPI_Init_thread")
                     : fl_fail(FLEET_ETIMEDOUT,
                               "mpi: not all ranks came to MPI_Init() within "
                               "%lld ms: one has ended, or is stopped, or goes "
                               "on without it",
                               (long long)deadline_ms);
}

void fl_mpi_finalize(void)
{
    set_state(&mpi.ends);
    wait_for(&mpi.has_ended);
}
