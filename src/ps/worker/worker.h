/* worker.h - a worker's remote storage (plan/remote.h) on its servers: which
 * keys and blocks go to which lane, and what comes back, by requests of
 * client.h. It waits through its host alone, which is sockets (worker_io.h) or
 * a simulator. */
#pragma once

#include "ps/codec.h"
#include "ps/lease_queue.h"
#include "ps/worker/client.h"
#include "ps/partition.h"
#include "ps/trail/trail.h"
#include "runtime/lookup/lookup_data.h"
#include "runtime/plan/remote.h"
#include "runtime/store/job_command.h"

/* Keys of one lane, and for each where its row comes from or goes to. */
typedef struct fl_lane_keys {
    uint64_t *key;
    void *at; /* const float ** to set (pull), const float * (push) */
    int64_t n;
    size_t key_capacity, at_capacity;
    int64_t *first; /* by table: where its keys begin; n_table + 1 */
} fl_lane_keys;

/* A part of a section that a pull asks for. */
typedef struct fl_pull_piece {
    int table; /* -1: dense */
    int64_t first, n;
    bool known;     /* of rows that are kept: hot_pull.h */
    fl_codec codec; /* that it asks for */
} fl_pull_piece;

typedef struct fl_pull_request {
    fl_request request;
    int lane;
    fl_pull_piece piece[FL_MSG_MOST_SECTION];
    int n_piece;
    size_t bytes;   /* that it will bring */
    float *aligned; /* rows that did not come aligned, or in fewer bytes */
    size_t aligned_capacity;
} fl_pull_request;

enum { FL_DENSE_SLOT = FL_MOST_PULL_SLOT }; /* for dense weights alone */

typedef struct fl_pull_buffer {
    bool under_way, arrived, has_rows; /* arrived: with its weights */
    bool dense;                        /* it asks for weights, too */
    bool exact;                        /* as floats, whatever pulls travel as */
    bool all;    /* weights of all stages, not of this process's alone */
    bool renews; /* half-async: weights are taken with it that were asked for
                    before */
    uint64_t for_step; /* where staleness is bounded: the push that its values
                          are for, from 1 on; 0: none */
    fl_pull_request **request;
    int n_request;
    size_t n_made, request_capacity; /* made ones are used again */
    fl_lane_keys *keys;              /* by lane; NULL: it was never used */
} fl_pull_buffer;

/* Blocks of a lane: param << 32 | block. */
typedef struct fl_lane_blocks {
    uint64_t *key;
    int n, n_own; /* the first ones are what this process's steps need */
} fl_lane_blocks;

/* How half-async works. merged 0: each push is a step, as it comes. */
typedef struct fl_push_options {
    int merged;       /* batches of a push */
    int queue;        /* pushes that are under way before one more waits */
    int recv_after;   /* pushes, after which the dense weights are pulled */
    bool recv_beside; /* and are used when they have come; or waited for */
} fl_push_options;

typedef struct fl_param_sum {
    float *sum; /* NULL: it has had none yet */
    bool has;   /* this group has */
} fl_param_sum;

typedef struct fl_table_sum {
    fl_row_sums sums;
    const float **grad; /* of each key */
    size_t grad_capacity;
} fl_table_sum;

/* Pushes that are gathered (worker_group.h). */
typedef struct fl_push_sums {
    fl_push_options how;
    int n;                       /* pushes in it */
    int64_t n_batch;             /* that its sums are of */
    fl_update_settings settings; /* of the last one */
    fl_param_sum *dense;         /* by parameter */
    fl_table_sum *table;         /* by table */
    fl_push_param *param;        /* what is pushed of it */
    fl_push_rows *rows;
    int since; /* pushes since weights were asked for */
} fl_push_sums;

typedef struct fl_worker_host {
    void *arg;
    /* Wait until something may have happened: packets given to the client,
     * ticks done. */
    void (*wait)(void *arg);
    int64_t (*now_ms)(void *arg);
    void (*look)(void *arg); /* packets given to the client, without waiting;
                                NULL: wait() alone does it */
} fl_worker_host;

typedef struct fl_worker {
    fl_remote remote; /* first: a worker is one */
    fl_client *client;
    fl_worker_host host;
    fl_partition layout;
    int n_lane; /* of all servers */
    fl_bucket_map map;
    uint16_t owner[FL_N_BUCKET]; /* by that map: lane by bucket */
    fl_lane_blocks *block;       /* by lane */
    int n_own, n_block;          /* of all lanes */
    fl_pull_buffer slot[FL_MOST_PULL_SLOT + 1]; /* and FL_DENSE_SLOT */
    fl_request *push;                           /* by lane: of the last push */
    fl_request *pushing; /* of the one that is being made */
    fl_request **before; /* n_before pushes under way before push[], the oldest
                            first; after them arrays to be used again */
    int n_before, n_made;
    size_t before_capacity;
    int most_under_way;      /* pushes, when one is made: 1, or more
                                           in half-async */
    fl_lane_keys *push_keys; /* by lane */
    fl_lane_keys sorting;    /* scratch, where keys are packed */
    uint64_t *push_block;    /* of the lane that is being written */
    const float **push_grad;
    const float **grad_of; /* of a push, by parameter; NULL: none */
    bool pushed;           /* push[] is under way, or was not looked at */
    bool updating;         /* in sync: and its update has not been seen */
    bool by_parts; /* of a heter worker, in sync: a push is a part of the step
                      that fl_worker_end_step() sends; set after
                      fl_worker_init() */
    int n_part;    /* that pushing[] has */
    fl_update_settings part_settings; /* of the last one */
    bool lacks_weights; /* it has the parts of another process, and not the
                           weights of then */
    bool clipped;       /* that update was pushed for its clip already */
    uint64_t step, reduced;
    bool bounds_staleness;   /* in async; set after fl_worker_init() */
    uint64_t n_push;         /* in async */
    fl_push_sums group;      /* in half-async */
    size_t piece_bytes;      /* a request is cut into pieces of about that */
    struct fl_geo *geo;      /* it trains copies: geo.h; NULL: it does not */
    struct fl_hot_pull *hot; /* it keeps rows: hot_pull.h; NULL: it does not */
    fl_wire_options wire;    /* fl_worker_use_wire() */
    struct fl_residuals *residuals; /* NULL: none are kept */
    fl_trail *trail;                /* NULL: it leaves none */
    fl_trail_packets *packets;      /* by lane: what the trail gets */
    float *values;                  /* of a push that travels in fewer bytes */
    size_t values_capacity;
} fl_worker;

/* After the lanes are known: map, owner and block are filled. */
fleet_status fl_worker_init(fl_worker *w, fl_client *client,
                            const fl_worker_host *host, fl_store *store,
                            int n_server, const int *lanes, bool sync);
void fl_worker_done(fl_worker *w);

/* Pulls and pushes of training travel so from now on, before the first of them;
 * not in geo mode. Pulls of what is there now (tests), weights at the end of a
 * pass, and commands (saves, loads, reads) are exact all the same. */
fleet_status fl_worker_use_wire(fl_worker *w, const fl_wire_options *wire);

/* From now on the worker leaves a trail, which has entered the job's run and
 * must outlive it. In sync and in async; not where pushes are gathered or
 * rounded with residuals, copies are trained, or staleness is bounded. */
fleet_status fl_worker_use_trail(fl_worker *w, fl_trail *trail,
                                 const fl_trail_host *host, int index);

/* FLEET_EEND: the process before has done all that worker `index` had to do.
 * FLEET_ESTATE: it has trained what is in no trail. */
fleet_status fl_worker_check_trail(const fl_trail *t, int index);

/* The first training pass of a worker whose trail has trained begins: what may
 * not have come to all lanes is sent again and waited for, and the stream goes
 * on behind it. Without such a trail nothing is done. */
fleet_status fl_worker_go_on(fl_worker *w);

/* A save is about to be made. *over: it was, by the process before, and its
 * step is behind; the status is what it came to. And one was made, of the last
 * step: it is in place, or has failed. */
fleet_status fl_worker_knows_save(fl_worker *w, bool *over);
fleet_status fl_worker_note_saved(fl_worker *w, fleet_status status);

/* Leave, as the process before has, or was about to. */
fleet_status fl_worker_leave_again(fl_worker *w);

/* Numbers of all workers; n 0 is a barrier. Where staleness is bounded the pass
 * ends, so that no worker waits for the steps of one that waits for it.
 * FLEET_EINVAL if another worker brings other numbers, or for something else.
 */
fleet_status fl_worker_reduce(fl_worker *w, fl_reduction how, double *x, int n);

/* The part of a pass that comes next for this worker, or once more the one that
 * it was given: of the coordinator. FLEET_EINVAL: workers are in different
 * passes. */
fleet_status fl_worker_lease(fl_worker *w, const fl_lease_question *q,
                             uint64_t *lease);

/* Wait for all workers; in sync, and where staleness is bounded, the pass ends.
 * The dense weights are renewed after that. */
fleet_status fl_worker_barrier(fl_worker *w);

/* By parts, after one push or more: on success the update is made, and the
 * weights after it have come. Servers add the parts one by one, in their order,
 * as if each were the push of a worker of its own. */
fleet_status fl_worker_end_step(fl_worker *w);

/* By parts, with a trail: the messages of the last part, by lane; until the
 * next one, or the step's end. */
const fl_trail_packets *fl_worker_last_part(const fl_worker *w);

/* By parts, before anything else: that many steps and updates were behind the
 * process before. Then the messages of a part of its next step, which was not
 * sent, or may not have come to all lanes; and the end of the part. */
void fl_worker_stand(fl_worker *w, uint64_t step, int64_t updates);
fleet_status fl_worker_part_again(fl_worker *w, uint64_t step, int lane,
                                  const fl_packet *p);
void fl_worker_end_part_again(fl_worker *w, uint64_t step,
                              const fl_update_settings *settings);

/* The pass of a heter worker ends, which is in no sum over workers; the dense
 * weights are renewed when all have ended it. */
fleet_status fl_worker_close_pass(fl_worker *w);

/* Its last step, after which it is part of nothing any more. */
fleet_status fl_worker_leave(fl_worker *w);

/* Have every lane save, load or write at this point of the stream. answer[lane]
 * gets what each says, for fl_free(). */
fleet_status fl_worker_command(fl_worker *w, fl_job_command command,
                               const char *text, char **answer);

/* Have every lane load between two passes: all workers call it, one with the
 * text of the command and each other one with NULL. No worker reads from a lane
 * that has loaded and from one that has not; the dense weights are renewed. */
fleet_status fl_worker_load(fl_worker *w, const char *text);

/* Ask every lane; answer[] is each one's, for fl_free(), also after a
 * failure. */
fleet_status fl_worker_read(fl_worker *w, const char *text, char **answer);

/* The sum over all rows of a table (params_hash), and how many there are. */
fleet_status fl_worker_hash(fl_worker *w, int table, uint64_t *sum,
                            uint64_t *rows);
