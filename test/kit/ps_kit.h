/* ps_kit.h - whole jobs with parameter servers inside a test: each server and
 * each worker has a handle of its own, on a thread of its own over inproc://,
 * or in a process of its own over tcp and ipc. Every wait has a deadline.
 */
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include "model_kit.h"
#include "test.h"

enum {
    PS_MOST = 80,
    PS_MOST_FILES = 4,
    PS_BATCH = 32,
    /* A deadline of a second in ms; a variant that is slow gets more. */
    PS_SECOND = TEST_SLOWNESS > 20  ? 20000
                : TEST_SLOWNESS > 1 ? 4000
                                    : 1000
};

typedef struct ps_job ps_job;

/* A pipe: made before processes start, told by one, heard by another. */
typedef struct ps_pipe {
    int fd[2];
} ps_pipe;

/* A server or a worker. */
typedef struct ps_node {
    ps_job *job;
    bool server;
    int index; /* among its kind */
    scene s;   /* while it lives: handle, program, data, executor */

    /* what came of it, and is known afterwards (of threads) */
    fleet_status status;
    char error[1000];
    char log[4000];            /* its beginning */
    uint64_t hash;             /* of the parameters at the end: worker 0's */
    fleet_train_result result; /* of the last pass */
    double number[4];          /* for a body's own */

    pthread_t thread;
    pid_t pid;        /* of a process; 0: none (any more) */
    const char *said; /* a process's stderr goes there */
} ps_node;

/* What a node does between fleet_init() and fleet_destroy(). A status that is
 * not FLEET_OK is kept with its text. */
typedef fleet_status ps_body(ps_node *n);

/* All-zero fields are defaults. */
struct ps_job {
    int servers, workers, lanes; /* 0: 1 */
    scene_training how;
    const char *file[PS_MOST_FILES]; /* of training; none: no dataset */
    int64_t batch, shuffle;          /* 0: PS_BATCH */
    int passes;                      /* 0: 1 */
    int thread, hogwild;             /* trainer threads; 0: 1 */
    const char *load; /* what the workers load before fleet_init_worker() */
    const char *server_load; /* what the servers load */
    const char *id;          /* of the job */
    const char *keys;        /* a folder of them; NULL: none */
    ps_body *serve, *work;   /* NULL: ps_serve, ps_work */
    /* makes s.f, a program that is minimized, data; NULL: the scene */
    void (*open)(ps_node *n, const fleet_options *o);
    int connect_ms, request_ms, peer_ms; /* 0: 30 s */
    int step_ms;                         /* 0: the library's */
    bool no_listen_fd; /* servers that are processes bind for themselves */
    void *user;

    /* the kit's */
    ps_node node[PS_MOST]; /* servers first */
    int n_node;
    char endpoints[1000];
    int listen_fd[PS_MOST]; /* of servers that are processes */
    int port[PS_MOST];
    ps_pipe held, go;
};

ps_node *ps_server(ps_job *j, int i);
ps_node *ps_worker(ps_job *j, int i);

/* --- bodies --------------------------------------------------------------- */

/* Initialize and run a server. */
ps_body ps_serve;

/* Initialize a worker, do passes, hash in worker 0, stop. */
ps_body ps_work;

/* Its steps, for bodies of a test's own. */
fleet_status ps_begin(ps_node *n); /* executor, load, fleet_init_worker() */
fleet_status ps_passes(ps_node *n, int passes);
fleet_status ps_end(ps_node *n); /* hash, fleet_stop_worker() */

/* --- threads -------------------------------------------------------------- */

/* All of it; the nodes say what came of them. */
void ps_run(ps_job *j);

/* Fails the test unless all went well. */
void ps_check(const ps_job *j);

/* Both; what worker 0 has hashed. */
uint64_t ps_hash(ps_job *j);

/* That of the same job without a log, in which no process is killed. */
uint64_t ps_undisturbed(const ps_job *j);

/* The same training in one process that merges `merge` batches per step. */
uint64_t ps_alone(const ps_job *j, int merge);

/* --- processes ------------------------------------------------------------ */

/* Ports are taken, endpoints are known: before the first process starts. */
void ps_prepare(ps_job *j);

void ps_start(ps_node *n);
void ps_start_all(ps_job *j); /* prepares, too */

/* Its exit status: 0, or 1 if its body failed; 128 + n for signal n. */
int ps_wait(ps_node *n);
bool ps_ends_within(ps_node *n, int ms); /* does not wait for more */
void ps_kill(ps_node *n, int signal_number);

/* kill -9, and as soon as the server is gone it is started again. */
void ps_kill_and_start(ps_job *j, int server);

/* What it has written to stderr: its log, and its error at the end. */
const char *ps_said(const ps_node *n);

/* Wait until it has; fails the test after half a minute. */
void ps_hear_words(const ps_node *n, const char *words);

/* Wait for it to end well, or with an error that says so. */
void ps_check_ends(ps_node *n);
void ps_check_fails(ps_node *n, const char *words);

void ps_check_all_end(ps_job *j);

/* A worker that says when it has begun and waits until it may go on; then what
 * ps_work() does. ps_start_all() made the pipes. */
ps_body ps_hold;
void ps_hear_held(ps_job *j); /* all workers have begun */
void ps_let_go(ps_job *j);

/* Where a server that runs has its ipc sockets. */
const char *ps_folder(const ps_node *server);

/* --- pipes ---------------------------------------------------------------- */

ps_pipe ps_pipe_make(void);
void ps_tell(const ps_pipe *p);
void ps_hear(const ps_pipe *p); /* fails the test after a while */
