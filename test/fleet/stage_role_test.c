/* stage_role_test.c - who a process of a job of stages is, by the environment
 * that Fleet's launcher sets; each variable that is missing or contradicts
 * another is named. */
#define SUITE stage_role
#include "gpu_kit.h"
#include "test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <fleet/fleet.h>

#include "base/memory.h"
#include "fleet/job/handle.h"

#define SERVERS  "PADDLE_PSERVERS_IP_PORT_LIST"
#define ALL      "PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST"
#define NEXT     "PADDLE_NEXT_HETER_TRAINER_IP_PORT_LIST"
#define PREVIOUS "PADDLE_PREVIOUS_HETER_TRAINER_IP_PORT_LIST"
#define COUNTS   "PADDLE_STAGE_TRAINERS_NUM"

/* Two workers, two heter workers in the second stage, one in the third. */
static void be_of_job(void)
{
    setenv(SERVERS, "h:1", 1);
    setenv("PADDLE_TRAINERS_NUM", "2", 1);
    setenv("PADDLE_TRAINER_ENDPOINTS", "w:1,w:2", 1);
    setenv(ALL, "g:1,g:2,g:3", 1);
}

static void be_of_stage(const char *id, const char *next, const char *previous)
{
    be_of_job();
    setenv("STAGE_NUM", "3", 1);
    setenv(COUNTS, "[2, 2, 1]", 1);
    setenv("STAGE_ID", id, 1);
    setenv(NEXT, next, 1);
    setenv(PREVIOUS, previous, 1);
}

static void be_worker(void)
{
    be_of_stage("1", "g:1,g:2", "");
    setenv("TRAINING_ROLE", "TRAINER", 1);
    setenv("PADDLE_TRAINER_ID", "1", 1);
}

static void be_heter(int i)
{
    char port[12];

    if (i < 2)
        be_of_stage("2", "g:3", "w:1,w:2");
    else
        be_of_stage("3", "", "g:1,g:2");
    snprintf(port, sizeof port, "%d", i + 1);
    setenv("TRAINING_ROLE", "HETER_TRAINER", 1);
    setenv("POD_IP", "g", 1);
    setenv("PADDLE_PORT", port, 1);
    setenv("HETER_DEVICE_TYPE", "cpu", 1);
}

static fleet *open_fleet(void)
{
    fleet *f;

    CHECK_OK(fleet_init(&f, NULL));
    return f;
}

static void check_refused(fleet_status code, const char *words)
{
    fleet *none;

    CHECK_FAILS(fleet_init(&none, NULL), code, words);
    CHECK(none == NULL);
}

static void check_place(const fleet *f, int heter, int stage, int n_stage)
{
    CHECK_INT(fleet_heter_worker_index(f), heter);
    CHECK_INT(fleet_is_heter_worker(f), heter >= 0);
    CHECK_INT(fleet_heter_worker_num(f), 3);
    CHECK_INT(fleet_stage_id(f), stage);
    CHECK_INT(fleet_stage_num(f), n_stage);
    CHECK_INT(fleet_worker_num(f), 2);
    CHECK_INT(fleet_server_num(f), 1);
}

/* --- who it is ------------------------------------------------------------ */

TEST(a_worker_is_stage_0)
{
    fleet *f;

    be_worker();
    f = open_fleet();
    CHECK(fleet_is_worker(f) && fleet_worker_index(f) == 1);
    check_place(f, -1, 0, 3);
    CHECK_INT(fl_role_stream(&f->role), 1);
    fleet_destroy(f);
}

TEST(a_heter_worker_is_its_place_in_the_list)
{
    for (int i = 0; i < 3; i++) {
        fleet *f;

        be_heter(i);
        f = open_fleet();
        CHECK(!fleet_is_worker(f) && !fleet_is_server(f));
        CHECK_INT(fleet_worker_index(f) + fleet_server_index(f), -2);
        check_place(f, i, i < 2 ? 1 : 2, 3);
        CHECK_INT(fl_role_stream(&f->role), 2 + i);
        CHECK(!f->role.stages.on_gpu);
        fleet_destroy(f);
    }
}

TEST(a_server_hears_who_the_heter_workers_are)
{
    fleet *f;

    be_of_job();
    setenv("TRAINING_ROLE", "PSERVER", 1);
    setenv("POD_IP", "h", 1);
    setenv("PADDLE_PORT", "1", 1);
    f = open_fleet();
    CHECK(fleet_is_server(f));
    check_place(f, -1, -1, 0);
    fleet_destroy(f);
}

TEST(a_job_without_them_is_one_stage)
{
    fleet *f = open_fleet();

    CHECK(!fleet_is_heter_worker(f));
    CHECK_INT(fleet_heter_worker_num(f), 0);
    CHECK_INT(fleet_heter_worker_index(f), -1);
    CHECK_INT(fleet_stage_id(f), 0);
    CHECK_INT(fleet_stage_num(f), 1);
    fleet_destroy(f);
    CHECK_INT(fleet_is_heter_worker(NULL) + fleet_heter_worker_num(NULL) +
                  fleet_heter_worker_index(NULL) + fleet_stage_id(NULL) +
                  fleet_stage_num(NULL),
              0);
}

TEST(a_heter_worker_on_a_gpu_takes_the_one_it_was_given)
{
    fleet *f;

    be_heter(2);
    setenv("HETER_DEVICE_TYPE", "gpu", 1);
    setenv("FLAGS_selected_gpus", "3", 1);
    f = open_fleet();
    CHECK(f->role.stages.on_gpu);
    CHECK_INT(fleet_worker_gpu(f), 3);
    fleet_destroy(f);
    setenv("HETER_DEVICE_TYPE", "xpu", 1);
    check_refused(FLEET_EUNSUPPORTED,
                  "HETER_DEVICE_TYPE is \"xpu\": expected cpu or gpu");
}

/* --- what is missing ------------------------------------------------------ */

TEST(a_variable_that_is_missing_is_named)
{
    static const struct {
        const char *name, *expected;
    } need[] = {
        {"STAGE_NUM", "an integer from 2 to 16"},
        {COUNTS, "the processes of each stage"},
        {"STAGE_ID", "an integer from 2 to 3"},
        {NEXT, "the trainers of the next stage"},
        {PREVIOUS, "the trainers of the stage before"},
        {"HETER_DEVICE_TYPE", "cpu or gpu"},
        {"POD_IP", "the address of this heter trainer"},
        {"PADDLE_PORT", "an integer from 1 to 65535"},
    };

    for (size_t i = 0; i < sizeof need / sizeof *need; i++) {
        char words[200];

        be_heter(0);
        unsetenv(need[i].name);
        snprintf(words, sizeof words,
                 "%s is not set, but " ALL " is: expected %s", need[i].name,
                 need[i].expected);
        check_refused(FLEET_ENOENT, words);
    }
}

TEST(the_list_of_all_is_what_the_others_need)
{
    static const char *const names[] = {NEXT, PREVIOUS, COUNTS};

    for (int i = 0; i < 4; i++) {
        char words[200];

        be_heter(0);
        unsetenv(ALL);
        for (int k = 0; k < 3; k++)
            if (k != i)
                unsetenv(names[k]);
        snprintf(words, sizeof words, ALL " is not set, but %s is: expected",
                 i < 3 ? names[i] : "TRAINING_ROLE");
        check_refused(FLEET_ENOENT, words);
    }
    setenv("TRAINING_ROLE", "TRAINER", 1);
    setenv("PADDLE_TRAINER_ID", "0", 1);
    setenv(ALL, "", 1); /* as if it were not set */
    fleet_destroy(open_fleet());
}

TEST(a_job_of_stages_has_servers)
{
    be_worker();
    unsetenv(SERVERS);
    check_refused(FLEET_ENOENT, SERVERS " is not set, but " ALL " is");
    unsetenv(ALL);
    unsetenv(NEXT);
    unsetenv(COUNTS);
    setenv("TRAINING_ROLE", "HETER_TRAINER", 1);
    check_refused(FLEET_ENOENT, SERVERS " is not set, but TRAINING_ROLE is");
}

/* --- what contradicts ----------------------------------------------------- */

static void check_variable(int heter, const char *name, const char *value,
                           const char *words)
{
    if (heter < 0)
        be_worker();
    else
        be_heter(heter);
    setenv(name, value, 1);
    check_refused(FLEET_EINVAL, words);
}

TEST(counts_are_as_many_as_the_stages_and_as_the_lists_have)
{
    static const char *const bad[] = {"[2, 2]",     "[2, 2, 1, 1]", "[2, 2, x]",
                                      "[2, 2, 1",   "2, 2, 1]",     "[2, 3, 0]",
                                      "[2, 2, 1] ", "[2,, 1]",      "[]"};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char words[200];

        snprintf(words, sizeof words,
                 COUNTS " is \"%s\": expected the processes of each of "
                        "STAGE_NUM 3 stages",
                 bad[i]);
        check_variable(0, COUNTS, bad[i], words);
    }
    check_variable(0, COUNTS, "[3, 2, 1]",
                   "has 3 in the first stage: expected 2, as "
                   "PADDLE_TRAINERS_NUM says");
    check_variable(0, COUNTS, "2,2,2",
                   "has 4 heter trainers: expected 3, as many as " ALL);
    be_worker();
    setenv(COUNTS, "2,2,1", 1); /* without Python's brackets */
    fleet_destroy(open_fleet());
}

TEST(a_stage_is_one_of_the_role)
{
    check_variable(-1, "STAGE_ID", "2",
                   "STAGE_ID is \"2\": expected an integer from 1 to 1");
    check_variable(0, "STAGE_ID", "1",
                   "STAGE_ID is \"1\": expected an integer from 2 to 3");
    check_variable(0, "STAGE_ID", "4", "expected an integer from 2 to 3");
    check_variable(0, "STAGE_NUM", "1",
                   "STAGE_NUM is \"1\": expected an integer from 2 to 16");
}

TEST(neighbours_are_those_of_the_stages_beside)
{
    check_variable(-1, NEXT, "g:1",
                   NEXT " is \"g:1\": expected \"g:1,g:2\", which are stage 2");
    check_variable(-1, NEXT, "g:1,g:2,g:3", "expected \"g:1,g:2\"");
    check_variable(-1, NEXT, "g:2,g:1", "expected \"g:1,g:2\"");
    check_variable(-1, PREVIOUS, "w:1",
                   PREVIOUS " is \"w:1\": expected none, as STAGE_ID says the "
                            "first stage");
    check_variable(2, NEXT, "g:1",
                   NEXT " is \"g:1\": expected none, as STAGE_ID says the last "
                        "stage");
    check_variable(2, PREVIOUS, "w:1,w:2", "expected \"g:1,g:2\"");
    check_variable(0, PREVIOUS, "w:1",
                   PREVIOUS " is \"w:1\": expected \"w:1,w:2\", as "
                            "PADDLE_TRAINER_ENDPOINTS is");
}

TEST(a_heter_worker_is_in_the_list_and_in_its_stage)
{
    check_variable(0, "PADDLE_PORT", "9",
                   "POD_IP:PADDLE_PORT is \"g:9\": expected one of " ALL
                   ", \"g:1,g:2,g:3\"");
    check_variable(0, "PADDLE_PORT", "3",
                   "POD_IP:PADDLE_PORT is \"g:3\": expected one of stage 2, as "
                   "STAGE_ID says: numbers 0 to 1 of " ALL ", and this is 2");
    check_variable(0, ALL, "g:1,g:1,g:3", "\"g:1\" stands twice");
    check_variable(0, ALL, "g:1,g:2,g", "\"g\": expected ip:port");
}

TEST(workers_of_stages_are_no_ranks)
{
    check_variable(-1, "PADDLE_GLOBAL_SIZE", "2",
                   "PADDLE_GLOBAL_SIZE is \"2\", but " ALL " is set, too");
}

/* --- its socket ----------------------------------------------------------- */

TEST(a_heter_worker_keeps_its_socket_until_it_is_destroyed)
{
    char text[12];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    fleet *f;

    CHECK(fd > 0 && listen(fd, 1) == 0);
    snprintf(text, sizeof text, "%d", fd);
    be_heter(1);
    setenv("FLEET_LISTEN_FD", text, 1);
    setenv("FLEET_SERVER_LANES", "x", 1);
    check_refused(FLEET_EINVAL, "FLEET_SERVER_LANES");
    unsetenv("FLEET_SERVER_LANES");
    setenv("FLEET_KEYS", "/none", 1); /* after the socket was taken */
    check_refused(FLEET_ENOENT, "/none");
    unsetenv("FLEET_KEYS");
    f = open_fleet();
    CHECK_INT(f->role.listen_fd, fd);
    CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);
    fleet_destroy(f);
    CHECK(fcntl(fd, F_GETFD) < 0);
}

/* --- what it cannot do ---------------------------------------------------- */

/* The first worker of one heter worker. */
static fleet *open_trainer(void)
{
    setenv(SERVERS, "h:1", 1);
    setenv("TRAINING_ROLE", "TRAINER", 1);
    setenv("PADDLE_TRAINER_ID", "0", 1);
    setenv("PADDLE_TRAINERS_NUM", "1", 1);
    setenv("PADDLE_TRAINER_ENDPOINTS", "w:1", 1);
    setenv(ALL, "g:1", 1);
    setenv("STAGE_NUM", "2", 1);
    setenv(COUNTS, "[1, 1]", 1);
    setenv("STAGE_ID", "1", 1);
    setenv(NEXT, "g:1", 1);
    setenv(PREVIOUS, "", 1);
    return open_fleet();
}

static fleet_program *minimize_in_stages(fleet *f)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet_program *p = fleet_program_create(f);
    fleet_var *x = fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, 2}, 2);
    fleet_var *label =
        fleet_data(p, "label", FLEET_INT64, (int64_t[]){-1, 1}, 2);
    fleet_var *h;

    s.a_sync = 0;
    (void)fleet_data(p, "unread", FLEET_INT64, (int64_t[]){-1, 1}, 2);
    CHECK_OK(fleet_device_guard(p, "cpu"));
    h = fleet_fc(p, x, 2, NULL);
    CHECK_OK(fleet_device_guard(p, "gpu"));
    h = fleet_fc(p, h, 2, NULL);
    CHECK_OK(fleet_minimize(
        fleet_distributed_optimizer(f, fleet_sgd(f, 0.1f), &s),
        fleet_mean(p, fleet_softmax_with_cross_entropy(p, h, label, NULL))));
    CHECK_OK(fleet_device_guard(p, NULL));
    return p;
}

TEST(what_came_after_the_cut_is_refused)
{
    fleet *f = open_trainer();
    fleet_program *p = minimize_in_stages(f);
    fleet_var *shown = fleet_softmax(p, fleet_program_var(p, "fc_0.tmp"));

    CHECK_FAILS(fleet_program_place(p, FLEET_CPU, NULL), FLEET_ESTATE,
                "fleet_minimize() has cut the program into stages");
    (void)fleet_auc(p, shown, fleet_program_var(p, "label"), 0);
    CHECK(fleet_executor_create(p, NULL) == NULL);
    CHECK_CONTAINS(fleet_last_error(), "(auc) was added after");
    fleet_destroy(f);
}

TEST(a_trainer_takes_the_data_of_the_whole_program)
{
    fleet *f = open_trainer();
    const fleet_program *own = minimize_in_stages(f)->stage;

    CHECK(fleet_program_var(own, "unread") != NULL);
    CHECK_INT(fleet_program_var(own, "label")->labels_to, 1);
    fleet_destroy(f);
}

TEST(a_job_that_is_not_trained_in_stages_trains_nothing)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet *f;
    fleet_program *p;
    fleet_var *x, *loss;
    fleet_optimizer *o;

    s.a_sync = 0;
    be_worker();
    f = open_fleet();
    p = fleet_program_create(f);
    x = fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, 2}, 2);
    o = fleet_distributed_optimizer(f, fleet_sgd(f, 0.1f), &s);
    loss = fleet_mean(p, fleet_fc(p, x, 1, NULL));
    CHECK_FAILS(fleet_minimize(o, loss), FLEET_EINVAL,
                "fleet_minimize: the guards of the program make 1 stage "
                "(fleet_device_guard()), and the job has 3");
    CHECK(p->training.loss == NULL); /* so nothing trains it */
    CHECK_FAILS(fleet_run_heter_worker(f), FLEET_ESTATE,
                "this process is no heter worker");
    fleet_destroy(f);
}

/* --- more than two stages ------------------------------------------------- */

/* A layer for each, on a CPU and a GPU by turns. */
static fleet_program *build_stages(fleet *f, int n, fleet_var **loss)
{
    fleet_program *p = fleet_program_create(f);
    fleet_var *h = fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, 2}, 2);

    for (int i = 0; i < n; i++) {
        CHECK_OK(fleet_device_guard(p, i % 2 ? "gpu" : "cpu"));
        h = fleet_fc(p, h, 2, NULL);
    }
    *loss = fleet_mean(p, h);
    return p;
}

static fleet_status minimize_stages(fleet *f, fleet_var *loss, int in_flight)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;

    s.a_sync = 0;
    s.pipeline = in_flight > 1;
    s.pipeline_configs.accumulate_steps = in_flight;
    return fleet_minimize(
        fleet_distributed_optimizer(f, fleet_sgd(f, 0.1f), &s), loss);
}

static fleet *open_server(void)
{
    be_of_job();
    setenv("TRAINING_ROLE", "PSERVER", 1);
    setenv("POD_IP", "h", 1);
    setenv("PADDLE_PORT", "1", 1);
    return open_fleet();
}

/* Three heter workers are of one to three stages. */
TEST(a_server_takes_as_many_stages_as_heter_workers_may_make)
{
    for (int n = 1; n < 6; n++) {
        fleet *f = open_server();
        fleet_var *loss;

        (void)build_stages(f, n, &loss);
        if (n > 1 && n < 5)
            CHECK_OK(minimize_stages(f, loss, 1));
        else
            CHECK_FAILS(minimize_stages(f, loss, 1), FLEET_EINVAL,
                        "(fleet_device_guard()): expected 2 to 4, as the job "
                        "has 3 heter workers");
        fleet_destroy(f);
    }
}

TEST(a_gpu_between_two_stages_has_one_batch_in_flight)
{
    gpu_kit_open();
    for (int n = 1; n < 3; n++) {
        fleet_program *p;
        fleet_var *loss;
        fleet *f;

        be_heter(0);
        f = open_fleet();
        p = build_stages(f, 3, &loss);
        CHECK_OK(fleet_program_place(p, FLEET_GPU(0), NULL));
        if (n == 1)
            CHECK_OK(minimize_stages(f, loss, n));
        else
            CHECK_FAILS(minimize_stages(f, loss, n), FLEET_EUNSUPPORTED,
                        "strategy.pipeline with a GPU between two stages");
        fleet_destroy(f);
    }
    gpu_kit_close();
}

/* Its number is none of a worker: of 2 files it would have the third. */
TEST(a_heter_worker_has_no_share_of_the_data)
{
    static const fleet_slot slot = {.name = "x"};
    const fleet_dataset_options o = {.slots = &slot, .n_slot = 1};

    for (int i = 0; i < 3; i++) {
        const char *files[] = {test_file("a", "1 1\n"),
                               test_file("b", "1 2\n")};
        int64_t first = -1, count = -1;
        fleet_dataset *d;
        fleet *f;

        be_heter(i);
        f = open_fleet();
        CHECK_OK(fleet_util_file_shard(f, 2, &first, &count));
        CHECK(first == 0 && count == 0);
        d = fleet_in_memory_dataset(f, &o);
        CHECK_OK(fleet_dataset_set_filelist(d, files, 2));
        CHECK_FAILS(fleet_dataset_load_into_memory(d), FLEET_ESTATE,
                    "dataset: this process is a heter worker: workers train");
        fleet_destroy(f);
    }
}

TEST(memory_that_runs_out_is_an_error)
{
    be_heter(0);
    for (int n = 1;; n++) {
        fleet *f;
        fleet_status status;

        fl_memory_fail_at(n, false);
        status = fleet_init(&f, NULL);
        fl_memory_fail_at(0, false);
        if (status == FLEET_OK) {
            fleet_destroy(f);
            break;
        }
        CHECK_INT(status, FLEET_ENOMEM);
    }
}
