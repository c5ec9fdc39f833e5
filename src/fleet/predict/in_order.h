/* in_order.h - batches of a stream that threads work on side by side, and hand
 * on one after the other, in their order. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "data/stream.h"

typedef struct fl_in_order {
    fl_stream *stream;
    int n_thread;
    int64_t batch_size;

    pthread_mutex_t take; /* over these, while the next batch is waited for */
    int64_t n_taken;
    bool all_taken;

    pthread_mutex_t turn; /* over these: batch by batch */
    pthread_cond_t next_turn;
    int64_t n_done;
    atomic_bool failed; /* asked by the stream, too */
    fl_error error;
} fl_in_order;

/* What a worker does; a failure ends all. */
typedef fleet_status fl_order_task(void *worker, const fl_batch *b);

/* Open the files; the spec's threads and job are replaced. n_thread 0: as many
 * as FLEET_NUM_THREADS says, or all processors. */
fleet_status fl_in_order_open(fl_in_order *o, const fl_stream_spec *spec,
                              const char *const *paths, int n_path,
                              int n_thread, int64_t batch_size);

/* All batches: task on any thread, hand_on in the batch's turn, with the same
 * worker, of which there are o->n_thread. What comes before a failure, in the
 * order, is handed on. */
fleet_status fl_in_order_run(fl_in_order *o, void *const *worker,
                             fl_order_task *task, fl_order_task *hand_on);
void fl_in_order_close(fl_in_order *o);
