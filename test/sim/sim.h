/* sim.h - a job in one thread: worker and server processes as they are in
 * src/ps, and around them a clock, links, faults and a scheduling of the tests'
 * own. All of it is a function of one seed: a run that fails can be run again.
 *
 * A worker says hello and then trains; its code waits for answers, so it is a
 * fiber. Lanes are state machines and are called. Packets between them are
 * copied, late, out of order, lost, repeated, damaged; links are cut; processes
 * are slow, or sleep, or die at any message, and another one may come at the
 * same address.
 */
#pragma once

#include <fleet/fleet.h>
#include <ucontext.h>

#include "base/text.h"
#include "ps/server/lane_internal.h"
#include "ps/worker/handshake.h"
#include "ps/worker/worker.h"

enum {
    SIM_MOST_WORKER = 16,
    SIM_MOST_PROCESS = SIM_MOST_WORKER + 2, /* of workers, a twin's too */
    SIM_SUBSCRIBER = SIM_MOST_PROCESS - 1,  /* and the subscriber's */
    SIM_MOST_SERVER = 3,
    SIM_MOST_LANE = 9, /* of all servers */
    SIM_MOST_FAULT = 2,
    SIM_MOST_COPY = 2,                                 /* of a lane */
    SIM_MOST_SENDER = SIM_MOST_PROCESS + SIM_MOST_LANE /* of links to lanes:
                                  workers, and lanes that follow */
};
enum { SIM_NOBODY = -1, SIM_INCARNATION = 2, SIM_RUN = 5, SIM_NONCE = 77 };

/* What both sides train: parameters and tables, without a graph. */
typedef struct sim_model {
    fleet *f;
    fleet_program *p;
    fleet_optimizer *o;
    char *signature; /* as processes compare it */
} sim_model;

typedef enum sim_fault_kind {
    SIM_NO_FAULT,
    SIM_DIES,   /* the process; its last message does not get out */
    SIM_SLEEPS, /* the process: then it goes on with what has come */
    SIM_STUCK,  /* the worker: it lives, and trains no more */
    SIM_CUT,    /* the links between worker and server */
    SIM_CRASH   /* all processes die */
} sim_fault_kind;

enum { SIM_TO_LANES = 1, SIM_TO_WORKERS = 2 };

/* It begins with a message of the process, or on the link, whoever sends it. */
typedef struct sim_fault {
    sim_fault_kind kind;
    int worker, server; /* SIM_NOBODY: any, of a cut; none, of a process */
    int message;        /* FL_MSG_STEP, ...; 0: of any kind */
    bool leaving;       /* and of those a LEAVE */
    bool when_copied;   /* and when both copies of the server's lanes are
                           there, after the first fault */
    bool when_moving;   /* and from when on a lane is about to leave the
                           server's process, or to come to it */
    int count;          /* the how manieth of them */
    int64_t ms;         /* SLEEPS, CUT: how long. DIES: until another process
                           comes at the address; -1: none does */
    int directions;     /* CUT: SIM_TO_LANES | SIM_TO_WORKERS */
    bool holds;         /* CUT: what is sent meanwhile comes afterwards */
} sim_fault;

typedef struct sim_options {
    uint64_t seed;
    const sim_model *model;
    fl_rows_maker *make_rows; /* of lanes' tables; NULL: all rows in memory */
    bool sync;
    bool bounds_staleness; /* in async */
    int max_staleness;
    fl_push_options half; /* in async; merged 0: each push is a step */
    int64_t geo_every;    /* in async: updates between exchanges; 0: not geo */
    fl_wire_options wire; /* as what pushes and pulls travel */
    int64_t most_change;  /* that a lane knows of a table; 0: its own bound */
    size_t changed_bytes; /* that it says at once; the same */
    size_t cache_bytes;   /* of rows that a worker keeps; 0: none */
    uint32_t cache_staleness;       /* in async, in batches */
    int n_worker, n_server, n_lane; /* lanes of a server */

    /* links: of 1,000 packets so many are lost, repeated, or followed by one
     * that is damaged or not ours */
    int lost, repeated, strange;
    int delay_ms; /* at most */
    bool in_order;
    int slow; /* of 1,000 events so many make their process pause */

    /* processes begin within so many milliseconds */
    int64_t servers_ms, workers_ms;
    int twin; /* 1 + the number of a worker that is started twice: its twin is
                 process n_worker; 0: none */

    size_t piece_bytes, window, most_open, most_parked, most_unread;
    int64_t heartbeat_ms, connect_ms, request_ms, peer_ms, step_ms;

    /* a save that servers begin with, NULL: none; a lane loads it in so many
     * parts, each within so many milliseconds */
    const char *load;
    int load_parts, load_ms;
    int stuck; /* 1 + the number of the server whose load does not get on
                  beyond its first part; 0: none */

    /* lanes have journals below this folder, NULL: they have none; so many
     * times a server dies as it writes, with one in so many commits */
    const char *journal;
    int journal_deaths, journal_every;

    /* workers leave trails below this folder, NULL: they leave none; so many
     * times one dies as it sends, with one in so many messages, and is started
     * again */
    const char *trail;
    int trail_deaths, trail_every;
    int64_t restart_ms; /* as lanes have it */

    /* a subscriber follows, and dies so often; a lane remembers so many changes
     * for it, 0: its own number */
    bool subscriber;
    int subscriber_deaths;
    int64_t most_told;

    sim_fault fault[SIM_MOST_FAULT];

    /* each lane has a second copy, in a process of its own: server i's in
     * process n_server + i, lane j in lane n_lane + j of the run */
    bool replicas;

    /* lanes go from their servers to as many others, lane j of the run between
     * places j and n_lane + j, and back: so many are told to, each within so
     * many milliseconds of the last */
    int moves, move_ms;

    int slowness; /* computing takes so many times as long; 0: as the script
                     has it */

    int64_t all_stop_ms; /* the whole job, links and all, stops for so long */
    int64_t all_stop_at_ms;
} sim_options;

typedef struct sim sim;

typedef struct sim_lane {
    sim *s;
    int server, number, lane; /* lane: of the server */
    fl_bucket_set own;
    fl_store *store;
    fl_partition layout;
    fl_ps_lane *core;        /* NULL: its process is gone, or has not come */
    fl_lane_command command; /* under way */
    bool looks;              /* a SIM_LANE_LOOKS is under way */
    bool loads;              /* what its server begins with */
    int loaded;              /* parts of that */
    struct fl_journal_writer *writer;
    struct fl_journal_reader *reader, *behind; /* of a snapshot, then behind */
    struct fl_journal_writer *snapshot;        /* that is written; NULL: none */
    fl_lane_copy *copy;                        /* the same */
    uint32_t cut;                              /* the first file behind it */
    bool replays; /* it is made again, and has not read all of its journal */
    uint32_t stay, follows; /* which of the lanes that have come to this place;
                               0: the one that it began with. And which stay of
                               the other place it follows */
    fl_server_identity identity; /* of one that has come */
    int64_t ended_ms;
} sim_lane;

typedef struct sim_server {
    uint32_t life; /* how many processes it has had */
    bool alive, dying;
    fl_server_identity identity;
    char address[FL_MOST_LANE][60];
    const char *offered[FL_MOST_LANE];
    int64_t paused_until, ended_ms;
    int64_t came_ms, loaded_ms; /* all of what it begins with */
} sim_server;

typedef enum sim_phase {
    SIM_ABSENT, /* it has not come, or is dead */
    SIM_JOINS,
    SIM_WORKS,
    SIM_ENDED
} sim_phase;

typedef struct sim_worker {
    sim *s;
    int process; /* which of the run's: the number of its fiber and links */
    int index;   /* the worker's number, as the job knows it */
    uint32_t life;
    sim_phase phase;
    bool dying;
    char who[40];
    fl_handshake *handshake;
    fl_job_lanes lanes;
    fl_store *store;
    fl_client *client;
    fl_worker core;
    fl_trail *trail;
    int mark[2]; /* pass and step that it is at */

    ucontext_t context;
    void *stack, *fake_stack;
    bool has_fiber, waiting, returned;
    fl_packet *inbox[512];
    uint16_t from[512];                           /* lanes */
    uint32_t stay[SIM_MOST_COPY * SIM_MOST_LANE]; /* of lanes, as it knows */
    int n_inbox;
    int64_t paused_until, ended_ms;

    fleet_status status;
    char text[1000];
    char log[4000]; /* what it saw, in words */
    void *own;      /* the script's */
} sim_worker;

/* What has become of a fault. */
typedef struct sim_fault_state {
    int seen;
    bool begun;
    int64_t begun_ms;
    bool all_joined; /* when it began */
} sim_fault_state;

struct sim {
    sim_options o;
    int64_t now_ms;
    fl_packet_pool *pool;
    sim_worker worker[SIM_MOST_PROCESS];
    int n_process; /* of workers */
    sim_server server[SIM_MOST_COPY * SIM_MOST_SERVER];
    sim_lane lane[SIM_MOST_COPY * SIM_MOST_LANE];
    int n_lane;                 /* of all servers */
    int all_lanes, all_servers; /* with their second copies */
    fl_bucket_map map;
    fl_address address[SIM_MOST_SERVER];
    fleet_status (*body)(sim_worker *w);
    void *own; /* the script's, for each worker */
    bool trace, has_stopped, crashed;
    uint64_t events, random;
    sim_fault_state fault[SIM_MOST_FAULT];
    int n_died;        /* servers, as they wrote */
    int n_cut;         /* journals */
    int n_worker_died; /* as they sent */
    int n_told;        /* lanes, to move */
    bool lost_lane;    /* with a server that has died: its only place */
    char seen[SIM_MOST_WORKER][4000]; /* logs of workers, at their marks */

    struct sim_subscriber *subscriber; /* NULL: there is none */
    struct sim_event *event;           /* a heap */
    size_t n_event, event_capacity;
    int64_t last[2][SIM_MOST_SENDER]
                [SIM_MOST_COPY * SIM_MOST_LANE]; /* of links in order */
    uint8_t lost[SIM_MOST_SENDER]
                [SIM_MOST_COPY * SIM_MOST_SERVER]; /* hellos, in a row */
    ucontext_t main;
    void *main_fake;
    const void *main_bottom;
    size_t main_size;
};

/* Make it; stores will have the model's first values. */
void sim_open(sim *s, const sim_options *o, fleet_status (*body)(sim_worker *w),
              void *own);

/* Run until all workers and lanes have ended, or until the limit. */
void sim_run(sim *s, int64_t limit_ms);
void sim_close(sim *s);

/* For worker bodies: computing takes so long; a line for the log. */
void sim_compute(sim_worker *w, int64_t ms);
void sim_note(sim_worker *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Where the worker's trail goes on, if it has one that does: in which pass,
 * before which step of it. */
fleet_status sim_go_on(sim_worker *w, int *pass, int *step);

/* What it saw is kept for the process after it. */
void sim_keep_log(sim_worker *w);

/* Random numbers of the run, in [0, n); and a function of its arguments. */
uint64_t sim_random(sim *s, uint64_t n);
uint64_t sim_hash(uint64_t seed, uint64_t a, uint64_t b, uint64_t c,
                  uint64_t d);

fl_store *sim_store(const sim_model *m, fl_rows_maker *make_rows);
fl_store *sim_store_of(const sim_model *m, fl_rows_maker *make_rows,
                       fl_block_filter filter, bool sums);

/* A copy of a packet with its frames at odd places. */
fl_packet *sim_copy(const fl_packet *p, int odd);

/* Its worker has it: it weighs on no account any more. */
void sim_arrives(fl_packet *p);

/* The sum of a packet that was changed by hand. */
void sim_sum(fl_packet *p);

/* Of both places of a lane the one that leads; or one that may, and nobody was
 * left to say so. NULL: neither. */
const sim_lane *sim_leader_of(const sim *s, int lane);

/* The sum over rows, as params_hash has it, in a lane's or another store. */
uint64_t sim_rows_hash(const fl_store *s, const char *table, uint64_t *rows);
