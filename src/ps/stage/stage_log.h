/* stage_log.h - what a heter worker has done of its trainers' requests, written
 * down before it answers: so that the process that is started after one that
 * died goes on behind it. Of batches that are in flight together: the sum of
 * their gradients, as it goes to the servers, and the answers. Of each trainer
 * the last request alone is of use: a trainer asks for the next one when it has
 * heard of it, and in sync a round's gradients are on the servers before any
 * batch of the next round comes.
 *
 *   FOLDER/trainer-N-0, -1    of the trainer of stream N, in turn
 *                             (trail_slots.h)
 *
 * Threads: of one trainer's requests one at a time. */
#pragma once

#include "ps/trail/trail.h"
#include "runtime/optim/update_settings.h"

typedef struct fl_stage_record {
    uint64_t number;  /* of the request */
    uint64_t step;    /* steps of the heter worker before: a batch's gradients
                         are part of the next one */
    uint64_t updates; /* likewise */
    uint64_t n_over;  /* passes that were over for all */
    uint64_t n_ended; /* that the trainer has ended, with this request */
    uint32_t run;
    uint32_t left;   /* the trainer has left with it; 2: and the next stage
                        knows */
    uint32_t n_lane; /* of batches; 0: it is none */
    uint32_t n_answer;
    fl_update_settings settings; /* of batches */
} fl_stage_record;

typedef struct fl_stage_log fl_stage_log;

/* Of a folder that this process has; streams first to first + n - 1. */
fleet_status fl_stage_log_open(fl_stage_log **log, const char *folder,
                               int first, int n, bool flushes);
void fl_stage_log_close(fl_stage_log *log); /* NULL is fine */

/* The trainer's request, before it is answered. Of batches: their gradients by
 * lane, and the answers. FLEET_EIO names the file. */
fleet_status fl_stage_log_write(fl_stage_log *log, int trainer,
                                const fl_stage_record *r,
                                const fl_trail_packets *lane,
                                fl_packet *const *answer);

/* --- what the process before has written ---------------------------------- */

/* The trainer's last request of that run; NULL: there is none. */
const fl_stage_record *fl_stage_log_last(const fl_stage_log *log, int trainer,
                                         uint32_t run);

/* Of batches: their gradients, and then the answer to the i-th of them, with
 * lane -1 - i. Packets are good during the call. FLEET_ECORRUPT names the
 * file. */
fleet_status fl_stage_log_each_packet(const fl_stage_log *log, int trainer,
                                      fl_trail_visit *visit, void *arg);

void fl_stage_log_forget(fl_stage_log *log); /* it is used no more */
