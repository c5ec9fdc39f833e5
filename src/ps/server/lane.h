/* lane.h - one lane of a server: a single-threaded state machine that keeps
 * rows and blocks, takes the streams' steps, each exactly once, and answers.
 * Its host (server.c with sockets and threads, or a simulator) hands it packets
 * and the time, and sends what it has to send; nothing in it waits.
 *
 *   sync   the contributions of a step are added in the streams' order, scaled
 *          once by 1/c, applied; then pulls of the next version are answered
 *   async  a step is applied on arrival
 *
 * A pass ends for all streams together: a stream that sends PASS_END is
 * answered when the last one has, and is no part of updates meanwhile. One that
 * sent LEAVE is no part of anything. docs/protocol.md has the whole story.
 *
 * Lane 0 of server 0 is the coordinator: it grants incarnations, and adds up
 * numbers of all workers (of none of them: a barrier). */
#pragma once

#include <stdatomic.h>

#include "net/message.h"
#include "net/socket.h"
#include "ps/journal/journal_record.h"
#include "ps/partition.h"
#include "runtime/store/job_command.h"

enum { FL_MOST_STREAM = 4096 };

/* Of a replica's messages, in place of a worker's number. */
#define FL_REPLICA_STREAM ((uint32_t)1 << 30)

/* Of fleetctl's, likewise. */
#define FL_CONTROL_STREAM ((uint32_t)1 << 29)

/* Bytes that a lane keeps for a worker at most: lane_budget.h. */
#define FL_MOST_OPEN   ((size_t)2 << 30)
#define FL_MOST_PARKED ((size_t)64 << 20)
#define FL_MOST_UNREAD ((size_t)16 << 20)
#define FL_MOST_SMALL  ((size_t)4 << 20)

#define FL_NOBODY UINT32_MAX

/* Work that takes long. The host does it on another thread and calls
 * fl_lane_command_done(). Until then the lane's store is the command's alone,
 * but for a save beside training, which the host writes from a snapshot that it
 * has made when begin() returns: the lane then goes on. */
typedef struct fl_lane_command {
    fl_job_command kind;
    int table;            /* HASH */
    char *text;           /* of other commands: the request's; the lane's own */
    bool beside_training; /* SAVE, in async */
    const uint64_t *done; /* of such a save: each stream's last step in it */
} fl_lane_command;

typedef struct fl_lane_copy fl_lane_copy; /* of a lane, that is made again */

enum { FL_LANE_TEXT = 600 }; /* where a lane is, in JSON */

/* What a lane's host does for it. */
typedef struct fl_lane_host {
    void *arg;
    void (*send)(void *arg, const fl_peer *to, fl_packet *p);
    /* fl_lane_command_done() ends it. If it fails nothing was begun. */
    fleet_status (*begin)(void *arg, const fl_lane_command *command);
    /* A number that grows while the command gets on: the bytes that it has
     * read and written. NULL: it is not known. */
    uint64_t (*progress)(void *arg);
    /* Do the server's lanes load yet what it begins with? Then how far they
     * are, in bytes; total 0: it is not known. NULL: the lane is the only one.
     */
    bool (*loading)(void *arg, uint64_t *bytes, uint64_t *total);
    /* To the lane that this one follows. NULL: it follows none. */
    void (*ask)(void *arg, fl_packet *p);
    /* fl_lane_write_copy() on another thread, and then _copy_written(). If it
     * fails nothing was begun. */
    fleet_status (*copy)(void *arg, fl_lane_copy *c);
    /* By that thread: fl_lane_copy_goes_on() is to be called. NULL: it is
     * called often. */
    void (*ring)(void *arg);
    /* fleetctl wants a lane to come to the lane's process, of which `words`
     * says where it is: it is begun. NULL: none may. */
    fleet_status (*take)(void *arg, const char *words);
    /* Where the i-th lane is that has come so, as HELLO's answer has it, into
     * text; false: there are fewer. NULL: there are none. */
    bool (*guest)(void *arg, int i, char text[FL_LANE_TEXT]);
    /* fleetctl says of a server that has joined the job its number and where it
     * is; then that of a number, "": none has joined as that, false: none can.
     * NULL: the lane is asked neither. */
    fleet_status (*know)(void *arg, const char *words);
    bool (*joined)(void *arg, int server, char address[FL_LANE_TEXT]);
    /* Of options.log_goes: a number for the move that begins, which none before
     * has had; then the lane's journal ends, at once or not at all, and is
     * the lane's of that view at that address, in the process of that server.
     * Where it is by now. */
    fleet_status (*count_move)(void *arg, uint32_t least, uint32_t *number);
    fleet_status (*leave)(void *arg, int server, uint32_t view,
                          const char *address);
    bool (*home)(void *arg, uint32_t *view, char address[FL_LANE_TEXT]);
} fl_lane_host;

/* Of two copies of a lane: lane_replica.h, lane_copy.c. */
typedef enum fl_replica_role {
    FL_NO_REPLICA,
    FL_REPLICA_LEADS,
    FL_REPLICA_FOLLOWS,
    FL_REPLICA_ALONE,
    FL_REPLICA_GONE
} fl_replica_role;

/* What tells a server's process, and the run of its job, from every other one;
 * its lanes, on threads of their own, share it. A worker learns both from
 * HELLO's answer, and says them with every message: what it has for another
 * process is never applied. */
typedef struct fl_server_identity {
    _Atomic uint32_t nonce; /* of the process; 0: of one that follows, and has
                               not heard of its leader */
    _Atomic uint32_t generation;
    _Atomic uint32_t run;   /* server 0 draws it; another server has it from the
                             first worker of the run, and 0 before */
    _Atomic int unfollowed; /* lanes whose replica has not come yet: workers
                               are not let in before */
    _Atomic int moved;      /* lanes that have gone to other processes */
} fl_server_identity;

typedef struct fl_lane_options {
    const fl_partition *layout; /* of the lane's own store */
    const fl_bucket_map *map;
    fl_server_identity *identity;
    int server, lane, n_lane; /* lanes of this server */
    int n_stream;             /* workers */
    int n_heter; /* of these, the last ones: heter workers, whose contributions
                    are of no batches of their own, and which are in no sum
                    over workers */
    bool sync;
    bool bounds_staleness; /* in async: lane_staleness.h */
    uint64_t max_staleness;
    bool scaled;         /* training is in float16: a step may bring nothing */
    const char *job;     /* id */
    const char *mode;    /* "ps-sync": workers must say the same */
    const char *program; /* fl_job_signature_text() */
    const char *const *address; /* lane 0: JSON of each lane's addresses, for
                                   HELLO's answer; n_lane of them */
    int n_also; /* addresses behind these n_lane: of the replicas that its
                   process has of another server's lanes */
    int64_t connect_ms, peer_ms, step_ms; /* deadlines */
    const char *no_restart; /* why none may be started again; NULL: no word */
    int64_t restart_ms; /* for how long a worker that has died is waited for,
                           until it is started again; 0: it may not be */
    size_t most_open, most_parked; /* 0: FL_MOST_OPEN, ... */
    size_t most_unread, most_small;
    int64_t most_changes; /* that it remembers for subscribers; 0: as
                             feed_log.h has it */
    int live_hash; /* aggregate_live.h: of its blocks after each n-th update; 0:
                      nothing is hashed */
    fl_journal_sink journal; /* gets what the lane is about to apply; put
                                NULL: nothing does */
    fl_replica_role replica; /* which copy it begins as: NO_REPLICA, if it is
                                the only one, LEADS or FOLLOWS; GONE: it is
                                no lane, and answers fleetctl */
    uint32_t process; /* of one that follows: a number of its process; not 0 */
    bool seeks;       /* at first it asks a server whose process has the copy
                          that it follows: where that is */
    bool comes_again; /* the job was at work before it, and may have ended: a
                         leader that is not there is no failure */
    const char
        *no_move;  /* why it may not go to another process; NULL: it may */
    bool log_goes; /* other servers of the job have its journal's folder, too:
                         it moves by leaving its journal to one of them */
    bool signpost; /* and says where it has gone until the server ends */
    size_t most_copy; /* bytes that are written ahead for a copy that is made
                          again; 0: lane_copy.c has a number */
    fl_packet_pool *pool;
    fl_log *log;
} fl_lane_options;

typedef struct fl_ps_lane fl_ps_lane;

typedef enum fl_lane_state {
    FL_LANE_RUNS,
    FL_LANE_LEFT,  /* by all streams, and each has heard that it has left */
    FL_LANE_FAILED /* fl_lane_error() says why; all workers were told */
} fl_lane_state;

fleet_status fl_lane_create(fl_ps_lane **lane, const fl_lane_options *o,
                            const fl_lane_host *host, int64_t now_ms);
void fl_lane_destroy(fl_ps_lane *l);

/* From now on HELLO is answered with these addresses. */
void fl_lane_offer(fl_ps_lane *l, const char *const *address);

/* The packet stays the caller's; the lane keeps its own reference. */
void fl_lane_receive(fl_ps_lane *l, const fl_peer *from, fl_packet *p,
                     int64_t now_ms);

/* More packets come at once: steps that they make whole are applied together,
 * with one commit of the journal, when the last one has come (false) or when
 * something needs them: a pull, say, whose worker has pushed before it. */
void fl_lane_gather(fl_ps_lane *l, bool more);

/* Pulls may wait until their workers have read: answer what can be answered. In
 * how many ms it wants to be called again; -1: no pull waits like that. */
int fl_lane_resume(fl_ps_lane *l, int64_t now_ms);

/* Deadlines; call it at least every quarter of the peer deadline: if it comes
 * later, this process did not run, and did not hear its peers. */
void fl_lane_tick(fl_ps_lane *l, int64_t now_ms);

/* Its server begins with a load: the host has begun that of this lane's store,
 * and fl_lane_command_done() ends it. Until all lanes of the server have theirs
 * workers are answered COMING. */
void fl_lane_begin_load(fl_ps_lane *l, int64_t now_ms);

/* --- the lane made again from its journal --------------------------------- */

/* A lane that was just made gets its state from records, in their order, before
 * anything else. Until _end_replay() its workers hear that it lives and that
 * their requests wait, and workers that come are answered COMING; nothing of
 * what they send is kept: they send it again. */
void fl_lane_begin_replay(fl_ps_lane *l, int64_t now_ms);

/* First of all, what the server had begun with is loaded again: as a record of
 * a load that was well. */
fleet_status fl_lane_replay_load(fl_ps_lane *l, const char *text);

/* Apply the record: as lane_record.h has it, and as it was applied once.
 * FLEET_ECORRUPT names the record, and what of it is no record of this lane. */
fleet_status fl_lane_replay(fl_ps_lane *l, const fl_journal_record *r,
                            int64_t now_ms);

/* The record was a load or a write, which the host does as any other command:
 * the next record comes after fl_lane_command_done(), if the lane still runs.
 */
bool fl_lane_replay_waits(const fl_ps_lane *l);

/* That was the last one; or the journal cannot be read on, and the lane fails
 * with that. All lanes of a server begin and end together, one without a
 * journal, too: only then does each know the server's run. */
void fl_lane_end_replay(fl_ps_lane *l, fleet_status status, const char *why,
                        int64_t now_ms);

/* --- two copies of a lane ------------------------------------------------- */

/* A lane that was just made follows another one, which is of the same options:
 * host.ask() gets what is for that one, _follow() what that one answers. The
 * process's identity is that one's, from its first answer on. load: what that
 * one has begun with, to be loaded too, unless that one was at work before and
 * says what it is; NULL: nothing. It stays the caller's. */
void fl_lane_begin_follow(fl_ps_lane *l, const char *load, int64_t now_ms);
void fl_lane_follow(fl_ps_lane *l, fl_packet *p, int64_t now_ms);

/* The job is over: one that has not found the lane that it is to follow has
 * left. */
void fl_lane_seek_no_more(fl_ps_lane *l);

/* Only now host.ask() reaches that one, which may not have heard a question. */
void fl_lane_found_leader(fl_ps_lane *l, int64_t now_ms);

/* That one was at work before. Then the process is one that was started again,
 * and a server of its own that it has begun is none. */
bool fl_lane_is_late(const fl_ps_lane *l);

/* By the thread that host.copy() has begun; when it has ended; and to end it
 * before. A copy that is not heard of any more ends it, too. */
void fl_lane_write_copy(const fl_ps_lane *l, fl_lane_copy *c);
void fl_lane_copy_written(fl_ps_lane *l, fl_lane_copy *c, int64_t now_ms);
void fl_lane_stop_copy(fl_lane_copy *c);
void fl_lane_copy_goes_on(fl_ps_lane *l, int64_t now_ms);

/* It cannot follow that one, for the last error: that one is told, and both
 * fail. */
void fl_lane_cannot_follow(fl_ps_lane *l);

/* What it is by now: FOLLOWS until a worker makes it lead, which is ALONE. */
fl_replica_role fl_lane_replica(const fl_ps_lane *l);

/* It has ended because the job goes on with its other copy: it was silent for
 * too long. */
bool fl_lane_was_fenced(const fl_ps_lane *l);

/* --- a lane's snapshot, behind which a replay may begin ------------------- */

/* A quiet moment: no command has the store, or is beside it. */
bool fl_lane_may_freeze(const fl_ps_lane *l);

/* What the lane is now is written: to `to` at once what is not in its store;
 * which the host then has written by _write_frozen(), on another thread, while
 * the lane goes on, until _thaw(). Commands wait meanwhile. A failure leaves
 * the lane as it was. The records are for fl_lane_replay(). */
fleet_status fl_lane_freeze(fl_ps_lane *l, const fl_journal_sink *to);
fleet_status fl_lane_write_frozen(const fl_ps_lane *l,
                                  const fl_journal_sink *to);
void fl_lane_thaw(fl_ps_lane *l, int64_t now_ms);

/* What the server begins with cannot be loaded. Lane 0 stays, and says so to
 * each worker that comes, until the connect deadline at most; other lanes, to
 * which no worker comes before, fail at once. */
void fl_lane_doom(fl_ps_lane *l, fleet_status code, const char *why);

/* Steps or pulls wait for rows that their table has out of memory: the lane is
 * to look again every millisecond or so, whatever comes in meanwhile. */
bool fl_lane_looks_again(const fl_ps_lane *l);
void fl_lane_look_again(fl_ps_lane *l, int64_t now_ms); /* else: nothing */

/* The command has ended. text: its result, or why it failed; the lane copies
 * it. sum, rows: HASH's. */
void fl_lane_command_done(fl_ps_lane *l, fleet_status status, const char *text,
                          uint64_t sum, uint64_t rows, int64_t now_ms);

/* The process leaves (SIGTERM, another lane has failed): all workers are
 * told. */
void fl_lane_abort(fl_ps_lane *l, fleet_status code, const char *why);

fl_lane_state fl_lane_state_of(const fl_ps_lane *l);
/* Why it has failed; or why it will, once its workers were told. */
const fl_error *fl_lane_error(const fl_ps_lane *l);

/* The text of a failure names server and lane; the code as it is. */
fleet_status fl_lane_name_server(const fl_ps_lane *l, fleet_status status);

/* What docs/counters.md says of each. */
typedef struct fl_lane_counts {
#define FL_LANE_COUNTER(field, name) uint64_t field;
#include "ps/server/lane_counters.def"
#undef FL_LANE_COUNTER
} fl_lane_counts;

/* From any thread, while there is the lane. lane_counters.h finds by name. */
fl_lane_counts fl_lane_counted(const fl_ps_lane *l);

/* By its thread: how many connections the socket has refused so far, and for
 * how long the thread has not looked at it, at most, of late. */
void fl_lane_note_socket(fl_ps_lane *l, uint64_t refused, uint64_t away_us);
int64_t fl_lane_version(const fl_ps_lane *l);
