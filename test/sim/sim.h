/* sim.h - a job in one thread: workers and lanes as they are in src/ps, and
 * around them a clock, links and a scheduling of the tests' own. All of it is a
 * function of one seed: a run that fails can be run again.
 *
 * A worker's code waits for answers, so each worker is a fiber; lanes are state
 * machines and are called. Packets between them are copied, late, out of order,
 * lost, repeated, damaged; lanes and workers are slow, or silent for a while or
 * for good.
 */
#pragma once

#include <fleet/fleet.h>
#include <ucontext.h>

#include "base/text.h"
#include "ps/server/lane_internal.h"
#include "ps/worker/worker.h"

enum { SIM_MOST_WORKER = 4, SIM_MOST_SERVER = 3, SIM_MOST_LANE = 9 };
enum { SIM_NOBODY = -1, SIM_INCARNATION = 2, SIM_RUN = 5, SIM_NONCE = 77 };

/* What both sides train: parameters and tables, without a graph. */
typedef struct sim_model {
    fleet *f;
    fleet_program *p;
    fleet_optimizer *o;
} sim_model;

typedef struct sim_options {
    uint64_t seed;
    const sim_model *model;
    bool sync;
    int n_worker, n_server, n_lane; /* lanes of a server */

    /* links: of 1,000 packets so many are lost, repeated, or followed by one
     * that is damaged or not ours */
    int lost, repeated, strange;
    int delay_ms; /* at most */
    bool in_order;
    int slow; /* of 1,000 events so many make their lane or worker pause */

    size_t piece_bytes, window, most_open, most_parked, most_unread;
    int64_t heartbeat_ms, connect_ms, request_ms, peer_ms, step_ms;

    /* who falls silent for good, and when; SIM_NOBODY */
    int dead_worker, dead_server, stuck_worker;
    int64_t dead_ms;

    /* a worker that does not run for a while, and when that begins; the whole
     * job, links and all; 0: none does that */
    int stopped_worker; /* its number + 1 */
    bool all_stop;
    int64_t stop_at_ms, stop_ms;
} sim_options;

typedef struct sim sim;

typedef struct sim_lane {
    sim *s;
    int server, number, lane; /* lane: of the server */
    fl_bucket_set own;
    fl_store *store;
    fl_partition layout;
    fl_ps_lane *core;
    fl_server_identity identity;
    int64_t paused_until, failed_ms;
    bool dead;
    fl_lane_command command; /* under way */
} sim_lane;

typedef struct sim_worker {
    sim *s;
    int index;
    fl_store *store;
    fl_client *client;
    fl_worker core;

    ucontext_t context;
    void *stack, *fake_stack;
    bool started, waiting, asleep, ended, dead;
    fl_packet *inbox[512];
    uint16_t from[512]; /* lanes */
    int n_inbox;
    int64_t paused_until, ended_ms;

    fleet_status status;
    char text[1000];
    char log[4000]; /* what it saw, in words */
    void *own;      /* the script's */
} sim_worker;

struct sim {
    sim_options o;
    int64_t now_ms;
    fl_packet_pool *pool;
    sim_worker worker[SIM_MOST_WORKER];
    sim_lane lane[SIM_MOST_LANE];
    int n_lane; /* of all servers */
    fl_bucket_map map;
    fleet_status (*body)(sim_worker *w);
    bool trace, has_stopped;
    uint64_t events, random;

    struct sim_event *event; /* a heap */
    size_t n_event, event_capacity;
    int64_t last[2][SIM_MOST_WORKER][SIM_MOST_LANE]; /* of links in order */
    ucontext_t main;
    void *main_fake;
    const void *main_bottom;
    size_t main_size;
};

/* Make it; stores have the model's first values. */
void sim_open(sim *s, const sim_options *o,
              fleet_status (*body)(sim_worker *w));

/* Run until all workers and lanes have ended, or until the limit. */
void sim_run(sim *s, int64_t limit_ms);
void sim_close(sim *s);

/* For worker bodies: computing takes so long; a line for the log. */
void sim_compute(sim_worker *w, int64_t ms);
void sim_note(sim_worker *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Random numbers of the run, in [0, n); and a function of its arguments. */
uint64_t sim_random(sim *s, uint64_t n);
uint64_t sim_hash(uint64_t seed, uint64_t a, uint64_t b, uint64_t c,
                  uint64_t d);

fl_store *sim_store(const sim_model *m, fl_rows_maker *make_rows);
fl_store *sim_store_of(const sim_model *m, fl_rows_maker *make_rows,
                       fl_block_filter filter);

/* A copy of a packet with its frames at odd places. */
fl_packet *sim_copy(const fl_packet *p, int odd);

/* Its worker has it: it weighs on no account any more. */
void sim_arrives(fl_packet *p);

/* The sum of a packet that was changed by hand. */
void sim_sum(fl_packet *p);

/* The sum over rows, as params_hash has it, in a lane's or another store. */
uint64_t sim_rows_hash(const fl_store *s, const char *table, uint64_t *rows);
