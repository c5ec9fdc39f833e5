/* lane_move.c - may a lane go to another process? */
#include "ps/control/lane_move.h"

#include "ps/server/lane_replica.h"

static fleet_status check_move(const fl_ps_lane *l, int server, int n_server)
{
    const fl_replica *r = l->replica;

    if (l->o.no_move)
        return fl_fail(FLEET_EUNSUPPORTED, "its lanes stay where they are: %s",
                       l->o.no_move);
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
