/* server.h - a server: its lanes, each with a store, a socket and a thread of
 * its own, until all workers have left.
 */
#pragma once

#include "ps/server/lane.h"

/* What a command that has a text does to a lane's store, whose buckets are
 * `own`; on a thread of its own while the lane leaves the store alone. *answer,
 * for fl_free(), goes to the worker. */
typedef fleet_status fl_server_command(void *arg, fl_store *store,
                                       const fl_bucket_set *own, int server,
                                       int lane, fl_job_command command,
                                       const char *text, char **answer);

/* What a server leaves behind for the process that comes after one that has
 * died: docs/recovery.md. */
typedef enum fl_server_log_level {
    FL_NO_LOG,
    FL_LOG_SURVIVES_PROCESS, /* what was answered survives kill -9 */
    FL_LOG_SURVIVES_POWER    /* and a crash of the machine */
} fl_server_log_level;

typedef struct fl_server_log_options {
    fl_server_log_level level;
    const char *folder; /* of all servers of the job; it has server-N */
    size_t file_bytes;  /* of a file, until the next one is begun; 0:
                           FL_JOURNAL_ROLL_BYTES */
} fl_server_log_options;

typedef struct fl_server_options {
    fl_context *context;
    fl_rows_maker *make_rows;
    fl_capped_maker *make_capped;  /* as fl_store has it: each lane its own */
    fleet_program *const *program; /* all that workers train or test */
    int n_program;
    fleet_optimizer *optimizer; /* NULL: nothing is trained */
    fl_layerwise layerwise;     /* and how, with strategy.lars or lamb */
    const char *address;        /* "tcp://ip:port" or "inproc://name" */
    int listen_fd;              /* inherited for it; -1: none */
    bool keep_limit; /* of descriptors; or it is raised as far as it may be */
    int index, n_server, n_worker, n_lane;
    int n_heter;          /* of the workers, the last ones: lane.h */
    const fl_keys *keys;  /* its own, and of its workers; NULL: any peer may */
    bool insecure;        /* come, with this from other machines, too */
    const int *lane_port; /* of lanes from 1 on; 0: the kernel's choice */
    bool sync;
    bool sums; /* it adds up what workers have changed in their copies */
    bool bounds_staleness; /* in async; 0 is a bound, too */
    int max_staleness;
    int live_hash; /* as fl_lane_options has it */
    bool scaled; /* training is in float16: a worker's step may bring nothing */
    bool ranks;  /* workers are ranks: dense parameters stay with them where
                    nothing else is said */
    const char *mode, *job;
    int64_t connect_ms, peer_ms, step_ms; /* deadlines */
    int64_t restart_ms;                   /* as lane.h has them */
    const char *no_restart;
    fl_server_command *command;
    void *command_arg;
    const char *load; /* what every lane loads first, as a command has it; NULL:
                         nothing */
    fl_server_log_options log;
    /* where each lane has a second copy, at the next server: */
    const char *follows; /* of the copies: the address of the server that they
                            follow, and `index` is that one's; NULL: it is a
                            server of its own */
    bool seeks_copies;   /* that server is the next one, whose process has the
                            copies of this one: to follow them, late */
    void (*on_late)(void *arg); /* it follows lanes that were at work before:
                                   by one of its threads, once; NULL: it is
                                   not told */
    void *on_late_arg;
    bool comes_again;          /* as fl_lane_options has it */
    const char *no_move;       /* likewise */
    bool tcp_only;             /* it goes to that one by tcp */
    struct fl_server *replica; /* the copies that its process has, of the lanes
                                  of the server before it: workers are told
                                  where they are. They outlive the server.
                                  NULL: its lanes have no copies */
    bool joins; /* it comes to a job that runs, as server n_server or a later
                   one: it begins without lanes, and takes lanes of other
                   servers. It ends when these have ended, or gone; or if none
                   comes within the connect deadline: FLEET_ETIMEDOUT */
    /* of a lane that comes to the process of another server, beside it, as a
     * server of one lane (server_guest.c): */
    struct fl_server *host; /* that other server; NULL: it is none such */
    int only_lane;          /* which one it is */
    int at;                 /* the server in whose process it is before */
    const char *lane_text;  /* and where, as HELLO's answer has it */
    const char
        *returns; /* its journal is this process's already: where the lane
                            was, likewise. NULL: it comes */
} fl_server_options;

typedef struct fl_server fl_server;

/* Stores made, loaded, sockets bound. FLEET_EIO: the endpoint is in use.
 * FLEET_EINVAL: other machines reach it, and there are no keys. With a log
 * whose server has not ended it is that server: it has its place and its ports,
 * and is made again from the log as it runs. FLEET_EEXIST: another process has
 * the log, or it is of another job. */
fleet_status fl_server_create(fl_server **server, const fl_server_options *o);

/* Serve. FLEET_OK once all workers have left, or after fl_server_stop();
 * otherwise what has ended the job: FLEET_EPEER, FLEET_ETIMEDOUT. */
fleet_status fl_server_run(fl_server *s);

/* Let n of them end, the workers being told `why`: none ends because another
 * one of them did. From any thread, and from signal handlers: `why` is a
 * constant. */
void fl_server_stop(fl_server *const *s, int n, const char *why);

/* What was last said to fl_server_stop(); NULL: nothing was. */
const char *fl_server_stopped(const fl_server *s);

/* It has run, and each of its lanes has ended because the job goes on without
 * it. */
bool fl_server_was_fenced(const fl_server *s);

/* One of the numbers of docs/counters.md, of that lane; false: there is none of
 * that name. From any thread, until the server is destroyed. */
bool fl_server_count(const fl_server *s, int lane, const char *name,
                     uint64_t *value);

void fl_server_destroy(fl_server *s); /* NULL is fine; not while it runs */
