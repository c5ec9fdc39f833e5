/* ps_replica_test.c - jobs of real processes whose lanes have two copies each:
 * a server dies, or sleeps for longer than the peer deadline, and the job goes
 * on, to the bits of one that nothing has befallen; without both copies it ends
 * with words that say so. */
#define SUITE ps_replica
#include "ps_kit.h"
#include "test.h"

#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "net/keys.h"

enum { LINES = 1200, PASSES = 2, BATCHES = 2 * LINES / PS_BATCH / 2 };

/* What worker 0 does to a server, behind that batch of its. */
typedef struct plan {
    int victim, signal, also; /* also: one more victim; -1: none */
    int64_t at;
    const char *save; /* at the end; NULL: none */
} plan;

typedef struct watched {
    ps_node *n;
    int64_t batches, last_ms, pause_ms;
} watched;

/* --- jobs ----------------------------------------------------------------- */

static ps_job job_of(int servers, plan *p)
{
    return (ps_job){.servers = servers,
                    .workers = 2,
                    .lanes = 2,
                    .passes = PASSES,
                    .peer_ms = 2 * PS_SECOND,
                    .how = {.replicas = 2},
                    .file = {scene_file("a.txt", LINES, 1)},
                    .user = p};
}

static uint64_t undisturbed(const ps_job *j)
{
    ps_job other = *j;

    other.how.replicas = 1;
    other.keys = NULL;
    other.work = NULL;
    return ps_hash(&other);
}

/* A batch that takes the longest has waited for a copy that takes over. */
static int strike(void *user, int64_t batch, int64_t samples)
{
    watched *w = user;
    const plan *p = w->n->job->user;
    int64_t now_ms = fl_now_ms();

    (void)batch, (void)samples;
    if (w->last_ms > 0 && now_ms - w->last_ms > w->pause_ms)
        w->pause_ms = now_ms - w->last_ms;
    w->last_ms = now_ms;
    if (w->batches++ != p->at)
        return 0;
    kill(ps_server(w->n->job, p->victim)->pid, p->signal);
    if (p->also >= 0)
        kill(ps_server(w->n->job, p->also)->pid, p->signal);
    return 0;
}

static fleet_status train(ps_node *n, watched *w)
{
    const fleet_train_options o = {.on_batch = strike, .user = w};
    fleet_status status = FLEET_OK;

    for (int i = 0; i < n->job->passes && status == FLEET_OK; i++)
        status = fleet_train_from_dataset(n->s.e, n->s.data,
                                          n->index == 0 ? &o : NULL, NULL);
    return status;
}

static fleet_status work(ps_node *n)
{
    const plan *p = n->job->user;
    watched w = {.n = n};
    fleet_status status = ps_begin(n);

    if (status == FLEET_OK)
        status = train(n, &w);
    if (status == FLEET_OK && n->index == 0 && p->save)
        status = fleet_save_persistables(n->s.f, p->save);
    if (status == FLEET_OK)
        status = ps_end(n);
    if (status == FLEET_OK && n->index == 0)
        fprintf(stderr, "hash %llx pause %lld\n", (unsigned long long)n->hash,
                (long long)w.pause_ms);
    return status;
}

/* Any of the servers, behind any of the batches but the first and the last
 * ones. */
static plan any_plan(int servers, int signal)
{
    const uint64_t seed = (uint64_t)fl_now_ns();
    plan p = {.victim = (int)fl_rng_below(seed, 1, 0, (uint64_t)servers),
              .signal = signal,
              .also = -1,
              .at = 2 + (int64_t)fl_rng_below(seed, 1, 1, BATCHES - 4)};

    fprintf(stderr, "signal %d for server %d behind batch %lld\n", signal,
            p.victim, (long long)p.at);
    return p;
}

/* The peer deadline, and a moment: which on a machine that is loaded is
 * long. */
static void check_bits(ps_job *j, uint64_t want)
{
    unsigned long long hash = 0;
    long long pause = 0;
    const char *at;

    for (int i = 0; i < j->workers; i++)
        ps_check_ends(ps_worker(j, i));
    at = strstr(ps_said(ps_worker(j, 0)), "hash ");
    CHECK(at && sscanf(at, "hash %llx pause %lld", &hash, &pause) == 2);
    CHECK(hash == want);
    CHECK(pause > j->peer_ms / 2);
    CHECK(pause < 3 * j->peer_ms);
}

/* --- a server that dies --------------------------------------------------- */

/* A save that the dead one had begun may have its files: those of the copies
 * have other names. */
static void check_names_of_copies(const char *save)
{
    char pattern[600];
    glob_t found;

    snprintf(pattern, sizeof pattern, "%s/part-*-replica-*", save);
    CHECK(glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc > 0);
    globfree(&found);
}

/* By tcp, where all needs keys; the save at the end is whole. */
TEST_LIMIT(a_server_dies_and_the_other_one_goes_on_to_the_same_bits, 120)
{
    plan p = any_plan(2, SIGKILL);
    ps_job j = job_of(2, &p);
    uint64_t want;
    scene s;

    setenv("FLEET_TRANSPORT", "tcp", 1);
    j.server_load = scene_saved(&s, "adam");
    scene_close(&s);
    j.keys = test_path("keys");
    CHECK_OK(fl_keys_make(j.keys, 2, 2));
    want = undisturbed(&j);
    p.save = test_path("end");
    j.work = work;
    ps_start_all(&j);
    check_bits(&j, want);
    CHECK_INT(ps_wait(ps_server(&j, p.victim)), 128 + SIGKILL);
    ps_check_ends(ps_server(&j, 1 - p.victim));
    CHECK_CONTAINS(ps_said(ps_server(&j, 1 - p.victim)),
                   "its replica leads now, at update ");
    CHECK_CONTAINS(ps_said(ps_server(&j, 1 - p.victim)),
                   "it goes on without a replica");
    scene_open(&s, &(fleet_options){.seed = 7}, "adam");
    CHECK_OK(fleet_load_model(s.f, p.save));
    CHECK(scene_hash(&s) == want);
    scene_close(&s);
    check_names_of_copies(p.save);
}

/* What the third one keeps has both of its copies all the time. */
TEST_LIMIT(of_three_servers_one_dies_and_two_go_on_to_the_same_bits, 120)
{
    plan p = any_plan(3, SIGKILL);
    ps_job j = job_of(3, &p);
    uint64_t want = undisturbed(&j);

    j.work = work;
    ps_start_all(&j);
    check_bits(&j, want);
    for (int i = 0; i < 3; i++)
        if (i != p.victim)
            ps_check_ends(ps_server(&j, i));
}

/* Its workers have gone over to the copies, and it hears so. */
TEST_LIMIT(a_server_that_sleeps_too_long_wakes_up_without_a_say, 120)
{
    plan p = any_plan(2, SIGSTOP);
    ps_job j = job_of(2, &p);
    uint64_t want = undisturbed(&j);
    const ps_node *victim;

    j.peer_ms = PS_SECOND;        /* four more until it comes again */
    j.connect_ms = 5 * PS_SECOND; /* by then the job may have ended */
    j.work = work;
    ps_start_all(&j);
    victim = ps_server(&j, p.victim);
    ps_hear_words(ps_server(&j, 1 - p.victim), "it goes on without a replica");
    ps_hear_words(ps_server(&j, 1 - p.victim), "its replica leads now");
    ps_kill(ps_server(&j, p.victim), SIGCONT);
    check_bits(&j, want);
    for (int i = 0; i < 2; i++)
        ps_check_ends(ps_server(&j, i));
    CHECK_CONTAINS(ps_said(victim), "this copy has none to serve any more");
}

/* --- a server that comes again -------------------------------------------- */

/* What worker 0 does: server `first` dies, the job trains on, and waits until
 * the test has seen that it has all copies again; then the other one dies. */
enum { FIRST_AT = 5, WAITS_AT = 25 };

static int die_in_turn(void *user, int64_t batch, int64_t samples)
{
    watched *w = user;
    const plan *p = w->n->job->user;
    int64_t n = w->batches++;

    (void)batch, (void)samples;
    if (n == FIRST_AT)
        kill(ps_server(w->n->job, p->victim)->pid, p->signal);
    if (n != WAITS_AT)
        return 0;
    ps_tell(&w->n->job->held);
    ps_hear(&w->n->job->go);
    kill(ps_server(w->n->job, p->also)->pid, SIGKILL);
    return 0;
}

static fleet_status work_on(ps_node *n)
{
    const fleet_train_options o = {.on_batch = die_in_turn,
                                   .user = &(watched){.n = n}};
    fleet_status status = ps_begin(n);

    for (int i = 0; i < n->job->passes && status == FLEET_OK; i++)
        status = fleet_train_from_dataset(n->s.e, n->s.data,
                                          n->index == 0 ? &o : NULL, NULL);
    if (status == FLEET_OK)
        status = ps_end(n);
    if (status == FLEET_OK && n->index == 0)
        fprintf(stderr, "hash %llx\n", (unsigned long long)n->hash);
    return status;
}

static void hear_copies(const ps_job *j, const ps_node *server)
{
    for (int s = 0; s < j->servers; s++)
        for (int i = 0; i < j->lanes; i++) {
            char words[80];

            snprintf(words, sizeof words,
                     "server %d, lane %d: it has a replica again", s, i);
            ps_hear_words(server, words);
        }
}

/* Servers bind their ports themselves, as by hand. */
static void start_by_hand(ps_job *j)
{
    ps_prepare(j);
    for (int i = 0; i < j->servers; i++)
        close(j->listen_fd[i]);
    for (int i = 0; i < j->n_node; i++)
        ps_start(&j->node[i]);
}

/* The victim is started again; or it has slept, and wakes up when the job goes
 * on without it, which it hears. */
static void comes_again(ps_job *j, const plan *p)
{
    ps_node *victim = ps_server(j, p->victim);

    if (p->signal == SIGKILL) {
        CHECK_INT(ps_wait(victim), 128 + SIGKILL);
        ps_start(victim);
        return;
    }
    ps_hear_words(ps_server(j, p->also), "it goes on without a replica");
    ps_hear_words(ps_server(j, p->also), "its replica leads now");
    ps_kill(victim, SIGCONT);
    ps_hear_words(victim, "the job went on without it: it comes again");
}

/* The same process again, while the job goes on; then the other one. With keys,
 * by tcp, from a save. */
static void check_turns(ps_job *j, const plan *p)
{
    uint64_t want = undisturbed(j);
    unsigned long long hash = 0;
    const char *at;

    j->work = work_on;
    if (j->no_listen_fd)
        start_by_hand(j);
    else
        ps_start_all(j);
    comes_again(j, p);
    hear_copies(j, ps_server(j, p->also));
    ps_hear(&j->held);
    ps_tell(&j->go);
    for (int i = 0; i < j->workers; i++)
        ps_check_ends(ps_worker(j, i));
    at = strstr(ps_said(ps_worker(j, 0)), "hash ");
    CHECK(at && sscanf(at, "hash %llx", &hash) == 1);
    CHECK(hash == want);
    ps_check_ends(ps_server(j, p->victim));
    if (p->signal == SIGKILL)
        CHECK_CONTAINS(ps_said(ps_server(j, p->victim)),
                       "the job was at work before this process");
}

TEST_LIMIT(servers_die_in_turn_and_come_again_and_the_bits_are_the_same, 120)
{
    plan p = {.victim = 0, .also = 1, .signal = SIGKILL};
    ps_job j = job_of(2, &p);

    check_turns(&j, &p);
}

TEST_LIMIT(servers_come_again_by_tcp_with_keys_to_a_job_that_began_with_a_save,
           120)
{
    plan p = {.victim = 1, .also = 0, .signal = SIGKILL};
    ps_job j = job_of(2, &p);
    scene s;

    setenv("FLEET_TRANSPORT", "tcp", 1);
    j.server_load = scene_saved(&s, "adam");
    scene_close(&s);
    j.keys = test_path("keys");
    CHECK_OK(fl_keys_make(j.keys, 2, 2));
    j.no_listen_fd = true;
    check_turns(&j, &p);
}

/* Without another process: it gets all copies, and leads when the other one
 * dies. */
TEST_LIMIT(a_server_that_slept_comes_again_by_itself, 120)
{
    plan p = {.victim = 0, .also = 1, .signal = SIGSTOP};
    ps_job j = job_of(2, &p);

    j.peer_ms = PS_SECOND; /* four more until it comes again */
    check_turns(&j, &p);
}

TEST_LIMIT(a_job_without_both_copies_of_a_lane_ends_with_words, 120)
{
    plan p = {.victim = 0, .also = 1, .signal = SIGKILL, .at = 9};
    ps_job j = job_of(3, &p);

    j.lanes = 1;
    j.peer_ms = PS_SECOND;
    j.work = work;
    ps_start_all(&j);
    for (int i = 0; i < j.workers; i++)
        ps_check_fails(ps_worker(&j, i), "both copies of lane 0 are gone, of "
                                         "server 0 at ");
    ps_check_fails(ps_server(&j, 2), "both copies of lane 0 are gone");
}

/* --- one that nothing befalls --------------------------------------------- */

TEST_LIMIT(copies_have_no_effect_on_bits_and_the_job_ends_at_once, 60)
{
    ps_job j = job_of(3, NULL);
    uint64_t want = undisturbed(&j);
    int64_t begin_ms;

    j.peer_ms = 30 * PS_SECOND;
    begin_ms = fl_now_ms();
    CHECK(ps_hash(&j) == want);
    CHECK(fl_now_ms() - begin_ms < j.peer_ms);
}

/* Both copies say it; workers hear the words of one. */
TEST(a_save_that_cannot_be_loaded_ends_the_job_with_its_words)
{
    ps_job j = job_of(2, NULL);

    j.server_load = test_path("no such folder");
    j.connect_ms = 2 * PS_SECOND; /* server 1 has no worker to tell */
    ps_run(&j);
    for (int i = 0; i < j.workers; i++)
        CHECK_CONTAINS(ps_worker(&j, i)->error, "no such folder");
}

static void open_with_lanes(ps_node *n, const fleet_options *o)
{
    fleet_options mine = *o;

    mine.server_lanes = 1 + (n->server && n->index == 1);
    scene_open_as(&n->s, &mine, &n->job->how);
    if (!n->server)
        scene_data(&n->s, n->job->file[0], PS_BATCH, 1, 0);
}

TEST(servers_that_differ_in_their_lanes_are_refused)
{
    ps_job j = job_of(2, NULL);

    j.open = open_with_lanes;
    j.connect_ms = 2 * PS_SECOND;
    ps_run(&j);
    for (int i = 0; i < j.workers; i++)
        CHECK_CONTAINS(ps_worker(&j, i)->error,
                       "with strategy.replicas all servers need the same "
                       "number (FLEET_SERVER_LANES)");
}
