/* ps_move_test.c - jobs of real processes whose lanes go from server to server
 * while they train, as fleetctl says: to the bits of a job that nothing has
 * befallen in sync, and with each push once in async. */
#define SUITE ps_move
#include "ps_kit.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/keys.h"

enum { LINES = 600, PASSES = 150, FIRST_AT = 20, LONGEST_MS = 2000 };
enum { KEYS = 97, IDS = 4 /* in a batch: its mean is exact */ };

typedef struct watched {
    ps_node *n;
    int64_t batches, last, last_ms, pause_ms;
} watched;

/* --- jobs ----------------------------------------------------------------- */

static ps_job job_of(int servers)
{
    return (ps_job){.servers = servers,
                    .workers = 2,
                    .lanes = 2,
                    .passes = PASSES,
                    .peer_ms = PS_SECOND,
                    .file = {scene_file("a.txt", LINES, 1)}};
}

/* Worker 0 tells that the job trains, and before it ends it waits until all
 * lanes are where they are to be. Its longest batch is measured without that.
 */
static int on_batch(void *user, int64_t batch, int64_t samples)
{
    watched *w = user;
    int64_t now_ms = fl_now_ms();

    (void)batch, (void)samples;
    if (w->last_ms > 0 && now_ms - w->last_ms > w->pause_ms)
        w->pause_ms = now_ms - w->last_ms;
    if (++w->batches == FIRST_AT)
        ps_tell(&w->n->job->held);
    if (w->batches == w->last)
        ps_hear(&w->n->job->go);
    w->last_ms = fl_now_ms();
    return 0;
}

static fleet_status work(ps_node *n)
{
    int64_t batch = n->job->batch ? n->job->batch : PS_BATCH;
    watched w = {.n = n, .last = LINES / 2 / batch * (n->job->passes - 2)};
    const fleet_train_options o = {.on_batch = on_batch, .user = &w};
    fleet_status status = ps_begin(n);

    for (int i = 0; i < n->job->passes && status == FLEET_OK; i++)
        status = fleet_train_from_dataset(n->s.e, n->s.data,
                                          n->index == 0 ? &o : NULL, NULL);
    if (status == FLEET_OK)
        status = ps_end(n);
    if (status == FLEET_OK && n->index == 0)
        fprintf(stderr, "hash %llx pause %lld of %lld\n",
                (unsigned long long)n->hash, (long long)w.pause_ms,
                (long long)w.batches);
    return status;
}

static int control(const ps_job *j, const char *words, char said[8000])
{
    char command[3000];

    snprintf(command, sizeof command,
             "'%s' --servers '%s' %s%s --timeout 60000 %s 2>&1",
             test_beside("fleetctl"), j->endpoints, j->keys ? "--keys " : "",
             j->keys ? j->keys : "", words);
    return test_shell(command, said, 8000);
}

static void move(const ps_job *j, const char *words, const char *says)
{
    char said[8000];
    int status = control(j, words, said);

    CHECK_CONTAINS(said, says);
    CHECK_INT(status, 0);
}

static uint64_t check_end(ps_job *j)
{
    unsigned long long hash = 0;
    long long pause = 0;
    const char *at;

    ps_tell(&j->go);
    for (int i = 0; i < j->workers; i++)
        ps_check_ends(ps_worker(j, i));
    at = strstr(ps_said(ps_worker(j, 0)), "hash ");
    CHECK(at && sscanf(at, "hash %llx pause %lld", &hash, &pause) == 2);
    CHECK(pause < LONGEST_MS * TEST_SLOWNESS);
    for (int i = 0; i < j->servers; i++)
        if (ps_server(j, i)->pid)
            ps_check_ends(ps_server(j, i));
    return hash;
}

static void start(ps_job *j)
{
    j->work = work;
    ps_start_all(j);
    ps_hear(&j->held);
}

/* Of both servers one lane to the other one; the job's first lane, too, and one
 * back. With keys, by tcp. */
TEST_LIMIT(lanes_move_under_load_to_the_same_bits, 120)
{
    ps_job j = job_of(2);
    uint64_t want = ps_hash(&j);

    setenv("FLEET_TRANSPORT", "tcp", 1);
    j.keys = test_path("keys");
    CHECK_OK(fl_keys_make(j.keys, 2, 2));
    start(&j);
    move(&j, "move 0:0 1", "server 0, lane 0: from server 0 to server 1");
    move(&j, "move 1:1 0", "server 1, lane 1: from server 1 to server 0");
    move(&j, "move 0:0 0", "server 0, lane 0: from server 1 to server 0");
    move(&j, "move 0:0 0", "server 0, lane 0: is at server 0");
    move(&j, "move 0:0 1", "server 0, lane 0: from server 0 to server 1");
    CHECK(check_end(&j) == want);
}

/* Three servers are two, and its process ends by itself. */
TEST_LIMIT(a_server_that_is_drained_ends_and_the_job_goes_on_to_the_same_bits,
           120)
{
    ps_job j = job_of(3);
    uint64_t want = ps_hash(&j);

    start(&j);
    move(&j, "drain 2", "server 2, lane 1: from server 2 to server ");
    ps_check_ends(ps_server(&j, 2));
    move(&j, "status", "by server 0");
    CHECK(check_end(&j) == want);
}

/* What it has nobody knows; the next one is not drained into one that ends. */
TEST_LIMIT(a_server_that_is_silent_is_not_drained, 120)
{
    ps_job j = job_of(3);
    char said[8000];

    j.peer_ms = 10 * PS_SECOND; /* it is not missed */
    start(&j);
    move(&j, "drain 2", "server 2, lane 1: from server 2 to server ");
    move(&j, "drain 1", "server 1, lane 1: from server 1 to server 0");
    kill(ps_server(&j, 0)->pid, SIGSTOP);
    CHECK_INT(control(&j, "--timeout 1000 drain 0", said), 2);
    CHECK_CONTAINS(said, "server 0 may have lanes yet");
    kill(ps_server(&j, 0)->pid, SIGCONT);
    check_end(&j);
}

/* --- async ---------------------------------------------------------------- */

static const char *ids_file(void)
{
    char *text = malloc(LINES * 8), *end = text;
    const char *path;

    for (int i = 0; i < LINES; i++)
        end += sprintf(end, "1 %d\n", i * 7 % KEYS);
    path = test_file("ids.txt", text);
    free(text);
    return path;
}

/* loss = the row of an id: each sample takes a quarter from it, whatever the
 * order. */
static void open_sums(ps_node *n, const fleet_options *o)
{
    const fleet_sparse_embedding_options zero = {
        .table = "t", .initializer = {FLEET_INIT_CONSTANT, 0, 0}};
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet_var *id;

    CHECK_OK(fleet_init(&n->s.f, o));
    n->s.p = fleet_program_create(n->s.f);
    id = fleet_data(n->s.p, "id", FLEET_INT64, (int64_t[]){-1, 1}, 2);
    n->s.m.loss =
        fleet_mean(n->s.p, fleet_sparse_embedding(n->s.p, id, 1, &zero));
    s.a_sync = 1;
    CHECK_OK(fleet_minimize(
        fleet_distributed_optimizer(n->s.f, fleet_sgd(n->s.f, 1.0f), &s),
        n->s.m.loss));
    if (n->server)
        return;
    n->s.data = fleet_queue_dataset(
        n->s.f, &(fleet_dataset_options){
                    .batch_size = IDS, .use_var = &id, .n_use_var = 1});
    CHECK(n->s.data != NULL);
    CHECK_OK(fleet_dataset_set_filelist(
        n->s.data, (const char *const[]){n->job->user}, 1));
}

TEST_LIMIT(lanes_that_move_in_async_have_each_push_once, 120)
{
    ps_job j = job_of(2);
    uint64_t want;

    j.file[0] = NULL;
    j.user = (void *)(uintptr_t)ids_file();
    j.open = open_sums;
    j.batch = IDS;
    j.passes = PASSES / 4;
    want = ps_hash(&j);
    start(&j);
    move(&j, "move 0:1 1", "server 0, lane 1: from server 0 to server 1");
    move(&j, "move 1:0 0", "server 1, lane 0: from server 1 to server 0");
    move(&j, "move 0:0 1", "server 0, lane 0: from server 0 to server 1");
    CHECK(check_end(&j) == want);
}

/* --- ends ----------------------------------------------------------------- */

/* Nothing else has what it kept. */
TEST_LIMIT(a_server_that_dies_as_a_lane_leaves_it_ends_the_job_by_its_name, 120)
{
    ps_job j = job_of(2);
    char said[8000];

    start(&j);
    kill(ps_server(&j, 1)->pid, SIGSTOP); /* it takes nothing */
    CHECK_INT(control(&j, "--timeout 1000 move 0:1 1", said), 2);
    CHECK_CONTAINS(said, "server 1 does not answer");
    kill(ps_server(&j, 1)->pid, SIGKILL);
    kill(ps_server(&j, 1)->pid, SIGCONT);
    for (int i = 0; i < j.workers; i++)
        ps_check_fails(ps_worker(&j, i), "server 1 at ");
    ps_check_fails(ps_server(&j, 0), "server 1 at ");
}
