/* ps_move_saves_test.c - a lane that is told to go while it is saved, or while
 * a snapshot of it is written into its log: it goes when that is over, the save
 * is whole, and the job has the bits, or the sums, of one that nothing has
 * befallen; also if a server is killed meanwhile. */
#define _GNU_SOURCE
#define SUITE ps_move_saves
#include "move_kit.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"

enum { BEFORE = 2, PASSES = 8 };

/* --- a disk that waits for the test --------------------------------------- */

static const char *held, *go_on, *save; /* paths; of files but the last */

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

static int wait_for_test(void)
{
    const int64_t end_ms = fl_now_ms() + 60 * PS_SECOND;
    int fd = open(held, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

    close(fd);
    while (!is_there(go_on))
        if (fl_now_ms() > end_ms)
            return errno = EIO, -1;
        else
            usleep(1000);
    return 0;
}

/* Of a save, each lane's part. */
static int hold_part(int folder, const char *name, int flags, mode_t mode)
{
    if (flags & O_CREAT && strstr(name, "part-") && wait_for_test() != 0)
        return -1;
    return fl_disk_system.open(folder, name, flags, mode);
}

/* Of a snapshot what is written beside training, which the thread is nice
 * for. */
static ssize_t hold_snapshot(int fd, const void *data, size_t size)
{
    char link[40], path[500];
    ssize_t n;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    if (strstr(path, "server-0/lane-1/snapshot-") &&
        getpriority(PRIO_PROCESS, (id_t)gettid()) >
            getpriority(PRIO_PROCESS, (id_t)getpid()) &&
        wait_for_test() != 0)
        return -1;
    return fl_disk_system.write(fd, data, size);
}

static void await(ps_job *j, const char *path)
{
    const int64_t end_ms = fl_now_ms() + 20 * PS_SECOND;

    while (!is_there(path)) {
        if (fl_now_ms() > end_ms)
            test_fail(__FILE__, __LINE__, "%s does not come: %s; %s", path,
                      ps_said(ps_worker(j, 0)), ps_said(ps_worker(j, 1)));
        usleep(1000);
    }
}

/* --- the job -------------------------------------------------------------- */

/* In sync all others wait for the save; in async they train. */
static fleet_status work(ps_node *n)
{
    fleet_status status = ps_begin(n);
    uint64_t hash = 0;

    if (status == FLEET_OK)
        status = ps_passes(n, BEFORE);
    if (status == FLEET_OK && n->index == 0)
        status = fleet_params_hash(n->s.f, &hash);
    if (status == FLEET_OK && n->index == 0)
        status = fleet_save_persistables(n->s.f, save);
    if (status == FLEET_OK && n->index == 0)
        fprintf(stderr, "saved %llx\n", (unsigned long long)hash);
    if (status == FLEET_OK)
        status = ps_passes(n, PASSES - BEFORE);
    if (status == FLEET_OK && n->index == 0)
        ps_hear(&n->job->go);
    if (status == FLEET_OK)
        status = ps_end(n);
    if (status == FLEET_OK && n->index == 0)
        fprintf(stderr, "hash %llx\n", (unsigned long long)n->hash);
    return status;
}

static fleet_status train(ps_node *n)
{
    fleet_status status = ps_begin(n);

    if (status == FLEET_OK)
        status = ps_passes(n, PASSES);
    return status == FLEET_OK ? ps_end(n) : status;
}

static fleet_status load_alone(ps_node *n)
{
    fleet_status status = ps_begin(n);

    return status == FLEET_OK ? ps_end(n) : status;
}

static unsigned long long number_in(const char *said, const char *key)
{
    const char *at = strstr(said, key);
    unsigned long long number = 0;

    CHECK(at && sscanf(at + strlen(key), "%llx", &number) == 1);
    return number;
}

static ps_job with_log(ps_job j)
{
    j.how.log = FLEET_DURABLE_PROCESS;
    j.how.log_configs =
        (fleet_log_configs){.folder = test_path("log"),
                            .file_bytes = 1 << 20,
                            .restart_deadline_ms = 60 * PS_SECOND};
    return j;
}

static uint64_t undisturbed(const ps_job *j)
{
    ps_job same = *j;

    same.work = train;
    return ps_undisturbed(&same);
}

/* The disk holds the lane, fleetctl has told it to go, and it has not, though
 * its taker has asked several times. */
static void begin(ps_job *j, const fl_disk *disk, char said[8000])
{
    fl_disk_use(disk);
    j->work = work;
    ps_start_all(j);
    await(j, held);
    CHECK_INT(move_control(j, "--timeout 1000 move 0:1 1", said), 2);
    CHECK_CONTAINS(said, "is still at server 0 (--timeout); the move goes on");
}

static void move_at_last(const ps_job *j, const char *words)
{
    char said[8000] = "";

    for (int i = 0; i < 100; i++) {
        if (move_control(j, words, said) == 0)
            return;
        usleep(50000);
    }
    test_fail(__FILE__, __LINE__, "%s: %s", words, said);
}

static uint64_t end(ps_job *j)
{
    char said[8000];

    test_file("go-on", "");
    move_at_last(j, "move 0:1 1");
    CHECK_INT(move_control(j, "status", said), 0);
    CHECK_CONTAINS(said, "serves, by server 1 (");
    ps_tell(&j->go);
    for (int i = 0; i < j->workers; i++)
        ps_check_ends(ps_worker(j, i));
    for (int i = 0; i < j->servers; i++)
        ps_check_ends(ps_server(j, i));
    fl_disk_use(NULL);
    return number_in(ps_said(ps_worker(j, 0)), "hash ");
}

static uint64_t hash_of_save(const ps_job *j)
{
    ps_job alone = {.servers = j->servers,
                    .workers = j->workers,
                    .how = {.optimizer = j->how.optimizer},
                    .load = save,
                    .work = load_alone};
    return ps_hash(&alone);
}

static ps_job make(ps_job j)
{
    j.passes = PASSES;
    held = test_path("held");
    go_on = test_path("go-on");
    save = test_path("save");
    return j;
}

static fl_disk slow_saves(void)
{
    fl_disk d = fl_disk_system;

    d.open = hold_part;
    return d;
}

static void check_saved_job(ps_job j, int killed)
{
    const uint64_t want = undisturbed(&j);
    const fl_disk disk = slow_saves();
    char said[8000];

    begin(&j, &disk, said);
    CHECK_CONTAINS(said, "server 0, lane 1: it waits until its save");
    CHECK_INT(move_control(&j, "status", said), 0);
    CHECK_CONTAINS(said, "saves, loads or hashes, by server 0 (");
    CHECK(!is_there(save));
    if (killed >= 0)
        ps_kill_and_start(&j, killed);
    CHECK(end(&j) == want);
    CHECK(j.open ||
          hash_of_save(&j) == number_in(ps_said(ps_worker(&j, 0)), "saved "));
    CHECK(is_there(save));
}

TEST_LIMIT(a_lane_goes_when_its_save_is_over, 120)
{
    check_saved_job(make(move_job(2)), -1);
}

TEST_LIMIT(a_lane_goes_with_its_log_when_its_save_is_over, 120)
{
    check_saved_job(make(with_log(move_job(2))), -1);
}

TEST_LIMIT(a_taker_that_dies_meanwhile_costs_nothing, 120)
{
    check_saved_job(make(with_log(move_job(2))), 1);
}

TEST_LIMIT(a_source_that_dies_meanwhile_saves_again_and_goes_then, 120)
{
    check_saved_job(make(with_log(move_job(2))), 0);
}

TEST_LIMIT(in_async_a_lane_goes_when_a_save_beside_training_is_over, 120)
{
    check_saved_job(make(with_log(move_sums_job(2))), -1);
}

/* --- snapshots ------------------------------------------------------------ */

static void check_snapshot_job(int killed)
{
    ps_job j = make(with_log(move_job(2)));
    fl_disk disk = fl_disk_system;
    uint64_t want;
    char said[8000];

    j.how.log_configs.file_bytes = 4 << 10;
    want = undisturbed(&j);
    disk.write = hold_snapshot;
    begin(&j, &disk, said);
    if (killed >= 0)
        ps_kill_and_start(&j, killed);
    CHECK(end(&j) == want);
}

TEST_LIMIT(a_lane_goes_when_its_snapshot_is_written, 120)
{
    check_snapshot_job(-1);
}

TEST_LIMIT(a_source_that_dies_before_its_snapshot_is_whole_loses_nothing, 120)
{
    check_snapshot_job(0);
}
