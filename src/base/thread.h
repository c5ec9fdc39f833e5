/* thread.h - threads of libfleet: all signals blocked, so that the host's
 * handlers run on the host's threads; and a pool that runs one step's tasks.
 */
#ifndef FL_BASE_THREAD_H
#define FL_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

fleet_status fl_thread_start(pthread_t *thread, void *(*body)(void *),
                             void *arg, const char *name);

/* Between the two, a write that fails raises no signal (SIGPIPE, SIGXFSZ) that
 * would end a host without a handler: it is but an errno, which is kept. */
typedef struct fl_hush {
    sigset_t mask, pending; /* as they were */
} fl_hush;

void fl_hush_begin(fl_hush *h);
void fl_hush_end(const fl_hush *h);

/* How many processors this process may use. */
int fl_cpu_count(void);

/* Grows in a child after fork(): handles made before do not work there. */
uint64_t fl_fork_generation(void);

/* A pool for parallel regions that follow each other within microseconds:
 * idle threads spin for a while, then sleep. The thread that calls
 * fl_pool_run() works too, so a pool of 1 has no thread of its own. */
typedef struct fl_pool fl_pool;
typedef void fl_task(void *arg, int task, int thread);

fleet_status fl_pool_create(fl_pool **pool, int n_thread);
void fl_pool_destroy(fl_pool *pool);
int fl_pool_size(const fl_pool *pool); /* 1 for NULL */

/* A pool serves one caller at a time: who does not get it works alone. NULL
 * is never got. */
bool fl_pool_acquire(fl_pool *pool);
void fl_pool_release(fl_pool *pool);

/* Run task(arg, i, thread) for i in [0, n), n < 2^20, each once, in any order;
 * returns when all are done, with everything they wrote visible. */
void fl_pool_run(fl_pool *pool, int n, fl_task *task, void *arg);

#endif
