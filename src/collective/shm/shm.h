/* shm.h - ranks of one host through memory that all of them map.
 *
 * The memory has a part for each rank: what it tells the others, two halves of
 * a buffer, and rings of bytes for each other rank. Everybody writes in its own
 * part alone, but for rings' tails and words to wake by.
 *
 * A call is a row of phases. In each, a rank writes, arrives, waits for all,
 * and reads. Arriving publishes the number of the phase; halves take turns, and
 * a half is written again only after a phase that its readers arrived at when
 * they had read it. In its first phase a call is compared with the others'.
 *
 * Who waits spins for a moment, then sleeps on the word it waits for, and wakes
 * now and then to see whether the one it waits for is alive.
 */
#ifndef FL_COLLECTIVE_SHM_SHM_H
#define FL_COLLECTIVE_SHM_SHM_H

#include "collective/shm/stream_copy.h"
#include "collective/comm_base.h"

enum { FL_SHM_HALF = 256 * 1024, FL_SHM_NAP_MS = 20 };

/* What a window of so many ranks needs. */
size_t fl_shm_bytes(int size);

/* Memory, aligned to 64, that has just come becomes a window: this rank's part
 * of it. All ranks have done it before any opens. */
void fl_shm_prepare(void *memory, int rank, int size);

/* unmap: called with the memory when the group ends, or NULL. */
typedef void fl_shm_unmap(void *memory, size_t bytes);
fleet_status fl_shm_open(void *memory, int rank, int size, const char *name,
                         const fl_comm_options *options, fl_shm_unmap *unmap,
                         fl_comm **peers);

/* --- among window*.c --------------------------------------------------------
 */

typedef struct fl_futex {
    _Atomic uint32_t value, sleepers;
} fl_futex;

enum { FL_MOST_ASYNC = 16 }; /* reductions that are begun and not ended */

/* A rank's part that all look at. */
typedef struct fl_shm_rank {
    _Alignas(64) fl_futex phase;
    _Alignas(64) fl_futex wakeup; /* rings' bytes have come or gone */
    _Alignas(64) fl_futex begun;  /* late reductions, see shm_async.c */
    _Alignas(64) fl_futex added;
    _Alignas(64) fl_call async[FL_MOST_ASYNC];
    _Alignas(64) fl_call call[2];
    _Atomic int32_t pid; /* 0: not yet there */
    uint64_t started, space;
    _Atomic bool has_left;
    int32_t offer_pid, offer_fd; /* memory for others to map; fd -1: none */
    bool offer_taken;
} fl_shm_rank;

typedef struct fl_ring {
    _Alignas(64) _Atomic uint64_t written;
    _Alignas(64) _Atomic uint64_t read;
    _Alignas(64) char data[];
} fl_ring;

enum { FL_UNTOLD, FL_TELLING, FL_TOLD };

typedef struct fl_shm_head {
    _Atomic int32_t reported;
    int32_t code; /* once told */
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
    fl_shm_rank *slot;
    char *halves, *rings;
    size_t ring_bytes; /* a whole one */
    void *memory;
    fl_shm_unmap *unmap;

    uint32_t phase;
    uint32_t n_call, n_piece;
    int64_t spin_ns;
    fl_stream_copy copy;
    uint32_t n_begun, n_added; /* late reductions of this rank */
    fl_stream_copy copy_async;
    bool looks; /* nothing has moved for a while: is everybody alive? */
    fl_shm_region *region;
    int64_t n_region;
} fl_shm;

/* This phase's half of that rank. */
static inline char *fl_half(const fl_shm *w, int rank)
{
    return w->halves +
           ((size_t)rank * 2 + (w->n_piece & 1)) * (size_t)FL_SHM_HALF;
}

/* A phase: arrive, and wait for all. A call's first phase tells the call, and
 * compares it with the others'; the later ones have NULL. */
void fl_shm_arrive(fl_shm *w, const fl_call *call);
fleet_status fl_shm_await(fl_shm *w, const fl_call *call);
fleet_status fl_shm_barrier(fl_shm *w, const fl_call *call);

/* The call that a rank is in, after its first phase. */
static inline const fl_call *fl_shm_call(const fl_shm *w, int rank)
{
    return &w->slot[rank].call[w->n_call & 1];
}

/* Until that rank's word is `at` or later, in this call. drives: this is the
 * thread that moves streams. */
fleet_status fl_shm_wait(fl_shm *w, int rank, fl_futex *word, uint32_t at,
                         const fl_call *call, bool drives);
bool fl_shm_has_come(const fl_futex *word, uint32_t at);

void fl_shm_set(fl_futex *f, uint32_t value);
void fl_shm_post(fl_futex *f);

/* Until it is no longer `seen`, or woken; false if the time passed first. */
bool fl_shm_sleep(fl_futex *f, uint32_t seen, int64_t ms);

/* FLEET_EPEER if that rank has left, or, looking closely, is dead. */
fleet_status fl_shm_look_at(fl_shm *w, int rank, bool closely);

/* What a rank has told all, as the group's failure; or that the group ends. */
fleet_status fl_shm_check(fl_shm *w);
void fl_shm_tell(fl_shm *w, const fl_error *e);
void fl_shm_enter(fl_shm *w);
void fl_shm_leave(fl_shm *w);

fleet_status fl_shm_reduce(fl_shm *w, const fl_work *work);
fleet_status fl_shm_begin(fl_shm *w, fl_work *work, bool *is_begun);
fleet_status fl_shm_end(fl_shm *w, const fl_work *work);
fleet_status fl_shm_scatter(fl_shm *w, const fl_work *work);

/* A rank's chunk of elements that ranks share out: whole cache lines. */
void fl_shm_chunk(int size, int rank, int64_t all, int64_t element,
                  int64_t *begin, int64_t *n);

fleet_status fl_shm_memory(fl_shm *w, const fl_work *work);
fleet_status fl_shm_split(fl_shm *w, const fl_work *work);
fl_shm_region *fl_shm_region_at(fl_shm *w, const void *p, int64_t bytes);
fl_shm_region *fl_shm_region_of(fl_shm *w, int64_t serial);
void fl_shm_free(fl_shm *w, void *memory);

#endif
