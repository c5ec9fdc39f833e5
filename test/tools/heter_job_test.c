/* heter_job_test.c - jobs of real processes under fleetrun, with keys: a
 * program that workers and heter workers train in two stages, three or four has
 * the bits of the uncut one, in any ratio, with passes of unequal length,
 * dropout and tables on both sides, also where an executor for test runs in the
 * midst of a pass; a process that is killed is named by all others; what cannot
 * be trained so is refused by name. */
#define SUITE heter_job
#include "launch_kit.h"
#include "test.h"
#include "train_kit.h"
#include "stage_process_kit.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <fleet/fleet.h>

#include "fleet/job/handle.h"
#include "ps/worker/worker_io.h"
#include "runtime/plan/remote.h"

enum { ROWS = 19, MOST_STEPS = 100000 };

/* --- a process of a job --------------------------------------------------- */

/* What the test wants of it, a word of TEST_HETER_JOB. */
static bool is_wanted(const char *word)
{
    return strcmp(getenv("TEST_HETER_JOB"), word) == 0;
}

static fleet_var *embed(fleet_program *p, fleet_var *ids, const char *table)
{
    return fleet_sparse_embedding(
        p, ids, 4,
        &(fleet_sparse_embedding_options){
            .table = table, .initializer = {FLEET_INIT_UNIFORM, -0.5f, 0.5f}});
}

/* Servers are not told how many stages there are. */
static int stages_of_job(void)
{
    const char *said = getenv("TEST_HETER_STAGES");

    return said ? atoi(said) : 2;
}

static void guard(fleet *f, fleet_program *p, int stage, const char *device)
{
    if (fleet_heter_worker_num(f) > 0 && stage < stages_of_job() &&
        !is_wanted("unguarded"))
        (void)fleet_device_guard(p, device);
}

/* The ragged ids cross, as do x, the label and what stage 0 computes: x to the
 * third stage, the label to the last one. */
static fleet_var *build(fleet *f, fleet_program *p)
{
    fleet_var *x = fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, 3}, 2);
    fleet_var *label =
        fleet_data(p, "label", FLEET_INT64, (int64_t[]){-1, 1}, 2);
    fleet_var *c = fleet_data_ragged(p, "c"), *h, *late;

    guard(f, p, 0, "cpu");
    h = fleet_concat(p, (fleet_var *[]){x, embed(p, c, "early")}, 2, 1);
    h = fleet_fc(p, h, 7,
                 &(fleet_fc_options){.name = "low", .activation = FLEET_TANH});
    guard(f, p, 1, "gpu");
    late = embed(p, c, "late");
    h = fleet_concat(p, (fleet_var *[]){h, late}, 2, 1);
    h = fleet_dropout(p, fleet_fc(p, h, 6, NULL), 0.3f);
    guard(f, p, 2, "cpu");
    h = fleet_concat(p, (fleet_var *[]){h, x}, 2, 1);
    h = fleet_dropout(p, fleet_fc(p, h, 5, NULL), 0.2f);
    guard(f, p, 3, "gpu");
    h = fleet_fc(p, h, 2, NULL);
    return fleet_mean(p, fleet_softmax_with_cross_entropy(p, h, label, NULL));
}

static fleet_status train_step(fleet_executor *e, const fleet_var *loss,
                               int index, int step, float *value)
{
    kit_batch *b = kit_batch_new(ROWS - 5 * index);
    fleet_fetch fetch = {.var = loss, .data = value, .size = sizeof *value};
    fleet_feed feed[KIT_MOST_FEEDS];
    fleet_status status;

    kit_ids(b, "label", 1, 2, 100 * index + step);
    kit_floats(b, "x", 3, 100 * index + step + 1);
    kit_ragged(b, "c", 3, 40, 100 * index + step + 2);
    status = fleet_executor_run(e, feed, kit_feeds(b, feed), &fetch, 1);
    kit_batch_free(b);
    return status;
}

static bool is_behind(const fleet *f)
{
    return fl_worker_io_remote(f->worker_io)->behind;
}

/* In the midst of a pass, by the whole program: a step has left the weights of
 * the other stage behind, and a test has those of now. */
static fleet_status evaluate(fleet *f, fleet_program *p, const fleet_var *loss)
{
    fleet_executor *e =
        fleet_executor_create(p, &(fleet_executor_options){.for_test = 1});
    const bool was_behind = is_behind(f);
    float value = 0;
    fleet_status status =
        e ? train_step(e, loss, 0, 77, &value) : fl_last_code();

    fleet_executor_destroy(e);
    printf("behind %d, then %d\nseen %a\n", was_behind, is_behind(f),
           (double)value);
    return status;
}

/* One step more, alone: whoever leaves has the weights of all stages. */
static fleet_status leave_behind_a_step(fleet *f, fleet_executor *e,
                                        const fleet_var *loss)
{
    float value;
    bool was_behind;

    FL_TRY(train_step(e, loss, 0, 50, &value));
    was_behind = is_behind(f);
    FL_TRY(fleet_stop_worker(f));
    printf("left behind %d, then %d\n", was_behind, is_behind(f));
    return FLEET_OK;
}

/* Two passes, which the workers end after different numbers of steps. */
static fleet_status train(fleet *f, fleet_program *p, fleet_executor *e,
                          const fleet_var *loss)
{
    const int index = fleet_worker_index(f);
    uint64_t hash;
    float value = 0;

    for (int pass = 0; pass < 2; pass++) {
        for (int step = 0; step < 4 - 2 * ((index + pass) % 2); step++)
            FL_TRY(train_step(e, loss, index, 10 * pass + step, &value));
        if (index == 0)
            FL_TRY(evaluate(f, p, loss));
        FL_TRY(fleet_barrier_worker(f));
    }
    printf("loss %a\n", (double)value);
    if (index > 0)
        return fleet_stop_worker(f);
    FL_TRY(fleet_params_hash(f, &hash));
    printf("hash %016llx\n", (unsigned long long)hash);
    return leave_behind_a_step(f, e, loss);
}

static void kill_process(const char *path)
{
    FILE *file = fopen(path, "r");
    int pid = 0;

    if (file && fscanf(file, "%d", &pid) == 1 && pid > 1)
        kill(pid, SIGKILL);
    if (file)
        fclose(file);
}

/* Steps until a process is killed that has said its number. */
static fleet_status train_until_killed(fleet *f, fleet_executor *e,
                                       const fleet_var *loss)
{
    float value;

    for (int step = 0; step < MOST_STEPS; step++) {
        if (step == 3 && fleet_worker_index(f) == 0)
            kill_process(getenv("TEST_HETER_PID"));
        FL_TRY(train_step(e, loss, fleet_worker_index(f), step % 50, &value));
    }
    return fleet_stop_worker(f);
}

static void say_pid(fleet *f)
{
    const bool heter =
        is_wanted("kill-heter") && fleet_heter_worker_index(f) == 0;
    const bool worker = is_wanted("kill-worker") && fleet_worker_index(f) == 1;
    FILE *file = heter || worker ? fopen(getenv("TEST_HETER_PID"), "w") : NULL;

    if (file)
        fprintf(file, "%d\n", (int)getpid());
    if (file)
        fclose(file);
}

static fleet_status work(fleet *f, fleet_program *p, const fleet_var *loss)
{
    fleet_executor *e = NULL;
    fleet_status status;

    say_pid(f);
    if (fleet_is_server(f)) {
        FL_TRY(fleet_init_server(f, NULL));
        return fleet_run_server(f);
    }
    FL_TRY(fleet_init_worker(f));
    if (fleet_is_heter_worker(f))
        return fleet_run_heter_worker(f);
    e = fleet_executor_create(p, NULL);
    status = !e ? fl_last_code()
             : strstr(getenv("TEST_HETER_JOB"), "kill")
                 ? train_until_killed(f, e, loss)
                 : train(f, p, e, loss);
    fleet_executor_destroy(e);
    return status;
}

static fleet_status run_process(fleet **f)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet_optimizer *o;
    fleet_program *p;
    fleet_var *loss;

    FL_TRY(fleet_init(f, NULL));
    p = fleet_program_create(*f);
    loss = build(*f, p);
    s.a_sync = 0;
    s.pipeline = is_wanted("in-flight");
    s.pipeline_configs.accumulate_steps = s.pipeline ? 2 : 1;
    o = fleet_distributed_optimizer(*f, fleet_adam(*f, 0.05f, NULL), &s);
    if (is_wanted("clip"))
        FL_TRY(fleet_optimizer_set_global_norm_clip(o, 1));
    FL_TRY(fleet_minimize(o, loss));
    return work(*f, p, loss);
}

__attribute__((constructor)) static void be_of_a_job(void)
{
    stage_process_main("TEST_HETER_JOB", run_process);
}

/* --- the tests ------------------------------------------------------------ */

static int run_with(const char *what, const char *workers, const char *heter)
{
    setenv("TEST_HETER_JOB", what, 1);
    setenv("TEST_HETER_PID", test_path("pid"), 1);
    return launch_command((char *[]){(char *)"--server_num=1", (char *)workers,
                                     (char *)heter, (char *)"--log_dir",
                                     (char *)test_path("log"),
                                     (char *)test_program(), NULL});
}

static int run(const char *what, const char *heter)
{
    return run_with(what, "--worker_num=2", heter);
}

static const char *line_of(const char *log, const char *word)
{
    const char *text = strstr(launch_log(log), word);

    char line[200];

    CHECK(text != NULL);
    snprintf(line, sizeof line, "%.*s", (int)strcspn(text, "\n"), text);
    return test_keep(line);
}

TEST(has_the_bits_of_the_uncut_program)
{
    const char *hash, *loss[2], *seen;

    CHECK_INT(run("train", "--job_id=uncut"), 0);
    seen = line_of("workerlog.0", "seen ");
    CHECK_CONTAINS(launch_log("workerlog.0"), "behind 0, then 0\n");
    hash = line_of("workerlog.0", "hash ");
    loss[0] = line_of("workerlog.0", "loss ");
    loss[1] = line_of("workerlog.1", "loss ");
    CHECK_INT(run("train", "--heter_worker_num=1"), 0);
    CHECK_TEXT(line_of("workerlog.0", "loss "), loss[0]);
    CHECK_TEXT(line_of("workerlog.1", "loss "), loss[1]);
    CHECK_TEXT(line_of("workerlog.0", "hash "), hash);
    CHECK_TEXT(line_of("workerlog.0", "seen "), seen);
    CHECK_CONTAINS(launch_log("workerlog.0"), "behind 1, then 0\n");
    CHECK_CONTAINS(launch_log("workerlog.0"), "left behind 1, then 0\n");
    CHECK_INT(run("train", "--heter_worker_num=3"), 0);
    CHECK_TEXT(line_of("workerlog.0", "hash "), hash);
    CHECK_TEXT(line_of("workerlog.1", "loss "), loss[1]);
    CHECK_CONTAINS(launch_log("heterlog.0"),
                   "heter worker 0 has nothing to do: the job has 3 heter "
                   "workers for 2 workers");
}

/* The second heter worker serves two workers: the sum of their gradients is
 * (a + b) + c in the uncut job. The pass of one of them ends earlier. */
TEST(heter_workers_of_one_stage_have_the_bits_of_the_uncut_program)
{
    const char *hash, *loss[3];
    char log[20];

    CHECK_INT(run_with("train", "--worker_num=3", "--job_id=uncut"), 0);
    hash = line_of("workerlog.0", "hash ");
    for (int i = 0; i < 3; i++) {
        snprintf(log, sizeof log, "workerlog.%d", i);
        loss[i] = line_of(log, "loss ");
    }
    CHECK_INT(run_with("train", "--worker_num=3", "--heter_worker_num=2"), 0);
    CHECK_TEXT(line_of("workerlog.0", "hash "), hash);
    for (int i = 0; i < 3; i++) {
        snprintf(log, sizeof log, "workerlog.%d", i);
        CHECK_TEXT(line_of(log, "loss "), loss[i]);
    }
}

static void check_stages(const char *stages, const char *heter,
                         const char *hash, const char *const loss[3])
{
    char log[20];

    setenv("TEST_HETER_STAGES", stages, 1);
    CHECK_INT(run_with("train", "--worker_num=3", heter), 0);
    CHECK_TEXT(line_of("workerlog.0", "hash "), hash);
    for (int i = 0; i < 3; i++) {
        snprintf(log, sizeof log, "workerlog.%d", i);
        CHECK_TEXT(line_of(log, "loss "), loss[i]);
    }
}

/* A heter worker between others brings batches of one worker and of two to one
 * process, or to several. */
TEST(three_stages_and_four_have_the_bits_of_the_uncut_program)
{
    const char *hash, *loss[3];
    char log[20];

    CHECK_INT(run_with("train", "--worker_num=3", "--job_id=uncut"), 0);
    hash = line_of("workerlog.0", "hash ");
    for (int i = 0; i < 3; i++) {
        snprintf(log, sizeof log, "workerlog.%d", i);
        loss[i] = line_of(log, "loss ");
    }
    check_stages("3", "--heter_worker_num=2;1", hash, loss);
    check_stages("3", "--heter_worker_num=1;2", hash, loss);
    check_stages("4", "--heter_worker_num=2;3;1", hash, loss);
}

TEST(a_heter_worker_that_is_killed_is_named_by_all)
{
    setenv("FLEET_PEER_DEADLINE_MS", "1500", 1);
    CHECK(run("kill-heter", "--heter_worker_num=1") != 0);
    CHECK_CONTAINS(launch_log("workerlog.0"), "heter worker 0");
    CHECK_CONTAINS(launch_log("workerlog.1"), "heter worker 0");
    CHECK_CONTAINS(launch_log("serverlog.0"), "heter worker 0");
}

TEST(so_is_one_between_two_stages)
{
    setenv("FLEET_PEER_DEADLINE_MS", "1500", 1);
    setenv("TEST_HETER_STAGES", "3", 1);
    CHECK(run("kill-heter", "--heter_worker_num=1;1") != 0);
    CHECK_CONTAINS(launch_log("workerlog.0"), "heter worker 0");
    CHECK_CONTAINS(launch_log("heterlog.1"), "heter worker 0");
    CHECK_CONTAINS(launch_log("serverlog.0"), "heter worker 0");
}

TEST(a_worker_that_is_killed_is_named_by_all)
{
    setenv("FLEET_PEER_DEADLINE_MS", "1500", 1);
    CHECK(run("kill-worker", "--heter_worker_num=1") != 0);
    CHECK_CONTAINS(launch_log("workerlog.0"), "worker 1");
    CHECK_CONTAINS(launch_log("heterlog.0"), "worker 1");
    CHECK_CONTAINS(launch_log("serverlog.0"), "worker 1");
}

static void check_refused(const char *what, const char *heter,
                          const char *words)
{
    CHECK(run(what, heter) != 0);
    CHECK_CONTAINS(launch_log("workerlog.0"), words);
    CHECK_CONTAINS(launch_log("serverlog.0"), words);
}

TEST(refuses_what_it_does_not_train)
{
    check_refused("clip", "--heter_worker_num=1",
                  "fleet_minimize: a clip by global norm: this version");
    check_refused("unguarded", "--heter_worker_num=1",
                  "the guards of the program make 1 stage");
    CHECK(run("in-flight", "--heter_worker_num=1") != 0);
    CHECK_CONTAINS(launch_log("workerlog.0"),
                   "fleet_executor_run: strategy.pipeline has 2 batches in "
                   "flight, which fleet_train_from_dataset() brings");
}
