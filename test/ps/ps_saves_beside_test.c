/* ps_saves_beside_test.c - async jobs that train while a save is written. */
#define _GNU_SOURCE
#define SUITE ps_saves_beside
#include "ps_kit.h"
#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"

/* --- a disk that is slower than a worker ---------------------------------- */

/* A part is written once worker 1 has trained so many batches more. */
enum { BATCHES = 10, PATIENCE_S = 20 * TEST_SLOWNESS };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t trained;
    int batches, wanted; /* 0: no part was begun yet */
} gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0};

static int count_batch(void *user, int64_t batches, int64_t samples)
{
    (void)user, (void)batches, (void)samples;
    pthread_mutex_lock(&gate.lock);
    gate.batches++;
    pthread_cond_broadcast(&gate.trained);
    pthread_mutex_unlock(&gate.lock);
    return 0;
}

static void wait_for(bool begun)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    pthread_mutex_lock(&gate.lock);
    if (!begun && gate.wanted == 0)
        gate.wanted = gate.batches + BATCHES;
    while (gate.batches < (begun ? 1 : gate.wanted))
        if (pthread_cond_timedwait(&gate.trained, &gate.lock, &until) ==
            ETIMEDOUT)
            test_fail(__FILE__, __LINE__, "worker 1 has trained %d batches",
                      gate.batches);
    pthread_mutex_unlock(&gate.lock);
}

static ssize_t slow_write(int fd, const void *data, size_t size)
{
    wait_for(false);
    return fl_disk_system.write(fd, data, size);
}

/* --- the job -------------------------------------------------------------- */

static fleet_status pass(ps_node *n)
{
    const fleet_train_options count = {.on_batch = count_batch};

    return fleet_train_from_dataset(n->s.e, n->s.data,
                                    n->index == 1 ? &count : NULL, &n->result);
}

/* Worker 1 is in a pass while worker 0, which has not begun it, saves. */
static fleet_status save_beside(ps_node *n)
{
    fleet_status status = ps_begin(n);

    if (status == FLEET_OK && n->index == 0) {
        wait_for(true);
        status = fleet_save_persistables(n->s.f, n->job->user);
    }
    if (status == FLEET_OK)
        status = pass(n);
    return status == FLEET_OK ? ps_end(n) : status;
}

/* --- what was saved ------------------------------------------------------- */

static int64_t int_of(const fl_at *object, const char *key)
{
    fl_at at = fl_at_key(object, key);
    int64_t x = -1;

    CHECK_OK(fl_at_required(&at));
    CHECK_OK(fl_at_int(&at, 0, INT64_MAX, &x));
    return x;
}

/* The manifest says of each lane what is in its parts; of the last one comes
 * back how many steps of worker 1. */
static int64_t check_cuts(const char *path, int lanes)
{
    int64_t steps = -1;

    char name[300], *text;
    fl_json *json;
    fl_at root, cuts;
    size_t size;

    snprintf(name, sizeof name, "%s/manifest.json", path);
    CHECK_OK(fl_file_read(name, &text, &size));
    CHECK_OK(fl_json_parse(text, size, name, &json));
    root = fl_at_root(json);
    cuts = fl_at_key(&root, "cuts");
    CHECK_INT(fl_at_count(&cuts), lanes);
    for (fl_at c = fl_at_first(&cuts); c.json; fl_at_next(&cuts, &c)) {
        fl_at done = fl_at_key(&c, "done"), one = fl_at_index(&done, 1);

        CHECK_INT(fl_at_count(&done), 2);
        CHECK_OK(fl_at_int(&one, 0, gate.batches, &steps));
        CHECK(steps >= 1);
        CHECK_INT(int_of(&c, "version"), steps); /* worker 0 has brought none */
    }
    fl_json_free(json);
    fl_free(text);
    return steps;
}

static fleet_status load_alone(ps_node *n)
{
    fleet_status status = ps_begin(n);

    return status == FLEET_OK ? ps_end(n) : status;
}

/* Runs it with a disk that is slower than worker 1. */
static void run(ps_job *j)
{
    fl_disk slow = fl_disk_system;

    *j = (ps_job){
        .servers = j->servers,
        .workers = 2,
        .lanes = j->lanes,
        .how = {.optimizer = "adam", .a_sync = true},
        .work = save_beside,
        .user = (void *)test_path("save"),
        .file = {scene_file("a.txt", 20, 1), scene_file("b.txt", 2000, 2)}};
    slow.write = slow_write;
    fl_disk_use(&slow);
    ps_run(j);
    fl_disk_use(NULL);
    ps_check(j);
    CHECK(gate.wanted > 0);
}

TEST_LIMIT(a_worker_trains_on_while_another_one_saves, 120)
{
    ps_job j = {.servers = 2, .lanes = 2};

    run(&j);
    check_cuts(j.user, 4);
    j.servers = 1;
    j.load = j.user;
    j.work = load_alone;
    ps_hash(&j);
}

static int end_after(void *user, int64_t batches, int64_t samples)
{
    (void)samples;
    return batches == *(int64_t *)user;
}

/* What worker 1 alone makes of its first batches, in one process. */
static uint64_t hash_after(const ps_job *j, int64_t batches)
{
    const fleet_train_options end = {.on_batch = end_after, .user = &batches};
    const fleet_options o = {.seed = 5, .num_threads = 1};
    const scene_training how = {.optimizer = "adam"};
    uint64_t hash;
    scene s;

    scene_open_as(&s, &o, &how);
    scene_data(&s, j->file[1], PS_BATCH, 1, 0);
    s.e = fleet_executor_create(s.p, NULL);
    CHECK_OK(fleet_train_from_dataset(s.e, s.data, &end, NULL));
    hash = scene_hash(&s);
    scene_close(&s);
    return hash;
}

/* Rows, states and weights: all of the lane's moment. */
TEST_LIMIT(what_is_saved_is_what_the_lane_had_when_it_began, 120)
{
    ps_job j = {.servers = 1, .lanes = 1};
    int64_t steps;

    run(&j);
    steps = check_cuts(j.user, 1);
    j.load = j.user;
    j.work = load_alone;
    CHECK(ps_hash(&j) == hash_after(&j, steps));
}
