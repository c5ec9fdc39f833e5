/* lane_kit.h - one lane with nothing around it: what it is told, and what it
 * sends, one message at a time.
 */
#pragma once

#include "sim_job.h"

enum { LANE_MOST_SENT = 64, LANE_MOST_CUT = 4 };

typedef struct lane_sent {
    uint8_t to; /* the first byte of the peer */
    fl_packet *packet;
} lane_sent;

/* Of the lane's process, and the job's number. */
enum { LANE_NONCE = 77, LANE_RUN = 5 };

typedef struct lane_kit {
    fl_server_identity identity;
    fl_packet_pool *pool;
    fl_store *store;
    fl_partition layout;
    fl_bucket_map map;
    fl_ps_lane *lane;
    lane_sent sent[LANE_MOST_SENT];
    int n_sent;
    int n_stream, n_command; /* begun */
    fl_job_command command;
    char command_text[100];
    bool fails_commands, beside_training;
    uint64_t cut[LANE_MOST_CUT]; /* of a save beside training */
    uint64_t command_progress;
    fl_packet *asked;   /* last, of the lane that it follows; NULL: nothing */
    fl_lane_copy *copy; /* that is to be written; NULL: none */
    bool loads;         /* its server does, so far, and so many bytes */
    uint64_t load_total;
    int64_t now_ms;
    fl_msg msg; /* the last that was heard, and its packet */
    fl_packet *heard;
    fl_log log;
    char lines[2000]; /* that the lane has written into its log */
} lane_kit;

/* The run of which lane_head() makes messages. */
extern uint32_t lane_run;

/* Where the lanes that are opened from now on write what they apply. */
extern fl_journal_sink lane_journal;

/* Of those lanes: fl_lane_options.live_hash. */
extern int lane_live_hash;

/* How long they wait until a worker is started again; 0: they do not. */
extern int64_t lane_restart_ms;

/* How many changes these lanes remember for subscribers; 0: as many as ever. */
extern int64_t lane_changes;

/* Which copy they begin as. */
extern fl_replica_role lane_replica;
extern bool lane_comes_again;
extern const char *lane_no_move;

/* The only lane of the only server, for n workers. */
void lane_open(lane_kit *k, sim_kind kind, int n_stream, bool sync);
/* Its tables are made by that maker. */
void lane_open_rows(lane_kit *k, sim_kind kind, int n_stream, bool sync,
                    fl_rows_maker *make_rows);
void lane_open_scaled(lane_kit *k, sim_kind kind, int n_stream, bool sync);
/* One that keeps no more of a worker's requests and answers than that, and a
 * sixteenth of the answers for what is small; 0: as much as usual. */
void lane_open_small(lane_kit *k, int n_stream, bool sync, size_t most_parked,
                     size_t most_unread);
/* Both. */
void lane_open_small_rows(lane_kit *k, int n_stream, bool sync,
                          size_t most_parked, size_t most_unread,
                          fl_rows_maker *make_rows);
/* An async one whose staleness is bounded. */
void lane_open_bounded(lane_kit *k, int n_stream, uint64_t max_staleness);
/* The lane of the second of two servers, which knows of no run yet. */
void lane_open_second(lane_kit *k);
void lane_close(lane_kit *k);

/* Begin a message of a worker; sections may follow, lane_tell() sends it, from
 * peer `head.stream`. */
fl_msg_head lane_head(fl_msg_kind kind, uint32_t stream, uint64_t step,
                      uint16_t flags);
void lane_begin(lane_kit *k, fl_msg_writer *w, const fl_msg_head *head);
void lane_tell(lane_kit *k, fl_msg_writer *w, int from);

/* The section that closes a contribution, and how its update is made. */
void lane_close_step(fl_msg_writer *w, uint32_t n_batch,
                     const fl_update_settings *settings);

/* Without sections; a step that is a contribution, with a gradient of ones for
 * the row `key` of table 0, of so many batches. */
void lane_say(lane_kit *k, fl_msg_kind kind, uint32_t stream, uint64_t step,
              uint16_t flags);
void lane_push(lane_kit *k, uint32_t stream, uint64_t step, uint64_t key,
               uint32_t n_batch);
void lane_push_with(lane_kit *k, uint32_t stream, uint64_t step, uint64_t key,
                    const fl_update_settings *settings);
void lane_push_as(lane_kit *k, uint32_t incarnation, uint32_t stream,
                  uint64_t step, uint64_t key, uint32_t n_batch);

/* A whole step of n rows of table 0, with gradients g, g + 1, ... g + 4, g, and
 * so on. */
void lane_push_rows(lane_kit *k, uint32_t stream, uint64_t step,
                    const uint64_t *key, uint32_t n, float g);

/* A save, a load or a write of a worker's step; a read; numbers for all
 * workers. */
void lane_command(lane_kit *k, uint32_t stream, uint64_t step,
                  const char *text);
void lane_load(lane_kit *k, uint32_t stream, uint64_t step, const char *path);
void lane_write(lane_kit *k, uint32_t stream, uint64_t step, const char *text);
void lane_read(lane_kit *k, uint32_t stream, const char *text);
void lane_numbers(lane_kit *k, uint32_t stream, uint64_t number, int how,
                  const double *x, int n);

/* In async: for a lease, behind so many sums. */
void lane_lease(lane_kit *k, uint32_t stream, uint64_t sums,
                const fl_lease_question *q);

/* A pull of that version: of n rows of table 0. */
void lane_pull(lane_kit *k, uint32_t stream, uint64_t version, uint32_t n);

/* In async, where staleness is bounded: for that push of the worker, from 1 on;
 * 0: for none. */
void lane_pull_for(lane_kit *k, uint32_t stream, uint64_t push);

/* Tick as a lane's host does, every 100 ms and at the end. */
void lane_tick_until(lane_kit *k, int64_t now_ms);

/* What it said next, in order; fails if it said nothing. */
const fl_msg *lane_hear(lane_kit *k, int to);
void lane_silent(const lane_kit *k);

/* The next one has that status, or is that refusal. */
void lane_hear_status(lane_kit *k, int to, fl_msg_status status);
void lane_hear_refusal(lane_kit *k, int to, const char *words);
