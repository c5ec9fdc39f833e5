/* server_replay.h - a server's log made into its lanes again, one after the
 * other, without sockets and workers: to see what a lane was like behind any of
 * its updates. What applies the records is what a server that comes back does
 * (lane_replay.c). The log stays as it is.
 *
 * Threads: one at a time. */
#pragma once

#include "ps/host/server.h"

typedef struct fl_server_replay fl_server_replay;

/* How the job of a log was made. */
typedef struct fl_log_facts {
    int n_server, n_worker, n_lane; /* n_lane: of this server */
    bool sync;
} fl_log_facts;

/* What the log of server `index` below that folder says. FLEET_ENOENT: there is
 * none. FLEET_EEXIST: a process has it, and is named: it is not read while it
 * is written. */
fleet_status fl_log_facts_read(const char *folder, int index,
                               fl_log_facts *facts);

/* The log of server o->index below o->log.folder, by the programs and the
 * optimizer of the options; as many servers, workers and lanes as it says, and
 * sync or not. No other process has the log until it is closed. FLEET_EINVAL:
 * it is of another program. */
fleet_status fl_server_replay_open(fl_server_replay **replay,
                                   const fl_server_options *o);
void fl_server_replay_close(fl_server_replay *r); /* NULL is fine */
const fl_log_facts *fl_server_replay_facts(const fl_server_replay *r);

/* A lane as it is made again, good until the next one is begun. */
typedef struct fl_replay_lane {
    int server, lane;
    fl_store *store;
    const fl_partition *layout; /* its tables and blocks as records have them */
    const fl_bucket_set *own;
} fl_replay_lane;

/* As it began: with the save that the server loaded, or before the records of
 * its snapshot. The lane before goes. */
fleet_status fl_server_replay_begin(fl_server_replay *r, int lane,
                                    fl_replay_lane *at);

/* The lane's next record, good until the next call; *more is false after the
 * last one. Then apply it, with commands that it was of: FLEET_ECORRUPT names
 * the record that is none of this lane, or whose hash is another one. */
fleet_status fl_server_replay_next(fl_server_replay *r,
                                   fl_journal_record *record, bool *more);
fleet_status fl_server_replay_apply(fl_server_replay *r,
                                    const fl_journal_record *record);

/* How many updates the lane has made. */
int64_t fl_server_replay_version(const fl_server_replay *r);

/* The job's run, which the first server has drawn; to other servers their
 * workers say it, and so do records of lanes before the first update. 0: none
 * of those has been applied. */
uint32_t fl_server_replay_run(const fl_server_replay *r);
