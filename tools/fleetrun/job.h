/* job.h - the processes of a job: who they are, where they listen, where their
 * output goes. */
#ifndef FLEETRUN_JOB_H
#define FLEETRUN_JOB_H

#include <sys/types.h>

#include "base/text.h"
#include "folders.h"
#include "options.h"
#include "output.h"

typedef struct run_process {
    bool is_server, is_mpirun; /* else a worker */
    bool by_mpirun;            /* a rank that mpirun starts, see ranks.h */
    int index;                 /* among the servers or workers of all nodes */
    int local_rank;
    char *host;
    int port;
    bool is_local;
    /* a local server's listening socket, and rank 0's, until it has it; of
     * another local worker what keeps its port from others; -1: none */
    int socket;
    bool listens;
    int control;          /* of a rank by mpirun: to who watches it; -1: none */
    bool asked;           /* and it was mpirun that ended it */
    int log;              /* -1: none */
    run_output output[2]; /* stdout, stderr */
    pid_t pid;            /* 0: not started, or it has ended */
    bool was_started;
    int status; /* of waitpid(), once it has ended */
} run_process;

typedef struct run_job {
    const run_options *options;
    run_process *process; /* servers, then workers; of all nodes; and mpirun */
    int n_process, n_server, n_worker; /* without mpirun */
    int n_all;                         /* with it */
    int n_local, n_host;
    int n_here; /* processes on this node; n_local counts all that start here */
    bool by_mpirun;
    fl_text servers, workers; /* their endpoints, as the environment has them */
    fl_text master;           /* where rank 0 can be met */
    char sockets[RUN_FOLDER_SIZE]; /* folder of ipc sockets; "": none */
    int listener;                  /* for ranks by mpirun; -1: none */
    char reach[128], token[40];    /* and theirs, see ranks.c */
    char files[RUN_FOLDER_SIZE];   /* of MPI's; "": where it likes */
    char *mpirun;                  /* its path */
} run_job;

/* Find the processes, bind the sockets of this node's, open their logs. In
 * every case run_job_close() follows. */
fleet_status run_job_open(run_job *j, const run_options *o);
void run_job_close(run_job *j);

/* Start one of this node's. FLEET_ENOENT: there is no such program;
 * FLEET_ECHILD: it cannot be executed. The main thread calls it, because a
 * process dies with the thread that started it. */
fleet_status run_start(run_job *j, run_process *p);

/* What of p's output is shown: 1 or 2 for `stream`, -1 for none. */
int run_shown(const run_job *j, const run_process *p, int stream);

/* "server 3", in a buffer of the next call's. */
const char *run_name(const run_process *p);

/* The path of its log, alike. */
const char *run_log_path(const run_job *j, const run_process *p);

#endif
