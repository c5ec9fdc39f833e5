/* resume_job_test.c - fleet-train that is stopped by a signal and goes on with
 * --resume ends with the closing line of one that was not. */
#define _GNU_SOURCE
#define SUITE resume_job
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

/* A configuration whose command gives 300 of 600 lines, and the others once
 * there is the file "go". */
static const char *write_config(void)
{
    static const char text[] =
        "{\"model\": {\"type\": \"wide_deep\", \"embedding_dim\": 4, "
        "\"hidden\": [8]}, \"epochs\": 2, \"seed\": 5, "
        "\"optimizer\": {\"type\": \"adam\", \"learning_rate\": 0.01, "
        "\"decay\": {\"type\": \"exponential\", \"rate\": 0.9, \"steps\": 7}}, "
        "\"dataset\": {\"format\": \"multislot\", \"train\": [\"%s\"], "
        "\"batch_size\": 16, \"shuffle\": 50, \"pipe_command\": \"awk '{print} "
        "NR == 300 { system(\\\"test -e %s || sleep 1000\\\") }'\"}, "
        "\"slots\": [{\"name\": \"y\", \"type\": \"float\", \"role\": "
        "\"label\"}, {\"name\": \"dense\", \"type\": \"float\", \"dim\": 3}, "
        "{\"name\": \"u\", \"type\": \"uint64\"}, {\"name\": \"v\", \"type\": "
        "\"uint64\"}, {\"name\": \"w\", \"type\": \"uint64\", \"dim\": -1}], "
        "\"save\": \"%s\", \"save_every\": {\"steps\": 5, \"keep\": 2}}";
    char all[4000];

    snprintf(all, sizeof all, text, scene_file("train.txt", SCENE_LINES, 1),
             test_path("go"), test_path("model"));
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
static void same_line(const process *a, const process *b)
{
    static const char *const keys[] = {"\"loss\"", "\"params_hash\""};

    for (int i = 0; i < 2; i++) {
        const char *x = strstr(a->out, keys[i]), *y = strstr(b->out, keys[i]);

        CHECK(x && y);
        CHECK_TEXT(test_keep(strndup(x, strcspn(x, ",}"))),
                   test_keep(strndup(y, strcspn(y, ",}"))));
    }
}

static void stop_and_resume(int signal_number)
{
    const char *config = write_config();
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
    same_line(&later, &want);
}

TEST(stopped_by_a_signal_it_goes_on_to_the_same_closing_line)
{
    stop_and_resume(SIGINT);
}

/* From the last save that it has made by itself. */
TEST(killed_it_goes_on_to_the_same_closing_line)
{
    const char *config = write_config();
    static process want, killed, later;

    start_process(&killed, config, false);
    wait_for_file("model.checkpoints/checkpoint-000002/manifest.xxh64");
    kill(killed.pid, SIGKILL);
    wait_for_process(&killed);
    test_file("go", "");
    run_process(&later, config, true);
    CHECK_CONTAINS(later.err, "dataset: goes on in pass 0 after batch 1");
    run_process(&want, config, false);
    same_line(&later, &want);
}
