/* ps_recovery_test.c - server processes that are killed, at any moment and
 * several times, and started again by the same command: the job goes on, no
 * worker sees an error, and the parameters have the bits of a job that nothing
 * has befallen. */
#define _GNU_SOURCE
#define SUITE ps_recovery
#include "ps_kit.h"
#include "sums_kit.h"
#include "test.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "ps/journal/journal_writer.h"

enum { FILE_BYTES = 1 << 16, FAR_MS = 60000 * TEST_SLOWNESS };

/* --- logs ----------------------------------------------------------------- */

/* How far its last file is: a number that grows though the log is cut. */
static int64_t end_of(const char *folder, int64_t file_bytes)
{
    DIR *dir = opendir(folder);
    int64_t end = 0;
    struct dirent *e;
    struct stat s;

    while (dir && (e = readdir(dir)) != NULL)
        if (strncmp(e->d_name, "journal-", 8) == 0 &&
            fstatat(dirfd(dir), e->d_name, &s, 0) == 0) {
            int64_t at = (atoll(e->d_name + 8) - 1) * file_bytes + s.st_size;

            end = at > end ? at : end;
        }
    if (dir)
        closedir(dir);
    return end;
}

/* What a server has written down, about. */
static int64_t log_bytes(const ps_job *j, int server)
{
    char folder[300];
    int64_t bytes = 0;

    for (int i = 0; i < j->lanes; i++) {
        snprintf(folder, sizeof folder, "%s/server-%d/lane-%d",
                 j->how.log_configs.folder, server, i);
        bytes += end_of(folder, j->how.log_configs.file_bytes);
    }
    return bytes;
}

static void await_bytes(const ps_job *j, int server, int64_t bytes)
{
    const struct timespec moment = {.tv_nsec = 200000};
    int64_t end_ms = fl_now_ms() + FAR_MS;

    while (log_bytes(j, server) < bytes) {
        if (fl_now_ms() > end_ms)
            test_fail(__FILE__, __LINE__,
                      "server %d has written %lld bytes of %lld; it said: %s",
                      server, (long long)log_bytes(j, server), (long long)bytes,
                      ps_said(&j->node[server]));
        nanosleep(&moment, NULL);
    }
}

/* --- jobs ----------------------------------------------------------------- */

static ps_job job_of(bool a_sync)
{
    return (ps_job){.servers = 2,
                    .workers = 2,
                    .lanes = 2,
                    .passes = 4,
                    .id = "recovery",
                    .connect_ms = FAR_MS,
                    .request_ms = FAR_MS,
                    .peer_ms = 2 * PS_SECOND,
                    .how = {.a_sync = a_sync,
                            .log = FLEET_DURABLE_PROCESS,
                            .log_configs = {.folder = test_path("log"),
                                            .file_bytes = FILE_BYTES,
                                            .restart_deadline_ms = FAR_MS}},
                    .file = {scene_file("a.txt", 2000, 1)}};
}

/* Kill one server after the other, each after so many bytes more of its log:
 * wherever it is then. */
static void disturb(ps_job *j, int kills, int64_t bytes)
{
    for (int i = 0; i < kills; i++) {
        int server = i % j->servers;

        await_bytes(j, server, log_bytes(j, server) + bytes + 997 * i);
        for (int w = 0; w < j->workers; w++)
            CHECK(!ps_ends_within(ps_worker(j, w), 0));
        ps_kill_and_start(j, server);
    }
}

/* Worker 0 tells what it has hashed; no worker has warned of an error. */
static uint64_t hash_of(ps_job *j)
{
    char want[] = "hash ";
    const char *said, *at;
    unsigned long long hash = 0;

    ps_check_all_end(j);
    said = ps_said(ps_worker(j, 0));
    at = strstr(said, want);
    CHECK(at != NULL && sscanf(at, "hash %llx", &hash) == 1);
    return hash;
}

static fleet_status work_and_tell(ps_node *n)
{
    fleet_status status = ps_begin(n);

    if (status == FLEET_OK)
        status = ps_passes(n, n->job->passes);
    if (status == FLEET_OK)
        status = ps_end(n);
    if (status == FLEET_OK && n->index == 0 && n->pid)
        fprintf(stderr, "hash %llx\n", (unsigned long long)n->hash);
    return status;
}

TEST_LIMIT(servers_that_are_killed_come_back_and_sync_has_the_same_bits, 120)
{
    ps_job j = job_of(false);
    uint64_t hash;

    j.work = work_and_tell;
    hash = ps_undisturbed(&j);
    ps_start_all(&j);
    disturb(&j, 5, 20000);
    CHECK(hash_of(&j) == hash);
    CHECK_CONTAINS(ps_said(ps_server(&j, 0)), "is back, at update ");
}

/* In files that are so small that lanes write a snapshot every few updates, and
 * what is older is gone; with keys that wait to become rows. */
TEST_LIMIT(servers_that_are_killed_come_back_from_snapshots, 120)
{
    ps_job j = job_of(false);
    uint64_t hash;
    char path[300];

    j.how.log_configs.file_bytes = 4096;
    j.how.life.entry =
        (fleet_entry){.kind = FLEET_COUNT_FILTER_ENTRY, .count = 3};
    j.how.life.most_rows = 2048;
    j.work = work_and_tell;
    hash = ps_undisturbed(&j);
    ps_start_all(&j);
    disturb(&j, 5, 40000);
    CHECK(hash_of(&j) == hash);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/server-%d/lane-0/journal-00000001",
                 j.how.log_configs.folder, i);
        CHECK(access(path, F_OK) != 0);
    }
}

enum { FAILED_CUTS = 3, MOST_CUTS = 100 };

static uint32_t cut_at[MOST_CUTS]; /* the file behind each snapshot */
static atomic_int n_cut;

static int no_room_at_first(const char *path, mode_t mode)
{
    const char *name = strrchr(path, '/') + 1;

    if (n_cut < MOST_CUTS &&
        fl_journal_read_name(name, "snapshot-", ".new", &cut_at[n_cut]) &&
        ++n_cut <= FAILED_CUTS) {
        errno = ENOSPC;
        return -1;
    }
    return fl_disk_system.make_folder(path, mode);
}

/* A file later: the log must not get four files longer for each. */
TEST_LIMIT(a_snapshot_that_fails_is_soon_tried_again, 120)
{
    ps_job j = job_of(false);
    fl_disk disk = fl_disk_system;
    uint64_t hash = ps_undisturbed(&j);

    j.servers = j.lanes = 1;
    disk.make_folder = no_room_at_first;
    fl_disk_use(&disk);
    CHECK(ps_hash(&j) == hash);
    fl_disk_use(NULL);
    CHECK(n_cut > FAILED_CUTS);
    CHECK(cut_at[0] > 4);
    for (int i = 1; i <= FAILED_CUTS; i++)
        CHECK(cut_at[i] - cut_at[i - 1] <= 3); /* four: 5 or more */
    CHECK_CONTAINS(ps_server(&j, 0)->log, "its log is not cut: the snapshot");
}

/* --- what it begins with, and whose it is --------------------------------- */

/* Whatever its command says by then: a newer save, say. */
TEST_LIMIT(a_server_that_began_with_a_save_begins_with_it_again, 120)
{
    ps_job j = job_of(false);
    uint64_t hash;
    scene s;

    j.servers = 1;
    j.server_load = scene_saved(&s, "adam");
    scene_close(&s);
    j.work = work_and_tell;
    hash = ps_undisturbed(&j);
    ps_start_all(&j);
    await_bytes(&j, 0, 20000);
    j.server_load = NULL;
    disturb(&j, 2, 20000);
    CHECK(hash_of(&j) == hash);
}

/* A server without workers, killed: its log has not ended. */
static ps_job killed_job(void)
{
    ps_job j = job_of(false);

    j.servers = 1;
    ps_prepare(&j);
    ps_start(ps_server(&j, 0));
    ps_hear_words(ps_server(&j, 0), "lanes 2");
    ps_kill(ps_server(&j, 0), SIGKILL);
    ps_wait(ps_server(&j, 0));
    return j;
}

/* It stays for workers, which never come, for so long. */
static void start_alone(ps_job *j, int connect_ms)
{
    j->node[0].job = j->node[1].job = j->node[2].job = j;
    j->connect_ms = connect_ms;
    ps_start(ps_server(j, 0));
}

TEST(a_log_whose_first_file_is_missing_is_refused_by_name)
{
    ps_job j = killed_job();
    char lane[300], from[330], to[330];

    snprintf(lane, sizeof lane, "%s/server-0/lane-1", j.how.log_configs.folder);
    snprintf(from, sizeof from, "%s/journal-00000001", lane);
    snprintf(to, sizeof to, "%s/journal-00000002", lane);
    CHECK(rename(from, to) == 0);
    start_alone(&j, 300);
    ps_check_fails(ps_server(&j, 0), "server 0, lane 1: the log ");
    CHECK_CONTAINS(ps_said(ps_server(&j, 0)), "has no file journal-00000001: "
                                              "the first one is journal-");
    CHECK(unlink(to) == 0);
    start_alone(&j, 300);
    ps_check_fails(ps_server(&j, 0), "has no files: expected journal-00000001");
}

/* Of its lanes, as its log has them. */
static void read_ports(const ps_job *j, int port[2])
{
    char path[300], *text;
    const char *at;
    size_t size;

    snprintf(path, sizeof path, "%s/server-0/identity",
             j->how.log_configs.folder);
    CHECK_OK(fl_file_read(path, &text, &size));
    at = strstr(text, "\"ports\":");
    CHECK(at && sscanf(at, "\"ports\":[%d,%d]", &port[0], &port[1]) == 2);
    fl_free(text);
}

/* A process that listens there. */
static pid_t take_port(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    pid_t pid;

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    CHECK(bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, 1) == 0);
    pid = test_fork();
    while (pid == 0)
        pause();
    close(fd);
    return pid;
}

TEST(a_port_that_another_process_has_taken_is_waited_for)
{
    ps_job j = killed_job();
    int port[2];
    pid_t pid;

    read_ports(&j, port);
    pid = take_port(port[1]);
    start_alone(&j, FAR_MS);
    ps_hear_words(ps_server(&j, 0), "the port is in use by another process; it "
                                    "is tried again");
    CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
    ps_hear_words(ps_server(&j, 0), "lane 1 is back, at update 0");
    ps_kill(ps_server(&j, 0), SIGKILL);
    ps_wait(ps_server(&j, 0));
}

TEST(a_log_is_of_one_process_at_a_time)
{
    ps_job j = job_of(false), other;

    j.servers = 1;
    ps_prepare(&j);
    ps_start(ps_server(&j, 0));
    ps_hear_words(ps_server(&j, 0), "lanes 2");
    other = j;
    ps_prepare(&other);
    ps_start(ps_server(&other, 0));
    ps_check_fails(ps_server(&other, 0), "is in use by another process, ");
    CHECK_CONTAINS(ps_said(ps_server(&other, 0)), "server 0 to be the only");
    ps_kill(ps_server(&j, 0), SIGKILL);
    ps_wait(ps_server(&j, 0));
}

/* The files of one that has are there until the next job of the folder. */
TEST_LIMIT(a_job_that_has_ended_leaves_a_log_that_the_next_one_replaces, 120)
{
    ps_job j = job_of(false), next;
    uint64_t hash;

    j.passes = 1;
    j.work = work_and_tell;
    ps_start_all(&j);
    hash = hash_of(&j);
    CHECK(log_bytes(&j, 0) > 0);
    next = j;
    next.id = "another";
    ps_start_all(&next);
    CHECK(hash_of(&next) == hash);
    CHECK(strstr(ps_said(ps_server(&next, 0)), "is back") == NULL);
}

static void flip_first_record(const ps_job *j)
{
    char path[300];

    snprintf(path, sizeof path, "%s/server-0/lane-0/journal-00000001",
             j->how.log_configs.folder);
    test_flip_bit(path, 2000 * 8);
}

/* Its workers are told so, in its words. */
TEST_LIMIT(a_server_whose_log_is_damaged_says_so_to_its_workers, 120)
{
    ps_job j = job_of(false);

    j.servers = 1;
    j.passes = 1000;
    j.how.log_configs.file_bytes = 1 << 28; /* no snapshot */
    j.connect_ms = PS_SECOND;
    ps_start_all(&j);
    await_bytes(&j, 0, 30000);
    ps_kill(ps_server(&j, 0), SIGKILL);
    ps_wait(ps_server(&j, 0));
    flip_first_record(&j);
    ps_start(ps_server(&j, 0));
    for (int i = 0; i < 2; i++)
        ps_check_fails(ps_worker(&j, i),
                       "server 0, lane 0: the log is damaged");
    ps_check_fails(ps_server(&j, 0), "journal-00000001, offset ");
}

TEST(a_server_without_a_folder_for_its_log_is_refused)
{
    ps_job j = job_of(false);

    j.how.log_configs.folder = NULL;
    unsetenv("FLEET_LOG_FOLDER");
    ps_prepare(&j);
    ps_start(ps_server(&j, 0));
    ps_check_fails(ps_server(&j, 0), "has no folder for its log");
    setenv("FLEET_LOG_FOLDER", test_path("elsewhere"), 1);
    setenv("FLEET_LOG", "power", 1);
    j.how.log = FLEET_DURABLE_NONE;
    j.how.log_configs = (fleet_log_configs){0};
    ps_start(ps_server(&j, 0));
    ps_hear_words(ps_server(&j, 0), "lanes 2");
    CHECK(access(test_path("elsewhere/server-0/identity"), R_OK) == 0);
    ps_kill(ps_server(&j, 0), SIGKILL);
    ps_wait(ps_server(&j, 0));
    setenv("FLEET_LOG", "always", 1);
    ps_start(ps_server(&j, 0));
    CHECK(ps_wait(ps_server(&j, 0)) != 0);
    CHECK_CONTAINS(ps_said(ps_server(&j, 0)),
                   "FLEET_LOG is \"always\": expected none, process or power");
}

/* --- async ---------------------------------------------------------------- */

enum { STEPS = 1500 };

static void open_sums(ps_node *n, const fleet_options *o)
{
    const scene_training *how = &n->job->how;
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;

    s.a_sync_configs.k_steps = how->geo;
    s.log = (int)how->log;
    if (how->log != FLEET_DURABLE_NONE)
        s.log_configs = how->log_configs;
    sums_build(n, o, &s);
}

static fleet_status add_up(ps_node *n)
{
    const int64_t dims[] = {1, 1};
    fleet_status status = ps_begin(n);

    for (int64_t i = 0; i < STEPS && status == FLEET_OK; i++) {
        int64_t id = (i * 7 + n->index * 3) % SUMS_KEYS;
        const fleet_feed feed = {"id", FLEET_INT64, &id, dims, 2, NULL};

        status = fleet_executor_run(n->s.e, &feed, 1, NULL, 0);
    }
    if (status == FLEET_OK)
        status = fleet_barrier_worker(n->s.f);
    if (status == FLEET_OK)
        status = ps_end(n);
    if (status == FLEET_OK && n->index == 0 && n->pid)
        fprintf(stderr, "hash %llx\n", (unsigned long long)n->hash);
    return status;
}

static void check_sums(int64_t geo, int kills, int64_t most)
{
    ps_job j = job_of(true);
    uint64_t hash;

    j.how.geo = geo;
    j.file[0] = NULL;
    j.open = open_sums;
    j.work = add_up;
    hash = ps_undisturbed(&j);
    setenv("FLEET_TRANSPORT", "tcp", 1); /* its lanes have their ports again */
    ps_start_all(&j);
    disturb(&j, kills, most);
    CHECK(hash_of(&j) == hash);
}

TEST_LIMIT(servers_that_are_killed_come_back_and_async_has_each_push_once, 120)
{
    check_sums(0, 5, 9000);
}

/* A push of ten updates. */
TEST_LIMIT(servers_that_are_killed_come_back_and_geo_has_each_change_once, 120)
{
    check_sums(10, 3, 3000);
}
