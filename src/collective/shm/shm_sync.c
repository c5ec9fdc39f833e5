/* shm_sync.c - how ranks wait for each other in a window. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "collective/shm/shm.h"

enum { SPINS_PER_LOOK = 32, STREAM_NAP_MS = 1 };

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* --- words to sleep on --------------------------------------------------- */

static void wake_all(fl_futex *f)
{
    syscall(SYS_futex, &f->value, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Who sleeps has counted itself before it looked at the value for the last
 * time; both are in one order for all. */
void fl_shm_set(fl_futex *f, uint32_t value)
{
    atomic_store(&f->value, value);
    if (atomic_load(&f->sleepers) > 0)
        wake_all(f);
}

void fl_shm_post(fl_futex *f)
{
    atomic_fetch_add(&f->value, 1);
    if (atomic_load(&f->sleepers) > 0)
        wake_all(f);
}

bool fl_shm_sleep(fl_futex *f, uint32_t seen, int64_t ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    atomic_fetch_add(&f->sleepers, 1);
    if (atomic_load(&f->value) == seen)
        syscall(SYS_futex, &f->value, FUTEX_WAIT, seen, &t, NULL, 0);
    atomic_fetch_sub(&f->sleepers, 1);
    return atomic_load(&f->value) != seen;
}

/* --- who is alive -------------------------------------------------------- */

/* When a process began, in the kernel's ticks; 0 if there is none, or only its
 * remains. A number alone may by now be another process's. */
static uint64_t start_of(int32_t pid)
{
    char path[40], text[1024] = "", state = 0;
    const char *after;
    uint64_t start = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    f = fopen(path, "re");
    if (!f)
        return 0;
    if (fgets(text, sizeof text, f) && (after = strrchr(text, ')')) &&
        sscanf(after,
               ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d "
               "%*d %*d %*d %*d %" SCNu64,
               &state, &start) != 2)
        start = 0;
    fclose(f);
    return state == 'Z' || state == 'X' ? 0 : start;
}

/* The space in which process ids mean something. */
static uint64_t own_space(void)
{
    struct stat s;

    return stat("/proc/self/ns/pid", &s) == 0 ? (uint64_t)s.st_ino : 0;
}

void fl_shm_enter(fl_shm *w)
{
    fl_shm_rank *own = &w->slot[w->base.comm.rank];

    own->started = start_of((int32_t)getpid());
    own->space = own_space();
    own->offer_fd = -1;
    atomic_store(&own->pid, (int32_t)getpid());
}

static bool is_dead(const fl_shm *w, int rank)
{
    const fl_shm_rank *s = &w->slot[rank], *own = &w->slot[w->base.comm.rank];
    int32_t pid = atomic_load(&s->pid);

    if (pid == 0 || s->started == 0 || own->started == 0 ||
        s->space != own->space)
        return false; /* not to be seen from here */
    return start_of(pid) != s->started;
}

/* --- the end ------------------------------------------------------------- */

static void wake_everybody(fl_shm *w)
{
    for (int r = 0; r < w->base.comm.size; r++) {
        wake_all(&w->slot[r].phase);
        wake_all(&w->slot[r].begun);
        wake_all(&w->slot[r].added);
        fl_shm_post(&w->slot[r].wakeup);
    }
}

void fl_shm_tell(fl_shm *w, const fl_error *e)
{
    int32_t untold = FL_UNTOLD;

    if (!atomic_compare_exchange_strong(&w->head->reported, &untold,
                                        FL_TELLING))
        return; /* the first counts */
    w->head->code = (int32_t)e->code;
    snprintf(w->head->text, sizeof w->head->text, "%.499s", e->text);
    atomic_store(&w->head->reported, FL_TOLD);
    wake_everybody(w);
}

void fl_shm_leave(fl_shm *w)
{
    atomic_store(&w->slot[w->base.comm.rank].has_left, true);
    wake_everybody(w);
}

fleet_status fl_shm_check(fl_shm *w)
{
    fleet_status code;

    if (atomic_load_explicit(&w->head->reported, memory_order_acquire) !=
        FL_TOLD)
        return fl_comm_base_check(&w->base);
    code = (fleet_status)w->head->code;
    fl_fail(code, "%.499s", w->head->text);
    return fl_comm_base_fail(&w->base, code, false);
}

/* Who leaves after a failure has told of it before. */
fleet_status fl_shm_look_at(fl_shm *w, int rank, bool closely)
{
    const fl_shm_rank *s = &w->slot[rank];

    if (atomic_load(&s->has_left)) {
        FL_TRY(fl_shm_check(w));
        return fl_fail(FLEET_EPEER, "rank %d has left the group", rank);
    }
    if (closely && is_dead(w, rank)) {
        FL_TRY(fl_shm_check(w));
        return fl_fail(FLEET_EPEER, "rank %d is dead: process %d is gone", rank,
                       atomic_load(&s->pid));
    }
    return FLEET_OK;
}

/* --- phases -------------------------------------------------------------- */

void fl_shm_arrive(fl_shm *w, const fl_call *call)
{
    fl_shm_rank *own = &w->slot[w->base.comm.rank];

    if (call) {
        w->n_call++;
        own->call[w->n_call & 1] = *call;
    }
    fl_shm_set(&own->phase, ++w->phase);
}

bool fl_shm_has_come(const fl_futex *word, uint32_t at)
{
    uint32_t now = atomic_load_explicit(&word->value, memory_order_acquire);

    return (int32_t)(now - at) >= 0;
}

static bool comes_soon(const fl_shm *w, const fl_futex *word, uint32_t at)
{
    int64_t until = fl_now_ns() + w->spin_ns;

    do {
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            if (fl_shm_has_come(word, at))
                return true;
            relax();
        }
    } while (fl_now_ns() < until);
    return false;
}

static fleet_status too_late(fl_shm *w, int rank, const fl_call *call)
{
    char text[FL_CALL_TEXT];

    fl_call_text(call, text);
    fl_fail(FLEET_ETIMEDOUT,
            "rank %d did not come within %" PRId64 " ms: rank %d waits in %s",
            rank, w->base.comm.deadline_ms, w->base.comm.rank, text);
    return fl_comm_base_fail(&w->base, FLEET_ETIMEDOUT, true);
}

/* After a nap in which that rank did not come: is there any hope? */
static fleet_status look_around(fl_shm *w, int rank, const fl_futex *word,
                                uint32_t at)
{
    fleet_status status = fl_shm_look_at(w, rank, true);

    if (status != FLEET_OK && !fl_shm_has_come(word, at))
        return fl_comm_base_fail(&w->base, status, true);
    return FLEET_OK;
}

static fleet_status wait_long(fl_shm *w, int rank, fl_futex *word, uint32_t at,
                              bool drives, int64_t until_ms)
{
    bool moved;

    while (!fl_shm_has_come(word, at) && fl_now_ms() < until_ms) {
        uint32_t seen = atomic_load(&word->value);
        bool streams = drives && w->base.n_streaming > 0;

        FL_TRY(fl_shm_check(w));
        if (streams)
            FL_TRY(fl_p2p_advance(&w->base, &moved));
        if (fl_shm_has_come(word, at))
            break;
        fl_shm_sleep(word, seen, streams ? STREAM_NAP_MS : FL_SHM_NAP_MS);
        if (!fl_shm_has_come(word, at))
            FL_TRY(look_around(w, rank, word, at));
    }
    return FLEET_OK;
}

fleet_status fl_shm_wait(fl_shm *w, int rank, fl_futex *word, uint32_t at,
                         const fl_call *call, bool drives)
{
    if (comes_soon(w, word, at))
        return FLEET_OK;
    FL_TRY(wait_long(w, rank, word, at, drives,
                     fl_now_ms() + w->base.comm.deadline_ms));
    return fl_shm_has_come(word, at) ? FLEET_OK : too_late(w, rank, call);
}

static fleet_status match(fl_shm *w)
{
    for (int r = 1; r < w->base.comm.size; r++)
        if (!fl_call_matches(fl_shm_call(w, 0), fl_shm_call(w, r))) {
            fl_call_differs(0, fl_shm_call(w, 0), r, fl_shm_call(w, r));
            return fl_comm_base_fail(&w->base, FLEET_EINVAL, false);
        }
    return FLEET_OK;
}

fleet_status fl_shm_await(fl_shm *w, const fl_call *call)
{
    int me = w->base.comm.rank;

    for (int r = 0; r < w->base.comm.size; r++)
        FL_TRY(fl_shm_wait(w, r, &w->slot[r].phase, w->phase,
                           fl_shm_call(w, me), true));
    return call ? match(w) : FLEET_OK;
}

fleet_status fl_shm_barrier(fl_shm *w, const fl_call *call)
{
    fl_shm_arrive(w, call);
    return fl_shm_await(w, call);
}
