/* server_descriptors_test.c - a server that has few descriptors: it raises the
 * limit as far as it may, refuses by name more workers than it has descriptors
 * for, and saves although strangers have taken all of them. */
#define _GNU_SOURCE
#define SUITE server_descriptors
#include "ps_kit.h"
#include "test.h"

#include <dirent.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

static int open_descriptors(pid_t pid)
{
    char path[32];
    DIR *dir;
    int n = -2; /* "." and ".." */

    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    dir = opendir(path);
    CHECK(dir != NULL);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static void limit_descriptors(rlim_t soft, rlim_t hard)
{
    const struct rlimit few = {soft, hard};

    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
}

/* The job's user: how many more this server may open. */
static fleet_status serve_with_few(ps_node *n)
{
    rlim_t most =
        (rlim_t)(open_descriptors(getpid()) + *(const int *)n->job->user);

    limit_descriptors(most, most);
    return ps_serve(n);
}

TEST(more_workers_than_descriptors_are_refused_by_name)
{
    int few = 50;
    ps_job j = {
        .workers = 8, .lanes = 4, .serve = serve_with_few, .user = &few};

    ps_prepare(&j);
    ps_start(ps_server(&j, 0));
    ps_check_fails(ps_server(&j, 0),
                   "server 0: connections of 8 workers, one to each of 4 lanes "
                   "and a first one, need 40 descriptors and 8 more: ");
    CHECK_CONTAINS(ps_said(ps_server(&j, 0)), "FLEET_EIO");
    CHECK_CONTAINS(ps_said(ps_server(&j, 0)), "(RLIMIT_NOFILE, ulimit -n)");
}

/* The job's user: what the soft limit shall be then. */
static fleet_status check_limit(ps_node *n)
{
    struct rlimit now;

    limit_descriptors(200, 300);
    CHECK_OK(fleet_init_server(n->s.f, NULL));
    CHECK(getrlimit(RLIMIT_NOFILE, &now) == 0);
    CHECK_INT(now.rlim_cur, *(const int *)n->job->user);
    CHECK_INT(now.rlim_max, 300);
    return FLEET_OK;
}

static void open_that_keeps_limit(ps_node *n, const fleet_options *o)
{
    fleet_options keeps = *o;

    keeps.keep_descriptor_limit = 1;
    scene_open_as(&n->s, &keeps, &n->job->how);
}

TEST(the_soft_limit_is_raised_unless_the_host_keeps_it)
{
    int raised = 300, kept = 200;
    ps_job j = {.serve = check_limit, .user = &raised};

    ps_prepare(&j);
    ps_start(ps_server(&j, 0));
    ps_check_ends(ps_server(&j, 0));
    j = (ps_job){
        .serve = check_limit, .user = &kept, .open = open_that_keeps_limit};
    ps_prepare(&j);
    ps_start(ps_server(&j, 0));
    ps_check_ends(ps_server(&j, 0));
}

/* Fewer than it has lanes to connect to, and more if it asks. */
static fleet_status train_with_few(ps_node *n)
{
    rlim_t soft = (rlim_t)open_descriptors(getpid()) + 20;
    fleet_status status;

    limit_descriptors(soft, soft + 200);
    status = ps_begin(n);
    if (status == FLEET_OK)
        status = ps_passes(n, 1);
    return status == FLEET_OK ? ps_end(n) : status;
}

TEST(a_worker_raises_its_soft_limit_unless_the_host_keeps_it)
{
    ps_job j = {.lanes = 16,
                .work = train_with_few,
                .file = {scene_file("a.txt", 100, 1)}};
    ps_job kept = j;

    ps_start_all(&j);
    ps_check_all_end(&j);
    kept.open = open_that_keeps_limit;
    ps_start_all(&kept);
    ps_check_fails(ps_worker(&kept, 0), "Too many open files");
}

static int few_for_strangers = 60;

static fleet_status serve_strangers(ps_node *n)
{
    ps_job copy = *n->job;

    copy.user = &few_for_strangers;
    n->job = &copy;
    return serve_with_few(n);
}

static fleet_status train_and_save(ps_node *n)
{
    fleet_status status = ps_begin(n);

    if (status != FLEET_OK)
        return status;
    ps_tell(&n->job->held);
    ps_hear(&n->job->go);
    status = ps_passes(n, 1);
    if (status == FLEET_OK)
        status = fleet_save_persistables(n->s.f, n->job->user);
    return status == FLEET_OK ? ps_end(n) : status;
}

/* Strangers who connect, say nothing, and stay; the last ones wait to be
 * accepted, and take each descriptor that is given back. */
static void take_all_descriptors(ps_job *j)
{
    const struct sockaddr_in at = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)j->port[0]),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int64_t end = fl_now_ms() + 20 * PS_SECOND;

    for (int i = 0; i < 2 * few_for_strangers; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        CHECK(connect(fd, (const struct sockaddr *)&at, sizeof at) == 0);
    }
    while (!strstr(ps_said(ps_server(j, 0)), "descriptors are taken")) {
        CHECK(fl_now_ms() < end);
        usleep(10000);
    }
}

TEST(a_save_is_written_though_strangers_have_taken_all_descriptors)
{
    char path[200];
    ps_job j = {.serve = serve_strangers,
                .work = train_and_save,
                .lanes = 2,
                .user = path,
                .file = {scene_file("a.txt", 200, 1)}};
    ps_job again;

#ifdef __SANITIZE_THREAD__
    test_skip("ThreadSanitizer takes descriptors of two threads' own tables, "
              "which have the same numbers, for the same files");
#endif
    snprintf(path, sizeof path, "%s", test_path("save"));
    ps_start_all(&j);
    ps_hear_held(&j);
    take_all_descriptors(&j);
    ps_let_go(&j);
    ps_check_all_end(&j);
    again = (ps_job){.load = path, .file = {j.file[0]}};
    CHECK(ps_alone(&again, 1) != 0);
}
