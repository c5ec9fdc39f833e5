/* resume_job_test.c - fleet-train that is stopped by a signal and goes on with
 * --resume ends with the closing line of one that was not. */
#define _GNU_SOURCE
#define SUITE resume_job
#include "launch_kit.h"
#include "model_kit.h"
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WAIT_MS = 20000 * TEST_SLOWNESS };

/* Of 600 lines the first 300, and the others once there is the file "go"; a
 * batch after the other, with time between them until there is that file. */
#define HALF                                                                   \
    "awk '{print} NR == 300 { system(\\\"test -e %s || sleep 1000\\\") }'"
#define BY_TIME                                                                \
    "awk '{print; fflush()} NR %% 16 == 0 "                                    \
    "{ system(\\\"test -e %s || sleep 0.03\\\") }'"

static const char *write_config(const char *command, const char *collective)
{
    static const char text[] =
        "{\"model\": {\"type\": \"wide_deep\", \"embedding_dim\": 4, "
        "\"hidden\": [8]}, \"epochs\": 2, \"seed\": 5, "
        "\"optimizer\": {\"type\": \"adam\", \"learning_rate\": 0.01, "
        "\"decay\": {\"type\": \"exponential\", \"rate\": 0.9, \"steps\": 7}}, "
        "\"strategy\": {\"a_sync\": false, \"is_collective\": %s}, "
        "\"dataset\": {\"format\": \"multislot\", \"train\": [\"%s\"], "
        "\"batch_size\": 16, \"shuffle\": 50, \"pipe_command\": \"%s\"}, "
        "\"slots\": [{\"name\": \"y\", \"type\": \"float\", \"role\": "
        "\"label\"}, {\"name\": \"dense\", \"type\": \"float\", \"dim\": 3}, "
        "{\"name\": \"u\", \"type\": \"uint64\"}, {\"name\": \"v\", \"type\": "
        "\"uint64\"}, {\"name\": \"w\", \"type\": \"uint64\", \"dim\": -1}], "
        "\"save\": \"%s\", \"save_every\": {\"steps\": 5, \"keep\": 2}}";
    char pipe[1000], all[4000];

    snprintf(pipe, sizeof pipe, command, test_path("go"));
    snprintf(all, sizeof all, text, collective,
             scene_file("train.txt", SCENE_LINES, 1), pipe, test_path("model"));
    return test_file("config.json", all);
}

typedef struct process {
    pid_t pid;
    int status; /* its exit status, 128 + n for signal n */
    char out[1000], err[8000];
} process;

static void start_process(process *p, const char *config, bool resumes)
{
    const char *program = test_beside("fleet-train");
    const char *out = test_path("out"), *err = test_path("err");

    memset(p, 0, sizeof *p);
    p->pid = test_fork();
    if (p->pid > 0)
        return;
    dup2(open(out, O_CREAT | O_WRONLY | O_TRUNC, 0600), 1);
    dup2(open(err, O_CREAT | O_WRONLY | O_TRUNC, 0600), 2);
    signal(SIGINT, SIG_DFL); /* a suite in the background has it ignored */
    execl(program, program, resumes ? "--resume" : config,
          resumes ? config : NULL, (char *)NULL);
    _exit(99);
}

static void read_text(const char *name, char *to, size_t size)
{
    FILE *f = fopen(test_path(name), "r");

    if (!f)
        test_fail(__FILE__, __LINE__, "cannot read %s", test_path(name));
    to[fread(to, 1, size - 1, f)] = 0;
    fclose(f);
}

static void wait_for_process(process *p)
{
    int status;

    CHECK(test_ends_within(p->pid, WAIT_MS));
    CHECK(waitpid(p->pid, &status, 0) == p->pid);
    p->status =
        WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    read_text("out", p->out, sizeof p->out);
    read_text("err", p->err, sizeof p->err);
}

static void run_process(process *p, const char *config, bool resumes)
{
    start_process(p, config, resumes);
    wait_for_process(p);
    if (p->status != 0)
        test_fail(__FILE__, __LINE__, "%s", p->err);
}

static void wait_for_file(const char *name)
{
    for (int ms = 0; access(test_path(name), F_OK) != 0; ms += 10) {
        CHECK(ms < WAIT_MS);
        usleep(10000);
    }
}

/* "loss" and "params_hash" of a closing line, which come last but for times. */
static void same_line(const char *a, const char *b)
{
    static const char *const keys[] = {"\"loss\"", "\"params_hash\""};

    for (int i = 0; i < 2; i++)
        CHECK_TEXT(test_json_value(a, keys[i]), test_json_value(b, keys[i]));
}

static void stop_and_resume(int signal_number)
{
    const char *config = write_config(HALF, "false");
    static process want, stopped, later;

    unlink(test_path("go"));
    start_process(&stopped, config, true); /* there is nothing yet */
    wait_for_file("model.checkpoints/checkpoint-000002/manifest.xxh64");
    kill(stopped.pid, signal_number);
    wait_for_process(&stopped);
    CHECK_INT(stopped.status, 128 + signal_number);
    CHECK_TEXT(stopped.out, "");
    CHECK_CONTAINS(stopped.err, "has no checkpoint: the training begins");
    CHECK_CONTAINS(stopped.err, "stopped in epoch 1 after batch ");
    CHECK(access(test_path("model"), F_OK) != 0);

    test_file("go", "");
    run_process(&later, config, true);
    CHECK_CONTAINS(later.err, "dataset: goes on in pass 0 after batch ");
    CHECK(access(test_path("model/manifest.json"), F_OK) == 0);
    run_process(&want, config, false);
    same_line(later.out, want.out);
}

TEST(stopped_by_a_signal_it_goes_on_to_the_same_closing_line)
{
    stop_and_resume(SIGINT);
}

/* From the last save that it has made by itself. */
TEST(killed_it_goes_on_to_the_same_closing_line)
{
    const char *config = write_config(HALF, "false");
    static process want, killed, later;

    start_process(&killed, config, false);
    wait_for_file("model.checkpoints/checkpoint-000002/manifest.xxh64");
    kill(killed.pid, SIGKILL);
    wait_for_process(&killed);
    test_file("go", "");
    run_process(&later, config, true);
    CHECK_CONTAINS(later.err, "dataset: goes on in pass 0 after batch 1");
    run_process(&want, config, false);
    same_line(later.out, want.out);
}

/* --- jobs ----------------------------------------------------------------- */

static const char *script_of(const char *config, const char *option)
{
    char script[5000];

    snprintf(script, sizeof script, "exec '%s' %s '%s'",
             test_beside("fleet-train"), option, config);
    return test_keep(script);
}

static const char *run_job(const char *flags, const char *script)
{
    if (launch_run(flags, script) != 0)
        test_fail(__FILE__, __LINE__, "%s", launch_err());
    return test_keep(launch_out());
}

/* A signal for fleetrun reaches the workers: they agree where they stop. */
static void stop_job_and_resume(const char *flags, const char *collective)
{
    const char *config = write_config(BY_TIME, collective), *later, *want;
    launch l;

    launch_deadline_ms = WAIT_MS / TEST_SLOWNESS;
    l = launch_start(flags, script_of(config, "--resume"));
    wait_for_file("model.checkpoints/checkpoint-000001/manifest.xxh64");
    CHECK(kill(l.pid, SIGINT) == 0);
    CHECK_INT(launch_wait(l), 128 + SIGINT);
    CHECK_CONTAINS(launch_log("workerlog.1"), "stopped in epoch 1 after batch");
    CHECK_TEXT(launch_out(), "");

    test_file("go", "");
    later = run_job(flags, script_of(config, "--resume"));
    CHECK_CONTAINS(launch_log("workerlog.1"), "goes on in pass 0 after batch ");
    want = run_job(flags, script_of(config, ""));
    same_line(later, want);
}

TEST(a_job_with_servers_that_is_stopped_goes_on_to_the_same_closing_line)
{
    stop_job_and_resume("--server_num 1 --worker_num 2", "false");
}

TEST(ranks_that_are_stopped_go_on_to_the_same_closing_line)
{
    launch_need_mpirun();
    stop_job_and_resume("--nproc_per_node 2", "true");
}

TEST(so_do_ranks_beside_servers)
{
    launch_need_mpirun();
    stop_job_and_resume("--server_num 1 --worker_num 2 --collective", "true");
}
