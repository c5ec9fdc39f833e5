/* memory_kit.c - see memory_kit.h. */
#define SUITE memory_kit
#include "memory_kit.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

void memory_need_limits(void)
{
    if (TEST_SLOWNESS > 1)
        test_skip("sanitizers and valgrind need the address space");
}

int memory_step_kb(int kb)
{
    const char *text = getenv("FLEET_MEMORY_STEP_KB");

    return text && atoi(text) > 0 ? atoi(text) : kb;
}

void memory_limit_to(size_t more)
{
    struct rlimit limit;
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");

    CHECK(f && fscanf(f, "%ld", &pages) == 1);
    fclose(f);
    CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
    limit.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + more;
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

static void run_limited(void (*prepare)(void), fleet_status (*body)(void),
                        size_t more, memory_ends *ends)
{
    const struct rlimit none = {0, 0};
    pid_t child = test_fork();
    int status;

    if (child == 0) {
        test_ends_process = true;
        setrlimit(RLIMIT_CORE, &none);
        if (prepare)
            prepare();
        memory_limit_to(more);
        _exit((int)body());
    }
    CHECK(waitpid(child, &status, 0) == child);
    if (WIFSIGNALED(status))
        test_fail(__FILE__, __LINE__, "killed by signal %d with %zu KB more",
                  WTERMSIG(status), more >> 10);
    CHECK(WEXITSTATUS(status) == FLEET_OK ||
          WEXITSTATUS(status) == FLEET_ENOMEM);
    ends->fine += WEXITSTATUS(status) == FLEET_OK;
    ends->refused += WEXITSTATUS(status) == FLEET_ENOMEM;
}

memory_ends memory_sweep(void (*prepare)(void), fleet_status (*body)(void),
                         size_t most, size_t step)
{
    memory_ends ends = {0, 0};

    memory_need_limits();
    for (size_t more = 0; more <= most; more += step)
        run_limited(prepare, body, more, &ends);
    return ends;
}
