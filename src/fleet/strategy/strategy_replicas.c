/* strategy_replicas.c - the number of copies of each lane, read and checked. */
#include "fleet/strategy/strategy_replicas.h"

#include "fleet/role/env.h"
#include "fleet/strategy/strategy_fields.h"

enum { MOST_COPIES = 2 };

/* fleetrun says 1 where it was not told --replicas: it would not let the job
 * outlive a server. */
static fleet_status read_variable(const char *text,
                                  fleet_distributed_strategy *s)
{
    int n;

    FL_TRY(fl_variable_read("FLEET_REPLICAS", text, 1, MOST_COPIES, &n));
    if (n < s->replicas)
        return fl_fail(FLEET_EINVAL,
                       "strategy.replicas is %d, but FLEET_REPLICAS is %d: who "
                       "starts the processes ends the job when a server dies; "
                       "expected the same (fleetrun --replicas %d)",
                       s->replicas, n, s->replicas);
    if (s->replicas == 1)
        s->replicas = n;
    return FLEET_OK;
}

fleet_status fl_strategy_replicas_read(const fl_role *role,
                                       fleet_distributed_strategy *s)
{
    const char *text = fl_variable("FLEET_REPLICAS");

    if (role->server_num == 0)
        return FLEET_OK;
    if (text)
        FL_TRY(read_variable(text, s));
    if (s->replicas > 1 && role->server_num == 1)
        return fl_fail(FLEET_EINVAL,
                       "strategy.replicas is %d, but the job has 1 server: the "
                       "second copy of a lane is in another server's process "
                       "(expected 2 servers or more, or 1)",
                       s->replicas);
    return fl_strategy_check_replicas(s);
}

fleet_status fl_strategy_check_replicas(const fleet_distributed_strategy *s)
{
    if (s->replicas < 2)
        return FLEET_OK;
    if (s->log != FLEET_DURABLE_NONE)
        return fl_fail(
            FLEET_EUNSUPPORTED,
            "strategy.replicas: this version does not have %d with "
            "strategy.log, which is %s: a server that comes back from its log "
            "would find that its replica leads (expected 1, or none)",
            s->replicas, fl_durability_names[s->log]);
    if (s->a_sync_configs.max_staleness >= 0)
        return fl_fail(
            FLEET_EUNSUPPORTED,
            "strategy.replicas: this version does not have %d with "
            "strategy.a_sync_configs.max_staleness, which is %d: the second "
            "copy does not know how far workers are apart (expected 1, or -1)",
            s->replicas, s->a_sync_configs.max_staleness);
    return FLEET_OK;
}
