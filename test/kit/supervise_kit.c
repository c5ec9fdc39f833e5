/* supervise_kit.c - processes of jobs under fleetrun --supervise, killed. */
#define _GNU_SOURCE
#define SUITE supervise_kit
#include "supervise_kit.h"

#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "test.h"

static int64_t journal_bytes;

static int add_bytes(const char *path, const struct stat *s, int type,
                     struct FTW *where)
{
    (void)path, (void)where;
    if (type == FTW_F)
        journal_bytes += s->st_size;
    return 0;
}

int64_t supervise_bytes(void)
{
    journal_bytes = 0;
    nftw(test_path("journals"), add_bytes, 8, FTW_PHYS);
    return journal_bytes;
}

static int pid_of(const char *process)
{
    char path[200];
    int pid = 0;
    FILE *f;

    snprintf(path, sizeof path, "pids/default.%s", process);
    f = fopen(test_path(path), "r");
    if (f && fscanf(f, "%d", &pid) != 1)
        pid = 0;
    if (f)
        fclose(f);
    return pid;
}

int supervise_goes_on(launch l)
{
    return !test_ends_within(l.pid, 0);
}

bool supervise_kill(launch l, supervise_victim *v)
{
    int pid;

    while ((pid = pid_of(v->name)) == v->killed || pid == 0) {
        if (!supervise_goes_on(l))
            return false;
        usleep(500);
    }
    v->killed = pid;
    return kill(pid, SIGKILL) == 0;
}

bool supervise_wait(launch l, int64_t bytes)
{
    const int64_t end_ms = fl_now_ms() + launch_deadline_ms * TEST_SLOWNESS;

    while (supervise_bytes() < bytes) {
        if (!supervise_goes_on(l))
            return false;
        if (fl_now_ms() > end_ms)
            test_fail(__FILE__, __LINE__, "%lld bytes are not written: %s",
                      (long long)bytes, launch_err());
        usleep(200);
    }
    return true;
}

bool supervise_kill_at(launch l, supervise_victim *v, int64_t bytes)
{
    return supervise_wait(l, bytes) && supervise_kill(l, v);
}

int supervise_by_number(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

int supervise_times(int kills)
{
    const char *often = getenv("FLEET_KILLS");

    return kills * (often ? atoi(often) : 1);
}

void supervise_remove(const char *what)
{
    char command[400];

    snprintf(command, sizeof command, "rm -r %s", test_path(what));
    CHECK(system(command) == 0);
}

const char *supervise_flags(const char *flags)
{
    char text[400];

    CHECK(mkdir(test_path("pids"), 0700) == 0);
    setenv("PIDS", test_path("pids"), 1);
    unsetenv("FLEET_LOG");
    snprintf(text, sizeof text, "%d", 1000 * TEST_SLOWNESS);
    setenv("FLEET_PEER_DEADLINE_MS", text, 1); /* heartbeats are a part of it */
    snprintf(text, sizeof text,
             "--supervise --restarts 100000 --restart_delay 0 --journals %s %s",
             test_path("journals"), flags);
    return test_keep(text);
}
