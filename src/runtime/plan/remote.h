/* remote.h - how an iteration talks to those who keep the parameters, when
 * they are not in this process: the interface between plans and src/ps (servers
 * today, caches and others later), which the facade connects. A store without
 * one trains by itself.
 *
 * A worker's store then has copies of the dense weights, which a pull renews,
 * and of tables no more than their names. An iteration of a trained program is
 *
 *     pull(t + 1)      ahead: while the rows of t + 1 travel, t computes
 *                      (on a GPU; then they are copied there meanwhile, too)
 *     arrive(t)        rows of t are there, dense weights are renewed
 *     ... forward, backward ...
 *     push(t)
 *     settle
 *
 * In sync the rows of t + 1 are those after push(t): pull(t + 1) then comes
 * between push(t) and settle, so that its keys are sorted out while the servers
 * update. Nothing is pulled ahead where the next batch is not known yet. A pull
 * ahead that fails is dropped, and made again when its own iteration begins.
 *
 * Threads: one at a time, under the store's lock and on the thread that called
 * the executor; but stop and fail from any.
 */
#ifndef FL_RUNTIME_PLAN_REMOTE_H
#define FL_RUNTIME_PLAN_REMOTE_H

#include "runtime/store/store.h"

/* Pulls under way: that of this iteration, and that of the next. */
enum { FL_N_SLOT = 2 };

/* What a pull asks of one table: keys in, rows out. Each key once. */
typedef struct fl_pull_part {
    const uint64_t *key; /* n of them, of that part (table_api.h) */
    int64_t n;
    const float **row; /* n of them: set by arrive(), valid until the slot's
                          next pull or drop; or by came() */
} fl_pull_part;

typedef struct fl_pull_rows {
    const fl_rows *rows;
    fl_pull_part part[FL_N_PART];
} fl_pull_rows;

/* What a push brings of one table: gradients summed over the merge group. */
typedef struct fl_push_part {
    int64_t n;
    const uint64_t *key;      /* of the i-th: key[which ? which[i] : i] */
    const uint32_t *which;    /* NULL: as they stand */
    const float *const *grad; /* dim floats each */
} fl_push_part;

typedef struct fl_push_rows {
    const fl_rows *rows;
    fl_push_part part[FL_N_PART];
} fl_push_rows;

typedef struct fl_push_param {
    const fl_param *param;
    const float *grad; /* param->n of them, summed over the merge group */
} fl_push_param;

typedef struct fl_push {
    const fl_push_param *param;
    int n_param;
    const fl_push_rows *table;
    int n_table;
    int n_batch; /* that the sums are of; 1 where they are not averaged, 0 of a
                    rank that brings nothing, or that says nothing of it */
    float learning_rate; /* of this update, factors of parameters left out */
    float clip; /* factor of a clip that was worked out here; 1: none */
    const fl_update *update; /* as it would be made here, of all ranks' batches,
                                and of gradients as they stand */
    float loss_scale; /* this worker's, which `update` knows and servers do not:
                         gradients travel divided by it; 0: none */
} fl_push;

/* Of gradients that travel to who knows no scale of this worker's loss. */
static inline float fl_push_factor(const fl_push *p)
{
    return p->loss_scale > 0 ? 1.0f / p->loss_scale : 1.0f;
}

typedef struct fl_remote fl_remote;

typedef struct fl_remote_class {
    /* Ask for rows and, if dense, for the weights. ahead: of the version after
     * the push that comes next, or is not settled yet; else of the one that
     * there is. What
     * is neither trained nor to be exact (an executor for test) says now: of
     * whatever there is. Arrays stay the caller's until arrive() or drop(). */
    fleet_status (*pull)(fl_remote *x, int slot, const fl_pull_rows *table,
                         int n_table, bool dense, bool ahead, bool now);
    fleet_status (*wait_pull)(fl_remote *x, int slot);

    /* Does not wait. Of a pull that is under way: have its rows come? Then they
     * are set, as by arrive(), which is called all the same: it brings the
     * weights, and tells what has failed. NULL: that is not known before. */
    bool (*came)(fl_remote *x, int slot);

    /* Nobody will ask for it, or use its rows any more: also of a slot whose
     * pull or arrival failed, that has arrived, or that is empty. */
    void (*drop)(fl_remote *x, int slot);

    /* In sync, where dense parameters are updated here: before a push, which
     * is then given the same. What the rows' gradients of all workers add to
     * `squares`, those of the dense gradients, makes the factor of the clip by
     * global norm, the same for all. */
    fleet_status (*clip)(fl_remote *x, const fl_push *p, double squares,
                         float *factor);

    /* Send an update. */
    fleet_status (*push)(fl_remote *x, const fl_push *p);

    /* After each push: in sync it returns once all workers' was applied and
     * the dense weights of then are there. */
    fleet_status (*wait_update)(fl_remote *x);

    /* The worker's pass is over: returns when that of all is, with the dense
     * weights of then, and sum[] added up over the workers. */
    fleet_status (*end_pass)(fl_remote *x, double *sum, int n);

    /* The dense weights of now. */
    fleet_status (*refresh)(fl_remote *x);
} fl_remote_class;

/* Is there one, and does it keep any dense parameter? */
bool fl_keeps_dense(const fl_store *s);

/* Of an update, skipped or not: is it pushed and settled? One that is skipped
 * is not, but in sync by a worker alone: it is part of others' step, which it
 * brings nothing. Ranks all skip alike, so there is no step. */
bool fl_remote_is_told(const fl_store *s, bool skipped);

struct fl_remote {
    const fl_remote_class *methods;
    bool sync;       /* every step of every worker is part of one update */
    int64_t updates; /* that were done, as far as it is known here */

    /* Slots that executors have: from a pull to its iteration's end, or to its
     * drop. Theirs alone. */
    bool taken[FL_N_SLOT];
};

#endif
