/* worker_internal.h - what worker.c (pulls), worker_pull_values.c (what they
 * bring), worker_pack.c (pushes written), worker_push.c (pushes, the clip) and
 * worker_job.c (passes, sums, commands) share; and worker_io.c with it. */
#pragma once

#include <stdatomic.h>

#include "net/socket.h"
#include "ps/worker/worker_io.h"

/* --- worker.c ------------------------------------------------------------- */

extern const fl_remote_class fl_worker_methods;

fleet_status fl_worker_wait(fl_worker *w, fl_request *r, int n,
                            const char *what);
/* for_step: as a pull buffer has it; exact: whatever pulls travel as. */
fleet_status fl_worker_pull_dense(fl_worker *w, bool prefetch, bool exact,
                                  uint64_t for_step);
bool fl_pull_is_answered(const fl_pull_buffer *s);
fleet_status fl_worker_complete(fl_worker *w, int slot);
fleet_status fl_worker_pull(fl_remote *x, int slot, const fl_pull_rows *table,
                            int n_table, bool dense, bool prefetch, bool now);
void fl_worker_drop(fl_remote *x, int slot);
fleet_status fl_lane_keys_widen(fl_lane_keys *k);         /* for one more */
int fl_worker_blocks(const fl_worker *w, fl_codec codec); /* in a piece */

/* The list that a key belongs to, with room for it; NULL: no memory. */
static inline fl_lane_keys *fl_worker_keys_for(const fl_worker *w,
                                               fl_lane_keys *keys, uint64_t key)
{
    fl_lane_keys *k =
        &keys[w->n_lane == 1 ? 0 : w->owner[fl_bucket_of(fl_mix(key))]];
    size_t n = (size_t)k->n;

    if ((n >= k->key_capacity || n >= k->at_capacity) &&
        fl_lane_keys_widen(k) != FLEET_OK)
        return NULL;
    return k;
}

/* Unless they were made before. */
fleet_status fl_worker_make_keys(const fl_worker *w, fl_lane_keys **keys);

static inline int64_t fl_worker_now(const fl_worker *w)
{
    return w->host.now_ms(w->host.arg);
}

/* The pull slot, if rows are kept of what it brings; -1. */
static inline int fl_worker_cached_slot(const fl_worker *w,
                                        const fl_pull_buffer *s)
{
    return w->hot && s < &w->slot[FL_N_SLOT] ? (int)(s - w->slot) : -1;
}

/* --- worker_pull_values.c ------------------------------------------------- */

/* Set the rows that an answer has brought, unless they are set already; and the
 * weights and their version, unless `version` is NULL. */
fleet_status fl_worker_place_answer(fl_worker *w, fl_pull_buffer *s,
                                    fl_pull_request *r, int64_t *version);

/* --- worker_pack.c -------------------------------------------------------- */

/* Keys that were shared out to lanes: of each table by rising key, where keys
 * are packed. */
fleet_status fl_worker_sort_keys(fl_worker *w, fl_lane_keys *keys);

/* The column of keys of the section begun last, of ROWS or of blocks. */
fleet_status fl_worker_write_keys(const fl_worker *w, fl_msg_writer *writer,
                                  const uint64_t *key, int64_t n);

/* What a push is of its step; other parts of it are in pushing[], before and
 * after. */
enum { FL_STEP_BEGINS = 1, FL_STEP_ENDS = 2 };

/* The messages of a push, a step or a part of one: pushing[]. */
fleet_status fl_worker_pack(fl_worker *w, const fl_push *p, int part);

/* --- worker_push.c -------------------------------------------------------- */

fleet_status fl_worker_push(fl_remote *x, const fl_push *p);
fleet_status fl_worker_clip(fl_remote *x, const fl_push *p, fl_norm_list *all,
                            float *factor);
fleet_status fl_worker_update(fl_remote *x);

/* A push as it is, or of a whole group: a step of the worker's. */
fleet_status fl_worker_send_push(fl_worker *w, const fl_push *p);

/* All that was pushed is through, a group that was gathered included; `what`
 * begins the error's text. */
fleet_status fl_worker_wait_update(fl_worker *w);
fleet_status fl_worker_wait_update_as(fl_worker *w, const char *what);

/* made: the requests of a step that was being made, none of them sent. */
fleet_status fl_worker_undo_step(fl_worker *w, fl_request *made,
                                 fleet_status status);

/* --- worker_job.c --------------------------------------------------------- */

/* Of training; a barrier ends a pass that has no batches. */
fleet_status fl_worker_end_pass(fl_remote *x, double *sum, int n);

/* A call that is in the trail, made again; what it comes to is not used. */
fleet_status fl_worker_call_again(fl_worker *w, const fl_trail_call *c);

/* --- worker_trail.c: nothing without a trail ------------------------------ */

/* pushing[] is about to be sent; a step without a gradient, or numbers; all
 * batches of a pass are trained. */
fleet_status fl_worker_note_push(fl_worker *w);
fleet_status fl_worker_note_step(fl_worker *w, uint16_t flags, fl_section_op op,
                                 const char *text);
fleet_status fl_worker_note_numbers(fl_worker *w, fl_reduction how,
                                    const double *x, int n);
fleet_status fl_worker_note_pass(fl_worker *w);

/* What came of it. */
fleet_status fl_worker_note_sum(fl_worker *w, const double *x, int n);
fleet_status fl_worker_note_command(fl_worker *w, char *const *answer);

/* It was over before this process came: then it is the stream's next one, and
 * this is what it came to. */
bool fl_worker_knows_sum(fl_worker *w, double *x, int n, fleet_status *status);
bool fl_worker_knows_command(fl_worker *w, char **answer, fleet_status *status);

/* --- worker_io.c ---------------------------------------------------------- */

typedef struct fl_job_place {
    uint32_t run, incarnation;
} fl_job_place;

struct fl_worker_io {
    fl_remote remote; /* first: what plans see */
    fl_worker_io_options o;
    uint64_t generation;  /* of the process, see fl_fork_generation() */
    pthread_mutex_t lock; /* over all below */
    bool open, left;
    fl_packet_pool *pool;
    fl_client *client;
    fl_worker worker;
    fl_trail *trail;    /* NULL: it leaves none */
    char *log_folder;   /* of servers' logs; NULL: not known */
    fl_socket **socket; /* by lane, then by replica */
    int n_lane, n_socket;
    int64_t heartbeat_ms;
    fl_wakeup wakeup; /* rings when the thread must end */
    pthread_t thread;
    bool has_thread;
    atomic_bool stop;
    fl_job_place place;                    /* in the job */
    fleet_status (*before_end)(void *arg); /* of a pass; NULL: nothing */
    void *before_arg;
    bool cached; /* it has had a cache, which has come to that */
    fl_hot_counts cache;
};

/* FLEET_ESTATE: it is not open, or after fork. Else it is locked until
 * unlocked, which returns the status. */
fleet_status fl_worker_io_lock(fl_worker_io *l);
fleet_status fl_worker_io_unlock(fl_worker_io *l, fleet_status status);

/* A worker that has left, and whose program ends, is before no other process of
 * its job; one that has not ends the job, and with it the logs of servers that
 * have died (worker_trail.c). */
void fl_worker_close_trail(fl_worker_io *l);

/* What fl_worker_io_before_pass_ends() has set. */
fleet_status fl_worker_io_before_end(const fl_worker_io *l);
