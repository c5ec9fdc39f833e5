/* pool.h - threads that share the tasks of one region after the other. */
#pragma once

#include <stdbool.h>
#include "base/error.h"

/* A pool for parallel regions that follow each other within microseconds:
 * idle threads spin for a while, then sleep. The thread that calls
 * fl_pool_run() works too, so a pool of 1 has no thread of its own. */
typedef struct fl_pool fl_pool;
typedef void fl_task(void *arg, int task, int thread);

fleet_status fl_pool_create(fl_pool **pool, int n_thread);
void fl_pool_destroy(fl_pool *pool);
int fl_pool_size(const fl_pool *pool); /* 1 for NULL */

/* A pool serves one caller at a time: a caller that does not get it works
 * alone. NULL is never got. */
bool fl_pool_acquire(fl_pool *pool);
void fl_pool_release(fl_pool *pool);

/* Run task(arg, i, thread) for i in [0, n), n < 2^20, each once, in any order;
 * returns when all are done, with everything they wrote visible. */
void fl_pool_run(fl_pool *pool, int n, fl_task *task, void *arg);

/* The same by a pool that is to be had, or else by this thread alone. */
void fl_pool_share(fl_pool *pool, int n, fl_task *task, void *arg);
