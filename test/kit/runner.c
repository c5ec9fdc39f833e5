/* runner.c - runs the tests where Criterion cannot, under ThreadSanitizer: a
 * process per test, as many at once as there are processors and, while these
 * have nothing to do because tests wait, as many again; a time limit for each.
 * Empty of code without FL_OWN_RUNNER.
 *
 *     fleet-tests [SUBSTRING of suite/name]
 *
 * The last line is "N passed, N failed, N skipped, N left out"; the exit status
 * is 1 if a test failed or none ran.
 */
#define SUITE runner
#include "test.h"

#ifdef FL_OWN_RUNNER

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

enum {
    SKIPPED = 77, /* what test_skip() exits with */
    MOST_CHILDREN = 16,
    LOOK_MS = 10,   /* at what tests do */
    IDLE_LOOKS = 20 /* in a row: a processor has nothing to do */
};

static test_case *tests;

void test_add(test_case *t)
{
    test_case **end = &tests;

    while (*end)
        end = &(*end)->next;
    *end = t;
}

typedef struct child {
    pid_t pid; /* 0: none */
    const test_case *test;
    int64_t began; /* ms */
} child;

typedef struct tally {
    child child[2 * MOST_CHILDREN];
    int running, most; /* most: processors */
    int idle;          /* looks in a row */
    int passed, failed, skipped, left_out;
} tally;

static void name_of(const test_case *t, char *name, size_t size)
{
    snprintf(name, size, "%s/%s", t->suite, t->name);
}

static void explain(const char *name, int status)
{
    if (WIFEXITED(status))
        printf("FAIL %s: exit status %d\n", name, WEXITSTATUS(status));
    else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        printf("FAIL %s: took too long\n", name);
    else
        printf("FAIL %s: %s\n", name,
               WIFSIGNALED(status) ? strsignal(WTERMSIG(status))
                                   : "no process");
}

static void judge(tally *n, const test_case *t, int64_t ms, int status)
{
    char name[300];

    name_of(t, name, sizeof name);
    if (status == 0) {
        n->passed++;
        printf("ok   %s %.1f s\n", name, (double)ms / 1000);
    } else if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) {
        n->skipped++;
        printf("skip %s\n", name); /* test_skip() has said why */
    } else {
        n->failed++;
        explain(name, status);
    }
}

static void take_end(tally *n, pid_t pid, int status)
{
    for (int i = 0; i < 2 * n->most; i++)
        if (n->child[i].pid == pid) {
            n->child[i].pid = 0;
            n->running--;
            judge(n, n->child[i].test, fl_now_ms() - n->child[i].began, status);
        }
}

/* Threads of the machine that run, or would if they could, but for this one. */
static int runnable(void)
{
    FILE *f = fopen("/proc/loadavg", "r");
    int count;

    if (!f || fscanf(f, "%*f %*f %*f %d/", &count) != 1)
        count = INT_MAX;
    if (f)
        fclose(f);
    return count == INT_MAX ? count : count - 1;
}

/* Until one more test may begin: what waits for a deadline needs no
 * processor. */
static void make_room(tally *n)
{
    int status;
    pid_t pid;

    while (n->running >= n->most) {
        pid = waitpid(-1, &status, WNOHANG);
        if (pid > 0) {
            take_end(n, pid, status);
            continue;
        }
        n->idle = runnable() < n->most ? n->idle + 1 : 0;
        if (n->idle >= IDLE_LOOKS && n->running < 2 * n->most)
            break;
        usleep(LOOK_MS * 1000);
    }
    n->idle = 0;
}

static void wait_for_one(tally *n)
{
    int status;
    pid_t pid = wait(&status);

    take_end(n, pid, status);
}

static void run_alone(const test_case *t)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm((unsigned)(t->seconds * TEST_SLOWNESS));
    t->run();
    exit(0);
}

/* In a process of its own, so that a crash or a hang is one failed test. */
static void start(tally *n, const test_case *t)
{
    child *c = n->child;

    make_room(n);
    while (c->pid)
        c++;
    fflush(NULL); /* or the child writes it, too */
    c->test = t;
    c->began = fl_now_ms();
    c->pid = fork();
    if (c->pid == 0)
        run_alone(t);
    if (c->pid > 0) {
        n->running++;
    } else {
        c->pid = 0;
        judge(n, t, 0, -1);
    }
}

/* FLEET_TEST_LEAVE_OUT: how the names of tests begin that are not run now. */
static bool is_left_out(const char *name)
{
    const char *next = getenv("FLEET_TEST_LEAVE_OUT");

    while (next && *next) {
        size_t n = strcspn(next, " ");

        if (n > 0 && strncmp(name, next, n) == 0)
            return true;
        next += n + (next[n] == ' ');
    }
    return false;
}

int main(int argc, char **argv)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    tally n = {.most = processors < 1               ? 1
                       : processors > MOST_CHILDREN ? MOST_CHILDREN
                                                    : (int)processors};

    for (const test_case *t = tests; t; t = t->next) {
        char name[300];

        name_of(t, name, sizeof name);
        if (argc >= 2 && !strstr(name, argv[1]))
            continue;
        if (is_left_out(name))
            n.left_out++;
        else
            start(&n, t);
    }
    while (n.running > 0)
        wait_for_one(&n);
    printf("%d passed, %d failed, %d skipped, %d left out\n", n.passed,
           n.failed, n.skipped, n.left_out);
    return n.failed > 0 || n.passed + n.skipped == 0;
}

#endif
