/* ps_log_end_test.c - a job in a folder in which servers of an earlier one were
 * killed and never came back: it begins anew where that one is over, or has
 * trained nothing; else it is refused, and told what to do. */
#define _GNU_SOURCE
#define SUITE ps_log_end
#include "ps_kit.h"
#include "test.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

static ps_job job_of(int servers)
{
    return (ps_job){
        .servers = servers,
        .workers = 2,
        .lanes = 2,
        .id = "first",
        .peer_ms = 2 * PS_SECOND,
        .how = {.log = FLEET_DURABLE_PROCESS,
                .log_configs = {.folder = test_path("log"),
                                .restart_deadline_ms = 2 * PS_SECOND}},
        .file = {scene_file("a.txt", 300, 1)}};
}

static int wait_in_pass(void *user, int64_t batch, int64_t samples)
{
    ps_node *n = user;

    (void)samples;
    if (batch != 2)
        return 0;
    ps_tell(&n->job->held);
    ps_hear(&n->job->go);
    return 0;
}

/* Some batches, then it waits. */
static fleet_status train_and_wait(ps_node *n)
{
    fleet_train_options o = {.on_batch = wait_in_pass, .user = n};

    FL_TRY(ps_begin(n));
    FL_TRY(fleet_train_from_dataset(n->s.e, n->s.data, &o, NULL));
    return ps_end(n);
}

static fleet_status work_and_tell(ps_node *n)
{
    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    FL_TRY(ps_end(n));
    if (n->index == 0)
        fprintf(stderr, "hash %016" PRIx64 "\n", n->hash);
    return FLEET_OK;
}

static void kill_server(ps_job *j, int i)
{
    ps_kill(ps_server(j, i), SIGKILL);
    CHECK_INT(ps_wait(ps_server(j, i)), 128 + SIGKILL);
}

/* As the next job in the folder: it trains as if it were the first one. */
static void check_next_job(const ps_job *first, const char *id)
{
    ps_job next = *first, alone = job_of(first->servers);
    char hash[40];

    next.id = id;
    next.work = work_and_tell;
    snprintf(hash, sizeof hash, "hash %016" PRIx64, ps_undisturbed(&alone));
    ps_start_all(&next);
    ps_check_all_end(&next);
    CHECK_CONTAINS(ps_said(ps_worker(&next, 0)), hash);
    for (int i = 0; i < next.servers; i++)
        CHECK(!strstr(ps_said(ps_server(&next, i)), "is back"));
}

/* --- a job that has failed ------------------------------------------------ */

static void check_failed(int servers, int killed)
{
    ps_job j = job_of(servers);
    char words[40];

    j.work = train_and_wait;
    ps_start_all(&j);
    ps_hear_held(&j);
    kill_server(&j, killed);
    ps_let_go(&j);
    snprintf(words, sizeof words, "server %d at ", killed);
    for (int i = 0; i < j.workers; i++)
        ps_check_fails(ps_worker(&j, i), words);
    for (int i = 0; i < servers; i++)
        if (i != killed)
            ps_check_fails(ps_server(&j, i), "");
    check_next_job(&j, "first");
    check_next_job(&j, "second");
}

TEST_LIMIT(a_server_that_never_came_back_does_not_keep_the_folder, 120)
{
    check_failed(2, 1);
}

TEST_LIMIT(nor_does_the_first_one, 120)
{
    check_failed(2, 0);
}

/* Its workers see to it. */
TEST_LIMIT(nor_does_the_only_one, 120)
{
    check_failed(1, 0);
}

/* Where no worker sees the folder, or none has come. */
TEST_LIMIT(the_other_servers_see_to_it_too, 120)
{
    ps_job j = job_of(2);

    j.connect_ms = PS_SECOND;
    ps_prepare(&j);
    for (int i = 0; i < j.n_node; i++)
        j.node[i].job = &j;
    ps_start(ps_server(&j, 1));
    ps_hear_words(ps_server(&j, 1), "lanes 2");
    kill_server(&j, 1);
    CHECK(access(test_path("log/server-1/identity"), F_OK) == 0);
    ps_start(ps_server(&j, 0));
    ps_check_fails(ps_server(&j, 0), "");
    CHECK(access(test_path("log/server-1/identity"), F_OK) != 0);
    CHECK(access(test_path("log/server-1/ended"), F_OK) == 0);
}

/* --- a job that has trained nothing --------------------------------------- */

static ps_job killed_at_once(void)
{
    ps_job j = job_of(1);

    ps_prepare(&j);
    ps_start(ps_server(&j, 0));
    ps_hear_words(ps_server(&j, 0), "lanes 2");
    kill_server(&j, 0);
    j.node[0].job = j.node[1].job = j.node[2].job = &j;
    return j;
}

/* Of its own: 0 is none, by which no worker could be started again. */
static void check_has_run(void)
{
    char command[300], said[100];

    snprintf(command, sizeof command, "grep -c '\"run\":[1-9]' '%s'",
             test_path("log/server-0/identity"));
    CHECK_INT(test_shell(command, said, sizeof said), 0);
}

static void check_begins_anew(ps_job *j)
{
    j->node[0].job = j;
    ps_start(ps_server(j, 0));
    ps_hear_words(ps_server(j, 0), "lanes");
    CHECK_CONTAINS(ps_said(ps_server(j, 0)), "it begins anew");
    check_has_run();
    kill_server(j, 0);
}

TEST_LIMIT(a_log_in_which_nothing_was_trained_is_no_loss, 120)
{
    ps_job j = killed_at_once();

    j.id = "second";
    check_begins_anew(&j);
    j.lanes = 1;
    check_begins_anew(&j);
    j.how.units = 17;
    check_begins_anew(&j);
    ps_start(ps_server(&j, 0)); /* the same once more: it is the same server */
    ps_hear_words(ps_server(&j, 0), "lane 0 is back, at update 0");
    CHECK(!strstr(ps_said(ps_server(&j, 0)), "it begins anew"));
    kill_server(&j, 0);
}

/* Workers have come, and that is all. */
TEST_LIMIT(nor_is_one_to_which_workers_have_come, 120)
{
    ps_job j = job_of(2);

    j.work = ps_hold;
    ps_start_all(&j);
    ps_hear_held(&j);
    for (int i = 0; i < 2; i++) {
        kill_server(&j, i);
        ps_kill(ps_worker(&j, i), SIGKILL);
        ps_wait(ps_worker(&j, i));
    }
    check_next_job(&j, "second");
}

/* --- a job that has trained, and was killed as a whole -------------------- */

static int end_logs(const char *folder, char said[2000])
{
    char command[2000];

    snprintf(command, sizeof command, "'%s' --end '%s' 2>&1",
             test_beside("fleet-replay"), folder);
    return test_shell(command, said, 2000);
}

TEST_LIMIT(else_it_is_refused_until_its_logs_are_ended, 120)
{
    ps_job j = job_of(1), other;
    char said[2000];

    j.work = train_and_wait;
    ps_start_all(&j);
    ps_hear_held(&j);
    CHECK_INT(end_logs(j.how.log_configs.folder, said), 1);
    CHECK_TEXT(said, "server 0: its log is in use by a process, and stays as "
                     "it is\n");
    kill_server(&j, 0);
    for (int i = 0; i < 2; i++) {
        ps_kill(ps_worker(&j, i), SIGKILL);
        ps_wait(ps_worker(&j, i));
    }
    other = j;
    other.id = "second";
    other.node[0].job = &other;
    ps_start(ps_server(&other, 0));
    ps_check_fails(ps_server(&other, 0),
                   "is of job first, which has not ended, and this server of "
                   "second");
    CHECK_CONTAINS(ps_said(ps_server(&other, 0)),
                   "If that job is over, say so: fleet-replay --end ");
    other = j;
    other.how.units = 17;
    other.node[0].job = &other;
    ps_start(ps_server(&other, 0));
    ps_check_fails(ps_server(&other, 0), "comes back with another program");
    CHECK_INT(end_logs(j.how.log_configs.folder, said), 0);
    CHECK_TEXT(said, "server 0: its log has ended\n");
    check_next_job(&j, "second");
    CHECK_INT(end_logs(j.how.log_configs.folder, said), 0);
    CHECK_TEXT(said, "server 0: its log had ended\n");
    CHECK_INT(end_logs(test_path("none"), said), 2);
    CHECK_CONTAINS(said, "expected the folder of a job's logs");
}
