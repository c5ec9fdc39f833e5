/* handle.h - the inside of a fleet handle: what the public `fleet *` points
 * to. */
#pragma once

#include <fleet/fleet.h>

#include <stdatomic.h>

#include "base/json/json.h"
#include "data/stream.h"
#include "fleet/job/job_mode.h"
#include "runtime/device/context.h"
#include "runtime/plan/agree.h"
#include "runtime/store/store.h"

struct fleet {
    fl_context context; /* first: what belongs to the handle knows this */
    fl_store *store;
    fleet_program **program; /* not destroyed yet */
    size_t n_program, program_capacity;
    fleet_optimizer *optimizers;
    fleet_dataset *datasets;
    struct fleet_psgpu *psgpu; /* NULL: none */
    fl_statistics loaded; /* of a checkpoint, for datasets to come; n 0: none */
    struct fl_saved_position *saved_position; /* of it, likewise */
    int n_saved_position;
    struct fl_trail_mark *mark; /* where this worker goes on that was started
                                   again, until it does; NULL */
    int n_begun;                /* datasets that have trained */
    bool read_stdin;            /* standard input was some dataset's */
    unsigned stops_met; /* how many wishes to stop this handle has met */
    int64_t unsaved;    /* batches since the last save by fleet_save_every */
    int64_t saved_ns;   /* when that was; 0: there was none */
    struct fl_save_chain *chain; /* of fleet_save_every's last saves; NULL */
    struct fl_save_link *link;   /* what its next one is to be; NULL: a save of
                                    its own */
    const char *link_path;       /* where that goes */
    void *extra;                 /* what the user has saves hold */
    size_t extra_size;
    fl_role role;
    struct fl_worker_io *worker_io;    /* to the servers; NULL: none */
    struct fl_stage_job *stage_job;    /* of a program in stages; NULL: none */
    fl_agree agree;                    /* with the other ranks, once joined */
    struct fl_sharded_tables *sharded; /* tables of ranks; NULL: none */
    struct fl_remote_hybrid *hybrid;   /* servers and ranks; NULL: not both */
    bool loads;                        /* has loaded a checkpoint */
    fl_comm *comm;             /* of a rank that has joined; NULL: none */
    struct fl_server *server;  /* made, not run yet; NULL: none */
    struct fl_server *replica; /* copies of another server's lanes, beside it;
                                  NULL: none */
    struct fl_scheduler *scheduler; /* of a process that is one; NULL: none */
    fl_address replica_address;
    int spare_listener;  /* of lane 0, for a server that takes the place of
                           f->server; 0: none */
    atomic_bool serving; /* in fleet_run_server() */
    fl_text terms;       /* the strategy, as processes compare it */
    fl_text load; /* what the servers are told to load once this worker has
                     connected, a line each */
    fleet_distributed_strategy strategy; /* of fleet_distributed_optimizer();
                                            the default without it */
    fleet_program *trained;              /* by fleet_minimize(), the last one */
    int64_t made_ns;                     /* when the handle was made */
};

static inline fleet *fl_handle_of(fl_context *context)
{
    return (fleet *)(void *)context;
}

/* How its job trains, as far as the strategy is known. */
static inline fl_job_mode fl_handle_mode(const fleet *f)
{
    return fl_job_mode_of(&f->role, &f->strategy);
}

/* FLEET_EINVAL without a handle, FLEET_ESTATE after fork; what names the
 * call. */
fleet_status fl_handle_check(const fleet *f, const char *what);
/* FLEET_ESTATE in a server, too: its parameters are the job's. */
fleet_status fl_handle_check_worker(const fleet *f, const char *what);

/* The same of a call that writes, which is no part of a training pass:
 * FLEET_ESTATE within one. */
fleet_status fl_handle_check_writer(const fleet *f, const char *what);

/* An optimizer of the handle, its numbers as fl_optimizer_create() takes
 * them. */
fleet_optimizer *fl_handle_optimizer(fleet *f, fl_rule_kind kind,
                                     float learning_rate,
                                     const float number[FL_MAX_NUMBER]);
