/* move_kit.c - see move_kit.h. */
#define SUITE move_kit
#include "move_kit.h"
#include "sums_kit.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum { LINES = 640, PASSES = 150, FIRST_AT = 20, LONGEST_MS = 2000 };

typedef struct watched {
    ps_node *n;
    int64_t batches, last, last_ms, pause_ms;
} watched;

/* --- jobs ----------------------------------------------------------------- */

ps_job move_job(int servers)
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
    int64_t pass = 0, of;

    if (status == FLEET_OK) /* of a process that was started again */
        status = fleet_dataset_position(n->s.data, &pass, &of);
    for (; pass < n->job->passes && status == FLEET_OK; pass++)
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

int move_control(const ps_job *j, const char *words, char said[8000])
{
    char command[3000];

    snprintf(command, sizeof command,
             "'%s' --servers '%s' %s%s --timeout 60000 %s 2>&1",
             test_beside("fleetctl"), j->endpoints, j->keys ? "--keys " : "",
             j->keys ? j->keys : "", words);
    return test_shell(command, said, 8000);
}

void move_lane(const ps_job *j, const char *words, const char *says)
{
    char said[8000];
    int status = move_control(j, words, said);

    CHECK_CONTAINS(said, says);
    CHECK_INT(status, 0);
}

static uint64_t end_of(ps_job *j, long long *pause)
{
    unsigned long long hash = 0;
    const char *at;

    ps_tell(&j->go);
    for (int i = 0; i < j->workers; i++)
        ps_check_ends(ps_worker(j, i));
    at = strstr(ps_said(ps_worker(j, 0)), "hash ");
    CHECK(at && sscanf(at, "hash %llx pause %lld", &hash, pause) == 2);
    for (int i = 0; i < j->servers; i++)
        if (ps_server(j, i)->pid)
            ps_check_ends(ps_server(j, i));
    return hash;
}

uint64_t move_check_end(ps_job *j)
{
    long long pause = 0;
    uint64_t hash = end_of(j, &pause);

    CHECK(pause < LONGEST_MS * TEST_SLOWNESS);
    return hash;
}

uint64_t move_check_outlived(ps_job *j)
{
    long long pause = 0;

    return end_of(j, &pause);
}

void move_beside(const ps_job *j, const char *words)
{
    char command[4000], said[2000];

    snprintf(command, sizeof command,
             "timeout -s KILL 3 '%s' --servers '%s' %s > /dev/null 2>&1 &",
             test_beside("fleetctl"), j->endpoints, words);
    test_shell(command, said, sizeof said);
}

void move_check_killed(ps_job *j)
{
    ps_kill(ps_server(j, 1), SIGKILL);
    CHECK_INT(ps_wait(ps_server(j, 1)), 128 + SIGKILL);
    ps_tell(&j->go);
    for (int i = 0; i < j->workers; i++)
        ps_check_fails(ps_worker(j, i), "server 1 at ");
    ps_check_fails(ps_server(j, 0), "server 1 at ");
}

void move_start(ps_job *j)
{
    j->work = work;
    ps_start_all(j);
    ps_hear(&j->held);
}

/* --- sums ----------------------------------------------------------------- */

static void open_sums(ps_node *n, const fleet_options *o)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    const char *const file = n->job->user;
    fleet_var *id;

    s.a_sync = 1;
    s.a_sync_configs.k_steps = n->job->how.geo;
    if (n->job->how.merged > 0)
        s.a_sync_configs.max_merge_var_num = n->job->how.merged;
    if (n->job->how.bounds_staleness)
        s.a_sync_configs.max_staleness = n->job->how.max_staleness;
    s.log = (int)n->job->how.log;
    if (s.log != FLEET_DURABLE_NONE)
        s.log_configs = n->job->how.log_configs;
    id = sums_build(n, o, &s);
    sums_read(n, id, &file, 1, SUMS_BATCH);
}

ps_job move_sums_job(int servers)
{
    ps_job j = move_job(servers);

    j.file[0] = NULL;
    j.user = (void *)(uintptr_t)sums_file(LINES);
    j.open = open_sums;
    j.batch = SUMS_BATCH;
    j.passes = PASSES / 4;
    return j;
}
