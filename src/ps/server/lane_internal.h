/* lane_internal.h - the state of a lane and of its streams, shared by lane.c
 * (packets, answers), lane_admit.c (whose messages are taken), lane_liveness.c
 * (progress, deadlines), lane_handshake.c, lane_push.c (contributions),
 * lane_update.c, lane_pull.c (reads, rows that may be out of memory),
 * lane_staleness.c (reads that are too far ahead), lane_reduce.c (sums over
 * workers), lane_load.c (what a server begins with), lane_journal.c (what is
 * written down), lane_replay.c (and done again), lane_snapshot.c (what the lane
 * is), lane_feed.c (subscribers), lane_replica.c, lane_follow.c and
 * lane_copy.c (two copies of a lane), lane_budget.c (memory) and
 * lane_counters.c. */
#pragma once

#include "base/clock.h"
#include "net/refusals.h"
#include "ps/aggregate/aggregate_live.h"
#include "ps/lease_queue.h"
#include "ps/locality.h"
#include "ps/server/lane.h"
#include "ps/server/lane_counters.h"

enum { FL_MOST_SUBSCRIBER = 16 }; /* lane_feed.h */

/* A message that is kept: a pull of a version to come, or what came while a
 * command had the store. */
typedef struct fl_parked {
    struct fl_parked *next;
    struct fl_parked *next_of_stream; /* of what came during a command */
    fl_packet_pool *pool;             /* of its memory */
    fl_peer from;
    fl_packet *packet;
    fl_msg_head head;
    uint64_t version;
    bool counts; /* to what its stream keeps */

    size_t answer_bytes;    /* of a pull */
    bool wants_rows;        /* and not weights alone */
    bool deferred;          /* it waits until its worker has read */
    fl_wanted_list *wanted; /* rows that may be out of memory */
} fl_parked;

/* A lane asks with each message what it can do, and looks at these lists: a
 * walk over thousands of streams for each message of each is too long. */
typedef enum fl_stream_list_kind {
    FL_STREAMS_MISSING,      /* in the pass, with no complete step; the first
                                is the one that has not got on for longest */
    FL_STREAMS_CONTRIBUTING, /* with a complete step of gradients */
    FL_STREAMS_CONTROL,      /* with a complete step of another kind, of which
                                nothing has come yet */
    FL_STREAMS_ENDED,        /* out of the pass, and not of the job */
    FL_STREAMS_LEFT,
    FL_STREAMS_HEARD,     /* and have heard so */
    FL_STREAMS_REDUCING,  /* with numbers for a sum over workers */
    FL_STREAMS_UNREDUCED, /* that such a sum waits for; as MISSING */
    FL_STREAMS_SLOWEST,   /* lane_staleness.c files them; as MISSING */
    FL_STREAM_LISTS
} fl_stream_list_kind;

typedef struct fl_stream_list {
    uint32_t first, last; /* FL_NOBODY: none */
    int n;
} fl_stream_list;

typedef struct fl_stream_state {
    bool known, left, ended;
    bool heard;  /* that it has left */
    bool no_log; /* its process cannot be started again */
    bool absent; /* it is silent, and its restart is waited for */
    bool told;   /* why the lane fails */
    bool spoke;  /* its process: more than hello */
    bool heter;  /* of a heter worker */
    uint32_t incarnation;
    fl_peer peer;
    int64_t heard_ms;

    /* how far it is: a number that grows with each request that the lane has
     * not had before, with each step that is over, and when a heartbeat says
     * that other lanes have answered the worker */
    uint64_t progress;
    int64_t progress_ms; /* when it grew last */
    uint64_t newest_request, reported;
    uint16_t newest_piece;

    uint64_t done;      /* its last step that was applied */
    uint64_t stop_step; /* after which a worker wanted all to stop; 0: none */

    /* where staleness is bounded (lane_staleness.h) */
    bool has_clock;       /* it is one that pulls wait for */
    uint64_t contributed; /* and applied */
    uint64_t clock;       /* the same, from where it joined */

    fl_piece *open, **last;
    size_t open_bytes;
    size_t behind_bytes; /* of steps that came during a command */
    size_t parked_bytes; /* of all else that is parked, and around it */
    uint16_t next_piece, flags;
    bool complete;       /* step done + 1 has all its pieces */
    bool recorded;       /* and is in the journal */
    fl_msg_head request; /* of the last piece, to be answered */
    fl_peer from;
    uint32_t n_batch;
    float clip;
    fl_update_settings settings;
    fl_row_cache *row_cache; /* by its pulls; NULL: it is not remembered */
    fl_wanted_list *wanted;  /* rows of its open step */

    /* what its last command came to, to be answered again */
    uint64_t command_step; /* 0: none */
    fleet_status command_status;
    char *command_text;

    /* coordinator */
    uint64_t nonce;
    char who[96]; /* host:pid */
    uint64_t reduced;
    fl_parked *reducing; /* NULL: none */

    fl_parked *pulls;  /* of versions to come, or until it has read */
    fl_parked *behind; /* what came during a command: a part of the lane's */
    struct {
        uint32_t before, after;
        bool in;
    } link[FL_STREAM_LISTS];
} fl_stream_state;

struct fl_ps_lane {
    fl_lane_options o;
    fl_lane_host host;
    uint64_t job; /* of run 0 */
    uint32_t run; /* that its streams are of; 0: of none yet */
    fl_aggregate aggregate;
    fl_stream_state *stream;
    fl_stream_list streams[FL_STREAM_LISTS];
    int64_t version;
    fl_awake awake;
    int64_t now_ms, begun_ms; /* by that clock */
    int64_t pending_ms;       /* since when a step has waited; -1: none waits */
    uint32_t latest;          /* the stream that has got on last */
    bool norming; /* the aggregate is summed and waits for its clip */
    float last_clip;

    bool gathers;      /* steps that are whole wait for one commit */
    bool busy;         /* a command has the store */
    bool loading;      /* that command is what the server begins with */
    int64_t doomed_ms; /* when it was known that it fails */
    bool saving;       /* a save is written beside training */
    bool frozen;       /* its own snapshot is */
    uint64_t restored_floats, restored_rows,
        restored_lives; /* of a snapshot, so far */
    fl_lane_command command;
    uint64_t *cut; /* its `done` */
    uint64_t command_progress;
    int64_t command_ms;  /* when that changed last, or none was begun */
    fl_parked requester; /* of the command; a step's: packet NULL */
    fl_parked *behind, **last_behind;

    /* where staleness is bounded */
    uint64_t least_clock; /* of FL_STREAMS_SLOWEST */

    int n_pull;     /* parked, of all streams */
    bool can_serve; /* a parked pull's version, or rows, may have come */
    bool deferred;  /* a pull of the present version waits for its reader */
    int64_t looked_ms, answered_ms; /* last: for such pulls, any pull */
    bool looks_again;               /* for rows that were not ready */
    fl_wanted_list *unwanted; /* to be released when the command has ended */
    int64_t rows_since_ms;    /* since when rows can be looked for */
    double *reduced;          /* the last result */
    int n_reduced;
    uint32_t reduced_how, reduced_first; /* whose numbers were the first */
    fl_lease_queue leases;

    /* its journal */
    fl_record_parts record;
    bool replaying, replay_waits; /* waits: for a load or a write */
    fleet_status replay_status;   /* that such a command came to, once */
    uint64_t replayed;            /* records */
    fl_piece *replay_piece;
    size_t replay_capacity;

    struct fl_feed *feed;       /* NULL: no subscriber has come yet */
    struct fl_replica *replica; /* NULL: the lane is the only copy */

    fl_lane_state state;
    fl_error error;
    fl_lane_counters counters;
    fl_ledger *ledger; /* of answers: an account for each stream, one for all
                          other peers, and one for each subscriber */
    fl_refusals refusals;
    char turned_away[300]; /* why a hello was refused last; "": none was */
    bool has_warned;       /* of workers of another run */
    fl_msg msg;            /* that is being read */
};

typedef struct fl_replica fl_replica;

typedef void fl_lane_handler(fl_ps_lane *l, const fl_peer *from, fl_packet *p);

/* What message.def says of a kind. */
typedef struct fl_lane_kind {
    int flags;
    fl_lane_handler *handler;
} fl_lane_kind;
extern const fl_lane_kind fl_lane_kinds[FL_MSG_KINDS];

static inline bool fl_contributes(const fl_stream_state *s)
{
    return s->complete && !(s->flags & FL_MSG_CONTROL);
}

/* Part of updates: in a pass, or about to begin one. */
static inline bool fl_is_active(const fl_stream_state *s)
{
    return !s->left && !s->ended;
}

static inline bool fl_all_have_left(const fl_ps_lane *l)
{
    return l->streams[FL_STREAMS_LEFT].n == l->o.n_stream;
}

static inline const char *fl_lane_stream_name(const fl_ps_lane *l,
                                              char text[FL_STREAM_NAME],
                                              uint32_t stream)
{
    return fl_stream_name(text, stream, l->o.n_stream, l->o.n_heter);
}

/* --- which streams are missing (lane_streams.c) --------------------------- */

/* A stream's state has changed: it goes into the lists that it belongs to. */
void fl_lane_file_stream(fl_ps_lane *l, uint32_t stream);
void fl_lane_file_all(fl_ps_lane *l);

/* Into that list, as its last; out of it, in which it is. */
void fl_lane_put_last(fl_ps_lane *l, uint32_t stream, fl_stream_list_kind kind);
void fl_lane_take_out(fl_ps_lane *l, uint32_t stream, fl_stream_list_kind kind);

void fl_lane_note_progress(fl_ps_lane *l, uint32_t stream); /* it has got on */

/* Of the streams whose contribution is missing the one that has not got on for
 * longest, or if that one waits for the slowest stream, the slowest; of a sum
 * that waits for its clip, which any stream may send, the one that has got on
 * last; FL_NOBODY. */
uint32_t fl_lane_missing(const fl_ps_lane *l);

/* As fl_lane_missing(), of a sum over workers. */
uint32_t fl_lane_missing_reduce(const fl_ps_lane *l);

/* --- whose messages are taken (lane_admit.c) ------------------------------ */

/* l->msg is of this job, run and process, and of a stream that it has. */
bool fl_lane_admit(fl_ps_lane *l, const fl_peer *from);

/* Take over the run of the server, if it is another one than the lane's: what
 * the streams have begun is forgotten. A lane that has done anything for the
 * earlier run fails. */
void fl_lane_enter_run(fl_ps_lane *l);

/* What the stream's process has begun, and has not been applied, goes: another
 * process has its place. */
void fl_lane_forget_process(fl_ps_lane *l, uint32_t stream);

/* Something of the stream's process has come from that peer. */
void fl_lane_note_alive(fl_ps_lane *l, uint32_t stream, const fl_peer *from);

/* Anything that a run could not begin with was done for a worker. */
bool fl_lane_is_used(const fl_ps_lane *l);

/* Runs are numbered by the clock. */
static inline bool fl_run_is_later(uint32_t run, uint32_t other)
{
    return (int32_t)(run - other) > 0;
}

/* --- answers (lane.c) ----------------------------------------------------- */

/* The job's number in this run. */
static inline uint64_t fl_lane_job(const fl_ps_lane *l)
{
    return l->job | l->run;
}

/* Begin an answer to that request; sections may follow. */
void fl_lane_begin_answer(fl_ps_lane *l, fl_msg_writer *w,
                          const fl_msg_head *to, fl_msg_status status,
                          uint32_t missing);
void fl_lane_end_answer(fl_ps_lane *l, fl_msg_writer *w, const fl_peer *to);
void fl_lane_answer(fl_ps_lane *l, const fl_msg_head *to, const fl_peer *peer,
                    fl_msg_status status, uint32_t missing);
void fl_lane_refuse(fl_ps_lane *l, const fl_msg_head *to, const fl_peer *peer,
                    fl_msg_status status, fleet_status code, const char *format,
                    ...) __attribute__((format(printf, 6, 7)));

/* The version that l->msg, a pull, is about; 0 is whatever there is: in async,
 * or if it says so. */
static inline uint64_t fl_lane_wanted(const fl_ps_lane *l)
{
    return l->o.sync && l->msg.head.n_section > 0 ? l->msg.section[0].version
                                                  : 0;
}

/* With this thread's last failure. */
void fl_lane_fail(fl_ps_lane *l);

/* With the text of l->msg, in which the lane's other copy says why. */
void fl_lane_abort_as_told(fl_ps_lane *l, uint64_t code, const char *otherwise);

/* Keep l->msg, which is in p. NULL: there is no room for it (lane_budget.h) and
 * its worker is told to wait; or there is no memory, and the lane has failed.
 */
fl_parked *fl_lane_park(fl_ps_lane *l, const fl_peer *from, fl_packet *p);
void fl_lane_unpark(fl_ps_lane *l, fl_parked *p); /* and all after it */

/* The command that is under way has come to that, and is answered. */
void fl_lane_end_command(fl_ps_lane *l, fleet_status status, const char *text,
                         const uint64_t sums[2]);

/* What the command, which has come to that, has changed in the store. */
void fl_lane_note_change(fl_ps_lane *l, fleet_status status);

/* It waits for the command that is under way. */
void fl_lane_park_behind(fl_ps_lane *l, const fl_peer *from, fl_packet *p);

/* What came while a command had the store, or a snapshot was written. */
void fl_lane_catch_up(fl_ps_lane *l);

/* A stream's parked pulls, and its messages that came during a command, go. */
void fl_lane_forget_pulls(fl_ps_lane *l, int stream);
void fl_lane_forget_behind(fl_ps_lane *l, int stream);

/* --- rows that may be out of memory (lane_pull.c) ------------------------- */

/* Ask for the rows of a message; false: the lane has failed. */
bool fl_lane_want(fl_ps_lane *l, const fl_msg *msg, fl_wanted_list **list);

/* Are they in memory? If not, the lane wants to be called again soon. */
bool fl_lane_has_rows(fl_ps_lane *l, const fl_wanted_list *list);

/* In async a worker's pull waits until the step before it is applied. */
static inline bool fl_waits_for_rows(const fl_ps_lane *l,
                                     const fl_stream_state *s)
{
    return !l->o.sync && s->complete && s->wanted;
}

/* They are wanted no more. While a command has the store they stay. */
void fl_lane_forget_rows(fl_ps_lane *l, fl_wanted_list **list);
void fl_lane_command_had_store(fl_ps_lane *l);
void fl_lane_check_rows(fl_ps_lane *l); /* their deadline */

/* --- progress (lane_liveness.c) ------------------------------------------- */

/* How far it is what a request waits for: a stream, or FL_NOBODY, the lane's
 * command. */
uint64_t fl_lane_progress_of(const fl_ps_lane *l, uint32_t missing);

/* The stream that such a request, if it is a pull of that version, waits for;
 * FL_NOBODY: its worker has to read first. */
uint32_t fl_lane_waits_for(const fl_ps_lane *l, const fl_msg_head *request,
                           uint64_t version);
void fl_lane_note_message(fl_ps_lane *l); /* l->msg has come */

/* --- what a server begins with (lane_load.c) ------------------------------ */

/* As fl_lane_host.loading. */
bool fl_lane_is_loading(const fl_ps_lane *l, uint64_t *bytes, uint64_t *total);
void fl_lane_end_load(fl_ps_lane *l, fleet_status status, const char *why);

/* The sender of l->msg has given up: while the server loads the other workers
 * may still have to come, and are told then. */
void fl_lane_give_up(fl_ps_lane *l, fleet_status code, const char *why);

/* The sender of l->msg, a HELLO, is told why the lane fails, if it does. */
fleet_status fl_lane_check_load(fl_ps_lane *l);

/* Deadlines while it loads; true: it fails, and no other deadline counts. */
bool fl_lane_tick_load(fl_ps_lane *l);

/* --- the journal (lane_journal.c) ----------------------------------------- */

/* What is about to be, put and committed; nothing without a journal. */
fleet_status fl_lane_record_run(fl_ps_lane *l, uint32_t run);
fleet_status fl_lane_record_place(fl_ps_lane *l, uint32_t stream,
                                  uint32_t incarnation, uint64_t nonce,
                                  const char *who, bool no_log);
fleet_status fl_lane_record_leave(fl_ps_lane *l, uint32_t stream);
fleet_status fl_lane_record_bye(fl_ps_lane *l, uint32_t stream);
fleet_status fl_lane_record_pass(fl_ps_lane *l); /* of streams that have
                                                    ended it */
fleet_status fl_lane_record_reduced(fl_ps_lane *l);
fleet_status fl_lane_record_lease(fl_ps_lane *l, uint32_t stream,
                                  const fl_lease_pass *pass, uint64_t sums,
                                  uint64_t number, uint64_t lease);
fleet_status fl_lane_record_command(fl_ps_lane *l, fleet_status status,
                                    const char *answer);

/* An update, put and not committed: of the aggregate, or of that stream's step
 * alone; with a journal only. */
fleet_status fl_lane_record_update(fl_ps_lane *l, int64_t version, int only,
                                   uint32_t n_batch, float clip,
                                   const fl_update_settings *settings);
fleet_status fl_lane_commit(fl_ps_lane *l);
void fl_record_parts_done(fl_record_parts *p);

/* --- replay (lane_replay.c) ----------------------------------------------- */

/* l->msg, of a worker of the job, came meanwhile. */
void fl_lane_answer_replaying(fl_ps_lane *l, const fl_peer *from);
/* A record of a snapshot; in lane_snapshot.c. */
fleet_status fl_lane_restore(fl_ps_lane *l, const fl_journal_record *r);

/* The server is of that run, if of no later one. */
void fl_server_enter_run(fl_server_identity *of, uint32_t run);

/* A number that grows while it gets on. */
uint64_t fl_lane_replay_progress(const fl_ps_lane *l);
void fl_lane_replay_command_done(fl_ps_lane *l, fleet_status status,
                                 const char *text);

/* --- what message.def names: l->msg is of that kind and of a known worker - */

fl_lane_handler fl_lane_aborted;             /* lane.c */
fl_lane_handler fl_lane_heartbeat;           /* lane_liveness.c */
fl_lane_handler fl_lane_bye;                 /* lane_update.c */
fl_lane_handler fl_lane_hello;               /* lane_handshake.c */
fl_lane_handler fl_lane_step;                /* lane_push.c */
fl_lane_handler fl_lane_clip;                /* lane_update.c */
fl_lane_handler fl_lane_pull, fl_lane_query; /* lane_pull.c */
fl_lane_handler fl_lane_reduce;              /* lane_reduce.c */
fl_lane_handler fl_lane_lease;               /* lane_reduce.c */
fl_lane_handler fl_lane_feed;                /* lane_feed.c: of subscribers */
fl_lane_handler fl_lane_follow_asked;        /* lane_asked.c: of replicas */
fl_lane_handler fl_lane_say_home; /* and, of one whose log has gone, where */
fl_lane_handler fl_lane_control;  /* ps/control/lane_control.c: of fleetctl */

/* --- pushes (lane_push.c) ------------------------------------------------- */

/* The stream's open step is forgotten. */
void fl_stream_reset(fl_ps_lane *l, fl_stream_state *s);

/* What closes a contribution: how many batches it is of, its clip, and its
 * settings in a column. */
const fl_section *fl_lane_closing_section(const fl_msg *msg);

/* What the stream's last command has come to. */
void fl_lane_answer_command(fl_ps_lane *l, const fl_msg_head *to,
                            const fl_peer *peer);

/* The step is applied. */
void fl_lane_answer_applied(fl_ps_lane *l, const fl_msg_head *to,
                            const fl_peer *peer);

/* --- updates (lane_update.c) ---------------------------------------------- */

/* Make the updates, and begin the commands and end the passes, for which all
 * steps have come. */
void fl_lane_advance(fl_ps_lane *l);

/* All streams have left: the lane ends when each has said that it has heard so,
 * or has been silent for so long that it is gone. One that has not heard asks
 * again. */
void fl_lane_try_end(fl_ps_lane *l);

/* Do workers clip by the norm of all gradients? Then they get the norms of this
 * lane's gradients first. */
bool fl_lane_has_clip_norm(const fl_ps_lane *l);
void fl_lane_answer_norms(fl_ps_lane *l, const fl_stream_state *s);

/* --- reads (lane_pull.c) -------------------------------------------------- */

void fl_lane_serve_parked(fl_ps_lane *l, bool dense_alone);

/* --- sums over workers (lane_reduce.c) ------------------------------------ */

void fl_lane_try_reduce(fl_ps_lane *l);

/* --- deadlines (lane_liveness.c) ------------------------------------------ */

/* Of a lane that was told to go: the taker may not be able to, or was not told
 * to. Then the move is given up. */
void fl_lane_await_taker(fl_ps_lane *l);

/* Another copy leads: until this one ends. */
void fl_lane_linger(fl_ps_lane *l);
