/* lane_load.c - a server that begins with a load: its workers are answered
 * meanwhile, and told its words if it fails. */
#include <stdio.h>

#include "ps/server/lane_internal.h"

void fl_lane_begin_load(fl_ps_lane *l, int64_t now_ms)
{
    l->now_ms = l->command_ms = fl_awake_at(&l->awake, now_ms);
    l->busy = l->loading = true;
    l->command = (fl_lane_command){.kind = FL_COMMAND_LOAD};
}

bool fl_lane_is_loading(const fl_ps_lane *l, uint64_t *bytes, uint64_t *total)
{
    if (l->host.loading)
        return l->host.loading(l->host.arg, bytes, total);
    *bytes = fl_lane_progress_of(l, FL_NOBODY);
    *total = 0;
    return l->loading;
}

void fl_lane_end_load(fl_ps_lane *l, fleet_status status, const char *why)
{
    l->loading = false;
    if (status != FLEET_OK)
        fl_lane_doom(l, status, why ? why : "what it begins with is missing");
}

void fl_lane_doom(fl_ps_lane *l, fleet_status code, const char *why)
{
    char text[sizeof l->error.text];

    if (l->state != FL_LANE_RUNS || l->error.code != FLEET_OK)
        return;
    if (l->o.lane > 0) {
        fl_lane_abort(l, code, why);
        return;
    }
    snprintf(text, sizeof text, "%s", why);
    fl_fail(code, "%s", text);
    fl_error_take(&l->error, code);
    l->doomed_ms = l->now_ms;
    FL_WARN(l->o.log,
            "server %d cannot begin: %s; it stays until each worker has come "
            "and was told, for %.1f s at most (connect deadline)",
            l->o.server, text, (double)l->o.connect_ms / 1000);
}

void fl_lane_give_up(fl_ps_lane *l, fleet_status code, const char *why)
{
    uint64_t bytes, total;

    l->stream[l->msg.head.stream].told = true;
    if (fl_lane_is_loading(l, &bytes, &total))
        fl_lane_doom(l, code, why);
    else
        fl_lane_abort(l, code, why);
}

fleet_status fl_lane_check_load(fl_ps_lane *l)
{
    if (l->error.code != FLEET_OK)
        l->stream[l->msg.head.stream].told = true;
    return fl_error_raise(&l->error);
}

static bool all_told(const fl_ps_lane *l)
{
    for (int i = 0; i < l->o.n_stream; i++)
        if (!l->stream[i].told)
            return false;
    return true;
}

static void check_progress(fl_ps_lane *l)
{
    int64_t stalled_ms = l->now_ms - l->command_ms;
    char text[200];

    if (stalled_ms <= l->o.connect_ms)
        return;
    snprintf(text, sizeof text,
             "the load of server %d has not got on for %.1f s (connect "
             "deadline)",
             l->o.server, (double)stalled_ms / 1000);
    fl_lane_doom(l, FLEET_ETIMEDOUT, text);
}

/* A worker has the whole connect deadline to come after the load. */
bool fl_lane_tick_load(fl_ps_lane *l)
{
    uint64_t bytes, total;

    if (l->loading)
        check_progress(l);
    if (fl_lane_is_loading(l, &bytes, &total))
        l->begun_ms = l->now_ms;
    if (l->error.code == FLEET_OK || l->state != FL_LANE_RUNS)
        return l->state != FL_LANE_RUNS;
    if (all_told(l) || l->now_ms - l->doomed_ms > l->o.connect_ms)
        fl_lane_abort(l, l->error.code, l->error.text);
    return true;
}
