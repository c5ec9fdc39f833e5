/* job.h - the processes of a job: what each one is, where it listens, where its
 * output goes. */
#pragma once

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/text.h"
#include "folders.h"
#include "nodes.h"
#include "options.h"
#include "output.h"

/* How often a process was started again; watch_restart.c. */
typedef struct run_restarts {
    int n;        /* in all */
    int n_window; /* since `window`, in ms */
    int64_t window;
    int n_quick;     /* one after the other, of one that soon died */
    int64_t started; /* when it was the last time; 0: never */
    int64_t due;     /* when it will be; 0: it will not */
    char why[80];    /* how the one before ended, in words */
} run_restarts;

typedef struct run_process {
    bool is_server, is_mpirun; /* else a worker, or with a stage: */
    bool joins;     /* a server that the job does not begin with: it is this
                    node's once fleetctl has asked for it */
    bool counts;    /* one that joins is the job's by now: so is its failure */
    int stage;      /* of a heter worker, from 1 on; else 0 */
    int gpu;        /* of a heter worker on one; else -1 */
    bool by_mpirun; /* a rank that mpirun starts, see agents.h */
    int index;      /* among its kind, of all nodes */
    int local_rank;
    char *host;
    int port;
    bool is_local;        /* it is started by this fleetrun */
    int socket;           /* bound to its port, until it is started; -1: none */
    bool listens;         /* and listens: the process inherits it */
    int agent;            /* the connection to its agent; -1: none */
    bool ended_by_mpirun; /* after a signal of mpirun's */
    int log;              /* -1: none */
    run_output output[2]; /* stdout, stderr */
    pid_t pid;            /* 0: not started, or it has ended */
    bool was_started;
    int status; /* of waitpid(), once it has ended */
    run_restarts restarts;
} run_process;

typedef struct run_job {
    const run_options *options;
    run_nodes *nodes;     /* while they find each other; NULL: one node, or
                             lists */
    int signal;           /* that has ended the wait for them; 0: none */
    run_process *process; /* servers, workers, heter workers; of all nodes;
                             mpirun; servers that may join */
    int n_process, n_server, n_worker, n_heter; /* that the job begins with */
    int n_all;    /* with mpirun and servers that may join */
    int node;     /* which one this is, of those that find each other; else 0 */
    int requests; /* where fleetctl asks: watch_join.c; -1: nowhere */
    int n_local, n_host;
    int n_on_node; /* processes on this node; n_local: started by fleetrun */
    bool by_mpirun;
    bool needs_keys; /* it has servers, or ranks on GPUs for sure */
    fl_text servers, workers,
        heter;      /* their endpoints, as the environment has them */
    fl_text master; /* rank 0's endpoint */
    char sockets[RUN_FOLDER_SIZE];   /* folder of ipc sockets; "": none */
    char keys[PATH_MAX];             /* folder of keys; "": there are none */
    char journals[PATH_MAX];         /* folder of journals; "": none, or the
                                        user's own */
    char mpi_files[RUN_FOLDER_SIZE]; /* folder of MPI's; "": MPI's choice */
    char *mpirun;                    /* its path */
    int agent_listener;              /* -1: none */
    char agent_address[128], agent_token[40]; /* see rank_agent.h */
} run_job;

/* Find the other nodes, list the processes, bind the sockets of this node's,
 * open their logs. `alive` as run_watch() has it. In every case run_job_close()
 * follows. */
fleet_status run_job_open(run_job *j, const run_options *o, int alive);
void run_job_close(run_job *j);

/* Its socket is bound, and its log opened, unless it has one. */
fleet_status run_job_bind(run_process *p);
fleet_status run_job_open_log(const run_job *j, run_process *p);

/* Start one of this node's, perhaps again: then with the socket, the log and
 * the environment of before. FLEET_ENOENT: there is no such program;
 * FLEET_ECHILD: it cannot be executed. The main thread calls it, because a
 * process dies with the thread that started it. */
fleet_status run_job_start(run_job *j, run_process *p);

/* It will not be started again: let its port go. */
void run_job_leave_port(run_process *p);

/* Where p's stdout (1) or stderr (2) is shown besides its log: 1, 2; -1:
 * nowhere. */
int run_job_shown(const run_job *j, const run_process *p, int stream);

/* Are its ranks on several hosts, by --ips? */
bool run_job_has_hosts(const run_job *j);

/* The endpoints of a stage, the workers' being 0. */
void run_job_stage(const run_job *j, int stage, fl_text *out);

/* "server 3", in a buffer of the next call's; the path of its log, alike. */
const char *run_process_name(const run_process *p);
const char *run_process_log(const run_job *j, const run_process *p);
