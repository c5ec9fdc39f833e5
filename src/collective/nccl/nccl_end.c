/* nccl_end.c - NCCL's communicators are aborted, or left in good order, by
 * threads that are waited for until a deadline. */
#include "collective/nccl/nccl_end.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"

static void pause_shortly(void)
{
    const struct timespec pause = {0, 20000};

    nanosleep(&pause, NULL);
}

/* --- by a thread of its own ----------------------------------------------- */

/* A communicator that ends. */
typedef struct ending {
    fl_nccl_comm *comm;
    int (*end)(fl_nccl_comm *);
    int device;
    pthread_t thread;
    _Atomic int done, users;
} ending;

static void drop_ending(ending *e)
{
    if (atomic_fetch_sub(&e->users, 1) == 1)
        fl_free(e);
}

static void *run_ending(void *arg)
{
    ending *e = arg;

    if (fl_cu_enter(e->device) == 0)
        e->end(e->comm);
    atomic_store(&e->done, 1);
    drop_ending(e);
    return NULL;
}

/* As base/thread.h starts one. */
static bool start_ending(ending *e)
{
    sigset_t all, before;
    bool started;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    started = pthread_create(&e->thread, NULL, run_ending, e) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

/* A thread that has done its work is joined: what it leaves is gone then. */
static void wait_for_ending(ending *e)
{
    int64_t until = fl_now_ms() + FL_NCCL_LEAVE_MS;

    while (!atomic_load(&e->done) && fl_now_ms() < until)
        pause_shortly();
    if (atomic_load(&e->done))
        pthread_join(e->thread, NULL);
    else
        pthread_detach(e->thread);
    drop_ending(e);
}

/* NCCL waits for the GPU then, and so for kernels of other communicators, which
 * may wait for ranks that are gone, until these are aborted: what does not end
 * soon is left alone, so that they come to it. */
static void end_comm(fl_nccl *n, int (*end)(fl_nccl_comm *))
{
    ending *e = fl_alloc(sizeof *e);

    if (e) {
        e->comm = n->comm;
        e->end = end;
        e->device = n->device;
        e->users = 2;
    }
    if (!e || !start_ending(e)) {
        fl_free(e);
        end(n->comm);
    } else {
        wait_for_ending(e);
    }
    n->comm = NULL;
}

void fl_nccl_abort(fl_nccl *n)
{
    if (n->comm)
        end_comm(n, n->lib->CommAbort);
}

void fl_nccl_abort_call(fl_nccl *n)
{
    int64_t until = fl_now_ms() + FL_NCCL_LEAVE_MS;

    fl_nccl_abort(n);
    if (fl_cu_record(n->done, n->queue) != 0)
        return;
    while (fl_cu_look(n->done) == FL_CU_NOT_READY && fl_now_ms() < until)
        pause_shortly();
}

void fl_nccl_leave(fl_nccl *n)
{
    int64_t until = fl_now_ms() + FL_NCCL_LEAVE_MS;
    int state = n->lib->CommFinalize(n->comm), code = FL_NCCL_OK;

    while (state == FL_NCCL_IN_PROGRESS && code == FL_NCCL_OK &&
           fl_now_ms() < until) {
        pause_shortly();
        code = n->lib->CommGetAsyncError(n->comm, &state);
    }
    if (state != FL_NCCL_OK || code != FL_NCCL_OK) {
        fl_nccl_abort(n);
        return;
    }
    end_comm(n, n->lib->CommDestroy);
}
