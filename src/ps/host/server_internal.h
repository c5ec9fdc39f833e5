/* server_internal.h - a server and the threads around its lanes, shared by
 * server.c (sockets, threads, life), server_make.c (what needs no sockets),
 * server_commands.c (what takes long), server_log.c (its journals),
 * server_past.c (what is in a log that it finds),
 * server_cut.c (what makes them shorter), server_home.c (whose they are),
 * server_replay.c (its lanes made again), server_follow.c (lanes that follow
 * another server's) and server_copy.c (and what is sent to lanes that follow
 * late). */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/file.h"
#include "base/json/json.h"
#include "net/wakeup.h"
#include "ps/journal/journal_folder.h"
#include "ps/journal/journal_writer.h"
#include "ps/locality.h"
#include "ps/host/server.h"
#include "ps/server_descriptors.h"

enum { FL_MOST_GUEST = 24 }; /* lanes of other servers, so far */

/* A lane of another server that has come to this process: server_guest.c. */
typedef struct fl_guest fl_guest;

/* A lane with what is around it. */
typedef struct fl_lane_runner {
    fl_server *server;
    int number;
    fl_store *store;
    fl_bucket_set own;
    fl_partition layout;
    fl_ps_lane *lane;
    fl_socket *socket;
    fl_wakeup wakeup;
    fl_socket *leader; /* to the lane that it follows; NULL: none, yet */
    bool found;        /* that lane has said where it is */
    pthread_t thread;
    bool has_thread;
    int64_t looked_ns, away_ns; /* at its socket; between two looks, at most */
    char *address;              /* JSON, for HELLO's answer */
    char *tcp_address;          /* the same without its Unix socket */
    char ipc[FL_ADDRESS_SIZE];  /* that socket's path; "": none */

    /* a command, on a thread of its own; command_done hands it over */
    pthread_t command_thread;
    fl_lane_command command;
    atomic_bool command_done;
    bool has_command;
    fleet_status command_status;
    char *command_text;
    uint64_t command_sum, command_rows;
    fl_file_progress progress;
    atomic_bool loads; /* first of all; until it has, or has failed */

    /* what the lane applies is written into it, and read by a process that
     * comes after another one */
    fl_journal_writer *journal;
    struct fl_journal_reader *reader; /* NULL: it has no more to read */
    struct fl_journal_reader *behind; /* what is read behind a snapshot */
    uint16_t last_kind;               /* of a record that was read */
    uint64_t past;                    /* bytes of the snapshot, which was */
    bool is_read, gave_up;
    uint32_t gone_view;  /* it has gone to another process, in that view, before
                            this one began; 0: it has not */
    atomic_bool replays; /* until all lanes have read, or it has failed */
    atomic_uint_least64_t read;
    uint64_t total, records;

    /* what the lane is, for a copy that is made again, on a thread of its
     * own */
    pthread_t copy_thread;
    fl_lane_copy *copy; /* NULL: none is written */
    atomic_bool copy_done;

    /* a snapshot, on a thread of its own; what is older goes then */
    fl_journal_writer *snapshot;
    pthread_t cut_thread;
    bool cuts, wants_cut;
    atomic_bool cut_done, cut_stop;
    fl_error cut_error;
    uint32_t cut_file;         /* the first one behind it */
    int64_t cut_from;          /* bytes of the journal before that file */
    int64_t cut_at, cut_bytes; /* likewise of the last snapshot; its own */
    int64_t cut_again;         /* not before that, after one that failed */
} fl_lane_runner;

struct fl_server {
    fl_server_options o;
    fl_server_identity identity;
    fl_bucket_map map;        /* of this server's lanes alone */
    fl_lane_runner *runner;   /* n_runner of them */
    int n_runner;             /* o.n_lane, or 1 of them (o.host) */
    const char **address;     /* of each lane */
    const char **tcp_address; /* of each lane */
    fl_descriptors descriptors;
    char *program;
    fl_guard *guard; /* NULL: there are no keys */
    fl_ipc_folder folder;
    uint32_t process; /* as fl_lane_options has it */
    uint32_t mark;    /* in its files' names: other jobs may use it, too */
    fl_packet_pool *pool;
    fl_journal_folder home;  /* of its log */
    bool comes_back;         /* it is the server that has written that */
    uint64_t program_before; /* hash of that one's */
    atomic_int n_reading;    /* lanes that have not read all of it */
    int port[FL_MOST_LANE];
    int64_t began_ms;           /* to run */
    _Atomic(const char *) stop; /* why; NULL: go on */
    char *load;                 /* the save that it begins with; NULL: none */
    char *leader_text[FL_MOST_LANE]; /* where lanes are that it follows, as
                                        HELLO has it; once it */
    atomic_bool knows_leaders;
    atomic_bool is_late;  /* that server was at work before */
    pthread_mutex_t lock; /* over what follows */
    fl_error failed;
    bool failed_to_load; /* workers are told as they come */

    fl_address joined[FL_MOST_SERVER]; /* servers that have joined the job, as
                                          fleetctl says; "": none. The first
                                          lane's thread's alone */
    int64_t guest_ms;    /* when it had one last; the same thread's */
    atomic_bool had;     /* it has had a lane that has led */
    atomic_bool is_over; /* the job, for its guests */
    fl_guest *guest[FL_MOST_GUEST];
    atomic_int n_ended;      /* lanes behind the first one */
    atomic_bool first_ended; /* that one */
    atomic_bool has_taken;   /* it was asked to take a lane */
    char sockets[64]; /* of a guest that returns: the folder of its own */
};

/* Lanes of another server that its process has copies of: how many. */
static inline int fl_server_copies(const fl_server *s)
{
    return s->o.replica ? s->o.replica->o.n_lane : 0;
}

/* --- a server in the making (server_make.c, server.c) --------------------- */

/* Without anything yet; then runners for o.n_lane lanes, in map 0; of one the
 * store, and when s->program is known the lane. fl_server_destroy() takes any
 * of these. */
fleet_status fl_server_begin(fl_server **server, const fl_server_options *o);
fleet_status fl_server_make_runners(fl_server *s);
fleet_status fl_server_make_addresses(fl_server *s); /* room for them */
fleet_status fl_server_make_store(fl_server *s, fl_lane_runner *r);
fleet_status fl_server_make_lane(fl_server *s, fl_lane_runner *r);
void fl_runner_done(fl_lane_runner *r); /* what it has goes */

/* A nonce and, of server 0, a run of its own; the load that it was given, for
 * the one that it begins with (server.c). */
void fl_server_draw_identity(fl_server *s);
fleet_status fl_server_set_load(fl_server *s);

/* Its addresses, where workers find it (server_bind.c). */
fleet_status fl_server_bind_lane(fl_server *s, fl_lane_runner *r);
bool fl_server_is_inproc(const fl_server *s);

/* It ends with that, and its workers are told, unless it has failed before. */
void fl_server_fail(fl_server *s, const fl_error *error);

/* Any of its lanes has led. */
bool fl_server_has_led(const fl_server *s);

/* --- lanes of other servers that come (server_guest.c) -------------------- */

/* As fl_lane_host has them: of a runner. */
fleet_status fl_runner_take_guest(void *arg, const char *words);
bool fl_runner_tell_guest(void *arg, int i, char text[FL_LANE_TEXT]);
fleet_status fl_runner_know_joined(void *arg, const char *words);
bool fl_runner_tell_joined(void *arg, int server, char address[FL_LANE_TEXT]);

/* A server's first lane answers fleetctl for as long as one of the server's
 * lanes runs, its guests among them, also when it has itself gone. */
bool fl_runner_awaits_guests(const fl_lane_runner *r);

/* They have ended; what one of them that has led has failed of is the server's
 * failure, if it has none. */
void fl_server_join_guests(fl_server *s);
void fl_server_forget_guests(fl_server *s);

/* Of the server that a guest is: a socket to where its lane is before. */
fleet_status fl_guest_find_leader(fl_server *s);

/* A guest whose lane is this server's by its journal, unless there is one. */
fleet_status fl_server_return_guest(fl_server *s, int server, int lane,
                                    int lanes, const char *address);

/* --- lanes whose journals go with them (server_home.c) -------------------- */

/* As fl_lane_host has them: of a runner. */
fleet_status fl_runner_count_move(void *arg, uint32_t least, uint32_t *number);
fleet_status fl_runner_leave(void *arg, int server, uint32_t view,
                             const char *address);
bool fl_runner_home(void *arg, uint32_t *view, char address[FL_LANE_TEXT]);

/* Of a server that comes back: which of its lanes have gone. */
fleet_status fl_server_find_homes(fl_server *s);

/* The job has failed, and so it is over: no process that comes back has to make
 * lanes again that have gone from this server. */
void fl_server_forget_homes(const fl_server *s);

/* By the first lane's thread, often: lanes that are this server's, and of which
 * it has no guest, as its process has died, say. */
void fl_server_find_guests(fl_server *s);

/* Of a guest: the log of its lane; and, by its thread, often: the journal is
 * its own. */
fleet_status fl_guest_log_open(fl_server *s);
void fl_runner_come_home(fl_lane_runner *r);

/* --- commands (server_commands.c) ----------------------------------------- */

/* As fl_lane_host has it: of a runner. */
fleet_status fl_runner_begin_command(void *arg, const fl_lane_command *command);
uint64_t fl_runner_progress(void *arg);
bool fl_runner_is_loading(void *arg, uint64_t *bytes, uint64_t *of);

/* The load that the server begins with, of this lane. */
fleet_status fl_runner_begin_load(fl_lane_runner *r);

/* A command that has ended is handed to the lane; one whose lane fails is told
 * to stop. */
void fl_runner_end_command(fl_lane_runner *r);

/* Every lane's thread looks at what has changed. */
void fl_server_ring(fl_server *s);

/* --- its log (server_log.c) ----------------------------------------------- */

enum { FL_SERVER_LOG_FORMAT = 4 }; /* of its text */

/* Before sockets are bound: the folder is locked, and a server that comes back
 * has its old identity. Nothing without a log, as all of these. */
fleet_status fl_server_log_open(fl_server *s);
/* When they are bound: a new server writes its identity. */
fleet_status fl_server_log_begin(fl_server *s);
void fl_server_log_end(fl_server *s); /* it has run to its end */

/* Of the log of a process before: does it have nothing but that workers came?
 * A load counts: it changes what training begins with. server_past.c. */
bool fl_server_log_is_unused(const fl_server *s);

/* Is what it commits on the disk, and not only written? */
bool fl_server_log_flushes(const fl_server *s);

/* A journal of one of its lanes, in that folder, from that file and that record
 * on. */
fleet_status fl_server_log_write(const fl_server *s, const char *folder,
                                 uint32_t file, uint64_t lsn,
                                 fl_journal_writer **writer);

/* With what the server of that text had begun: s->identity.run, which only the
 * first server's text has, s->program_before, s->load. */
fleet_status fl_server_read_beginning(fl_server *s, const fl_at *root);

/* FLEET_EINVAL: that one is not s->program. */
fleet_status fl_server_check_program(const fl_server *s);

/* The readers of the lane's log: of its newest snapshot, if it has one, and of
 * what is behind. When the first one has no more, _log_behind() goes on. */
fleet_status fl_runner_open_log(fl_lane_runner *r);
fleet_status fl_runner_log_behind(fl_lane_runner *r);

fl_journal_sink fl_runner_journal(fl_lane_runner *r);
void fl_runner_log_done(fl_lane_runner *r);

/* Of a server that comes back, of all its lanes before the first one's thread
 * begins; then _replay() again and again, by that thread. _reads(): it wants
 * to be called at once. */
void fl_runner_begin_replay(fl_lane_runner *r);
void fl_runner_replay(fl_lane_runner *r);
bool fl_runner_reads(const fl_lane_runner *r);
void fl_runner_begin_gone(fl_lane_runner *r); /* it has nothing to read */

/* --- what makes it shorter (server_cut.c) --------------------------------- */

/* By the lane's thread, often: a snapshot is begun when the log is long, and
 * ended. A thread of it, r->cuts, must end before the lane. */
void fl_runner_cut(fl_lane_runner *r);

/* --- one that follows another server (server_follow.c) -------------------- */

/* Whose processes may come by tcp, beside workers'. */
void fl_server_let_in(fl_server *s);

/* A socket to it; then, before its lanes' threads begin: they ask, and load
 * what that one begins with. */
fleet_status fl_server_find_leader(fl_server *s);
void fl_server_begin_follow(fl_server *s);

/* As fl_lane_host has it: of a runner. */
void fl_runner_ask_leader(void *arg, fl_packet *p);

/* By the lane's thread: what its leader has said. Nothing, if it has none. */
void fl_runner_hear_leader(fl_lane_runner *r);

/* --- one that makes its other copy again (server_copy.c) ------------------ */

/* As fl_lane_host has them: of a runner. */
fleet_status fl_runner_begin_copy(void *arg, fl_lane_copy *c);
void fl_runner_ring(void *arg);

/* By the lane's thread, often. The thread of a copy must end before it. */
void fl_runner_copy(fl_lane_runner *r);
