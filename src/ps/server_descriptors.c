/* server_descriptors.c - counted before workers come, watched while they are
 * connected. */
#include "ps/server_descriptors.h"

#include "net/limits.h"

enum {
    KEPT = 4,         /* for files; and as many for each lane: */
    KEPT_OF_LANE = 2, /* a part of a save, or a load's folder and file */
    LEFT = 8,         /* for the host, and the log */
    SCARCE = 64,      /* connections may come in before this looks again */
    LOOK_MS = 1000,
    QUIET_MS = 10000
};

fleet_status fl_descriptors_begin(fl_descriptors *d, int n_lane, bool raise)
{
    fl_descriptors_limit(raise);
    d->spare = fl_spare_keep(KEPT + KEPT_OF_LANE * n_lane);
    return d->spare ? FLEET_OK : FLEET_ENOMEM;
}

void fl_descriptors_end(fl_descriptors *d)
{
    fl_spare_drop(d->spare);
    d->spare = NULL;
}

static void be_scarce(fl_descriptors *d, int left)
{
    d->scarce = true;
    FL_INFO(d->log,
            "server %d: few descriptors are left (%d of %d): workers of this "
            "machine come by tcp",
            d->server, left, fl_descriptors_limit(false));
}

fleet_status fl_descriptors_check(fl_descriptors *d, int n_worker, int n_lane)
{
    int need = n_worker * (n_lane + 1) + d->files, left = fl_descriptors_free();

    if (left < need + LEFT)
        return fl_fail(FLEET_EIO,
                       "server %d: connections of %d workers, one to each of "
                       "%d lanes and a first one%s, need %d descriptors and %d "
                       "more: %d are left of %d (RLIMIT_NOFILE, ulimit -n)",
                       d->server, n_worker, n_lane,
                       d->files > 0 ? ", and the lanes' logs" : "", need,
                       (int)LEFT, left, fl_descriptors_limit(false));
    if (left < need + LEFT + SCARCE)
        be_scarce(d, left);
    return FLEET_OK;
}

static void say_none(fl_descriptors *d, int64_t now_ms)
{
    if (d->none || (d->said_ms && now_ms - d->said_ms < QUIET_MS))
        return;
    d->said_ms = now_ms;
    d->none = true;
    FL_WARN(d->log,
            "server %d: all %d descriptors are taken (RLIMIT_NOFILE): who "
            "connects has to wait until a connection ends",
            d->server, fl_descriptors_limit(false));
}

void fl_descriptors_watch(fl_descriptors *d, int64_t now_ms)
{
    int left;

    if (d->looked_ms && now_ms - d->looked_ms < LOOK_MS)
        return;
    d->looked_ms = now_ms;
    left = fl_descriptors_free();
    if (left <= 0)
        say_none(d, now_ms);
    else
        d->none = false;
    if (left < SCARCE && !d->scarce)
        be_scarce(d, left);
}
