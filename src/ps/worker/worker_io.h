/* worker_io.h - a worker's sockets to its servers, a thread that sends
 * heartbeats, and the remote storage that the store's plans talk to. A thread
 * that waits for an answer works the sockets itself; the heartbeats' thread
 * says that the worker lives, and looks whether the servers do, while no other
 * thread waits.
 *
 * Threads: calls that talk to servers one after the other (a lock sees to it).
 */
#pragma once

#include "ps/worker/handshake.h"
#include "ps/worker/hot_pull.h"
#include "ps/worker/worker.h"

typedef struct fl_worker_io fl_worker_io;

typedef struct fl_worker_io_options {
    fl_context *context; /* log and fork check */
    fl_address *address; /* of servers, as handshake.h has it */
    int n_server;
    const char *job;
    int index, n_worker;
    int n_heter; /* of the workers, the last ones are heter workers */
    int64_t connect_ms, request_ms, peer_ms, step_ms; /* deadlines */
    bool tcp_only;
    const fl_keys *keys; /* NULL: none are used */
    bool keep_limit; /* of descriptors; or it is raised as far as it may be */
} fl_worker_io_options;

/* Nothing is connected yet: its remote fails with FLEET_ESTATE until then. */
fleet_status fl_worker_io_create(fl_worker_io **io,
                                 const fl_worker_io_options *o);

/* How a worker trains. */
typedef struct fl_worker_mode {
    bool sync;
    bool bounds_staleness;       /* in async */
    bool by_parts;               /* in sync: as fl_worker has it */
    int64_t exchange_every;      /* updates of geo mode; 0: it is not geo */
    size_t cache_bytes;          /* of rows that are kept; 0: none are */
    uint32_t cache_staleness;    /* in async, in batches */
    const fl_push_options *half; /* NULL: pushes are not gathered */
    int64_t restart_ms;          /* as fl_client_options has it */
    bool replicas; /* each lane has one, at the next server; no restart_ms */
    fl_wire_options wire;          /* as what it sends and gets numbers */
    const char *log_folder;        /* of servers' logs; NULL: not known */
    const fl_trail_options *trail; /* NULL: it leaves none */
    fl_trail_host trail_host;
} fl_worker_mode;

/* Connect; the store has all that the programs need. Its weights arrive with
 * the first barrier: another worker may load meanwhile. FLEET_EEND: the process
 * before this one has done all that the worker had to do, and this one has only
 * left once more. FLEET_ESTATE: it has trained what is in no trail. */
fleet_status fl_worker_io_open(fl_worker_io *l, fl_store *store,
                               const fl_worker_mode *how, const char *mode);
bool fl_worker_io_is_open(const fl_worker_io *l);

/* Where it goes on, if its trail says so, until it does; NULL. */
const fl_trail_point *fl_worker_io_from(const fl_worker_io *l);
fleet_status fl_worker_io_go_on(fl_worker_io *l);

/* How the job has failed, as far as is known by now; FLEET_OK: it has not. It
 * waits for nothing. */
fleet_status fl_worker_io_status(fl_worker_io *l);

/* Leave: FLEET_OK once every lane knows. Then all is closed. */
fleet_status fl_worker_io_leave(fl_worker_io *l);

/* A worker that has not left tells the servers why it goes: the thread's last
 * failure. NULL is fine. */
void fl_worker_io_destroy(fl_worker_io *l);

fl_remote *fl_worker_io_remote(fl_worker_io *l);

/* worker.h's, under the lock. */
fleet_status fl_worker_io_reduce(fl_worker_io *l, fl_reduction how, double *x,
                                 int n);
fleet_status fl_worker_io_barrier(fl_worker_io *l);
fleet_status fl_worker_io_command(fl_worker_io *l, fl_job_command command,
                                  const char *text, char **answer);
fleet_status fl_worker_io_load(fl_worker_io *l, const char *text);
fleet_status fl_worker_io_read(fl_worker_io *l, const char *text,
                               char **answer);
fleet_status fl_worker_io_lease(fl_worker_io *l, const fl_lease_question *q,
                                uint64_t *lease);
fleet_status fl_worker_io_hash(fl_worker_io *l, const char *table,
                               uint64_t *sum, uint64_t *rows);

/* Of its cache, also after it has left: false: it has none. */
bool fl_worker_io_cache(fl_worker_io *l, fl_hot_counts *counts);

fleet_status fl_worker_io_knows_save(fl_worker_io *l, bool *over);
fleet_status fl_worker_io_note_saved(fl_worker_io *l, fleet_status status);

int fl_worker_io_lanes(const fl_worker_io *l); /* of all servers */

/* Once it is open: which run of the job it is, and which process of the worker
 * this is. */
uint32_t fl_worker_io_run(const fl_worker_io *l);
uint32_t fl_worker_io_incarnation(const fl_worker_io *l);

/* Called before each end of a pass that this worker tells its servers of; in
 * sync also before a barrier or a load, which end it, too. */
void fl_worker_io_before_pass_ends(fl_worker_io *l,
                                   fleet_status (*call)(void *), void *arg);

/* Of a heter worker, which brings no numbers: the pass is over, for all. */
fleet_status fl_worker_io_close_pass(fl_worker_io *l);
