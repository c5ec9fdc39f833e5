/* ps_saves_beside_test.c - async jobs that train while a save is written. */
#define _GNU_SOURCE
#define SUITE ps_saves_beside
#include "ps_kit.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/json/json.h"
#include "base/memory.h"

/* Worker 1 stops after its first batches until worker 0 has saved what the
 * lanes then have; and trains that many more while that is saved once more. */
enum { FIRST = 5, MORE = 10, PATIENCE_S = 20 * TEST_SLOWNESS };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int batches;      /* of worker 1 */
    int lanes, begun; /* of all servers; with their part */
} train = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0};

/* Until worker 1 has trained so many batches, or all lanes have begun. */
static void wait_for(int batches, bool or_begun)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    while (train.batches < batches && !(or_begun && train.begun == train.lanes))
        if (pthread_cond_timedwait(&train.changed, &train.lock, &until) ==
            ETIMEDOUT)
            test_fail(__FILE__, __LINE__, "worker 1 has trained %d batches",
                      train.batches);
}

static int count_batch(void *user, int64_t batches, int64_t samples)
{
    (void)user, (void)batches, (void)samples;
    pthread_mutex_lock(&train.lock);
    train.batches++;
    pthread_cond_broadcast(&train.changed);
    if (train.batches == FIRST)
        wait_for(FIRST + 1, true);
    pthread_mutex_unlock(&train.lock);
    return 0;
}

/* No row of a part is read before all lanes have their snapshots, and worker 1
 * has trained on. */
static int slow_open(int folder, const char *name, int flags, mode_t mode)
{
    if (flags & O_CREAT && strstr(name, "part-")) {
        pthread_mutex_lock(&train.lock);
        train.begun++;
        pthread_cond_broadcast(&train.changed);
        wait_for(FIRST + MORE, false);
        pthread_mutex_unlock(&train.lock);
    }
    return fl_disk_system.open(folder, name, flags, mode);
}

/* --- what was saved ------------------------------------------------------- */

/* What the manifest says that each lane's parts hold: so many steps of worker
 * 1, the fewest of all lanes, and none of worker 0. */
static int64_t least_steps(const char *path, int lanes)
{
    int64_t least = INT64_MAX;
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
        fl_at at = fl_at_key(&c, "version");
        int64_t steps = -1, version = -1;

        CHECK_INT(fl_at_count(&done), 2);
        CHECK_OK(fl_at_int(&one, 0, FIRST, &steps));
        CHECK_OK(fl_at_int(&at, 0, FIRST, &version));
        CHECK_INT(version, steps);
        least = steps < least ? steps : least;
    }
    fl_json_free(json);
    fl_free(text);
    return least;
}

static fleet_status load_alone(ps_node *n)
{
    fleet_status status = ps_begin(n);

    return status == FLEET_OK ? ps_end(n) : status;
}

static uint64_t hash_of(const ps_job *j, const char *path)
{
    ps_job alone = *j;

    alone.load = path;
    alone.work = load_alone;
    return ps_hash(&alone);
}

/* --- the job -------------------------------------------------------------- */

/* Worker 1 is in a pass that worker 0 has not begun. */
static void save_twice(ps_node *n)
{
    fl_disk slow = fl_disk_system;

    pthread_mutex_lock(&train.lock);
    wait_for(FIRST, false);
    pthread_mutex_unlock(&train.lock);
    do /* until its last push has come */
        CHECK_OK(fleet_save_persistables(n->s.f, test_path("quiet")));
    while (least_steps(test_path("quiet"), 2 * n->job->lanes) < FIRST);
    slow.open = slow_open;
    fl_disk_use(&slow);
    CHECK_OK(fleet_save_persistables(n->s.f, test_path("beside")));
    fl_disk_use(NULL);
}

static fleet_status save_beside(ps_node *n)
{
    const fleet_train_options count = {.on_batch = count_batch};
    fleet_status status = ps_begin(n);

    if (status == FLEET_OK && n->index == 0)
        save_twice(n);
    if (status == FLEET_OK)
        status = fleet_train_from_dataset(
            n->s.e, n->s.data, n->index == 1 ? &count : NULL, &n->result);
    return status == FLEET_OK ? ps_end(n) : status;
}

/* Rows, states and weights: all of each lane's moment, however many batches
 * change them before they are written. */
TEST_LIMIT(a_worker_trains_on_and_what_is_saved_is_what_lanes_had_before, 120)
{
    for (int lanes = 1; lanes <= 2; lanes++) {
        ps_job j = {
            .servers = 2,
            .workers = 2,
            .lanes = lanes,
            .how = {.optimizer = "adam", .a_sync = true},
            .work = save_beside,
            .file = {scene_file("a.txt", 20, 1), scene_file("b.txt", 2000, 2)}};
        uint64_t at_the_end, saved;

        train.batches = train.begun = 0;
        train.lanes = 2 * lanes;
        at_the_end = ps_hash(&j);
        CHECK_INT(least_steps(test_path("beside"), 2 * lanes), FIRST);
        saved = hash_of(&j, test_path("quiet"));
        CHECK(hash_of(&j, test_path("beside")) == saved);
        CHECK(saved != at_the_end);
    }
}
