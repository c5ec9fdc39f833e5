/* strategy_replicas_test.c - strategy.replicas, FLEET_REPLICAS: what is refused
 * with it, by name, with what was asked and what would do. */
#define SUITE strategy_replicas
#include "test.h"
#include "train_kit.h"

#include <stdlib.h>
#include <string.h>

#include <fleet/fleet.h>

#include "fleet/job/handle.h"

#define TWO_SERVERS "inproc://one,inproc://two"

static fleet_status open_handle(fleet **f, const char *servers, int collective)
{
    const fleet_role role = {
        .worker_num = 2, .server_endpoints = servers, .collective = collective};
    const fleet_options o = {.role = &role, .log_level = FLEET_LOG_SILENT};

    return fleet_init(f, &o);
}

/* words NULL: it is taken, and there are so many copies. */
static void check_strategy(const char *servers, int collective,
                           const fleet_distributed_strategy *s,
                           const char *words, int copies)
{
    fleet *f;

    CHECK_OK(open_handle(&f, servers, collective));
    if (words) {
        CHECK(!fleet_distributed_optimizer(f, fleet_sgd(f, 0.1f), s));
        CHECK_CONTAINS(fleet_last_error(), words);
    } else {
        CHECK(fleet_distributed_optimizer(f, fleet_sgd(f, 0.1f), s));
        CHECK_INT(f->strategy.replicas, copies);
    }
    fleet_destroy(f);
}

#define STRATEGY(servers, collective, change, words)                           \
    do {                                                                       \
        fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;        \
                                                                               \
        s.replicas = 2;                                                        \
        s.change;                                                              \
        check_strategy(servers, collective, &s, words, s.replicas);            \
    } while (0)

TEST(copies_are_for_two_servers_in_sync_and_async)
{
    unsetenv("FLEET_REPLICAS");
    STRATEGY(TWO_SERVERS, 0, a_sync = 0, NULL);
    STRATEGY(TWO_SERVERS, 0, a_sync = 1, NULL);
    STRATEGY(NULL, 0, a_sync = 1, NULL); /* without effect */
    STRATEGY("inproc://one", 0, a_sync = 0,
             "strategy.replicas is 2, but the job has 1 server: the second "
             "copy of a lane is in another server's process (expected 2 "
             "servers or more, or 1)");
    STRATEGY(TWO_SERVERS, 0, a_sync_configs.k_steps = 4,
             "strategy.replicas: this version does not have 2 in mode ps-geo "
             "(lanes have second copies in the modes ps-sync and ps-async; "
             "expected 1)");
    STRATEGY(TWO_SERVERS, 0, a_sync_configs.max_merge_var_num = 4,
             "this version does not have 2 in mode ps-half-async");
    STRATEGY(TWO_SERVERS, 1, is_collective = 1,
             "this version does not have 2 in mode hybrid");
    STRATEGY(TWO_SERVERS, 0, replicas = 3,
             "strategy.replicas: expected 1 to 2, got 3");
    STRATEGY(TWO_SERVERS, 0, replicas = 0,
             "strategy.replicas: expected 1 to 2, got 0");
}

TEST(what_copies_do_not_know_is_refused_with_them)
{
    unsetenv("FLEET_REPLICAS");
    STRATEGY(TWO_SERVERS, 0, log = FLEET_DURABLE_POWER,
             "strategy.replicas: this version does not have 2 with "
             "strategy.log, which is power: a server that comes back from its "
             "log would find that its replica leads (expected 1, or none)");
    STRATEGY(TWO_SERVERS, 0, a_sync_configs.max_staleness = 3,
             "strategy.replicas: this version does not have 2 with "
             "strategy.a_sync_configs.max_staleness, which is 3");
}

TEST(the_environment_says_it_where_the_strategy_does_not)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet *f;

    setenv("FLEET_REPLICAS", "2", 1);
    check_strategy(TWO_SERVERS, 0, &s, NULL, 2);
    check_strategy(NULL, 0, &s, NULL, 1);
    CHECK_OK(open_handle(&f, TWO_SERVERS, 0)); /* no strategy was given */
    CHECK_INT(f->strategy.replicas, 2);
    fleet_destroy(f);
    CHECK_FAILS(open_handle(&f, "inproc://one", 0), FLEET_EINVAL,
                "but the job has 1 server");
    setenv("FLEET_LOG", "process", 1);
    CHECK_FAILS(open_handle(&f, TWO_SERVERS, 0), FLEET_EUNSUPPORTED,
                "strategy.log, which is process");
    unsetenv("FLEET_LOG");
    setenv("FLEET_REPLICAS", "3", 1);
    CHECK_FAILS(open_handle(&f, TWO_SERVERS, 0), FLEET_EINVAL,
                "FLEET_REPLICAS is \"3\": expected an integer from 1 to 2");
}

/* fleetrun would end the job with the first server. */
TEST(a_launcher_that_does_not_know_of_copies_is_named)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;

    setenv("FLEET_REPLICAS", "1", 1);
    check_strategy(TWO_SERVERS, 0, &s, NULL, 1);
    s.replicas = 2;
    check_strategy(
        TWO_SERVERS, 0, &s,
        "strategy.replicas is 2, but FLEET_REPLICAS is 1: who starts "
        "the processes ends the job when a server dies; expected "
        "the same (fleetrun --replicas 2)",
        2);
}
