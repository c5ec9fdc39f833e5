/* executor.h - run a program on what the caller feeds.
 *
 * An executor owns the memory of one program's iterations. Several executors
 * may share a handle's parameters: one that trains and one that tests, say.
 *
 * Threads: an executor is used by one thread at a time. Executors of one handle
 * may run at the same time: executors that train, or count a metric, wait for
 * each other. Inside, an iteration uses the handle's compute threads; results
 * do not depend on how many there are.
 */
#ifndef FLEET_EXECUTOR_H
#define FLEET_EXECUTOR_H

#include <fleet/program.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fleet_executor fleet_executor;

typedef struct fleet_executor_options {
    int for_test; /* nonzero: forward only, though the program is trained */
    int64_t max_batch; /* batches up to this size share one plan, so that a
                          short last batch costs no set-up; 0: a plan for each
                          batch size. Sums over a short batch then are cut as
                          those over a full one: other last bits than a plan of
                          its own. A pass over a dataset raises it to the
                          dataset's batch_size */
    fleet_place place; /* 0: where the program says; FLEET_CPU: all of it on the
                          CPU, whatever the program says */
} fleet_executor_options;

/* fleet_executor_create - an executor of a program; seals the program and makes
 * the parameters, tables and states of it that the handle does not have yet.
 * options may be NULL. NULL: see fleet_last_error(). */
FLEET_API fleet_executor *fleet_executor_create(
    fleet_program *program, const fleet_executor_options *options);
FLEET_API void fleet_executor_destroy(
    fleet_executor *executor); /* NULL: fine */

/* What one data variable gets. The memory stays the caller's and must not
 * change during the call. */
typedef struct fleet_feed {
    const char *name;    /* of the variable */
    fleet_dtype dtype;   /* of data: the variable's */
    const void *data;    /* row-major */
    const int64_t *dims; /* n_dim of them; dims[0] is the batch where the
                            variable has -1. Ragged: {rows} alone */
    int n_dim;
    const int64_t *offsets; /* ragged: rows + 1, the first 0, not falling; row
                     i's values are data[offsets[i] .. offsets[i+1]) */
} fleet_feed;

/* Where a variable's value goes. */
typedef struct fleet_fetch {
    const fleet_var *var;
    void *data; /* size bytes of the caller's, row-major, in the variable's
                   type; NULL: only dims are set */
    size_t size;
    int64_t dims[FLEET_MAX_DIM]; /* set by the call, also by one that fails
                                    for size */
    int n_dim;
} fleet_fetch;

/* fleet_executor_run - one iteration: feed, compute, fetch; with
 * fleet_minimize() also the backward pass and the update (every k-th time with
 * gradient merge). A fetched parameter is that after the update.
 *
 * Every data variable that the result depends on must be fed, all with the same
 * batch.
 *
 * In a synchronous job, and among ranks, an update waits for the gradients of
 * all workers; fleet_barrier_worker() is for unequal numbers of batches.
 *
 * Feeds and fetches are checked first: a call that refuses one has trained and
 * counted nothing.
 *
 *   FLEET_ENOENT   a variable without a feed, or a feed without a variable
 *   FLEET_ESHAPE   a feed's shape, with the variable, what was expected and
 *                  what came; a fetch's memory that is too small
 *   FLEET_EDTYPE   likewise
 *   FLEET_EINVAL   an id out of range; a feed twice, without data or with wrong
 *                  offsets; weights with other offsets than their ids
 *   FLEET_ENUMERIC the loss is not a finite number: the text names the operator
 *                  and the batch; ftrl's learning rate is too small: see
 *                  optimizer.h; nothing was updated
 *   FLEET_EUNSUPPORTED  a fetch of a table or of a ragged variable
 *   FLEET_ESTATE   after fork, after a load that stopped half-way; in a
 *                  server; in a worker before fleet_init_worker() or after
 *                  fleet_stop_worker(); inside a merge group a larger batch,
 *                  or a fetch that is new
 *   FLEET_ETIMEDOUT a GPU was not done within 60 s
 *   FLEET_ENOMEM
 *
 * On a GPU an iteration is queued. FLEET_ENUMERIC, and FLEET_EINVAL for an id
 * or label, may then come from the call after the next one, or from the next
 * that fetches or flushes: with the batch's number, and nothing was updated
 * from it on. Ranks are told by the call itself.
 */
FLEET_API fleet_status fleet_executor_run(fleet_executor *executor,
                                          const fleet_feed *feed, int n_feed,
                                          fleet_fetch *fetch, int n_fetch);

/* fleet_executor_flush - end a merge group that is not full: what was gathered
 * is applied as the mean (or sum) of the batches that came. Does nothing if
 * there is none. Passes over datasets end with it. */
FLEET_API fleet_status fleet_executor_flush(fleet_executor *executor);

#ifdef __cplusplus
}
#endif

#endif
