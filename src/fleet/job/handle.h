/* handle.h - the inside of a fleet handle. */
#ifndef FL_FLEET_HANDLE_H
#define FL_FLEET_HANDLE_H

#include <fleet/fleet.h>

#include <stdatomic.h>

#include "base/json.h"
#include "data/stream.h"
#include "fleet/role.h"
#include "runtime/device/context.h"
#include "runtime/plan/agree.h"
#include "runtime/store/store.h"

struct fleet {
    fl_context context; /* first: what belongs to the handle knows this */
    fl_store *store;
    fleet_program **program; /* those that live */
    size_t n_program, program_capacity;
    fleet_optimizer *optimizers;
    fleet_dataset *datasets;
    fl_statistics loaded; /* of a checkpoint, for datasets to come; n 0: none */
    fl_role role;
    struct fl_worker_io *worker_io; /* of a worker to its servers; NULL: none */
    fl_agree agree;                 /* of the peers */
    struct fl_sharded_tables *sharded; /* tables of ranks; NULL: none */
    struct fl_remote_hybrid *hybrid;   /* of both; NULL: not both are there */
    bool loads;                        /* a checkpoint was loaded */
    fl_comm *comm;            /* of a rank that has joined; NULL: none */
    struct fl_server *server; /* made, not run yet; NULL: none */
    atomic_bool serving;      /* in fleet_run_server() */
    fl_text terms;            /* of the strategy, while a job is joined */
    char *load; /* a checkpoint for the servers, once there is a link */
    fleet_distributed_strategy strategy; /* of fleet_distributed_optimizer();
                                            the default without it */
    fleet_program *trained;              /* by fleet_minimize(), the last one */
    int64_t made_ns;                     /* when */
};

static inline fleet *fl_handle_of(fl_context *context)
{
    return (fleet *)(void *)context;
}

/* FLEET_EINVAL without a handle, FLEET_ESTATE after fork; what names the call.
 */
fleet_status fl_handle_check(const fleet *f, const char *what);
/* FLEET_ESTATE in a server, too: its parameters are those of the job. */
fleet_status fl_handle_check_worker(const fleet *f, const char *what);

/* How a job trains, by its role and its strategy. */
typedef enum fl_job_mode {
    FL_LOCAL,
    FL_PS_SYNC,
    FL_PS_ASYNC,
    FL_COLLECTIVE,
    FL_HYBRID_SYNC,  /* rows on servers, dense parameters by ranks */
    FL_HYBRID_ASYNC, /* the same, rows without waiting */
    FL_N_JOB_MODE
} fl_job_mode;
fl_job_mode fl_job_mode_of(const fl_role *role,
                           const fleet_distributed_strategy *s);
const char *fl_job_mode_name(fl_job_mode mode); /* "ps-sync" */

static inline bool fl_mode_is_sync(fl_job_mode mode)
{
    return mode != FL_PS_ASYNC && mode != FL_HYBRID_ASYNC;
}

/* Do workers sum dense gradients among themselves? */
static inline bool fl_mode_has_ranks(fl_job_mode mode)
{
    return mode == FL_COLLECTIVE || mode == FL_HYBRID_SYNC ||
           mode == FL_HYBRID_ASYNC;
}

/* strategy_read.c */
fleet_status fl_strategy_read(const fl_at *at, fleet_distributed_strategy *s);

/* strategy_report.c: what all processes of a job must have in common, appended:
 * the mode, then each honoured field that is not as it is by default. */
void fl_strategy_terms(const fleet *f, fl_text *out);

/* strategy_lars_lamb.c: strategy.lars and strategy.lamb. Have numbers that were
 * changed an effect, and is the optimizer the one that they change? */
fleet_status fl_layerwise_check_numbers(const fleet_distributed_strategy *s);
fleet_status fl_layerwise_check(const fleet_distributed_strategy *s,
                                const fleet_optimizer *o);
fl_layerwise fl_layerwise_of(const fleet_distributed_strategy *s);

#endif
