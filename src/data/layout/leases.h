/* leases.h - the batches of a stream by leases, which the caller is given one
 * after the other, and readers wait for. Leases rise, so the batches of all of
 * them do, and are numbered in their order. */
#pragma once

#include <pthread.h>

#include "data/layout/spec.h"

typedef struct fl_leases {
    const fl_stream_spec *spec;
    pthread_mutex_t lock; /* over these */
    pthread_cond_t granted;
    int64_t *at;
    size_t n, capacity;
    bool stopped;

    /* the caller's alone */
    int64_t samples, batches; /* that it was handed out */
    bool told;                /* how many they were */
} fl_leases;

/* The spec stays its owner's. */
void fl_leases_init(fl_leases *l, const fl_stream_spec *spec);
void fl_leases_done(fl_leases *l);

/* The place in the pass of the batch of that number, once its lease was given;
 * -1: it was stopped. */
int64_t fl_leases_find(fl_leases *l, int64_t number);
void fl_leases_stop(fl_leases *l);

/* Ask for leases until they have more than `had` batches. A worker that waits
 * until then holds no more of the data than it trains. FLEET_EFORMAT: a lease
 * does not lie behind the one before. */
fleet_status fl_leases_ask(fl_leases *l, int64_t had);

/* A batch was handed out; there are no more of them: how many there were is
 * logged, once. */
void fl_leases_count(fl_leases *l, int64_t samples);
void fl_leases_log(fl_leases *l);
