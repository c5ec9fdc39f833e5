/* clock.h - monotonic time. */
#pragma once

#include <stdint.h>

int64_t fl_now_ns(void);
int64_t fl_now_ms(void);

/* Time while this process runs. A process that was stopped, or whose machine
 * was, has heard nothing meanwhile: that is not the silence of its peers, and
 * deadlines on this clock do not count it. Look at it often: of the time
 * between two looks it counts `most_ms` at most, and so a process that runs
 * reaches its deadlines however seldom it looks. */
typedef struct fl_awake {
    int64_t most_ms, looked_ms, ms;
} fl_awake;

/* It begins at now_ms, of fl_now_ms() or another clock that goes on always. */
static inline fl_awake fl_awake_from(int64_t now_ms, int64_t most_ms)
{
    return (fl_awake){most_ms, now_ms, now_ms};
}

static inline int64_t fl_awake_at(fl_awake *a, int64_t now_ms)
{
    int64_t gap = now_ms - a->looked_ms;

    a->looked_ms = now_ms;
    a->ms += gap < a->most_ms ? gap : a->most_ms;
    return a->ms;
}

/* most_ms of a process that looks each tenth of its peer deadline. */
static inline int64_t fl_awake_step(int64_t peer_ms)
{
    enum { LEAST_MS = 50 };

    return peer_ms / 4 > LEAST_MS ? peer_ms / 4 : LEAST_MS;
}

/* A wait of some milliseconds on such a clock, looked at in a loop. */
typedef struct fl_wait {
    fl_awake awake;
    int64_t end_ms;
} fl_wait;

static inline fl_wait fl_wait_for(int64_t ms)
{
    int64_t now = fl_now_ms();

    return (fl_wait){fl_awake_from(now, fl_awake_step(ms)), now + ms};
}

/* Milliseconds that are left; none: 0. */
static inline int64_t fl_wait_left(fl_wait *w)
{
    int64_t ms = w->end_ms - fl_awake_at(&w->awake, fl_now_ms());

    return ms > 0 ? ms : 0;
}

/* How long to sleep before the wait is looked at again: if much more has gone
 * by then, the process did not run. */
static inline int64_t fl_wait_nap(fl_wait *w)
{
    int64_t left = fl_wait_left(w), most = w->awake.most_ms / 2;

    return left < most ? left : most;
}

/* "2022-05-18 11:27:27", local time */
void fl_wall_text(char text[20]);
