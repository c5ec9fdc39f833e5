/* launch_kit.c - see launch_kit.h. */
#define _GNU_SOURCE
#define SUITE launch_kit
#include "launch_kit.h"
#include "test.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_ARGUMENTS = 40 };

int launch_deadline_ms = 25000;

static const char *fleetrun(void)
{
    const char *path = test_beside("fleetrun");

    CHECK(access(path, X_OK) == 0);
    return path;
}

static void redirect(const char *path, int fd)
{
    int to = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    if (to < 0 || dup2(to, fd) < 0)
        _exit(99);
    close(to);
}

void launch_take_signals(void)
{
    signal(SIGINT, SIG_DFL);
    signal(SIGHUP, getenv("TEST_NOHUP") ? SIG_IGN : SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
}

static launch start(int out, char *const arguments[])
{
    char *argv[MOST_ARGUMENTS + 2] = {(char *)fleetrun()};
    const char *out_path = test_path("out"), *err_path = test_path("err");
    launch l = {.out = out};

    for (int i = 0; arguments[i]; i++) {
        CHECK(i < MOST_ARGUMENTS);
        argv[i + 1] = arguments[i];
    }
    l.pid = test_fork();
    if (l.pid > 0)
        return l;
    launch_take_signals();
    if (out >= 0)
        dup2(out, 1);
    else
        redirect(out_path, 1);
    redirect(err_path, 2);
    execv(argv[0], argv);
    _exit(98);
}

launch launch_start_to(int out, const char *flags, const char *script)
{
    char *arguments[MOST_ARGUMENTS + 1] = {(char *)"--log_dir",
                                           (char *)test_path("log")};
    char *rest = (char *)test_keep(flags);
    int n = 2;

    for (char *f = strtok(rest, " "); f; f = strtok(NULL, " ")) {
        CHECK(n < MOST_ARGUMENTS - 3);
        arguments[n++] = f;
    }
    arguments[n++] = (char *)"sh";
    arguments[n++] = (char *)"-c";
    arguments[n] = (char *)test_keep(script);
    return start(out, arguments);
}

launch launch_start(const char *flags, const char *script)
{
    return launch_start_to(-1, flags, script);
}

static void wait_for_input(int fd, const char *what)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    if (poll(&p, 1, launch_deadline_ms * TEST_SLOWNESS) != 1)
        test_fail(__FILE__, __LINE__, "%s did not come; stderr: %s", what,
                  launch_err());
}

int launch_wait(launch l)
{
    int status;

    if (!test_ends_within(l.pid, launch_deadline_ms * TEST_SLOWNESS))
        test_fail(__FILE__, __LINE__, "fleetrun does not end; stderr: %s",
                  launch_err());
    CHECK(waitpid(l.pid, &status, 0) == l.pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int launch_run(const char *flags, const char *script)
{
    return launch_wait(launch_start(flags, script));
}

launch launch_start_command(char *const arguments[])
{
    return start(-1, arguments);
}

int launch_command(char *const arguments[])
{
    return launch_wait(launch_start_command(arguments));
}

static const char *read_all(const char *path)
{
    static char text[1 << 16];
    FILE *f = fopen(path, "r");
    size_t n;

    if (!f)
        return "(no such file)";
    n = fread(text, 1, sizeof text - 1, f);
    text[n] = 0;
    fclose(f);
    return test_keep(text);
}

const char *launch_out(void)
{
    return read_all(test_path("out"));
}

const char *launch_err(void)
{
    return read_all(test_path("err"));
}

const char *launch_log(const char *name)
{
    char path[300];

    snprintf(path, sizeof path, "log/%s", name);
    return read_all(test_path(path));
}

const char *launch_value(const char *log, const char *variable)
{
    const char *text = launch_log(log), *line;
    size_t n = strlen(variable);
    char value[4096];

    for (line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, variable, n) == 0 && line[n] == '=') {
            snprintf(value, sizeof value, "%.*s",
                     (int)strcspn(line + n + 1, "\n"), line + n + 1);
            return test_keep(value);
        }
        if (!*line)
            break;
    }
    return "(unset)";
}

int launch_fifo(void)
{
    const char *path = test_path("fifo");
    int fd;

    CHECK(mkfifo(path, 0600) == 0);
    fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    CHECK(fd >= 0);
    setenv("FIFO", path, 1);
    return fd;
}

const char *launch_hear(int fifo)
{
    char line[300];
    size_t n = 0;

    for (;;) {
        wait_for_input(fifo, "a line of the fifo");
        CHECK(n < sizeof line - 1);
        if (read(fifo, line + n, 1) != 1)
            test_fail(__FILE__, __LINE__, "the fifo ended; stderr: %s",
                      launch_err());
        if (line[n] == '\n')
            break;
        n++;
    }
    line[n] = 0;
    return test_keep(line);
}

launch_heard launch_hear_all(int fifo, int n, const char *name)
{
    int open_end = open(getenv("FIFO"), O_WRONLY | O_CLOEXEC);
    launch_heard found = {0, 0};

    CHECK(open_end >= 0); /* one may end before the next begins */
    for (int i = 0; i < n; i++) {
        launch_heard h;
        char who[40];

        CHECK(sscanf(launch_hear(fifo), "%39s %d %d", who, &h.parent,
                     &h.self) == 3);
        if (!*name || strcmp(who, name) == 0)
            found = h;
    }
    close(open_end);
    CHECK(found.parent > 1 && found.self > 1);
    return found;
}

void launch_go(void)
{
    test_file("fifo.go", "");
}

void launch_silence(int fifo)
{
    char rest[256];

    do
        wait_for_input(fifo, "the end of all processes");
    while (read(fifo, rest, sizeof rest) != 0);
}

/* Some process but the suite's has "FIFO=PATH" in the environment that it was
 * started with; one that has ended has none. */
static bool has_fifo(const char *pid, const char *wanted)
{
    char path[64], text[1 << 14];
    size_t n, at = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%.20s/environ", pid);
    f = fopen(path, "r");
    if (!f)
        return false;
    n = fread(text, 1, sizeof text - 1, f);
    text[n] = 0;
    fclose(f);
    while (at < n && strcmp(text + at, wanted) != 0)
        at += strlen(text + at) + 1;
    return at < n;
}

static bool is_anything_left(const char *wanted)
{
    DIR *all = opendir("/proc");
    const struct dirent *e;
    bool found = false;

    CHECK(all);
    while (!found && (e = readdir(all)) != NULL)
        found = e->d_name[0] > '0' && e->d_name[0] <= '9' &&
                has_fifo(e->d_name, wanted);
    closedir(all);
    return found;
}

void launch_nothing_left(void)
{
    int ms = launch_deadline_ms * TEST_SLOWNESS;
    char wanted[4200];

    snprintf(wanted, sizeof wanted, "FIFO=%s", getenv("FIFO"));
    for (; is_anything_left(wanted); ms -= 10) {
        if (ms <= 0)
            test_fail(__FILE__, __LINE__, "some process is left; stderr: %s",
                      launch_err());
        poll(NULL, 0, 10);
    }
}

void launch_need_mpirun(void)
{
    char *rest = (char *)test_keep(getenv("PATH"));
    char path[4200];

    for (char *at = strtok(rest, ":"); at; at = strtok(NULL, ":")) {
        snprintf(path, sizeof path, "%s/mpirun", at);
        if (access(path, X_OK) == 0)
            return;
    }
    test_skip("there is no mpirun: apt-get install openmpi-bin");
}

pid_t launch_parent(pid_t child)
{
    char path[64];
    FILE *f;
    int parent = 0;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)child);
    f = fopen(path, "r");
    CHECK(f && fscanf(f, "%*d (%*[^)]) %*c %d", &parent) == 1);
    fclose(f);
    return parent;
}

int launch_free_port(const char *host)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t size = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(inet_aton(host, &a.sin_addr));
    CHECK(bind(fd, (struct sockaddr *)&a, size) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&a, &size) == 0);
    close(fd);
    return ntohs(a.sin_port);
}
