/* thread.c - threads with signals blocked, processors, forks. */
#define _GNU_SOURCE
#include "base/thread.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"

static size_t stack_size(void)
{
    pthread_attr_t attr;
    size_t size = 0;

    if (pthread_getattr_default_np(&attr) == 0) {
        pthread_attr_getstacksize(&attr, &size);
        pthread_attr_destroy(&attr);
    }
    return size;
}

fleet_status fl_thread_start(pthread_t *thread, void *(*body)(void *),
                             void *arg, const char *name)
{
    sigset_t all, host;
    int e;

    FL_TRY(fl_memory_spare(stack_size() + FL_SPARE_BYTES, "a thread"));
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &host);
    e = pthread_create(thread, NULL, body, arg);
    pthread_sigmask(SIG_SETMASK, &host, NULL);
    if (e) /* EAGAIN: the system does not say which */
        return fl_fail(FLEET_ENOMEM, "cannot start a thread for %s: %s", name,
                       e == EAGAIN ? "out of memory for its stack, or of "
                                     "threads (RLIMIT_NPROC, pids.max)"
                                   : strerror(e));
    return FLEET_OK;
}

static const int of_writes[] = {SIGPIPE, SIGXFSZ};

void fl_hush_begin(fl_hush *h)
{
    sigset_t both;

    sigemptyset(&both);
    sigaddset(&both, of_writes[0]);
    sigaddset(&both, of_writes[1]);
    sigpending(&h->pending);
    pthread_sigmask(SIG_BLOCK, &both, &h->mask);
}

void fl_hush_end(const fl_hush *h)
{
    const struct timespec now = {0, 0};
    int e = errno;

    for (int i = 0; i < 2; i++) {
        sigset_t one;

        sigemptyset(&one);
        sigaddset(&one, of_writes[i]);
        if (!sigismember(&h->pending, of_writes[i]))
            while (sigtimedwait(&one, NULL, &now) < 0 && errno == EINTR)
                ;
    }
    pthread_sigmask(SIG_SETMASK, &h->mask, NULL);
    errno = e;
}

int fl_cpu_count(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) != 0 || CPU_COUNT(&set) < 1)
        return 1;
    return CPU_COUNT(&set);
}

static _Atomic uint64_t generation;
static pthread_once_t watch_once = PTHREAD_ONCE_INIT;

static void in_child(void)
{
    atomic_fetch_add(&generation, 1);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

uint64_t fl_fork_generation(void)
{
    pthread_once(&watch_once, watch_forks);
    return atomic_load_explicit(&generation, memory_order_relaxed);
}
