/* runner.c - runs the tests where Criterion cannot, under ThreadSanitizer: a
 * process per test, as many at once as there are processors and, while these
 * have too little to do because tests wait, up to four times as many; a time
 * limit for each. Empty of code without FL_OWN_RUNNER.
 *
 *     fleet-tests [SUBSTRING of suite/name]
 *
 * What begins with -- is Criterion's, and not looked at. Of a test that passed
 * it prints how long it took and how much its processes computed.
 *
 * FLEET_TEST_LEAVE_OUT says how the names of tests begin that are not run, and
 * FLEET_TEST_SECONDS after how long none begins any more: their suites are
 * named.
 * The last line is "N passed, N failed, N skipped, N left out"; the exit status
 * is 1 if a test failed or none ran.
 */
#define SUITE runner
#include "test.h"

#ifdef FL_OWN_RUNNER

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

enum {
    SKIPPED = 77, /* what test_skip() exits with */
    MOST_CHILDREN = 16,
    WAITING = 4,    /* so many for each processor, if they wait */
    LOOK_MS = 10,   /* at what tests do */
    WINDOW_MS = 200 /* in which processors are watched */
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
    child child[WAITING * MOST_CHILDREN];
    int running, most; /* most: processors */
    int64_t idle_ms;   /* of all processors, when the window began */
    int64_t window_ms; /* when that was */
    int64_t until_ms;  /* then no test begins any more; 0: no such time */
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

static double seconds_of(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

static void judge(tally *n, const test_case *t, int64_t ms, int status,
                  const struct rusage *use)
{
    char name[300];

    name_of(t, name, sizeof name);
    if (status == 0) {
        n->passed++;
        printf("ok   %s %.1f s, computed %.1f s\n", name, (double)ms / 1000,
               seconds_of(use->ru_utime) + seconds_of(use->ru_stime));
    } else if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) {
        n->skipped++;
        printf("skip %s\n", name); /* test_skip() has said why */
    } else {
        n->failed++;
        explain(name, status);
    }
}

static void take_end(tally *n, pid_t pid, int status, const struct rusage *use)
{
    for (int i = 0; i < WAITING * n->most; i++)
        if (n->child[i].pid == pid) {
            n->child[i].pid = 0;
            n->running--;
            judge(n, n->child[i].test, fl_now_ms() - n->child[i].began, status,
                  use);
        }
}

/* For how long the machine's processors have had nothing to do, in sum; -1 if
 * nobody knows. */
static int64_t idle_ms(void)
{
    FILE *f = fopen("/proc/stat", "r");
    long long idle, disk; /* in ticks */

    if (!f || fscanf(f, "cpu %*d %*d %*d %lld %lld", &idle, &disk) != 2)
        idle = disk = -1;
    if (f)
        fclose(f);
    return idle < 0 ? -1 : (idle + disk) * 1000 / sysconf(_SC_CLK_TCK);
}

static void begin_window(tally *n)
{
    n->window_ms = fl_now_ms();
    n->idle_ms = idle_ms();
}

/* Half a processor has had nothing to do in a whole window. */
static bool is_idle(tally *n)
{
    int64_t ms = fl_now_ms() - n->window_ms, idle;

    if (ms < WINDOW_MS)
        return false;
    idle = idle_ms() - n->idle_ms;
    begin_window(n);
    return n->idle_ms >= 0 && idle >= ms / 2;
}

/* Until one more test may begin: what waits for a deadline needs no
 * processor. */
static void make_room(tally *n)
{
    struct rusage use;
    int status;
    pid_t pid;

    while (n->running >= n->most) {
        pid = wait4(-1, &status, WNOHANG, &use);
        if (pid > 0) {
            take_end(n, pid, status, &use);
            continue;
        }
        if (is_idle(n) && n->running < WAITING * n->most)
            break;
        usleep(LOOK_MS * 1000);
    }
    begin_window(n);
}

static void wait_for_one(tally *n)
{
    struct rusage use;
    int status;
    pid_t pid = wait4(-1, &status, 0, &use);

    take_end(n, pid, status, &use);
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
        judge(n, t, 0, -1, NULL);
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

static bool is_late(const tally *n)
{
    return n->until_ms && fl_now_ms() >= n->until_ms;
}

/* One test is left out for want of time: its suite is named once. */
static void leave_out(tally *n, const char *suite)
{
    static const char *last = "";

    n->left_out++;
    if (strcmp(last, suite) != 0)
        printf("left out for want of time: %s\n", suite);
    last = suite;
}

int main(int argc, char **argv)
{
    const char *seconds = getenv("FLEET_TEST_SECONDS");
    const char *wanted =
        argc >= 2 && strncmp(argv[1], "--", 2) ? argv[1] : NULL;
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    tally n = {.most = processors < 1               ? 1
                       : processors > MOST_CHILDREN ? MOST_CHILDREN
                                                    : (int)processors};

    if (seconds && atoi(seconds) > 0)
        n.until_ms = fl_now_ms() + 1000ll * atoi(seconds);
    begin_window(&n);
    for (const test_case *t = tests; t; t = t->next) {
        char name[300];

        name_of(t, name, sizeof name);
        if (wanted && !strstr(name, wanted))
            continue;
        if (is_left_out(name))
            n.left_out++;
        else if (is_late(&n))
            leave_out(&n, t->suite);
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
