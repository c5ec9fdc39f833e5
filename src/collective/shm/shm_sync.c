/* shm_sync.c - how ranks wait for each other in shared memory: phases, words to
 * sleep on, ranks that have left or died. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "collective/shm/shm_internal.h"

enum { SPINS_PER_LOOK = 32, MESSAGE_NAP_MS = 1 };

/* --- words to sleep on --------------------------------------------------- */

static void wake_all(fl_futex *f)
{
    syscall(SYS_futex, &f->value, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* A sleeper has counted itself before it looked at the value for the last time;
 * both are in one order for all ranks. */
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

/* --- is a rank alive? ----------------------------------------------------- */

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

void fl_shm_enter(fl_shm *shm)
{
    fl_shm_rank *own = &shm->rank[shm->base.comm.rank];
    struct stat s;

    own->started = start_of((int32_t)getpid());
    own->space = stat("/proc/self/ns/pid", &s) == 0 ? (uint64_t)s.st_ino : 0;
    own->offer_fd = -1;
    atomic_store(&own->pid, (int32_t)getpid());
}

static bool is_dead(const fl_shm *shm, int rank)
{
    const fl_shm_rank *s = &shm->rank[rank],
                      *own = &shm->rank[shm->base.comm.rank];
    int32_t pid = atomic_load(&s->pid);

    if (pid == 0 || s->started == 0 || own->started == 0 ||
        s->space != own->space)
        return false; /* this process cannot know */
    return start_of(pid) != s->started;
}

/* --- the end ------------------------------------------------------------- */

static void wake_ranks(fl_shm *shm)
{
    for (int r = 0; r < shm->base.comm.size; r++) {
        wake_all(&shm->rank[r].phase);
        wake_all(&shm->rank[r].begun);
        wake_all(&shm->rank[r].added);
        fl_shm_post(&shm->rank[r].wakeup);
    }
}

void fl_shm_report(fl_comm_base *g, const fl_error *e)
{
    fl_shm *shm = fl_shm_of(g);
    int32_t none = FL_UNREPORTED;

    if (!atomic_compare_exchange_strong(&shm->head->reported, &none,
                                        FL_REPORTING))
        return; /* the first counts */
    shm->head->code = (int32_t)e->code;
    snprintf(shm->head->text, sizeof shm->head->text, "%.499s", e->text);
    atomic_store(&shm->head->reported, FL_REPORTED);
    wake_ranks(shm);
}

void fl_shm_leave(fl_shm *shm)
{
    atomic_store(&shm->rank[shm->base.comm.rank].has_left, true);
    wake_ranks(shm);
}

fleet_status fl_shm_check(fl_shm *shm)
{
    fleet_status code;

    if (atomic_load_explicit(&shm->head->reported, memory_order_acquire) !=
        FL_REPORTED)
        return fl_comm_base_check(&shm->base);
    code = (fleet_status)shm->head->code;
    fl_fail(code, "%.499s", shm->head->text);
    return fl_comm_base_fail(&shm->base, code, false);
}

/* A rank that leaves after a failure has reported it before. */
fleet_status fl_shm_look_at(fl_shm *shm, int rank, bool closely)
{
    const fl_shm_rank *s = &shm->rank[rank];

    if (atomic_load(&s->has_left)) {
        FL_TRY(fl_shm_check(shm));
        return fl_fail(FLEET_EPEER, "rank %d has left the group", rank);
    }
    if (closely && is_dead(shm, rank)) {
        FL_TRY(fl_shm_check(shm));
        return fl_fail(FLEET_EPEER, "rank %d is dead: process %d is gone", rank,
                       atomic_load(&s->pid));
    }
    return FLEET_OK;
}

/* --- phases -------------------------------------------------------------- */

void fl_shm_arrive(fl_shm *shm, const fl_call *call)
{
    fl_shm_rank *own = &shm->rank[shm->base.comm.rank];

    if (call) {
        shm->n_call++;
        own->call[shm->n_call & 1] = *call;
    }
    fl_shm_set(&own->phase, ++shm->phase);
}

bool fl_shm_has_come(const fl_futex *word, uint32_t at)
{
    uint32_t now = atomic_load_explicit(&word->value, memory_order_acquire);

    return (int32_t)(now - at) >= 0;
}

/* Messages do not move meanwhile: where they flow, only a moment. */
static bool comes_soon(const fl_shm *shm, const fl_futex *word, uint32_t at,
                       bool drives)
{
    bool messages = drives && shm->base.n_flowing > 0;
    int64_t begin = fl_now_ns(), spent = 0;

    while (spent < shm->spin_ns || (spent < shm->yield_ns && !messages)) {
        if (spent >= shm->spin_ns)
            sched_yield();
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            if (fl_shm_has_come(word, at))
                return true;
            fl_relax_cpu();
        }
        spent = fl_now_ns() - begin;
    }
    return false;
}

static fleet_status wait_long(fl_shm *shm, int rank, fl_futex *word,
                              uint32_t at, bool drives)
{
    fl_wait wait = fl_wait_for(shm->base.comm.deadline_ms);
    bool moved;

    while (!fl_shm_has_come(word, at) && fl_wait_left(&wait) > 0) {
        uint32_t seen = atomic_load(&word->value);
        bool messages = drives && shm->base.n_flowing > 0;
        fleet_status status;

        FL_TRY(fl_shm_check(shm));
        if (messages)
            FL_TRY(fl_p2p_advance(&shm->base, &moved));
        if (fl_shm_has_come(word, at))
            break;
        fl_shm_sleep(word, seen, messages ? MESSAGE_NAP_MS : FL_SHM_NAP_MS);
        if (fl_shm_has_come(word, at))
            break;
        status = fl_shm_look_at(shm, rank, true);
        if (status != FLEET_OK && !fl_shm_has_come(word, at))
            return fl_comm_base_fail(&shm->base, status, true);
    }
    return FLEET_OK;
}

fleet_status fl_shm_wait(fl_shm *shm, int rank, fl_futex *word, uint32_t at,
                         const fl_call *call, bool drives)
{
    if (comes_soon(shm, word, at, drives))
        return FLEET_OK;
    FL_TRY(wait_long(shm, rank, word, at, drives));
    if (fl_shm_has_come(word, at))
        return FLEET_OK;
    return fl_comm_base_fail(&shm->base,
                             fl_call_timed_out(rank, shm->base.comm.deadline_ms,
                                               shm->base.comm.rank, call),
                             true);
}

static fleet_status check_match(fl_shm *shm)
{
    for (int r = 1; r < shm->base.comm.size; r++)
        if (!fl_call_matches(fl_shm_call(shm, 0), fl_shm_call(shm, r))) {
            fl_call_differs(0, fl_shm_call(shm, 0), r, fl_shm_call(shm, r));
            return fl_comm_base_fail(&shm->base, FLEET_EINVAL, false);
        }
    return FLEET_OK;
}

fleet_status fl_shm_await(fl_shm *shm, const fl_call *call)
{
    int me = shm->base.comm.rank;

    for (int r = 0; r < shm->base.comm.size; r++)
        FL_TRY(fl_shm_wait(shm, r, &shm->rank[r].phase, shm->phase,
                           fl_shm_call(shm, me), true));
    return call ? check_match(shm) : FLEET_OK;
}

fleet_status fl_shm_barrier(fl_shm *shm, const fl_call *call)
{
    fl_shm_arrive(shm, call);
    return fl_shm_await(shm, call);
}
