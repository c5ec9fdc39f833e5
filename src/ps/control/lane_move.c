/* lane_move.c - may a lane go to another process? */
#include "ps/control/lane_move.h"

#include "ps/server/lane_replica.h"

static fleet_status check_move(const fl_ps_lane *l, int server, int n_server)
{
    const fl_replica *r = l->replica;

    if (l->o.no_move)
        return fl_fail(FLEET_EUNSUPPORTED, "its lanes stay where they are: %s",
                       l->o.no_move);
    if (l->o.log_goes && l->o.lane == 0)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "with strategy.log the first lane of each server stays "
                       "where it is, as a worker that is started again asks "
                       "there (the other ones move: FLEET_SERVER_LANES)");
    if (server < 0 || server >= n_server)
        return fl_fail(FLEET_EINVAL, "there is no server %d: expected 0 to %d",
                       server, n_server - 1);
    if (l->replaying || l->loading || l->error.code != FLEET_OK ||
        l->state != FL_LANE_RUNS || fl_all_have_left(l))
        return fl_fail(FLEET_ESTATE, "it does not serve");
    if (r && r->role == FL_REPLICA_GONE)
        return fl_fail(FLEET_ESTATE, "it has gone to another process");
    if (r && r->moves && r->mover != server)
        return fl_fail(FLEET_EEXIST, "it is on its way to server %d", r->mover);
    return FLEET_OK;
}

static fleet_status move_lane(fl_ps_lane *l, int server, int n_server)
{
    FL_TRY(check_move(l, server, n_server));
    if (!l->replica)
        FL_TRY(fl_replica_begin_alone(l));
    l->replica->mover = server;
    l->replica->moves = l->replica->told = true;
    l->replica->move_ms = l->now_ms;
    return FLEET_OK;
}

fleet_status fl_lane_move(fl_ps_lane *l, int server)
{
    return move_lane(l, server, l->o.layout->n_server);
}

fleet_status fl_lane_move_to_joined(fl_ps_lane *l, int server)
{
    return move_lane(l, server, FL_MOST_SERVER);
}

/* --- one whose journal goes with it --------------------------------------- */

fleet_status fl_lane_begin_gone(fl_ps_lane *l, uint32_t view)
{
    FL_TRY(fl_replica_begin_alone(l));
    l->replica->role = FL_REPLICA_GONE;
    l->replica->view = view;
    l->replica->moves = l->replica->told = true;
    l->replica->gone_ms = l->now_ms;
    return FLEET_OK;
}

void fl_lane_begin_lead(fl_ps_lane *l, uint32_t view, int64_t now_ms)
{
    l->now_ms = fl_awake_at(&l->awake, now_ms);
    fl_replica_stand_alone(l, view);
}

void fl_lane_leave_gone(fl_ps_lane *l)
{
    if (fl_lane_replica(l) == FL_REPLICA_GONE && l->state == FL_LANE_RUNS)
        l->state = FL_LANE_LEFT;
}
