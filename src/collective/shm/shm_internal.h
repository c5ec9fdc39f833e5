/* shm_internal.h - the inside of shm.h.
 *
 * The shared memory has a part for each rank: what it publishes, two halves of
 * a buffer, and rings of bytes for each other rank. A rank writes in its own
 * part alone, but for rings' tails and the words that other ranks sleep on.
 *
 * A call is a sequence of phases. In each, a rank writes, arrives, waits for
 * all ranks, and reads. Arriving publishes the number of the phase; halves take
 * turns, and a half is written again only after a phase at which its readers
 * arrived when they had read it. In its first phase a call is compared with the
 * calls of the other ranks.
 *
 * A rank that waits spins for a moment, lets other threads have its processor
 * for a while, then sleeps on the word it waits for, and wakes now and then to
 * see whether the rank it waits for is alive.
 *
 * shm.c has the layout, the rings and all calls but reductions, shm_sync.c the
 * phases, shm_reduce.c reductions, shm_async.c reductions that are begun and
 * ended later, shm_buffers.c buffers and smaller communicators.
 */
#pragma once

#include "collective/comm_p2p.h"
#include "collective/shm/shm.h"
#include "collective/stream_copy.h"

enum { FL_SHM_HALF = 256 * 1024, FL_SHM_NAP_MS = 20 };

typedef struct fl_futex {
    _Atomic uint32_t value, sleepers;
} fl_futex;

enum { FL_MOST_ASYNC = 16 }; /* reductions that are begun and not ended */

/* What a rank publishes. */
typedef struct fl_shm_rank {
    _Alignas(64) fl_futex phase;
    _Alignas(64) fl_futex wakeup; /* rings' bytes have come or gone */
    _Alignas(64) fl_futex begun;  /* async reductions: shm_async.c */
    _Alignas(64) fl_futex added;
    _Alignas(64) fl_call async[FL_MOST_ASYNC];
    _Alignas(64) fl_call call[2];
    _Atomic int32_t pid; /* 0: it has not opened yet */
    uint64_t started;    /* start_of() that process */
    uint64_t space;      /* in which process ids mean something */
    _Atomic bool has_left;
    int32_t offer_pid, offer_fd; /* memory to map; fd -1: none */
    bool offer_taken;
} fl_shm_rank;

typedef struct fl_ring {
    _Alignas(64) _Atomic uint64_t written;
    _Alignas(64) _Atomic uint64_t read;
    _Alignas(64) char data[];
} fl_ring;

enum { FL_UNREPORTED, FL_REPORTING, FL_REPORTED };

typedef struct fl_shm_head {
    _Atomic int32_t reported;
    int32_t code; /* once reported */
    char text[500];
} fl_shm_head;

typedef struct fl_shm_region {
    struct fl_shm_region *next;
    int64_t serial;
    char *base; /* rank 0's block */
    int64_t stride, bytes;
} fl_shm_region;

typedef struct fl_shm {
    fl_comm_base base;
    fl_shm_head *head;
    fl_shm_rank *rank;
    char *halves, *rings;
    size_t ring_bytes; /* a whole one */
    void *memory;
    fl_shm_unmap *unmap;

    uint32_t phase;
    uint32_t n_call, n_piece;
    int64_t spin_ns, yield_ns; /* of a wait: until it yields; until it sleeps */
    fl_stream_copy copy;
    uint32_t n_begun, n_added; /* async reductions of this rank */
    fl_stream_copy copy_async;
    bool is_stalled; /* nothing moves: check whether the ranks are alive */
    fl_shm_region *region;
    int64_t n_region;
} fl_shm;

static inline fl_shm *fl_shm_of(fl_comm_base *g)
{
    return (fl_shm *)g;
}

/* This phase's half of that rank. */
static inline char *fl_half(const fl_shm *shm, int rank)
{
    return shm->halves +
           ((size_t)rank * 2 + (shm->n_piece & 1)) * (size_t)FL_SHM_HALF;
}

/* A phase: arrive, and wait for all ranks. A call's first phase publishes the
 * call and compares it with the other ranks'; the later ones have NULL. */
void fl_shm_arrive(fl_shm *shm, const fl_call *call);
fleet_status fl_shm_await(fl_shm *shm, const fl_call *call);
fleet_status fl_shm_barrier(fl_shm *shm, const fl_call *call);

/* The call that a rank is in, after its first phase. */
static inline const fl_call *fl_shm_call(const fl_shm *shm, int rank)
{
    return &shm->rank[rank].call[shm->n_call & 1];
}

/* Until that rank's word is `at` or later, in this call. drives: the caller is
 * the thread that moves messages. */
fleet_status fl_shm_wait(fl_shm *shm, int rank, fl_futex *word, uint32_t at,
                         const fl_call *call, bool drives);
bool fl_shm_has_come(const fl_futex *word, uint32_t at);

void fl_shm_set(fl_futex *f, uint32_t value);
void fl_shm_post(fl_futex *f);

/* Until it is no longer `seen`, or woken; false if the time passed first. */
bool fl_shm_sleep(fl_futex *f, uint32_t seen, int64_t ms);

/* FLEET_EPEER if that rank has left, or, looking closely, is dead. */
fleet_status fl_shm_look_at(fl_shm *shm, int rank, bool closely);

/* A failure that a rank has reported, as the communicator's; or that it
 * ends. */
fleet_status fl_shm_check(fl_shm *shm);
void fl_shm_report(fl_comm_base *g, const fl_error *e);
void fl_shm_enter(fl_shm *shm);
void fl_shm_leave(fl_shm *shm);

fleet_status fl_shm_reduce(fl_shm *shm, const fl_work *work);
fleet_status fl_shm_begin(fl_comm_base *g, fl_work *work, bool *is_begun);
fleet_status fl_shm_end(fl_comm_base *g, fl_work *work);
fleet_status fl_shm_scatter(fl_shm *shm, const fl_work *work);

/* This rank's chunk of all ranks becomes the result in all of them, where they
 * lie in memory that all map: from[] by rank; to: room for as many. */
void fl_shm_add_chunk(const fl_shm *shm, const fl_call *call, const void **from,
                      void **to, fl_stream_copy *copy);

fleet_status fl_shm_memory(fl_shm *shm, const fl_work *work);
fleet_status fl_shm_split(fl_shm *shm, const fl_work *work);
fl_shm_region *fl_shm_region_at(fl_shm *shm, const void *p, int64_t bytes);
fl_shm_region *fl_shm_region_of(fl_shm *shm, int64_t serial);
void fl_shm_free(fl_comm_base *g, void *memory);
