/* ps_ends_test.c - how jobs of processes end when one of them dies, stops or is
 * told to end: all the others end, too, in time, and name it. */
#define _GNU_SOURCE
#define SUITE ps_ends
#include "ps_kit.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"

/* Peer and request deadline, and what scheduling needs. */
enum { IN_TIME = 2 * PS_SECOND + PS_SECOND };

/* Where a worker stands when it is killed. */
typedef enum moment {
    BEFORE_INIT,
    IN_PASS,
    IN_EVALUATION,
    IN_BARRIER,
    BEFORE_STOP,
    NEVER
} moment;

typedef struct plan {
    moment when;
    int who;
} plan;

static ps_job job_of(plan *p)
{
    return (ps_job){.servers = 2,
                    .workers = 2,
                    .lanes = 2,
                    .passes = 1,
                    .connect_ms = PS_SECOND,
                    .request_ms = PS_SECOND,
                    .peer_ms = PS_SECOND,
                    .file = {scene_file("a.txt", 300, 1)},
                    .user = p};
}

/* The worker is where the test wants it: it says so and stays there. */
static void stay(ps_node *n, moment here)
{
    const plan *p = n->job->user;

    if (p->when != here || p->who != n->index)
        return;
    ps_tell(&n->job->held);
    ps_hear(&n->job->go);
}

static int in_pass(void *user, int64_t batch, int64_t samples)
{
    (void)samples;
    if (batch == 2)
        stay(user, IN_PASS);
    return 0;
}

static int in_evaluation(void *user, int64_t batch, int64_t samples)
{
    (void)samples;
    if (batch == 2)
        stay(user, IN_EVALUATION);
    return 0;
}

static fleet_status evaluate(ps_node *n)
{
    fleet_train_options o = {.on_batch = in_evaluation, .user = n};

    n->s.tester =
        fleet_executor_create(n->s.p, &(fleet_executor_options){.for_test = 1});
    return fleet_infer_from_dataset(n->s.tester, n->s.data, &o, NULL);
}

/* The other one waits in a barrier: it has said that it goes there. */
static fleet_status meet(ps_node *n)
{
    const plan *p = n->job->user;

    if (p->when == IN_BARRIER && p->who == n->index)
        ps_tell(&n->job->held);
    else if (p->when == IN_BARRIER)
        ps_hear(&n->job->go);
    return fleet_barrier_worker(n->s.f);
}

static fleet_status work(ps_node *n)
{
    fleet_train_options o = {.on_batch = in_pass, .user = n};

    stay(n, BEFORE_INIT);
    FL_TRY(ps_begin(n));
    FL_TRY(fleet_train_from_dataset(n->s.e, n->s.data, &o, NULL));
    if (n->index == 0)
        FL_TRY(evaluate(n));
    FL_TRY(meet(n));
    stay(n, BEFORE_STOP);
    FL_TRY(fleet_barrier_worker(n->s.f));
    return ps_end(n);
}

/* All but one end by themselves, in time, and say that he is dead. */
static void check_others_end(ps_job *j, const ps_node *dead, const char *name,
                             const char *how)
{
    int64_t begun_ms = fl_now_ms();

    for (int i = 0; i < j->n_node; i++)
        if (&j->node[i] != dead) {
            ps_check_fails(&j->node[i], name);
            CHECK_CONTAINS(ps_said(&j->node[i]), how);
        }
    if (fl_now_ms() - begun_ms > IN_TIME)
        test_fail(__FILE__, __LINE__, "it has taken %lld ms",
                  (long long)(fl_now_ms() - begun_ms));
}

static void kill_worker(moment when, int who, const char *how)
{
    plan p = {when, who};
    ps_job j = job_of(&p);
    ps_node *victim;

    j.work = work;
    ps_start_all(&j);
    victim = ps_worker(&j, who);
    ps_hear(&j.held);
    ps_kill(victim, SIGKILL);
    if (when == IN_BARRIER)
        ps_tell(&j.go);
    check_others_end(&j, victim, who ? "worker 1 " : "worker 0 ", how);
    CHECK_INT(ps_wait(victim), 128 + SIGKILL);
}

TEST(a_worker_that_is_killed_before_it_begins_is_named)
{
    kill_worker(BEFORE_INIT, 1, "has not come within");
}

TEST(a_worker_that_is_killed_in_its_pass_is_named)
{
    kill_worker(IN_PASS, 1, "is gone: ");
}

TEST(a_worker_that_is_killed_while_it_evaluates_is_named)
{
    kill_worker(IN_EVALUATION, 0, "is gone: ");
}

TEST(a_worker_that_is_killed_in_a_barrier_is_named)
{
    kill_worker(IN_BARRIER, 1, "is gone: ");
}

TEST(a_worker_that_is_killed_before_it_stops_is_named)
{
    kill_worker(BEFORE_STOP, 1, "is gone: ");
}

/* The victim wakes again at the end: it ends, too, and not well. */
static void stop_one(bool server, bool a_sync)
{
    plan p = {IN_PASS, 0};
    ps_job j = job_of(&p);
    ps_node *victim;
    char words[80];

    j.work = work;
    j.how.a_sync = a_sync;
    ps_start_all(&j);
    ps_hear(&j.held);
    victim = server ? ps_server(&j, 1) : ps_worker(&j, 1);
    ps_kill(victim, SIGSTOP);
    ps_tell(&j.go);
    snprintf(words, sizeof words,
             server ? "server 1 at 127.0.0.1:%d " : "worker 1 ", j.port[1]);
    check_others_end(&j, victim, words, "is gone: ");
    ps_kill(victim, SIGCONT);
    ps_check_fails(victim, words); /* it blames nobody else */
    CHECK_CONTAINS(ps_said(victim), "is gone: ");
}

TEST(a_server_that_is_stopped_is_named)
{
    stop_one(true, false);
    stop_one(true, true);
}

TEST(a_worker_that_is_stopped_is_named)
{
    stop_one(false, false);
    stop_one(false, true);
}

static void kill_server(int which, bool a_sync)
{
    plan p = {IN_PASS, 0};
    ps_job j = job_of(&p);
    char words[80];

    j.work = work;
    j.how.a_sync = a_sync;
    ps_start_all(&j);
    ps_hear(&j.held);
    ps_kill(ps_server(&j, which), SIGKILL);
    ps_tell(&j.go);
    snprintf(words, sizeof words, "server %d at 127.0.0.1:%d ", which,
             j.port[which]);
    check_others_end(&j, ps_server(&j, which), words, "is gone: ");
    CHECK_INT(ps_wait(ps_server(&j, which)), 128 + SIGKILL);
}

TEST(a_server_that_is_killed_is_named)
{
    kill_server(0, false);
    kill_server(1, true);
}

/* While it begins, says hello, waits for the others, trains: the times differ
 * from machine to machine. */
static void kill_after(int ms, bool server)
{
    plan p = {NEVER, 0};
    ps_job j = job_of(&p);
    ps_node *victim;

    j.passes = 1000000;
    j.how.a_sync = ms % 2;
    ps_start_all(&j);
    victim = server ? ps_server(&j, 1) : ps_worker(&j, 1);
    CHECK(!ps_ends_within(victim, ms));
    ps_kill(victim, SIGKILL);
    check_others_end(&j, victim, server ? "server 1 " : "worker 1 ",
                     "deadline)");
    CHECK_INT(ps_wait(victim), 128 + SIGKILL);
}

TEST(a_worker_that_is_killed_at_any_moment_is_named)
{
    for (int ms = 0; ms < 60; ms = 2 * ms + 5)
        kill_after(ms * TEST_SLOWNESS, false);
}

TEST(a_server_that_is_killed_at_any_moment_is_named)
{
    for (int ms = 0; ms < 60; ms = 2 * ms + 6)
        kill_after(ms * TEST_SLOWNESS, true);
}

/* --- all of it sleeps ----------------------------------------------------- */

/* As a batch system suspends a job, or a machine sleeps. */
static void stop_all(bool a_sync)
{
    plan p = {IN_PASS, 0};
    ps_job j = job_of(&p);

    j.work = work;
    j.how.a_sync = a_sync;
    ps_start_all(&j);
    ps_hear(&j.held);
    for (int i = 0; i < j.n_node; i++)
        ps_kill(&j.node[i], SIGSTOP);
    CHECK(!ps_ends_within(ps_worker(&j, 0), 2 * PS_SECOND));
    for (int i = 0; i < j.n_node; i++)
        ps_kill(&j.node[i], SIGCONT);
    ps_tell(&j.go);
    ps_check_all_end(&j);
}

TEST(a_job_that_is_stopped_as_a_whole_goes_on)
{
    stop_all(false);
    stop_all(true);
}

/* --- who is slow is not dead ---------------------------------------------- */

TEST(a_worker_that_evaluates_for_long_kills_nobody)
{
    plan p = {IN_EVALUATION, 0};
    ps_job j = job_of(&p);

    j.work = work;
    ps_start_all(&j);
    ps_hear(&j.held);
    CHECK(!ps_ends_within(ps_worker(&j, 1), 3 * PS_SECOND));
    for (int i = 0; i < 2; i++)
        CHECK(!ps_ends_within(ps_server(&j, i), 0));
    ps_tell(&j.go);
    ps_check_all_end(&j);
}

/* Workers wait for the last server; those they know already must not think that
 * they are dead. */
TEST(a_server_may_come_later_than_a_peer_deadline)
{
    plan p = {NEVER, 0};
    ps_job j = job_of(&p);

    j.work = work;
    j.connect_ms = 20 * PS_SECOND;
    ps_prepare(&j);
    for (int i = 0; i < j.n_node; i++)
        if (&j.node[i] != ps_server(&j, 1))
            ps_start(&j.node[i]);
    CHECK(!ps_ends_within(ps_server(&j, 0), 3 * PS_SECOND));
    ps_start(ps_server(&j, 1));
    ps_check_all_end(&j);
}

TEST(a_server_that_never_starts_is_named_by_the_workers)
{
    plan p = {NEVER, 0};
    ps_job j = job_of(&p);
    char words[80];

    j.work = work;
    ps_prepare(&j);
    snprintf(words, sizeof words,
             "server 1 at 127.0.0.1:%d has not answered within", j.port[1]);
    for (int i = 0; i < j.n_node; i++)
        if (&j.node[i] != ps_server(&j, 1))
            ps_start(&j.node[i]);
    for (int i = 0; i < 2; i++)
        ps_check_fails(ps_worker(&j, i), words);
    ps_check_fails(ps_server(&j, 0), words);
}

/* --- SIGTERM -------------------------------------------------------------- */

TEST(sigterm_ends_a_server_cleanly_and_the_workers_are_told)
{
    plan p = {IN_PASS, 0};
    ps_job j = job_of(&p);

    j.work = work;
    j.servers = 1;
    ps_start_all(&j);
    ps_hear(&j.held);
    ps_kill(ps_server(&j, 0), SIGTERM);
    ps_check_ends(ps_server(&j, 0));
    ps_tell(&j.go);
    for (int i = 0; i < 2; i++)
        ps_check_fails(ps_worker(&j, i),
                       "server 0 has ended: it was sent SIGTERM");
}

static int told;

static void own_handler(int signal_number)
{
    (void)signal_number;
    if (write(told, "!", 1) != 1)
        _exit(3);
}

/* A host that has a handler of its own keeps it, before and after. */
static fleet_status serve_with_a_handler(ps_node *n)
{
    struct sigaction now;

    told = n->job->held.fd[1];
    signal(SIGTERM, own_handler);
    FL_TRY(ps_serve(n));
    CHECK(sigaction(SIGTERM, NULL, &now) == 0);
    CHECK(now.sa_handler == own_handler);
    return FLEET_OK;
}

static fleet_status serve_and_look(ps_node *n)
{
    struct sigaction now;

    FL_TRY(ps_serve(n));
    CHECK(sigaction(SIGTERM, NULL, &now) == 0);
    CHECK(now.sa_handler == SIG_DFL);
    return FLEET_OK;
}

TEST(a_hosts_own_handler_of_sigterm_is_respected)
{
    plan p = {IN_PASS, 0};
    ps_job j = job_of(&p);

    j.work = work;
    j.servers = 1;
    j.serve = serve_with_a_handler;
    ps_start_all(&j);
    ps_hear(&j.held);
    ps_kill(ps_server(&j, 0), SIGTERM);
    ps_hear(&j.held); /* by the handler */
    ps_tell(&j.go);
    ps_check_all_end(&j);
    p.when = NEVER;
    j.serve = serve_and_look;
    ps_start_all(&j);
    ps_check_all_end(&j);
}
