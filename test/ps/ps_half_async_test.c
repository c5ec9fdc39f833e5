/* ps_half_async_test.c - half-async: which fields ask for it, what refuses
 * them, and jobs of processes whose servers count a push for several batches.
 */
#define SUITE ps_half_async
#include "ps_kit.h"
#include "test.h"
#include "train_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/job/handle.h"

/* --- passes over files ---------------------------------------------------- */

/* Each worker's passes are of 10 batches: of pushes of 4, 4 and 2 of them. */
static ps_job job_of(int passes)
{
    return (ps_job){.workers = 2,
                    .passes = passes,
                    .how = {.a_sync = true, .merged = 4},
                    .file = {scene_file("a.txt", 10 * PS_BATCH, 1),
                             scene_file("b.txt", 10 * PS_BATCH, 2)}};
}

/* Steps beside the updates: ends of passes, and that a worker has left. */
TEST_LIMIT(servers_make_an_update_of_four_batches, 120)
{
    ps_job j = job_of(3);

    ps_start_all(&j);
    ps_check_all_end(&j);
    CHECK_CONTAINS(ps_said(ps_server(&j, 0)), "mode ps-half-async");
    CHECK_CONTAINS(ps_said(ps_server(&j, 0)), "updates 18;");
    CHECK_CONTAINS(ps_said(ps_worker(&j, 0)), "mode ps-half-async");
}

/* By itself, with a bound on staleness, and of batches that gradient merge has
 * merged. */
TEST_LIMIT(half_async_learns_whatever_goes_with_it, 120)
{
    for (int i = 0; i < 3; i++) {
        ps_job j = job_of(1);
        double first;

        j.servers = j.lanes = 2;
        j.how.bounds_staleness = i == 1;
        j.how.max_staleness = 1;
        j.how.merge = i == 2 ? 2 : 0; /* gradient merge beneath it */
        ps_hash(&j);
        first = ps_worker(&j, 0)->result.loss;
        j.passes = 20;
        ps_hash(&j);
        CHECK_INT(ps_worker(&j, 1)->result.batches, 20);
        CHECK(ps_worker(&j, 0)->result.loss < first - 0.02);
    }
}

/* --- saves ---------------------------------------------------------------- */

static fleet_status make_steps(ps_node *n, int steps)
{
    const int64_t dims[] = {1, 1};
    const float x = 1;
    const fleet_feed feed = {"x", FLEET_FLOAT32, &x, dims, 2, NULL};
    fleet_status status = FLEET_OK;

    for (int i = 0; i < steps && status == FLEET_OK; i++)
        status = fleet_executor_run(n->s.e, &feed, 1, NULL, 0);
    return status;
}

/* w: what the program computes of 1. */
static fleet_status read_line(ps_node *n, fleet_executor *e)
{
    const int64_t dims[] = {1, 1};
    const float x = 1;
    float y = 0;
    const fleet_feed feed = {"x", FLEET_FLOAT32, &x, dims, 2, NULL};
    fleet_fetch fetch = {.var = n->s.m.loss, .data = &y, .size = sizeof y};
    fleet_status status = fleet_executor_run(e, &feed, 1, &fetch, 1);

    n->number[0] = (double)y;
    return status;
}

/* Pushes of 4 and of 2 batches; 2 more, which the load undoes. */
static fleet_status save_inside_a_group(ps_node *n)
{
    fleet_status status = ps_begin(n);

    if (status == FLEET_OK)
        status = make_steps(n, 6);
    if (status == FLEET_OK)
        status = fleet_save_persistables(n->s.f, n->job->user);
    if (status == FLEET_OK)
        status = make_steps(n, 2);
    if (status == FLEET_OK)
        status = fleet_load_model(n->s.f, n->job->user);
    if (status == FLEET_OK)
        status = read_line(n, n->s.e);
    return status == FLEET_OK ? ps_end(n) : status;
}

/* loss = w x: a gradient of 1. */
static void open_line(ps_node *n, const fleet_options *o)
{
    const fleet_fc_options zero = {
        .weight = {.name = "w", .initializer = {FLEET_INIT_CONSTANT, 0, 0}},
        .no_bias = 1};
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet_var *x;

    CHECK_OK(fleet_init(&n->s.f, o));
    n->s.p = fleet_program_create(n->s.f);
    x = fleet_data(n->s.p, "x", FLEET_FLOAT32, (int64_t[]){-1, 1}, 2);
    n->s.m.loss = fleet_fc(n->s.p, x, 1, &zero);
    s.a_sync_configs.max_merge_var_num = 4;
    CHECK_OK(fleet_minimize(
        fleet_distributed_optimizer(n->s.f, fleet_sgd(n->s.f, 1.0f), &s),
        fleet_mean(n->s.p, n->s.m.loss)));
}

TEST(a_save_has_what_was_gathered_before_it_and_a_load_undoes_it)
{
    ps_job j = {.open = open_line,
                .work = save_inside_a_group,
                .user = (void *)test_path("save")};
    ps_node alone = {.job = &j};
    const fleet_role role = {.worker_num = 1};

    ps_run(&j);
    ps_check(&j);
    CHECK_NEAR(ps_worker(&j, 0)->number[0], -2, 0); /* when it had loaded */
    open_line(&alone, &(fleet_options){.role = &role});
    alone.s.e = fleet_executor_create(alone.s.p,
                                      &(fleet_executor_options){.for_test = 1});
    CHECK_OK(fleet_load_model(alone.s.f, j.user));
    CHECK_OK(read_line(&alone, alone.s.e));
    CHECK_NEAR(alone.number[0], -2, 0);
    fleet_executor_destroy(alone.s.e);
    fleet_destroy(alone.s.f);
}

/* --- who differs ---------------------------------------------------------- */

static void open_unlike(ps_node *n, const fleet_options *o)
{
    scene_training how = {.a_sync = true, .merged = n->server ? 1 : 4};

    scene_open_as(&n->s, o, &how);
}

TEST(a_server_in_async_refuses_a_worker_in_half_async)
{
    ps_job j = {.open = open_unlike, .connect_ms = PS_SECOND};

    ps_run(&j);
    CHECK_INT(ps_worker(&j, 0)->status, FLEET_EINVAL);
    CHECK_CONTAINS(ps_worker(&j, 0)->error,
                   "the worker trains in mode ps-half-async, "
                   "a_sync_configs.max_merge_var_num 4, this server in "
                   "ps-async");
}

/* --- the fields ----------------------------------------------------------- */

static fleet *open_role(bool servers)
{
    const fleet_role role = {.worker_num = servers ? 2 : 1,
                             .server_endpoints =
                                 servers ? "127.0.0.1:7000" : NULL};
    fleet *f;

    CHECK_OK(fleet_init(&f, &(fleet_options){.role = &role}));
    return f;
}

static void check_dump(const char *dump, const char *name, const char *rest)
{
    const char *at = strstr(dump, name);
    char line[400];

    CHECK(at);
    snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    CHECK_CONTAINS(line, rest);
}

#define ASKS(change)                                                           \
    do {                                                                       \
        fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;        \
        fleet *f = open_role(true);                                            \
        char *dump;                                                            \
                                                                               \
        s.a_sync_configs.change;                                               \
        CHECK(fleet_distributed_optimizer(f, fleet_sgd(f, 0.1f), &s));         \
        CHECK_INT(fl_handle_mode(f), FL_PS_HALF_ASYNC);                        \
        dump = fleet_strategy_dump(f);                                         \
        check_dump(dump, "max_merge_var_num ", "honoured");                    \
        check_dump(dump, "send_queue_size ", "honoured");                      \
        check_dump(dump, "independent_recv_thread ", "honoured");              \
        check_dump(dump, "min_send_grad_num_before_recv ", "honoured");        \
        check_dump(dump, "thread_pool_size ", "fixed: the thread that");       \
        check_dump(dump, "send_wait_times ", "fixed: a push is of");           \
        check_dump(dump, "deterministic ", "off: async has no order");         \
        fleet_free(dump);                                                      \
        fleet_destroy(f);                                                      \
    } while (0)

TEST(each_field_of_half_async_asks_for_it)
{
    ASKS(max_merge_var_num = 2);
    ASKS(send_queue_size = 1);
    ASKS(independent_recv_thread = 1);
    ASKS(min_send_grad_num_before_recv = 3);
}

TEST(without_one_of_them_the_mode_is_async)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet *f = open_role(true);
    char *dump;

    CHECK(fleet_distributed_optimizer(f, fleet_sgd(f, 0.1f), &s));
    CHECK_INT(fl_handle_mode(f), FL_PS_ASYNC);
    dump = fleet_strategy_dump(f);
    check_dump(dump, "send_queue_size ",
               "default  off: another value makes the mode ps-half-async");
    fleet_free(dump);
    fleet_destroy(f);
}

#define REFUSES(servers, code, words, ...)                                     \
    do {                                                                       \
        fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;        \
        fleet *f = open_role(servers);                                         \
                                                                               \
        __VA_ARGS__;                                                           \
        kit_refused(f, fleet_sgd(f, 0.1f), &s, code, words);                   \
        fleet_destroy(f);                                                      \
    } while (0)

TEST(in_sync_each_field_contradicts)
{
#define IN_SYNC(field, value)                                                  \
    REFUSES(true, FLEET_EINVAL,                                                \
            "strategy.a_sync_configs." #field " is " #value                    \
            ", but strategy.a_sync is 0",                                      \
            s.a_sync = 0, s.a_sync_configs.field = value)
    IN_SYNC(max_merge_var_num, 2);
    IN_SYNC(send_queue_size, 8);
    IN_SYNC(independent_recv_thread, 1);
    IN_SYNC(min_send_grad_num_before_recv, 2);
}

TEST(weights_that_come_late_contradict_a_bound_on_staleness)
{
    REFUSES(true, FLEET_EINVAL,
            "strategy.a_sync_configs.independent_recv_thread is 1, but "
            "strategy.a_sync_configs.max_staleness is 3",
            s.a_sync_configs.max_staleness = 3,
            s.a_sync_configs.independent_recv_thread = 1);
    REFUSES(true, FLEET_EINVAL,
            "strategy.a_sync_configs.min_send_grad_num_before_recv is 2, but "
            "strategy.a_sync_configs.max_staleness is 0",
            s.a_sync_configs.max_staleness = 0,
            s.a_sync_configs.min_send_grad_num_before_recv = 2);
}

static void keep_line(void *user, fleet_log_level level, const char *line)
{
    if (level == FLEET_LOG_WARNING)
        snprintf(user, 400, "%s", line);
}

TEST(without_servers_the_fields_have_no_effect_and_the_log_says_so)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    const fleet_role role = {.worker_num = 1};
    char line[400] = "";
    fleet *f;

    CHECK_OK(fleet_init(
        &f,
        &(fleet_options){.role = &role, .log = keep_line, .log_user = line}));
    s.a_sync_configs.max_merge_var_num = 4;
    CHECK(fleet_distributed_optimizer(f, fleet_sgd(f, 0.1f), &s));
    CHECK_INT(fl_handle_mode(f), FL_LOCAL);
    CHECK_CONTAINS(line, "strategy.a_sync_configs.max_merge_var_num is 4: no "
                         "effect: no servers, training is synchronous");
    fleet_destroy(f);
}
