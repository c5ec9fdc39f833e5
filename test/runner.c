/* runner.c - runs the tests where Criterion cannot, under ThreadSanitizer: a
 * process per test, a time limit for each. Empty of code without FL_OWN_RUNNER.
 *
 *     fleet-tests [SUBSTRING of suite/name]
 *
 * The last line is "N passed, N failed, N skipped"; the exit status is 1 if a
 * test failed or none ran.
 */
#define SUITE runner
#include "test.h"

#ifdef FL_OWN_RUNNER

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SKIPPED = 77 }; /* what test_skip() exits with */

static test_case *tests;

void test_add(test_case *t)
{
    test_case **end = &tests;

    while (*end)
        end = &(*end)->next;
    *end = t;
}

/* In a process of its own, so that a crash or a hang is one failed test. */
static int run_alone(const test_case *t)
{
    int status = -1;
    pid_t child = fork();

    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm((unsigned)(t->seconds * TEST_SLOWNESS));
        t->run();
        exit(0);
    }
    if (child > 0)
        waitpid(child, &status, 0);
    return status;
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

typedef struct tally {
    int passed, failed, skipped;
} tally;

static void run_one(const test_case *t, const char *name, tally *n)
{
    int status;

    fflush(NULL); /* or the child writes it, too */
    status = run_alone(t);
    if (status == 0) {
        n->passed++;
        printf("ok   %s\n", name);
    } else if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) {
        n->skipped++;
        printf("skip %s\n", name); /* test_skip() has said why */
    } else {
        n->failed++;
        explain(name, status);
    }
}

int main(int argc, char **argv)
{
    tally n = {0, 0, 0};

    for (const test_case *t = tests; t; t = t->next) {
        char name[300];

        snprintf(name, sizeof name, "%s/%s", t->suite, t->name);
        if (argc < 2 || strstr(name, argv[1]))
            run_one(t, name, &n);
    }
    printf("%d passed, %d failed, %d skipped\n", n.passed, n.failed, n.skipped);
    return n.failed > 0 || n.passed + n.skipped == 0;
}

#endif
