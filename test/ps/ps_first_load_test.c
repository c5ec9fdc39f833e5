/* ps_first_load_test.c - servers that begin with a load, and loads and saves of
 * jobs that run: whatever they take, workers are answered meanwhile. How fast
 * a server's files are is the test's to say.
 */
#define _GNU_SOURCE
#define SUITE ps_first_load
#include "ps_kit.h"
#include "test.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "fleet/save/load.h"

/* --- slow files ----------------------------------------------------------- */

/* A machine that is busy with other tests takes a second from a thread now and
 * then, and that is not what these are about. */
enum { SLICE = 16, NAP_MS = 20, DEADLINE_MS = 2 * PS_SECOND };

/* Each byte in it lets a lane read or write a slice; ALL lets all of them go on
 * as fast as they like. */
enum { ONE = '1', ALL = 'a' };

static ps_pipe gate;
static atomic_bool wide_open;

static size_t pass_gate(size_t size)
{
    char c = ONE;

    if (!wide_open)
        CHECK(read(gate.fd[0], &c, 1) == 1);
    if (c == ALL) {
        wide_open = true;
        CHECK(write(gate.fd[1], &c, 1) == 1); /* for the next lane */
    }
    return wide_open || size < SLICE ? size : SLICE;
}

static ssize_t slow_read(int fd, void *data, size_t size)
{
    return fl_disk_system.read(fd, data, pass_gate(size));
}

static ssize_t slow_write(int fd, const void *data, size_t size)
{
    return fl_disk_system.write(fd, data, pass_gate(size));
}

static fleet_status serve_slowly(ps_node *n)
{
    fl_disk slow = fl_disk_system;
    fleet_status status;

    slow.read = slow_read;
    slow.write = slow_write;
    fl_disk_use(&slow);
    status = ps_serve(n);
    fl_disk_use(NULL);
    return status;
}

static void let(char how)
{
    CHECK(write(gate.fd[1], &how, 1) == 1);
}

/* Let a slice pass again and again for so long: it gets on, and is not done; in
 * a variant that is slow, and has longer deadlines, with as many slices. */
static void let_pass_for(int ms)
{
    int64_t end_ms = fl_now_ms() + ms;

    while (fl_now_ms() < end_ms) {
        let(ONE);
        poll(NULL, 0, PS_SECOND / 50);
    }
}

/* --- a save --------------------------------------------------------------- */

static ps_job job_of(int workers)
{
    return (ps_job){
        .workers = workers,
        .lanes = 2,
        .file = {scene_file("a.txt", 300, 1), scene_file("b.txt", 300, 2)}};
}

static fleet_status train_and_save(ps_node *n)
{
    fleet_status status = ps_begin(n);

    if (status == FLEET_OK)
        status = ps_passes(n, 1);
    if (status == FLEET_OK && n->index == 0)
        status = fleet_save_persistables(n->s.f, n->job->user);
    return status == FLEET_OK ? ps_end(n) : status;
}

static uint64_t saved_hash;

/* What is in the save, in saved_hash. */
static const char *make_save(void)
{
    ps_job j = job_of(2);

    j.work = train_and_save;
    j.user = (void *)test_path("save");
    saved_hash = ps_hash(&j);
    gate = ps_pipe_make();
    return j.user;
}

/* Looks at what it has joined. */
static fleet_status check_hash(ps_node *n)
{
    FL_TRY(ps_begin(n));
    FL_TRY(ps_end(n));
    return n->index > 0 || n->hash == saved_hash
               ? FLEET_OK
               : fl_fail(FLEET_ESTATE, "it has loaded something else");
}

static fleet_status look_at(void *arg, fl_saved *s)
{
    (void)s;
    *(bool *)arg = true;
    return FLEET_OK;
}

/* Each part is read and walked through to check it, and once more by who uses
 * it. */
TEST(how_much_of_a_save_was_read_and_of_how_much_is_counted)
{
    const char *path = make_save();
    fl_file_progress p = {0};
    bool used = false;

    fl_file_count(&p);
    CHECK_OK(fl_saved_use(path, "checkpoint", look_at, &used));
    fl_file_count(NULL);
    CHECK(used && p.total > 20000);
    CHECK(p.bytes >= p.total / 2 && p.bytes < p.total * 3 / 4);
    p.stop = true;
    fl_file_count(&p);
    CHECK_FAILS(fl_saved_use(path, "checkpoint", look_at, &used), FLEET_EPEER,
                "it was stopped before its end");
    fl_file_count(NULL);
}

/* --- a server that begins with it ----------------------------------------- */

TEST_LIMIT(workers_wait_for_a_load_that_takes_longer_than_their_deadline, 120)
{
    ps_job j = job_of(2);

    j.server_load = make_save();
    j.serve = serve_slowly;
    j.work = check_hash;
    j.connect_ms = j.peer_ms = DEADLINE_MS;
    ps_start_all(&j);
    let_pass_for(5 * DEADLINE_MS / 2);
    let(ALL);
    ps_check_all_end(&j);
    for (int i = 0; i < 2; i++) {
        CHECK_CONTAINS(ps_said(ps_worker(&j, i)), " waits: server 0 at ");
        CHECK_CONTAINS(ps_said(ps_worker(&j, i)), " is loading");
    }
}

TEST_LIMIT(a_load_that_does_not_get_on_ends_the_job_with_its_name, 120)
{
    ps_job j = job_of(2);

    j.server_load = make_save();
    j.serve = serve_slowly;
    j.connect_ms = PS_SECOND;
    ps_start_all(&j);
    let(ONE);
    for (int i = 0; i < 2; i++) {
        ps_check_fails(ps_worker(&j, i), "server 0");
        CHECK_CONTAINS(ps_said(ps_worker(&j, i)), "not got on for ");
    }
    let(ALL); /* its thread waits for the disk */
    ps_check_fails(ps_server(&j, 0), "not got on for ");
}

/* Flip a bit of a part; its name. */
static const char *damage(const char *folder)
{
    DIR *d = opendir(folder);
    char path[600] = "";
    const char *name = NULL;
    struct stat s;

    CHECK(d);
    for (struct dirent *e = readdir(d); e && !name; e = readdir(d)) {
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (strncmp(e->d_name, "part-", 5) == 0 && stat(path, &s) == 0 &&
            s.st_size > 0)
            name = test_keep(e->d_name);
    }
    closedir(d);
    CHECK(name != NULL);
    test_flip_bit(path, (size_t)s.st_size / 2 * 8 + 6);
    return name;
}

/* Worker 0 is there before it is known, worker 1 comes afterwards. */
TEST_LIMIT(workers_are_told_what_is_wrong_with_a_save_whenever_they_come, 120)
{
    ps_job j = job_of(2);
    const char *name;

    j.server_load = make_save();
    j.serve = serve_slowly;
    name = damage(j.server_load);
    ps_prepare(&j);
    ps_start(ps_server(&j, 0));
    ps_start(ps_worker(&j, 0));
    ps_hear_words(ps_worker(&j, 0), " is loading");
    let(ALL);
    ps_hear_words(ps_server(&j, 0), "server 0 cannot begin: load: ");
    ps_start(ps_worker(&j, 1));
    for (int i = 0; i < 2; i++) {
        ps_check_fails(ps_worker(&j, i),
                       "ECORRUPT: fleet_init_worker: server 0");
        CHECK_CONTAINS(ps_said(ps_worker(&j, i)), name);
    }
    ps_check_fails(ps_server(&j, 0), name);
}

/* It reads no further than to the end of a slice. */
TEST_LIMIT(a_server_that_is_stopped_does_not_load_to_the_end, 120)
{
    ps_job j = job_of(1);
    int passed = 0;

    j.server_load = make_save();
    j.serve = serve_slowly;
    ps_prepare(&j);
    ps_start(ps_server(&j, 0));
    ps_start(ps_worker(&j, 0));
    ps_hear_words(ps_worker(&j, 0), " is loading");
    ps_kill(ps_server(&j, 0), SIGTERM);
    ps_check_fails(ps_worker(&j, 0), "it was sent SIGTERM");
    while (!ps_ends_within(ps_server(&j, 0), NAP_MS)) {
        CHECK(passed++ < 200);
        let(ONE);
    }
    ps_check_ends(ps_server(&j, 0));
}

/* --- a job that runs ------------------------------------------------------ */

static fleet_status save(ps_node *n)
{
    FL_TRY(ps_begin(n));
    FL_TRY(fleet_save_persistables(n->s.f, n->job->user));
    ps_tell(&n->job->held);
    return ps_end(n);
}

static fleet_status load(ps_node *n)
{
    FL_TRY(ps_begin(n));
    FL_TRY(fleet_load_model(n->s.f, n->job->user));
    ps_tell(&n->job->held);
    return ps_end(n);
}

/* For longer than any deadline but that of steps. */
static void run_slowly(ps_body *work, const char *path)
{
    ps_job j = job_of(1);

    j.serve = serve_slowly;
    j.work = work;
    j.user = (void *)(uintptr_t)path;
    j.connect_ms = j.request_ms = j.peer_ms = DEADLINE_MS;
    ps_start_all(&j);
    let_pass_for(3 * DEADLINE_MS);
    CHECK(poll(&(struct pollfd){.fd = j.held.fd[0], .events = POLLIN}, 1, 0) ==
          0); /* it is not done yet */
    let(ALL);
    ps_hear_held(&j);
    ps_check_all_end(&j);
}

/* In sync, where a lane does nothing else meanwhile. */
TEST_LIMIT(heartbeats_are_answered_while_lanes_save, 120)
{
    gate = ps_pipe_make();
    run_slowly(save, test_path("slowly"));
}

TEST_LIMIT(heartbeats_are_answered_while_lanes_load, 120)
{
    run_slowly(load, make_save());
}
