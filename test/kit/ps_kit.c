/* ps_kit.c - see ps_kit.h. */
#define _GNU_SOURCE
#define SUITE ps_kit
#include "ps_kit.h"
#include "test.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

enum { LONG_MS = 30000, WAIT_MS = 30000 };

static int or_one(int n)
{
    return n ? n : 1;
}

ps_node *ps_server(ps_job *j, int i)
{
    return &j->node[i];
}

ps_node *ps_worker(ps_job *j, int i)
{
    return &j->node[or_one(j->servers) + i];
}

/* --- a node's life -------------------------------------------------------- */

static void keep_log(void *user, fleet_log_level level, const char *line)
{
    ps_node *n = user;
    size_t used = strlen(n->log);

    (void)level;
    snprintf(n->log + used, sizeof n->log - used, "%s\n", line);
    if (n->pid)
        fprintf(stderr, "%s\n", line);
}

static void open_scene(ps_node *n, const fleet_options *o)
{
    const ps_job *j = n->job;
    int files = 0;

    scene_open_as(&n->s, o, &j->how);
    while (files < PS_MOST_FILES && j->file[files])
        files++;
    if (files > 0)
        scene_data_of(&n->s, j->file, files, j->batch ? j->batch : PS_BATCH, 1,
                      j->shuffle);
}

static void open_node(ps_node *n)
{
    const ps_job *j = n->job;
    fleet_role role = {.kind = n->server ? FLEET_SERVER : FLEET_WORKER,
                       .index = n->index,
                       .worker_num = or_one(j->workers),
                       .server_endpoints = j->endpoints,
                       .job_id = j->id,
                       .listen_fd = n->server && !j->no_listen_fd
                                        ? j->listen_fd[n->index]
                                        : 0};
    fleet_options o = {
        .seed = 5,
        .num_threads = j->thread > 1 ? 2 : 1,
        .log = keep_log,
        .log_user = n,
        .role = &role,
        .keys = j->keys,
        .connect_deadline_ms = j->connect_ms ? j->connect_ms : LONG_MS,
        .request_deadline_ms = j->request_ms ? j->request_ms : LONG_MS,
        .peer_deadline_ms = j->peer_ms ? j->peer_ms : LONG_MS,
        .step_deadline_ms = j->step_ms,
        .server_lanes = or_one(j->lanes)};

    n->log[0] = n->error[0] = 0;
    n->hash = 0;
    memset(&n->s, 0, sizeof n->s);
    if (j->open)
        j->open(n, &o);
    else
        open_scene(n, &o);
}

static void live(ps_node *n)
{
    const ps_job *j = n->job;
    ps_body *body = n->server ? j->serve : j->work;

    open_node(n);
    if (!body)
        body = n->server ? ps_serve : ps_work;
    n->status = body(n);
    if (n->status != FLEET_OK)
        snprintf(n->error, sizeof n->error, "%s", fleet_last_error());
    scene_close(&n->s);
}

fleet_status ps_serve(ps_node *n)
{
    fleet_status status = fleet_init_server(n->s.f, n->job->server_load);

    return status == FLEET_OK ? fleet_run_server(n->s.f) : status;
}

fleet_status ps_begin(ps_node *n)
{
    fleet_status status = FLEET_OK;

    n->s.e = fleet_executor_create(n->s.p, NULL);
    if (!n->s.e)
        return fleet_last_status();
    if (n->job->load)
        status = fleet_load_model(n->s.f, n->job->load);
    return status == FLEET_OK ? fleet_init_worker(n->s.f) : status;
}

fleet_status ps_passes(ps_node *n, int passes)
{
    const fleet_train_options o = {.thread = n->job->thread,
                                   .hogwild = n->job->hogwild};
    fleet_status status = FLEET_OK;

    for (int i = 0; i < passes && status == FLEET_OK; i++)
        status = fleet_train_from_dataset(n->s.e, n->s.data, &o, &n->result);
    return status;
}

fleet_status ps_end(ps_node *n)
{
    fleet_status status = FLEET_OK;

    if (n->index == 0)
        status = fleet_params_hash(n->s.f, &n->hash);
    return status == FLEET_OK ? fleet_stop_worker(n->s.f) : status;
}

fleet_status ps_work(ps_node *n)
{
    fleet_status status = ps_begin(n);

    if (status == FLEET_OK)
        status = ps_passes(n, or_one(n->job->passes));
    return status == FLEET_OK ? ps_end(n) : status;
}

fleet_status ps_hold(ps_node *n)
{
    fleet_status status = ps_begin(n);

    if (status != FLEET_OK)
        return status;
    ps_tell(&n->job->held);
    ps_hear(&n->job->go);
    status = ps_passes(n, or_one(n->job->passes));
    return status == FLEET_OK ? ps_end(n) : status;
}

void ps_hear_held(ps_job *j)
{
    for (int i = 0; i < or_one(j->workers); i++)
        ps_hear(&j->held);
}

void ps_let_go(ps_job *j)
{
    for (int i = 0; i < or_one(j->workers); i++)
        ps_tell(&j->go);
}

static void make_nodes(ps_job *j)
{
    int servers = or_one(j->servers), workers = or_one(j->workers);

    CHECK(servers + workers <= PS_MOST);
    memset(j->node, 0, sizeof j->node);
    j->n_node = servers + workers;
    for (int i = 0; i < j->n_node; i++) {
        j->node[i].job = j;
        j->node[i].server = i < servers;
        j->node[i].index = i < servers ? i : i - servers;
    }
}

/* --- threads -------------------------------------------------------------- */

static void *node_thread(void *arg)
{
    live(arg);
    return NULL;
}

static void name_endpoints(ps_job *j)
{
    static int jobs;
    size_t used = 0;

    jobs++;
    for (int i = 0; i < or_one(j->servers); i++)
        used += (size_t)snprintf(
            j->endpoints + used, sizeof j->endpoints - used,
            "%sinproc://job-%d-server-%d", i ? "," : "", jobs, i);
}

void ps_run(ps_job *j)
{
    make_nodes(j);
    name_endpoints(j);
    for (int i = 0; i < j->n_node; i++)
        CHECK(pthread_create(&j->node[i].thread, NULL, node_thread,
                             &j->node[i]) == 0);
    for (int i = 0; i < j->n_node; i++)
        pthread_join(j->node[i].thread, NULL);
}

void ps_check(const ps_job *j)
{
    for (int i = 0; i < j->n_node; i++) {
        const ps_node *n = &j->node[i];

        if (n->status != FLEET_OK)
            test_fail(__FILE__, __LINE__, "%s %d: %s (%s)",
                      n->server ? "server" : "worker", n->index,
                      fleet_status_name(n->status), n->error);
    }
}

uint64_t ps_hash(ps_job *j)
{
    ps_run(j);
    ps_check(j);
    CHECK(ps_worker(j, 0)->hash != 0);
    return ps_worker(j, 0)->hash;
}

uint64_t ps_undisturbed(const ps_job *j)
{
    ps_job other = *j;

    other.how.log = FLEET_DURABLE_NONE;
    other.how.log_configs = (fleet_log_configs){0};
    return ps_hash(&other);
}

uint64_t ps_alone(const ps_job *j, int merge)
{
    ps_job one = *j;
    ps_node n = {.job = &one};
    fleet_options o = {.seed = 5, .num_threads = 1};
    uint64_t hash;

    one.how.merge = merge;
    if (j->open)
        j->open(&n, &o);
    else
        open_scene(&n, &o);
    if (j->load)
        CHECK_OK(fleet_load_model(n.s.f, j->load));
    scene_train(&n.s, or_one(j->passes));
    hash = scene_hash(&n.s);
    scene_close(&n.s);
    return hash;
}

/* --- processes ------------------------------------------------------------ */

/* A port is held from here on, so that nobody else gets it. */
static void take_port(ps_job *j, int i)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(fd > 0 && bind(fd, (struct sockaddr *)&a, size) == 0 &&
          listen(fd, 100) == 0 &&
          getsockname(fd, (struct sockaddr *)&a, &size) == 0);
    j->listen_fd[i] = fd;
    j->port[i] = ntohs(a.sin_port);
}

void ps_prepare(ps_job *j)
{
    size_t used = 0;

    make_nodes(j);
    j->held = ps_pipe_make();
    j->go = ps_pipe_make();
    for (int i = 0; i < or_one(j->servers); i++) {
        take_port(j, i);
        used +=
            (size_t)snprintf(j->endpoints + used, sizeof j->endpoints - used,
                             "%s127.0.0.1:%d", i ? "," : "", j->port[i]);
    }
    for (int i = 0; i < j->n_node; i++) {
        char name[32];

        snprintf(name, sizeof name, "%s-%d",
                 j->node[i].server ? "server" : "worker", j->node[i].index);
        j->node[i].said = test_path(name);
    }
}

/* Of a process, but for the standard ones. */
static int open_files(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    CHECK(d);
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        n += atoi(e->d_name) > 2;
    closedir(d);
    return n;
}

/* A server closes the socket that it was given. */
static void check_files(const ps_node *n, int before)
{
    int left = open_files() - before;

    if (left > 0)
        test_fail(__FILE__, __LINE__, "%s %d leaves %d files open",
                  n->server ? "server" : "worker", n->index, left);
}

static void be_a_process(ps_node *n)
{
    int fd = open(n->said, O_WRONLY | O_CREAT | O_TRUNC, 0600), before;

    signal(SIGTERM, SIG_DFL);
    dup2(fd, 2);
    close(fd);
    setvbuf(stderr, NULL, _IOLBF, 0);
    for (int i = 0; i < or_one(n->job->servers); i++)
        if (!n->server || i != n->index)
            close(n->job->listen_fd[i]);
    n->pid = getpid();
    before = open_files();
    live(n);
    check_files(n, before);
    if (n->status != FLEET_OK)
        fprintf(stderr, "%s: %s\n", fleet_status_name(n->status), n->error);
    test_check_leaks();
    fflush(NULL);
    _exit(n->status != FLEET_OK);
}

/* What the process before has said is nobody's any more. */
void ps_start(ps_node *n)
{
    int fd = open(n->said, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    CHECK(fd >= 0 && close(fd) == 0);
    n->pid = test_fork();
    if (n->pid == 0)
        be_a_process(n);
}

void ps_start_all(ps_job *j)
{
    ps_prepare(j);
    for (int i = 0; i < j->n_node; i++)
        ps_start(&j->node[i]);
}

/* A line of a file of /proc that begins with such words, without them. */
static const char *proc_line(pid_t pid, const char *name, const char *words)
{
    char path[40], line[200] = "";
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f) &&
           strncmp(line, words, strlen(words)) != 0)
        *line = 0;
    if (f)
        fclose(f);
    line[strcspn(line, "\n")] = 0;
    return test_keep(*line ? line + strlen(words) : "?");
}

int ps_wait(ps_node *n)
{
    int status;

    if (!test_ends_within(n->pid, WAIT_MS * TEST_SLOWNESS))
        test_fail(__FILE__, __LINE__,
                  "%s %d does not end (state %s, in %s); it said: %s",
                  n->server ? "server" : "worker", n->index,
                  proc_line(n->pid, "status", "State:\t"),
                  proc_line(n->pid, "wchan", ""), ps_said(n));
    CHECK(waitpid(n->pid, &status, 0) == n->pid);
    n->pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool ps_ends_within(ps_node *n, int ms)
{
    return test_ends_within(n->pid, ms);
}

void ps_kill(ps_node *n, int signal_number)
{
    CHECK(kill(n->pid, signal_number) == 0);
}

void ps_kill_and_start(ps_job *j, int server)
{
    ps_kill(ps_server(j, server), SIGKILL);
    CHECK_INT(ps_wait(ps_server(j, server)), 128 + SIGKILL);
    ps_start(ps_server(j, server));
}

const char *ps_said(const ps_node *n)
{
    static char text[1 << 15];
    FILE *f = fopen(n->said, "r");
    size_t size = f ? fread(text, 1, sizeof text - 1, f) : 0;

    text[size] = 0;
    if (f)
        fclose(f);
    return test_keep(text);
}

void ps_hear_words(const ps_node *n, const char *words)
{
    int64_t end_ms = fl_now_ms() + WAIT_MS * TEST_SLOWNESS;

    while (!strstr(ps_said(n), words)) {
        if (fl_now_ms() > end_ms)
            test_fail(__FILE__, __LINE__, "\"%s\" is not in: %s", words,
                      ps_said(n));
        poll(NULL, 0, 10);
    }
}

void ps_check_ends(ps_node *n)
{
    int status = ps_wait(n);

    if (status != 0)
        test_fail(__FILE__, __LINE__, "%s %d ended with %d; it said: %s",
                  n->server ? "server" : "worker", n->index, status,
                  ps_said(n));
}

void ps_check_all_end(ps_job *j)
{
    for (int i = 0; i < j->n_node; i++)
        ps_check_ends(&j->node[i]);
}

void ps_check_fails(ps_node *n, const char *words)
{
    CHECK_INT(ps_wait(n), 1);
    CHECK_CONTAINS(ps_said(n), words);
}

/* Is it a socket of that process? */
static bool has_socket(pid_t pid, unsigned long inode)
{
    char path[64], want[64], link[64];
    bool found = false;
    struct dirent *e;
    DIR *d;

    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    snprintf(want, sizeof want, "socket:[%lu]", inode);
    d = opendir(path);
    while (d && !found && (e = readdir(d)) != NULL) {
        ssize_t n = readlinkat(dirfd(d), e->d_name, link, sizeof link - 1);

        link[n < 0 ? 0 : n] = 0;
        found = strcmp(link, want) == 0;
    }
    if (d)
        closedir(d);
    return found;
}

const char *ps_folder(const ps_node *server)
{
    FILE *f = fopen("/proc/net/unix", "r");
    char line[400], path[200], folder[200] = "";
    unsigned long inode;

    CHECK(f);
    while (!*folder && fgets(line, sizeof line, f))
        if (sscanf(line, "%*s %*s %*s %*s %*s %*s %lu %199s", &inode, path) ==
                2 &&
            strncmp(path, "/tmp/libfleet-", 14) == 0 &&
            has_socket(server->pid, inode))
            snprintf(folder, sizeof folder, "%.*s",
                     (int)(strrchr(path, '/') - path), path);
    fclose(f);
    CHECK(*folder);
    return test_keep(folder);
}

/* --- pipes ---------------------------------------------------------------- */

ps_pipe ps_pipe_make(void)
{
    ps_pipe p;

    CHECK(pipe2(p.fd, O_CLOEXEC) == 0);
    return p;
}

void ps_tell(const ps_pipe *p)
{
    CHECK(write(p->fd[1], "!", 1) == 1);
}

void ps_hear(const ps_pipe *p)
{
    struct pollfd in = {.fd = p->fd[0], .events = POLLIN};
    char c;

    if (poll(&in, 1, WAIT_MS * TEST_SLOWNESS) != 1 || read(in.fd, &c, 1) != 1)
        test_fail(__FILE__, __LINE__, "nothing was heard");
}
