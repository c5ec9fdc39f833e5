/* job_test.c - the strategy and fleet-train in a process of a job with servers:
 * what is honoured, what is refused, what each role needs. */
#define SUITE job
#include "test.h"
#include "train_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fleet/fleet.h>

static void keep_warnings(void *user, fleet_log_level level, const char *line)
{
    if (level == FLEET_LOG_WARNING)
        snprintf((char *)user + strlen(user), 500, "%s\n", line);
}

static fleet *open_worker(char *warnings)
{
    fleet_role role = {.worker_num = 2, .server_endpoints = "inproc://job"};
    fleet_options o = {
        .role = &role, .log = keep_warnings, .log_user = warnings};
    fleet *f;

    CHECK_OK(fleet_init(&f, &o));
    return f;
}

/* --- the strategy --------------------------------------------------------- */

#define STRATEGY(change, code, words)                                          \
    do {                                                                       \
        fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;        \
        char lines[2000] = "";                                                 \
        fleet *f = open_worker(lines);                                         \
                                                                               \
        s.change;                                                              \
        kit_refused(f, fleet_sgd(f, 0.1f), &s, code, words);                   \
        fleet_destroy(f);                                                      \
    } while (0)

TEST(with_servers_a_field_is_honoured_or_refused_by_name)
{
    STRATEGY(a_sync_configs.launch_barrier = 0, FLEET_EUNSUPPORTED,
             "strategy.a_sync_configs.launch_barrier: this version does not "
             "have 0 in mode ps-async");
    STRATEGY(
        a_sync_configs.max_merge_var_num = 0, FLEET_EINVAL,
        "strategy.a_sync_configs.max_merge_var_num: expected 1 to 1000000, "
        "got 0");
    STRATEGY(a_sync_configs.send_queue_size = 0, FLEET_EINVAL,
             "strategy.a_sync_configs.send_queue_size: expected 1 to "
             "1000000000, got 0");
    STRATEGY(a_sync_configs.independent_recv_thread = 2, FLEET_EINVAL,
             "strategy.a_sync_configs.independent_recv_thread: expected 0 to "
             "1, got 2");
    STRATEGY(a_sync_configs.min_send_grad_num_before_recv = 0, FLEET_EINVAL,
             "strategy.a_sync_configs.min_send_grad_num_before_recv: expected "
             "1 to 1000000000, got 0");
    STRATEGY(a_sync_configs.thread_pool_size = 5, FLEET_EUNSUPPORTED,
             "strategy.a_sync_configs.thread_pool_size: this version does not "
             "have 5 in mode ps-async, expected 1: the thread that trains "
             "works all sockets of a worker");
    STRATEGY(a_sync_configs.send_wait_times = 5, FLEET_EUNSUPPORTED,
             "strategy.a_sync_configs.send_wait_times: this version does not "
             "have 5 in mode ps-async, expected 1: a push is of "
             "max_merge_var_num batches");
    STRATEGY(a_sync_configs.runtime_split_send_recv = 1, FLEET_EUNSUPPORTED,
             "strategy.a_sync_configs.runtime_split_send_recv: this version "
             "does not have 1 in mode ps-async, expected 0: pushes and pulls");
    STRATEGY(a_sync_configs.lr_decay_steps = 20, FLEET_EUNSUPPORTED,
             "strategy.a_sync_configs.lr_decay_steps: this version does not "
             "have 20 in mode ps-async, expected 10: the optimizer has its "
             "decay");
    STRATEGY(a_sync_configs.max_staleness = -2, FLEET_EINVAL,
             "strategy.a_sync_configs.max_staleness: expected -1 to "
             "1000000000, got -2");
    STRATEGY(is_collective = 1, FLEET_EUNSUPPORTED,
             "strategy.is_collective: this version does not have 1 in mode "
             "ps-async (workers that are ranks are started with fleetrun "
             "--collective, or have role.collective = 1)");
    STRATEGY(deterministic = 1, FLEET_EUNSUPPORTED,
             "strategy.deterministic: this version does not have 1 in mode "
             "ps-async");
    STRATEGY(lars = 1, FLEET_EUNSUPPORTED,
             "strategy.lars: expected the optimizer momentum");
    STRATEGY(lamb_configs.lamb_weight_decay = 0.5f, FLEET_EINVAL,
             "strategy.lamb_configs.lamb_weight_decay is 0.5, but "
             "strategy.lamb is 0");
    STRATEGY(a_sync = 2, FLEET_EINVAL, "strategy.a_sync: expected 0 to 1");
}

TEST(a_strategy_of_zeros_is_told_where_to_start)
{
    fleet_distributed_strategy zeros = {0};
    char lines[2000] = "";
    fleet *f = open_worker(lines);

    CHECK(fleet_distributed_optimizer(f, fleet_sgd(f, 0.1f), &zeros) == NULL);
    CHECK_CONTAINS(fleet_last_error(), "FLEET_DISTRIBUTED_STRATEGY_INIT");
    fleet_destroy(f);
}

/* Minimize a small model under the strategy. */
static void minimize(fleet *f, const fleet_distributed_strategy *s)
{
    fleet_program *p = fleet_program_create(f);
    fleet_model m;

    fleet_mlp(p, &(fleet_mlp_options){.dim = 4, .classes = 2}, &m);
    CHECK_OK(fleet_minimize(
        fleet_distributed_optimizer(f, fleet_sgd(f, 0.1f), s), m.loss));
}

static void check_line(const char *dump, const char *field, const char *value,
                       const char *effect)
{
    char line[200];

    snprintf(line, sizeof line, "%-48s %-12s ", field, value);
    CHECK_CONTAINS(dump, line);
    CHECK_CONTAINS(strstr(dump, line), effect);
    CHECK(strstr(strstr(dump, line), effect) <
          strchr(strstr(dump, line), '\n'));
}

TEST(the_dump_says_the_mode_and_what_took_effect)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    char lines[2000] = "", *dump;
    fleet *f = open_worker(lines);

    s.a_sync = 0;
    s.deterministic = 1;
    s.gradient_merge = 1;
    s.gradient_merge_configs.k_steps = 2;
    minimize(f, &s);
    CHECK_TEXT(lines, "");
    dump = fleet_strategy_dump(f);
    check_line(dump, "a_sync", "0", "asked    honoured");
    check_line(dump, "deterministic", "1", "asked    honoured");
    check_line(dump, "gradient_merge_configs.k_steps", "2",
               "asked    honoured");
    check_line(dump, "a_sync_configs.launch_barrier", "1", "default  fixed");
    check_line(dump, "is_collective", "0", "off: not in this version");
    check_line(dump, "nccl_comm_num", "1", "no effect: no collective");
    CHECK_CONTAINS(dump, "mode ps-sync, workers 2, servers 1\n");
    fleet_free(dump);
    fleet_destroy(f);
}

TEST(jobs_with_servers_have_rates_of_layers)
{
    fleet_role role = {
        .worker_num = 2, .server_endpoints = "inproc://job", .collective = 1};
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet *f;

    CHECK_OK(fleet_init(&f, &(fleet_options){.role = &role}));
    s.is_collective = 1;
    s.lamb = 1;
    s.lamb_configs.lamb_weight_decay = 0.5f;
    CHECK(fleet_distributed_optimizer(f, fleet_adam(f, 1, NULL), &s) != NULL);
    s.is_collective = 0; /* then they are on the servers */
    CHECK(fleet_distributed_optimizer(f, fleet_adam(f, 1, NULL), &s) != NULL);
    s.a_sync = 0;
    CHECK(fleet_distributed_optimizer(f, fleet_adam(f, 1, NULL), &s) != NULL);
    fleet_destroy(f);
}

TEST(a_strategy_that_was_not_given_is_async)
{
    char lines[2000] = "", *dump;
    fleet *f = open_worker(lines);
    fleet_program *p = fleet_program_create(f);
    fleet_model m;

    dump = fleet_strategy_dump(f);
    check_line(dump, "a_sync", "1", "default  honoured");
    fleet_free(dump);
    fleet_mlp(p, &(fleet_mlp_options){.dim = 4, .classes = 2}, &m);
    CHECK_OK(fleet_minimize(fleet_sgd(f, 0.1f), m.loss));
    dump = fleet_strategy_dump(f);
    check_line(dump, "a_sync", "1", "default  honoured");
    check_line(dump, "deterministic", "0", "off: async has no order");
    CHECK_CONTAINS(dump, "mode ps-async, workers 2, servers 1\n");
    fleet_free(dump);
    fleet_destroy(f);
}

TEST(a_collective_field_without_a_collective_is_in_the_log)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    char lines[2000] = "";
    fleet *f = open_worker(lines);

    s.nccl_comm_num = 2;
    minimize(f, &s);
    CHECK_TEXT(lines,
               "strategy.nccl_comm_num is 2: no effect: no collective\n");
    fleet_destroy(f);
}

TEST(ranks_that_train_on_servers_alone_are_in_the_log)
{
    fleet_role role = {
        .worker_num = 2, .server_endpoints = "inproc://job", .collective = 1};
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    char lines[2000] = "";
    fleet *f;

    CHECK_OK(fleet_init(&f, &(fleet_options){.role = &role,
                                             .log = keep_warnings,
                                             .log_user = lines}));
    minimize(f, &s);
    CHECK_TEXT(lines, "workers are ranks here, but strategy.is_collective is "
                      "0: they train in mode ps-async\n");
    fleet_destroy(f);
}

/* --- fleet-train ---------------------------------------------------------- */

/* No address of any machine: nothing can listen there. */
static void be_server(void)
{
    setenv("PADDLE_PSERVERS_IP_PORT_LIST", "203.0.113.1:6000", 1);
    setenv("PADDLE_TRAINERS_NUM", "1", 1);
    setenv("TRAINING_ROLE", "PSERVER", 1);
    setenv("POD_IP", "203.0.113.1", 1);
    setenv("PADDLE_PORT", "6000", 1);
}

static fleet_status train(const char *config, char *warnings)
{
    fleet_config_options o = {.log = keep_warnings, .log_user = warnings};
    char *line = (char *)1;
    fleet_status status =
        fleet_train_from_config(test_file("c.json", config), &o, &line);

    CHECK(line == NULL);
    return status;
}

#define CTR(slot, more)                                                        \
    "{\"model\": {\"type\": \"wide_deep\"}, \"dataset\": {\"format\": "        \
    "\"multislot\", \"train\": [\"no-such-train\"], \"test\": "                \
    "[\"no-such-test\"]}, \"slots\": [{\"name\": \"y\", \"type\": \"float\", " \
    "\"role\": \"label\"}, {\"name\": \"u\", \"type\": \"uint64\"" slot        \
    "}]" more "}"
#define MLP(classes)                                                           \
    "{\"model\": {\"type\": \"mlp\"" classes                                   \
    "}, \"dataset\": {\"format\": \"multislot\", \"train\": "                  \
    "[\"no-such-train\"]}, \"slots\": [{\"name\": \"y\", \"type\": "           \
    "\"uint64\", \"role\": \"label\"}, {\"name\": \"x\", \"type\": "           \
    "\"float\", \"dim\": 3}]}"

TEST(a_server_needs_data_only_where_the_model_does)
{
    char lines[2000] = "";

    be_server();
    CHECK_FAILS(train(MLP(""), lines), FLEET_ENOENT, "no-such-train");
    CHECK(train(MLP(", \"classes\": 3"), lines) != FLEET_OK);
    CHECK(!strstr(fleet_last_error(), "no-such"));
    CHECK(train(CTR("", ""), lines) != FLEET_OK); /* it cannot listen */
    CHECK(!strstr(fleet_last_error(), "no-such"));
    setenv("TRAINING_ROLE", "TRAINER", 1);
    setenv("PADDLE_TRAINER_ID", "0", 1);
    CHECK_FAILS(train(CTR("", ""), lines), FLEET_ENOENT, "no-such-train");
}

TEST(what_is_for_servers_is_warned_about_without_them)
{
    static const char deadlines[] =
        CTR("", ", \"deadlines\": {\"peer_deadline_ms\": 2000}");
    char lines[2000] = "";

    CHECK_STATUS(train(deadlines, lines), FLEET_ENOENT);
    CHECK_TEXT(lines, "deadlines: no effect: there are no servers\n");
    *lines = 0;
    be_server();
    CHECK(train(deadlines, lines) != FLEET_OK);
    CHECK_TEXT(lines, "");
    CHECK_FAILS(train(CTR(", \"ps\": false", ""), lines), FLEET_EUNSUPPORTED,
                "\"embedding\": ps says ranks, but workers are none in mode "
                "ps-async");
}

TEST(a_deadline_of_the_configuration_has_the_options_range)
{
    char lines[2000] = "";

    CHECK_FAILS(train(CTR("", ", \"deadlines\": {\"step_deadline_ms\": "
                              "2147483648}"),
                      lines),
                FLEET_ECONFIG,
                "deadlines.step_deadline_ms: expected an integer from 1 to "
                "2147483647");
    CHECK_FAILS(
        train(CTR("", ", \"deadlines\": {\"peer_deadline_ms\": 0}"), lines),
        FLEET_ECONFIG, "deadlines.peer_deadline_ms: expected");
}
