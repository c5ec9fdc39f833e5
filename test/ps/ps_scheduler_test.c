/* ps_scheduler_test.c - processes that find each other by a scheduler, as
 * MindSpore's variables say it: no launcher, and no list. */
#define _GNU_SOURCE
#define SUITE ps_scheduler
#include "launch_kit.h"
#include "ps_kit.h"
#include "test.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "net/keys.h"

enum { SERVERS = 2, WORKERS = 3 };

/* What differs from the job's in one of its processes. */
typedef struct scheduled {
    int port;
    int liar; /* worker of the kit that counts one worker too few; -1: none */
} scheduled;

static void be(const scheduled *s, const char *role, const char *id,
               int workers)
{
    char text[16];

    setenv("MS_ROLE", role, 1);
    setenv("MS_SCHED_HOST", "127.0.0.1", 1);
    snprintf(text, sizeof text, "%d", s->port);
    setenv("MS_SCHED_PORT", text, 1);
    snprintf(text, sizeof text, "%d", SERVERS);
    setenv("MS_SERVER_NUM", text, 1);
    snprintf(text, sizeof text, "%d", workers);
    setenv("MS_WORKER_NUM", text, 1);
    setenv("MS_NODE_ID", id, 1);
}

/* The kit's node is whom the scheduler says that it is. */
static void open_scheduled(ps_node *n, const fleet_options *given)
{
    const ps_job *j = n->job;
    const scheduled *s = j->user;
    fleet_options o = *given;
    fleet_status status;
    char id[24];

    snprintf(id, sizeof id, "%s-%d", n->server ? "server" : "worker", n->index);
    be(s, n->server ? "MS_PSERVER" : "MS_WORKER", id,
       WORKERS - (!n->server && n->index == s->liar));
    o.role = NULL;
    if (s->liar >= 0) {
        fleet *f;

        status = fleet_init(&f, &o); /* none can begin */
        fprintf(stderr, "%s\n", fleet_last_error());
        fflush(stderr);
        _exit(status != FLEET_OK);
    }
    scene_open_as(&n->s, &o, &j->how);
    n->index =
        n->server ? fleet_server_index(n->s.f) : fleet_worker_index(n->s.f);
    if (!n->server)
        scene_data_of(&n->s, j->file, 1, PS_BATCH, 1, 0);
}

static fleet_status work_and_tell(ps_node *n)
{
    FL_TRY(ps_hold(n));
    if (n->index == 0)
        fprintf(stderr, "hash %016" PRIx64 "\n", n->hash);
    return FLEET_OK;
}

static ps_job job_of(scheduled *s)
{
    *s = (scheduled){.port = launch_free_port("127.0.0.1"), .liar = -1};
    return (ps_job){.servers = SERVERS,
                    .workers = WORKERS,
                    .lanes = 2,
                    .passes = 2,
                    .open = open_scheduled,
                    .user = s,
                    .work = work_and_tell,
                    .file = {scene_file("a.txt", 1200, 1)}};
}

static const char *scheduler_says(void)
{
    return test_path("scheduler");
}

static void print_line(void *user, fleet_log_level level, const char *line)
{
    (void)user;
    (void)level;
    fprintf(stderr, "%s\n", line);
}

/* It has no program. */
static pid_t start_scheduler(const ps_job *j)
{
    fleet_options o = {.log = print_line,
                       .keys = j->keys,
                       .connect_deadline_ms =
                           j->connect_ms ? j->connect_ms : 30 * PS_SECOND,
                       .peer_deadline_ms = 30 * PS_SECOND};
    fleet *f = NULL;
    const char *path = scheduler_says();
    pid_t pid = test_fork();
    fleet_status status;
    int fd;

    if (pid > 0)
        return pid;
    signal(SIGTERM, SIG_DFL);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || dup2(fd, 2) < 0)
        _exit(98);
    close(fd);
    setvbuf(stderr, NULL, _IOLBF, 0);
    be(j->user, "MS_SCHED", "scheduler", WORKERS);
    status = fleet_init(&f, &o);
    if (status == FLEET_OK)
        status = fleet_run_server(f);
    if (status != FLEET_OK)
        fprintf(stderr, "%s\n", fleet_last_error());
    fleet_destroy(f);
    test_check_leaks();
    fflush(NULL);
    _exit(status != FLEET_OK);
}

static int end_of(pid_t pid)
{
    int status = 0;

    CHECK(test_ends_within(pid, 60 * PS_SECOND));
    CHECK(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static const char *read_said(const char *path)
{
    static char text[8000];
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;

    if (f)
        fclose(f);
    text[n] = 0;
    return text;
}

/* The worker that the scheduler has made the first one says it. */
static void check_hash(ps_job *j, uint64_t want)
{
    char hash[40];
    int found = 0;

    ps_check_all_end(j);
    snprintf(hash, sizeof hash, "hash %016" PRIx64, want);
    for (int i = 0; i < WORKERS; i++)
        found += strstr(ps_said(ps_worker(j, i)), hash) != NULL;
    CHECK_INT(found, 1);
}

static uint64_t undisturbed(const ps_job *j)
{
    ps_job other = *j;

    other.open = NULL;
    other.work = NULL;
    other.keys = NULL;
    return ps_undisturbed(&other);
}

static void check_job(ps_job *j)
{
    uint64_t want = undisturbed(j);
    pid_t scheduler;

    ps_start_all(j);
    scheduler = start_scheduler(j); /* who is early waits */
    ps_hear_held(j);
    ps_let_go(j);
    check_hash(j, want);
    CHECK_INT(end_of(scheduler), 0);
    CHECK_CONTAINS(read_said(scheduler_says()),
                   "has its 2 servers and 3 workers");
}

TEST_LIMIT(processes_find_each_other_by_a_scheduler, 120)
{
    scheduled s;
    ps_job j = job_of(&s);

    check_job(&j);
}

TEST_LIMIT(so_they_do_with_keys, 120)
{
    scheduled s;
    ps_job j = job_of(&s);

    j.keys = test_path("keys");
    CHECK_OK(fl_keys_make(j.keys, SERVERS, WORKERS));
    check_job(&j);
}

/* With keys of another job it is not heard. */
TEST_LIMIT(a_process_with_other_keys_is_not_let_in, 120)
{
    scheduled s;
    ps_job j = job_of(&s), other;
    pid_t scheduler;

    j.keys = test_path("keys");
    CHECK_OK(fl_keys_make(j.keys, SERVERS, WORKERS));
    CHECK_OK(fl_keys_make(test_path("others"), SERVERS, WORKERS));
    scheduler = start_scheduler(&j);
    other = j;
    other.keys = test_path("others");
    other.connect_ms = PS_SECOND;
    s.liar = WORKERS; /* fleet_init() alone */
    ps_prepare(&other);
    other.node[SERVERS].job = &other;
    ps_start(ps_worker(&other, 0));
    CHECK_INT(ps_wait(ps_worker(&other, 0)), 1);
    CHECK_CONTAINS(ps_said(ps_worker(&other, 0)),
                   "no scheduler has answered at tcp://127.0.0.1:");
    CHECK_CONTAINS(ps_said(ps_worker(&other, 0)),
                   "with keys of the same folder");
    CHECK(kill(scheduler, SIGTERM) == 0);
    CHECK_INT(end_of(scheduler), 0);
    CHECK(!strstr(read_said(scheduler_says()), "refused"));
}

/* --- while the job runs --------------------------------------------------- */

TEST_LIMIT(training_goes_on_while_the_scheduler_is_away, 120)
{
    scheduled s;
    ps_job j = job_of(&s);
    uint64_t want = undisturbed(&j);
    pid_t scheduler = start_scheduler(&j);

    ps_start_all(&j);
    ps_hear_held(&j);
    CHECK(kill(scheduler, SIGKILL) == 0);
    CHECK_INT(end_of(scheduler), 128 + SIGKILL);
    ps_let_go(&j);
    check_hash(&j, want);
}

/* It learns of the job from its servers; one of them is killed and asks it. */
TEST_LIMIT(a_scheduler_that_is_started_again_knows_the_job, 120)
{
    scheduled s;
    ps_job j = job_of(&s);
    uint64_t want;
    pid_t scheduler = start_scheduler(&j);

    setenv("FLEET_TRANSPORT", "tcp", 1); /* by its port */
    j.how.log = FLEET_DURABLE_PROCESS;
    j.how.log_configs = (fleet_log_configs){
        .folder = test_path("log"), .restart_deadline_ms = 60 * PS_SECOND};
    want = undisturbed(&j);
    ps_start_all(&j);
    ps_hear_held(&j);
    CHECK(kill(scheduler, SIGKILL) == 0);
    CHECK_INT(end_of(scheduler), 128 + SIGKILL);
    scheduler = start_scheduler(&j);
    while (!strstr(read_said(scheduler_says()), "has its 2 servers"))
        CHECK(!test_ends_within(scheduler, 20));
    ps_kill_and_start(&j, 1);
    ps_hear_words(ps_server(&j, 1), "is back, at update 0");
    ps_let_go(&j);
    check_hash(&j, want);
    CHECK_INT(end_of(scheduler), 0);
}

/* --- wrong numbers -------------------------------------------------------- */

TEST_LIMIT(a_process_that_counts_otherwise_is_refused, 120)
{
    scheduled s;
    ps_job j = job_of(&s);
    pid_t scheduler;

    s.liar = 1;
    j.connect_ms = 2 * PS_SECOND;
    scheduler = start_scheduler(&j);
    ps_start_all(&j);
    CHECK_INT(ps_wait(ps_worker(&j, 1)), 1);
    CHECK_CONTAINS(ps_said(ps_worker(&j, 1)),
                   "refuses this process: MS_WORKER_NUM is \"2\" in a process "
                   "of 127.0.0.1, but \"3\" in the scheduler");
    for (int i = 0; i < j.n_node; i++) {
        if (&j.node[i] == ps_worker(&j, 1))
            continue;
        CHECK_INT(ps_wait(&j.node[i]), 1);
        CHECK_CONTAINS(ps_said(&j.node[i]),
                       "only 2 of 2 servers (MS_SERVER_NUM) and 2 of 3 workers "
                       "(MS_WORKER_NUM) have come within");
    }
    CHECK_INT(end_of(scheduler), 1);
    CHECK_CONTAINS(read_said(scheduler_says()), "one was refused: ");
}
