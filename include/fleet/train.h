/* train.h - passes over a dataset.
 *
 * Threads: a call uses its executor and its dataset; both belong to the calling
 * thread meanwhile.
 */
#ifndef FLEET_TRAIN_H
#define FLEET_TRAIN_H

#include <fleet/dataset.h>
#include <fleet/executor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Called after every batch: with its number in the pass, from 1, and how many
 * samples it has. A nonzero result ends the pass, which then is FLEET_OK; what
 * comes next is the next pass. See fleet_train_stop() for a pass that goes on
 * later. */
typedef int fleet_batch_callback(void *user, int64_t batch, int64_t samples);

/* Saves that a training makes by itself: checkpoint-000001, checkpoint-000002,
 * ... in a folder. One is also made when fleet_train_stop() has stopped a pass.
 * All-zero fields are defaults. */
typedef struct fleet_save_every {
    const char
        *folder;    /* made if it does not exist, in one that does; what else
                       is in it stays */
    int64_t steps;  /* batches of this worker between two; 0: any number */
    double seconds; /* between two; 0: any time */
    int keep;       /* so many stay, the newest; 0: 3. Beside them those that
                       one of them adds to */
    /* So many saves in a row have only the rows that have changed since the one
     * before, and what is no row; the one behind them has all rows again, as
     * has one when they have as many bytes as the last such. 0: each has all
     * rows. A save that adds to others is loaded as any other, while those are
     * beside it. Of servers and ranks each notes what came and went of its
     * rows: 8 bytes for each key. A load, fleet_shrink() of tables with an
     * accessor, and a save in another mode have the next one be whole. */
    int incremental;
    /* What writes one, to that path; NULL: fleet_save_persistables(). With
     * `incremental` it may be called twice, where a process does not know what
     * has changed. */
    fleet_status (*save)(void *user, struct fleet *fleet, const char *path);
    void *user;
} fleet_save_every;

/* fleet_newest_checkpoint - the path of the newest save that fleet_save_every
 * has made in the folder, for fleet_free(). Each is read and checked as a load
 * does it; one that is damaged is passed over for the one before it.
 *
 *   FLEET_ENOENT  there is none
 *   FLEET_ECORRUPT  there is none that is not damaged: the last one that was
 *                 tried is named, and what is wrong with it
 *   FLEET_EIO     the folder cannot be read
 */
FLEET_API fleet_status fleet_newest_checkpoint(const char *folder, char **path);

/* All-zero fields are defaults. */
typedef struct fleet_train_options {
    /* Every print_period-th batch (0: 100) a log line in Fleet's form:
     * time: [2022-05-18 11:27:27], batch: [1], loss[1]:[0.666739]
     * On a GPU a line waits for its batch, but for one with nothing but the
     * training's loss: that comes two batches later, or as the pass ends. */
    const fleet_var *const *fetch_list;
    const char *const *fetch_info; /* n_fetch names; NULL: the variables' */
    int n_fetch;
    int64_t print_period;
    fleet_batch_callback *on_batch;
    void *user;
    /* Saves by itself, in a job by the first worker; with gradient merge at the
     * end of a merge group. One that the disk refuses is a warning, and the
     * training goes on; but the one after a stop is FLEET_EIO, and the pass is
     * stopped nevertheless. NULL: none. */
    const fleet_save_every *save_every;

    /* Trainer threads, up to 64; 0, 1: the caller's alone. They train in
     * rounds: of each n batches in turn every thread computes one, at the same
     * time as the others, and then all meet; lines and on_batch, on the
     * caller's thread, come where they meet, and a pass that on_batch ends has
     * trained the whole round. Threads share out the handle's num_threads and
     * add none. Fleet's `thread`, but 0 is not the dataset's thread_num, and
     * hogwild is not the default (docs/trainer-threads.md). */
    int thread;

    /* 0: the n gradients are added in the order of their batches, and are one
     * update: n batches train as one that is n times as large, with the bits
     * of gradient_merge, whose k_steps count rounds then. Nonzero: each
     * thread's gradient is an update of its own as soon as it is there, at
     * weights that may lack up to n - 1 of the others' (F. Niu et al. 2011,
     * arXiv:1106.5730): as many updates as with one thread, and other bits in
     * each run. */
    int hogwild;
} fleet_train_options;

/* Of a training pass with parameter servers or of ranks: batches, samples and
 * loss over all workers; if it has gone on after a load, of what came since,
 * and a loss that is not a number if all had been trained. */
typedef struct fleet_train_result {
    int64_t batches, samples;
    double seconds; /* to the last step: from the first one in an executor's
                       first pass, then from the call on. The sum over passes
                       leaves out the start and what is between them */
    double loss;    /* mean over the samples; 0 without a loss */
    int stopped;    /* 1: by fleet_train_stop(), in the middle of the pass */
    int64_t pass;   /* how many passes over the dataset came before this one */
    int64_t batch;  /* of this worker, that are trained of the pass */
    int64_t bad_lines; /* left out, see max_bad_lines: as samples, of all
                          workers of a job; those of a part of the pass that
                          another run has trained count, too */
} fleet_train_result;

/* fleet_train_from_dataset - one pass over this worker's share of the dataset
 * (dataset.h): read, step, until the data ends. A merge
 * group that is not full at the end is applied as it is. options and result may
 * be NULL. Files without a sample are FLEET_OK; if no worker has a sample, the
 * log has a warning.
 *
 * With parameter servers, and among ranks, the pass ends for all workers
 * together: it returns
 * when every worker's data, or callback, has ended it. A worker without a batch
 * of its own takes part, too, so all must run as many passes; one that is done
 * for good calls fleet_stop_worker(). One batch more than the current one is
 * read.
 *
 *   FLEET_ENOENT   a variable that no slot feeds; a file that does not exist
 *   FLEET_EDTYPE, FLEET_ESHAPE  a slot that does not fit its variable
 *   FLEET_EFORMAT  a malformed line: file, line number and slot are named
 *   FLEET_ECHILD   the pipe_command failed
 *   FLEET_ETIMEDOUT  it gave nothing for pipe_timeout_ms
 *   FLEET_ENUMERIC the loss is not finite
 *   FLEET_EINVAL   thread is not 0 to 64
 *   FLEET_EIO      save_every's folder cannot be made: no batch was trained
 *   FLEET_EUNSUPPORTED  thread above 1 on a GPU, in a job of stages, with a
 *                  cache of rows (vocab_cache_size), among ranks, in
 *                  float16, with a table that has a memory cap; hogwild with
 *                  gradient_merge, lars or lamb
 *   FLEET_ESTATE   an executor that does not train, a dataset without files,
 *                  a server; in a job, before fleet_init_worker()
 *   FLEET_EPEER, FLEET_ETIMEDOUT  a server or another worker is gone, or has
 *                  kept the other workers waiting: it is named
 * What was trained before the failing batch stays; a merge group under way is
 * given up, and so is a round without hogwild.
 */
FLEET_API fleet_status fleet_train_from_dataset(
    fleet_executor *executor, fleet_dataset *dataset,
    const fleet_train_options *options, fleet_train_result *result);

/* fleet_train_stop - let the training passes of this process stop: one that is
 * under way after the batch that it is at, or, with gradient merge, after the
 * last one of its merge group. Then it is FLEET_OK with result->stopped; the
 * next call for its dataset goes on with the next batch, in this process or, by
 * fleet_load_model() of a save that was made after the stop, in a later one.
 * Both are then to the bit what one that was not stopped is: parameters,
 * states, the shuffle, the learning rate; in one process also the pass's loss
 * and its result, whose seconds alone are those since it went on. Files are
 * read again from their beginning, and what was trained is passed over
 * unparsed.
 *
 * Each handle stops once, also one that trains no pass now: its next pass stops
 * before its first batch. Handles that are made later do not.
 *
 * What is in no save, such as what ranks with dgc have not sent yet, is named
 * in a warning as the training goes on. Metrics start anew.
 *
 * In a job whose workers make updates together (sync servers, ranks) all
 * workers stop after the same update, if one of them wants to that still has
 * batches: result->stopped of all is 1. A save of worker 0, made then, or in
 * the middle of a pass, is where all of them go on, and all load it. In async,
 * and with local SGD, each worker stops alone, and after a load the pass begins
 * anew, with a warning.
 *
 * Threads: any, and signal handlers.
 */
FLEET_API void fleet_train_stop(void);

/* fleet_infer_from_dataset - the same with an executor for test, over all of
 * the dataset: nothing is trained; metric states count. In a job it is the
 * calling worker's alone, and other workers need not call it: servers give
 * their parameters, other ranks the rows of their tables, whenever they wait
 * (docs/collective.md). */
FLEET_API fleet_status fleet_infer_from_dataset(
    fleet_executor *executor, fleet_dataset *dataset,
    const fleet_train_options *options, fleet_train_result *result);

#ifdef __cplusplus
}
#endif

#endif
