/* ps_failing_test.c - a job with servers in which one fails, leaves, or is
 * another job's: all of them end, with its words. */
#define SUITE ps_failing
#include "ps_kit.h"
#include "test.h"

#include <stdio.h>
#include <unistd.h>

#include "base/error.h"

/* All end, with those words, and before any deadline. */
static void check_all_end(ps_job *j, const char *words)
{
    ps_run(j);
    for (int i = 0; i < j->n_node; i++) {
        const ps_node *n = &j->node[i];

        CHECK(n->status != FLEET_OK);
        CHECK_CONTAINS(n->error, words);
    }
}

TEST(a_loss_that_is_not_finite_ends_all_with_its_words)
{
    ps_job j = {.servers = 2,
                .workers = 2,
                .passes = 3,
                .how = {.optimizer = "explode"},
                .file = {scene_file("a.txt", 300, 1)}};

    check_all_end(&j, "not finite");
    j.how.a_sync = true;
    check_all_end(&j, "not finite");
}

static fleet_status go_without_a_word(ps_node *n)
{
    FL_TRY(ps_begin(n));
    if (n->index == 1)
        return fleet_params_hash(NULL, NULL); /* any failure */
    FL_TRY(ps_passes(n, 1));
    return ps_end(n);
}

TEST(a_worker_that_is_destroyed_without_stop_ends_all)
{
    ps_job j = {.servers = 2,
                .workers = 3,
                .file = {scene_file("a.txt", 300, 1)},
                .work = go_without_a_word};

    ps_run(&j);
    for (int i = 0; i < j.n_node; i++) {
        CHECK(j.node[i].status != FLEET_OK);
        if (&j.node[i] != ps_worker(&j, 1))
            CHECK_CONTAINS(j.node[i].error, "worker 1 has given up, without "
                                            "fleet_stop_worker()");
    }
}

/* Worker 1's data do not end; worker 0 gives up as soon as its command runs. */
static fleet_status wait_for_data(ps_node *n)
{
    const int ring = n->job->held.fd[1];
    char command[400];

    FL_TRY(ps_begin(n));
    if (n->index == 0) {
        ps_hear(&n->job->held);
        return fleet_params_hash(NULL, NULL); /* any failure */
    }
    snprintf(command, sizeof command, "%s echo x > /proc/%d/fd/%d; sleep 300",
             (const char *)n->job->user, (int)getpid(), ring);
    scene_data_piped(&n->s, n->job->file[0], PS_BATCH, command);
    return ps_passes(n, 1);
}

static void check_that_a_wait_for_data_ends(char *first)
{
    ps_job j = {.workers = 2,
                .how = {.a_sync = true},
                .file = {scene_file("a.txt", 300, 1)},
                .user = first,
                .work = wait_for_data};

    j.held = ps_pipe_make();
    ps_run(&j);
    CHECK_INT(ps_worker(&j, 1)->status, FLEET_EPEER);
    CHECK_CONTAINS(ps_worker(&j, 1)->error, "worker 0 has given up, without ");
}

TEST(a_worker_that_waits_for_data_ends_with_the_job)
{
    char none[] = "", some[] = "head -n 40;";

    check_that_a_wait_for_data_ends(none);
    check_that_a_wait_for_data_ends(some);
}

static fleet_status forget_to_stop(ps_node *n)
{
    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    return n->index == 1 ? FLEET_OK : fleet_barrier_worker(n->s.f);
}

TEST(a_worker_that_forgets_to_stop_is_not_given_a_reason_it_does_not_have)
{
    ps_job j = {.workers = 2,
                .file = {scene_file("a.txt", 300, 1)},
                .work = forget_to_stop};

    ps_run(&j);
    CHECK_CONTAINS(ps_worker(&j, 0)->error,
                   "worker 1 has given up, without fleet_stop_worker(): none "
                   "of its calls has failed");
    CHECK_CONTAINS(ps_worker(&j, 1)->log,
                   "fleet_destroy: worker 1 has given up, without "
                   "fleet_stop_worker(): none of its calls has failed; the job "
                   "ends");
}

TEST(a_malformed_line_of_one_worker_ends_all_with_its_words)
{
    ps_job j = {.workers = 2,
                .file = {scene_file("a.txt", 100, 1),
                         test_file("broken.txt", "1 0 3 nonsense\n")}};

    check_all_end(&j, "broken.txt:1");
}

static fleet_status stop_the_servers(ps_node *n)
{
    FL_TRY(ps_begin(n));
    if (n->index == 0)
        fleet_stop_server();
    FL_TRY(ps_passes(n, 1));
    return ps_end(n);
}

TEST(servers_that_are_stopped_end_well_and_tell_the_workers)
{
    ps_job j = {.servers = 2,
                .workers = 2,
                .lanes = 2,
                .file = {scene_file("a.txt", 300, 1)},
                .work = stop_the_servers};

    ps_run(&j);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(ps_server(&j, i)->status, FLEET_OK);
        CHECK_INT(ps_worker(&j, i)->status, FLEET_EPEER);
        CHECK_CONTAINS(ps_worker(&j, i)->error,
                       " has ended: fleet_stop_server() was called");
    }
}

static fleet_status come_and_go(ps_node *n)
{
    FL_TRY(ps_begin(n));
    return ps_end(n);
}

static void open_other_mode(ps_node *n, const fleet_options *o)
{
    scene_training how = {.a_sync = !n->server};

    scene_open_as(&n->s, o, &how);
}

static void open_other_program(ps_node *n, const fleet_options *o)
{
    scene_training how = {.optimizer = n->server ? "sgd" : "adam"};

    scene_open_as(&n->s, o, &how);
}

static void open_other_rate(ps_node *n, const fleet_options *o)
{
    scene_training how = {.l2_decay = n->server ? 0.25f : 0.1f};

    scene_open_as(&n->s, o, &how);
}

static void open_other_merge(ps_node *n, const fleet_options *o)
{
    scene_training how = {.merge = n->server ? 3 : 2};

    scene_open_as(&n->s, o, &how);
}

static void check_refusal(void (*open)(ps_node *, const fleet_options *),
                          const char *words)
{
    ps_job j = {.open = open, .work = come_and_go, .connect_ms = 400};

    ps_run(&j);
    CHECK(ps_worker(&j, 0)->status == FLEET_EINVAL);
    CHECK_CONTAINS(ps_worker(&j, 0)->error, words);
    CHECK_CONTAINS(ps_server(&j, 0)->log, words);
    CHECK_INT(ps_server(&j, 0)->status, FLEET_ETIMEDOUT);
    CHECK_CONTAINS(ps_server(&j, 0)->error, "worker 0 has not come");
}

TEST(another_strategy_or_program_is_refused_on_both_sides)
{
    check_refusal(open_other_mode,
                  "trains in mode ps-async, this server in ps-sync");
    check_refusal(open_other_merge,
                  "trains in mode ps-sync, gradient_merge 1, "
                  "gradient_merge_configs.k_steps 2, this server in ps-sync, "
                  "gradient_merge 1, gradient_merge_configs.k_steps 3: all ");
    check_refusal(open_other_program,
                  "the programs differ: optimizer: type is sgd in the server, "
                  "adam in the worker");
    check_refusal(open_other_rate,
                  "the programs differ: optimizer: l2_decay is 0.25 in the "
                  "server, 0.1 in the worker");
}
