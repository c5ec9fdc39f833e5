/* zmq_context.c - one context of ZeroMQ, counted by its sockets; a child of
 * fork() forgets its parent's. */
#define _DEFAULT_SOURCE
#include "net/zmq_context.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <zmq.h>

#include "base/hash.h"
#include "base/memory.h"
#include "base/thread.h"
#include "net/limits.h"

enum {
    MOST_SOCKET = 16 << 10, /* of a process */
    LARGE_BLOCK = 24 << 20,
    SOCKET_BYTES = 1 << 20 /* more than one takes */
};

static struct {
    pthread_mutex_t lock;
    void *zmq; /* NULL: no socket is open */
    int n_socket;
} context = {.lock = PTHREAD_MUTEX_INITIALIZER};

static pthread_once_t watch_once = PTHREAD_ONCE_INIT;

/* A child does not have its parent's threads: the parent's context is of no use
 * to it. */
static void forget_context(void)
{
    pthread_mutex_init(&context.lock, NULL);
    context.zmq = NULL;
    context.n_socket = 0;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forget_context);
}

/* With one of them a message can wait while another is sent to a process that
 * has just got what it needs and computes on this thread's core. */
static int io_threads(void)
{
    int cpus = fl_cpu_count();

    return cpus < 2 ? 1 : cpus < 24 ? 2 : 4;
}

void fl_zmq_tune(void *zmq)
{
    /* Messages of megabytes come and go with each step. glibc gives such memory
     * back to the system each time, and takes it page by page, until it has
     * once seen a block freed that was as large: then it keeps up to twice
     * that. */
    volatile char *block = malloc(LARGE_BLOCK);

    if (block)
        *block = 0;
    free((void *)(uintptr_t)block);
    zmq_ctx_set(zmq, ZMQ_IO_THREADS, io_threads());
}

static void *new_context(void)
{
    void *zmq = zmq_ctx_new();

    if (!zmq)
        return NULL;
    fl_zmq_tune(zmq);
    zmq_ctx_set(zmq, ZMQ_MAX_SOCKETS, MOST_SOCKET);
    zmq_ctx_set(zmq, ZMQ_BLOCKY, 0); /* nothing lingers unless it says so */
    return zmq;
}

/* The last one ends the context. That waits for what still lingers, and for
 * nothing else: all sockets are closed. A thread that wants the next context
 * waits, too: libpgm, which ZeroMQ brings along, must not come and go at
 * once. */
static void drop_context(void)
{
    pthread_mutex_lock(&context.lock);
    if (--context.n_socket == 0 && context.zmq) {
        while (zmq_ctx_term(context.zmq) != 0 && errno == EINTR)
            ;
        context.zmq = NULL;
    }
    pthread_mutex_unlock(&context.lock);
}

/* ROUTER numbers peers that do not name themselves, from what rand() gives on,
 * which is never seeded; and it aborts when a peer has claimed the next number
 * for a name. So it is given a generator with a seed of its own, and the host's
 * goes on as if nothing had been drawn. */
static void *new_socket(int type)
{
    static char state[64]; /* under context.lock */
    char *host = initstate((unsigned)fl_nonce(), state, sizeof state);
    void *socket = zmq_socket(context.zmq, type);
    int e = errno;

    setstate(host);
    errno = e;
    return socket;
}

static fleet_status open_failed(int e)
{
    return fl_fail(e == ENOMEM ? FLEET_ENOMEM : FLEET_EIO,
                   "cannot open a socket: %s", zmq_strerror(e));
}

/* ZeroMQ would abort without descriptors, threads or memory. The threads are
 * held until it starts its own; where they may start there is memory for a
 * context, too. */
static fleet_status first_socket(void **socket, int type)
{
    fl_hold held;

    FL_TRY(fl_threads_hold(&held, 1 + io_threads()));
    context.zmq = new_context();
    fl_threads_release(&held);
    if (context.zmq)
        *socket = new_socket(type);
    return FLEET_OK;
}

static fleet_status context_socket(void **socket, int type)
{
    *socket = NULL;
    if (!fl_descriptors_left(context.zmq ? 4 : 16))
        return open_failed(EMFILE);
    if (!context.zmq) {
        FL_TRY(first_socket(socket, type));
    } else {
        FL_TRY(fl_thread_spare(SOCKET_BYTES, "ZeroMQ"));
        *socket = new_socket(type);
    }
    return *socket ? FLEET_OK : open_failed(errno);
}

/* The first socket starts ZeroMQ's threads: they inherit that all signals are
 * blocked. */
fleet_status fl_zmq_open(void **socket, int type)
{
    sigset_t all, host;
    fleet_status status;

    pthread_once(&watch_once, watch_forks);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &host);
    pthread_mutex_lock(&context.lock);
    context.n_socket++;
    status = context_socket(socket, type);
    pthread_mutex_unlock(&context.lock);
    pthread_sigmask(SIG_SETMASK, &host, NULL);
    if (status != FLEET_OK)
        drop_context();
    return status;
}

void fl_zmq_close(void *socket)
{
    zmq_close(socket);
    drop_context();
}
