/* thread.c - threads with signals blocked, processors, forks. */
#define _GNU_SOURCE
#include "base/thread.h"

#include <errno.h>
#include <malloc.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
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

#define NO_ARENA                                                               \
    "out of memory: no 64 MB of address space for a thread's small blocks "    \
    "(MALLOC_ARENA_MAX=1 lets threads share them)"

/* glibc reserves 64 MB for the small blocks of a thread. Where it cannot, each
 * block takes a page, and tries again for the 64 MB: a look at what is left
 * would not hold, neither this thread's nor another's. */
static bool has_arena(void)
{
    enum { TINY = 24, PAGE = 4096 };
    void *block = malloc(TINY);
    bool is_page = block && malloc_usable_size(block) > PAGE / 2;

    free(block);
    return block && !is_page;
}

fleet_status fl_thread_spare(size_t size, const char *what)
{
    if (!has_arena())
        return fl_fail(FLEET_ENOMEM, "%s: " NO_ARENA, what);
    return fl_memory_spare(size, what);
}

typedef struct begin {
    void *(*body)(void *);
    void *arg;
    bool has_room;
    sem_t begun;
} begin;

/* A thread's first block maps up to 128 MB for a while. It is taken before the
 * thread counts as started, or a look at what is left would not hold. */
static void *begin_thread(void *arg)
{
    begin *b = arg;
    const begin copy = {.body = b->body, .arg = b->arg};
    bool has_room = has_arena();

    b->has_room = has_room;
    sem_post(&b->begun); /* and b is gone */
    return has_room ? copy.body(copy.arg) : NULL;
}

static int create(pthread_t *thread, begin *b)
{
    sigset_t all, host;
    int e;

    sem_init(&b->begun, 0, 0);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &host);
    e = pthread_create(thread, NULL, begin_thread, b);
    pthread_sigmask(SIG_SETMASK, &host, NULL);
    while (!e && sem_wait(&b->begun) != 0)
        ;
    sem_destroy(&b->begun);
    return e;
}

fleet_status fl_thread_start(pthread_t *thread, void *(*body)(void *),
                             void *arg, const char *name)
{
    begin b = {.body = body, .arg = arg};
    int e;

    FL_TRY(fl_memory_spare(stack_size() + FL_SPARE_BYTES, "a thread"));
    e = create(thread, &b);
    if (e) /* EAGAIN: the system does not say which */
        return fl_fail(FLEET_ENOMEM, "cannot start a thread for %s: %s", name,
                       e == EAGAIN ? "out of memory for its stack, or of "
                                     "threads (RLIMIT_NPROC, pids.max)"
                                   : strerror(e));
    if (!b.has_room) {
        pthread_join(*thread, NULL);
        return fl_fail(FLEET_ENOMEM, "cannot start a thread for %s: " NO_ARENA,
                       name);
    }
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
