/* thread.h - threads of libfleet: all signals blocked, so that the host's
 * handlers run on the host's threads. pool.h has a pool of them. */
#pragma once

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* FLEET_ENOMEM where the system refuses a thread, its stack or its arena. */
fleet_status fl_thread_start(pthread_t *thread, void *(*body)(void *),
                             void *arg, const char *name);

/* fl_memory_spare() for megabytes that this thread takes in small blocks. */
fleet_status fl_thread_spare(size_t size, const char *what);

/* Between the two, a write that fails raises no signal (SIGPIPE, SIGXFSZ) that
 * would end a host without a handler: it is but an errno, which is kept. */
typedef struct fl_hush {
    sigset_t mask, pending; /* as they were */
} fl_hush;

void fl_hush_begin(fl_hush *h);
void fl_hush_end(const fl_hush *h);

/* How many processors this process may use. */
int fl_cpu_count(void);

/* Between two looks at what another thread is about to change. */
static inline void fl_relax_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Grows in a child after fork(): handles made before do not work in it. */
uint64_t fl_fork_generation(void);
