/* memory_limit_test.c - whole programs where the system refuses memory: from
 * too little to begin with, to enough. Each ends by itself, trained or with the
 * words "out of memory". FLEET_MEMORY_STEP_KB makes the steps finer. */
#define SUITE memory_limit
#include "launch_kit.h"
#include "memory_kit.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *data_file(void)
{
    static char text[600 * 40];
    size_t n = 0;

    for (int i = 0; i < 600; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%d,%d,%d,u%d\n",
                              i % 3 == 0, i % 7, i % 5, i % 101);
    return test_file("data.csv", text);
}

static const char *config(void)
{
    char text[2000];

    snprintf(text, sizeof text,
             "{\"model\": {\"type\": \"wide_deep\", \"embedding_dim\": 64,"
             "  \"hidden\": [512, 256]},"
             " \"optimizer\": {\"type\": \"adam\", \"learning_rate\": 0.001},"
             " \"epochs\": 2, \"strategy\": {\"a_sync\": false},"
             " \"dataset\": {\"format\": \"csv\", \"separator\": \",\","
             "  \"train\": [\"%s\"], \"batch_size\": 128, \"thread_num\": 1},"
             " \"slots\": ["
             "  {\"name\": \"y\", \"type\": \"float\", \"role\": \"label\","
             "   \"dim\": 1, \"columns\": [0]},"
             "  {\"name\": \"dense\", \"type\": \"float\", \"dim\": 2,"
             "   \"columns\": [1, 2]},"
             "  {\"name\": \"user\", \"type\": \"uint64\", \"columns\": [3],"
             "   \"transform\": \"hash\"}]}",
             data_file());
    return test_keep(test_file("config.json", text));
}

/* The shell has the memory that it needs; fleet-train has so little. A limit
 * too small for its libraries is no case: the loader says 127. */
static const char *script_of(int kb)
{
    char script[9000];

    snprintf(script, sizeof script, "ulimit -c 0; ulimit -v %d; exec '%s' '%s'",
             kb, test_beside("fleet-train"), config());
    return test_keep(script);
}

static bool speaks_of_memory(const char *const *logs)
{
    if (strstr(launch_err(), "out of memory"))
        return true;
    for (; *logs; logs++)
        if (strstr(launch_log(*logs), "out of memory"))
            return true;
    return false;
}

/* ZeroMQ's threads take what comes in by themselves, unasked: its words. */
static bool died_in_zeromq(const char *const *logs)
{
    for (; *logs; logs++)
        if (strstr(launch_log(*logs), "FATAL ERROR: OUT OF MEMORY"))
            return true;
    return false;
}

typedef struct ends {
    int n, trained, refused, in_zeromq;
} ends;

static void try_limit(const char *flags, const char *const *logs, int kb,
                      ends *e)
{
    int status = launch_run(flags, script_of(kb));

    if (status == 127)
        return;
    e->n++;
    if (status == 0)
        e->trained++;
    else if (status == 1 && speaks_of_memory(logs))
        e->refused++;
    else if (status == 134 && died_in_zeromq(logs))
        e->in_zeromq++;
    else
        test_fail(__FILE__, __LINE__, "status %d with %d KB: %s", status, kb,
                  launch_err());
}

static ends sweep(const char *flags, const char *const *logs, int from, int to,
                  int step)
{
    ends e = {0, 0, 0, 0};

    memory_need_limits();
    setenv("FLEET_NUM_THREADS", "2", 1);
    setenv("FLEET_PEER_DEADLINE_MS", "2000", 1);
    setenv("FLEET_CONNECT_DEADLINE_MS", "4000", 1);
    setenv("FLEET_STEP_DEADLINE_MS", "4000", 1);
    for (int kb = from; kb <= to; kb += memory_step_kb(step))
        try_limit(flags, logs, kb, &e);
    fprintf(stderr, "%d limits: %d trained, %d refused, %d ended in ZeroMQ\n",
            e.n, e.trained, e.refused, e.in_zeromq);
    return e;
}

/* Without ZeroMQ nobody takes memory unasked. */
static void train_alone(int from, int to, int step)
{
    static const char *const logs[] = {"workerlog.0", NULL};
    ends e = sweep("--worker_num 1", logs, from << 10, to << 10, step << 10);

    CHECK(e.trained > 0);
    CHECK(e.refused > 0);
    CHECK_INT(e.in_zeromq, 0);
}

static void train_with_a_server(int from, int to, int step)
{
    static const char *const logs[] = {"workerlog.0", "serverlog.0", NULL};
    ends e = sweep("--server_num 1 --worker_num 1", logs, from << 10, to << 10,
                   step << 10);

    CHECK(e.trained > 0);
    CHECK(e.refused > 0);
    CHECK(e.in_zeromq <= e.n / 20);
}

TEST_LIMIT(one_process_trains_or_says_that_memory_is_out, 900)
{
    train_alone(60, 320, 10);
}

TEST_LIMIT(one_process_with_one_arena_trains_or_says_that_memory_is_out, 900)
{
    setenv("MALLOC_ARENA_MAX", "1", 1);
    train_alone(60, 160, 4);
}

TEST_LIMIT(a_job_with_a_server_trains_or_says_that_memory_is_out, 900)
{
    train_with_a_server(100, 900, 100);
}

TEST_LIMIT(a_job_with_one_arena_trains_or_says_that_memory_is_out, 900)
{
    setenv("MALLOC_ARENA_MAX", "1", 1);
    train_with_a_server(90, 240, 24);
}
