/* thread.c - see thread.h. */
#define _GNU_SOURCE
#include "base/thread.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

fleet_status fl_thread_start(pthread_t *thread, void *(*body)(void *),
                             void *arg, const char *name)
{
    sigset_t all, host;
    int e;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &host);
    e = pthread_create(thread, NULL, body, arg);
    pthread_sigmask(SIG_SETMASK, &host, NULL);
    if (e)
        return fl_fail(FLEET_ENOMEM, "cannot start a thread for %s: %s", name,
                       strerror(e));
    return FLEET_OK;
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
