/* role.h - the role of this process in a job: what fleet_options.role or the
 * environment says, checked, with everything that talking to the job's other
 * processes needs to know.
 */
#pragma once

#include <fleet/init.h>

#include "fleet/role/scheduler_peer.h"
#include "fleet/role/stage_role.h"

typedef enum fl_deadline {
    FL_CONNECT_DEADLINE,
    FL_REQUEST_DEADLINE,
    FL_PEER_DEADLINE,
    FL_STEP_DEADLINE,
    FL_N_DEADLINE
} fl_deadline;

typedef struct fl_role {
    fleet_role_kind kind;
    int index; /* among its kind */
    int worker_num, server_num;
    bool collective; /* the workers are ranks, which can find one another: all
                        of several without servers; beside servers: hybrid */
    int gpu;         /* of a worker */
    fl_address first_rank; /* where rank 0 can be met; "": not said */
    fl_address *server; /* server_num of them: "tcp://ip:port", "inproc://name";
                           a server's own is the index-th. There is room for
                           FL_MOST_SERVER: of servers that have joined */
    bool joins;         /* a server that comes to a job that runs: its index is
                   server_num or more, its address that one's of server */
    bool schedules;     /* it is the job's scheduler, and no server: by kind it
                   is one, as its program does what a server's does */
    fl_scheduler_env
        scheduler_env;            /* of the scheduler, and the folder of its */
    char *scheduler_keys;         /* keys; NULL: none */
    fl_scheduler_peer *scheduler; /* of a process that it has told its place */
    char *endpoints;              /* as they were given; NULL: none */
    char *job_id;                 /* never NULL */
    int deadline_ms[FL_N_DEADLINE];
    fl_keys *keys; /* NULL: none are used */
    bool insecure; /* FLEET_INSECURE=1: nor are they wanted */
    fl_stage_role stages;
    bool tcp_only; /* FLEET_TRANSPORT=tcp: no ipc between processes of a host */

    int listen_fd;      /* a server's: lane 0's socket; rank 0's: of first_rank.
                      -1: it has none, and binds what it needs */
    bool owns_listener; /* this process has bound it, and no server has taken
                           it yet */

    /* of a server */
    int lanes;
    int lane_port[FL_MOST_LANE]; /* of lanes from 1 on; 0: the kernel's
                                    choice */
    bool no_sigterm_handler, keep_descriptor_limit;
} fl_role;

/* From options->role, or from the environment if that is NULL; fails as
 * fleet_init() says. *role may always be given to fl_role_done(). */
fleet_status fl_role_open(fl_role *role, const fleet_options *options);
void fl_role_done(fl_role *role);

/* Of a worker or heter worker: its number among the streams of the job's
 * servers, and of its keys: heter workers come behind the workers. */
static inline int fl_role_stream(const fl_role *r)
{
    return r->index + (r->kind == FLEET_HETER_WORKER ? r->worker_num : 0);
}

/* Streams of the job's servers: workers, then heter workers. */
static inline int fl_role_streams(const fl_role *r)
{
    return r->worker_num + r->stages.n_heter;
}

/* The keys of a process that talks to the role's servers, or meets its ranks:
 * from that folder, NULL: from FLEET_KEYS. *keys stays if it needs none. */
fleet_status fl_role_read_keys(const fl_role *role, const char *folder,
                               fl_key_role as, int index, fl_keys **keys);
