/* server_copy.c - a lane's other copy that is made again gets what the lane is
 * from a thread of its own, while the lane goes on. */
#define _GNU_SOURCE
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "ps/host/server_internal.h"

enum { COPY_NICE = 10 }; /* training comes first, if it may */

static void *copy_main(void *arg)
{
    fl_lane_runner *r = arg;

    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), COPY_NICE);
    fl_lane_write_copy(r->lane, r->copy);
    atomic_store(&r->copy_done, true);
    fl_wakeup_ring(&r->wakeup);
    return NULL;
}

fleet_status fl_runner_begin_copy(void *arg, fl_lane_copy *c)
{
    fl_lane_runner *r = arg;
    fleet_status status;

    atomic_store(&r->copy_done, false);
    r->copy = c;
    status = fl_thread_start(&r->copy_thread, copy_main, r, "a replica's copy");
    if (status != FLEET_OK)
        r->copy = NULL;
    return status;
}

void fl_runner_ring(void *arg)
{
    fl_lane_runner *r = arg;

    fl_wakeup_ring(&r->wakeup);
}

void fl_runner_copy(fl_lane_runner *r)
{
    fl_lane_copy *c = r->copy;

    if (!c)
        return;
    if (fl_lane_state_of(r->lane) != FL_LANE_RUNS)
        fl_lane_stop_copy(c);
    if (!atomic_load(&r->copy_done)) {
        fl_lane_copy_goes_on(r->lane, fl_now_ms());
        return;
    }
    pthread_join(r->copy_thread, NULL);
    r->copy = NULL;
    fl_lane_copy_written(r->lane, c, fl_now_ms());
}
