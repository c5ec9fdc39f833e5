/* remote.h - a remote: the processes that keep parameters and rows in place of
 * this one. This is the interface between plans and src/ps, or sharded tables,
 * which the facade connects. A store without a remote trains by itself.
 *
 * A worker's store then has copies of the dense weights, which a pull renews,
 * and of tables nothing but their names. An iteration of a trained program is
 *
 *     pull(t + 1)      a prefetch: while t is computed the rows of t + 1
 *                      travel, and are copied to a GPU that needs them
 *     wait_pull(t)     rows of t have come, dense weights are renewed
 *     ... forward, backward ...
 *     push(t)
 *     wait_update(t)
 *
 * In sync the rows of t + 1 are those after push(t): pull(t + 1) then comes
 * between push(t) and wait_update(t), so that its keys are sorted while the
 * servers update. Nothing is prefetched while the next batch is not known. A
 * prefetch that fails is dropped, and made again when its own iteration begins.
 *
 * Threads: one at a time, under the store's lock and on the thread that called
 * the executor.
 */
#pragma once

#include "runtime/optim/update_settings.h"
#include "runtime/plan/norm_list.h"

/* Pull slots: for the pull of this iteration, and for that of the next; behind
 * them, where the remote is a worker's, one for each trainer thread. */
enum {
    FL_N_SLOT = 2,
    FL_MOST_MEMBERS = 64, /* trainer threads of a pass */
    FL_MOST_PULL_SLOT = FL_N_SLOT + FL_MOST_MEMBERS
};

/* What a pull asks of one table: keys in, rows out. Each key once. */
typedef struct fl_pull_part {
    const uint64_t *key; /* n of them, of that part (table_api.h) */
    int64_t n;
    const float **row; /* n of them: set by wait_pull(), or came(), valid until
                          the slot's next pull or drop */
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
    fl_update_settings settings; /* of this update, what parameters change
                                    left out */
    float clip; /* factor of a clip that this process worked out; 1: none */
    const fl_update *update; /* as this process would make it, of all ranks'
                                batches, and of gradients as they stand */
    float loss_scale; /* this worker's, which `update` knows and servers do not:
                         gradients travel divided by it; 0: none */
    float mean;       /* factor that makes gradients of moving averages means of
                   batches where they are divided by n_batch; 0: 1 */
} fl_push;

/* Of gradients that travel to servers, which know no scale of this worker's
 * loss. */
static inline float fl_push_factor(const fl_push *p)
{
    return p->loss_scale > 0 ? 1.0f / p->loss_scale : 1.0f;
}

static inline float fl_push_mean(const fl_push *p)
{
    return p->mean > 0 ? p->mean : 1.0f;
}

/* Beside it, where such gradients are multiplied by a clip before they leave:
 * moving averages are means, which nothing clips. */
static inline float fl_push_param_factor(const fl_push *p, const fl_param *of,
                                         float clip)
{
    return of->attr.average == 0 ? clip : fl_push_mean(p);
}

typedef struct fl_remote fl_remote;

typedef struct fl_remote_class {
    /* Ask for rows and, if dense, for the weights. prefetch: of the version
     * after the push that comes next, or that is not waited for yet; else of
     * the present one. now, for what is neither trained nor to be exact (an
     * executor for test): of any version. Arrays stay the caller's until
     * wait_pull() or drop(). */
    fleet_status (*pull)(fl_remote *x, int slot, const fl_pull_rows *table,
                         int n_table, bool dense, bool prefetch, bool now);
    fleet_status (*wait_pull)(fl_remote *x, int slot);

    /* Does not wait. Of a pull that is under way: have its rows come? Then they
     * are set, as by wait_pull(), which is called all the same: it brings the
     * weights, and returns what has failed. NULL: not known before. */
    bool (*came)(fl_remote *x, int slot);

    /* The slot's rows are not used any more: also of a slot whose pull failed,
     * that was waited for, or that is empty. */
    void (*drop)(fl_remote *x, int slot);

    /* If workers are ranks, and not for servers in async: before a push, which
     * is then given the same. Squares of gradients of what the remote keeps,
     * of all workers, are put into `all`, which has all other squares. The
     * factor of the clip by global norm is made of it, the same for all. */
    fleet_status (*clip)(fl_remote *x, const fl_push *p, fl_norm_list *all,
                         float *factor);

    /* Send an update. In half-async it may be kept, to be sent in one with the
     * next pushes. */
    fleet_status (*push)(fl_remote *x, const fl_push *p);

    /* After each push: in sync it returns once all workers' was applied and
     * the dense weights of then have come. */
    fleet_status (*wait_update)(fl_remote *x);

    /* The worker's pass is over: returns when that of all is, with the dense
     * weights of then, and sum[] added up over the workers. */
    fleet_status (*end_pass)(fl_remote *x, double *sum, int n);

    /* The dense weights of now. */
    fleet_status (*refresh)(fl_remote *x);
} fl_remote_class;

/* Has the store a remote, and does that keep any dense parameter? */
bool fl_remote_has_dense(const fl_store *s);

/* Is an update, skipped or not, pushed and waited for? One that is skipped is
 * not, except by a worker in sync: it takes part in the other workers' step,
 * and brings nothing. Ranks all skip alike, so that no step is made. */
bool fl_remote_gets_update(const fl_store *s, bool skipped);

/* After it the dense weights of all stages are the latest. Under the store's
 * lock, written. */
fleet_status fl_remote_catch_up(fl_store *s);

struct fl_remote {
    const fl_remote_class *methods;
    bool sync;       /* every step of every worker is part of one update */
    int64_t updates; /* that were done, as far as this process knows */

    /* Of a worker in sync that is no rank: it wants all workers to stop after
     * its next update; and one of the workers wanted that of an update that
     * this one has waited for. */
    bool wants_stop, stops;

    /* The last update has brought the weights of this process's stage alone:
     * weights of other stages are older. */
    bool behind;

    /* Which of the first FL_N_SLOT slots executors have: from a pull to its
     * iteration's end, or to its drop. The executors' alone. */
    bool taken[FL_N_SLOT];
};
