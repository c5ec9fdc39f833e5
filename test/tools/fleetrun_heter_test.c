/* fleetrun_heter_test.c - a job of stages under fleetrun: what each process is
 * told, and that the library understands it; flags that contradict. */
#define SUITE fleetrun_heter
#include "launch_kit.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fleet/fleet.h>

#define ALL      "PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST"
#define NEXT     "PADDLE_NEXT_HETER_TRAINER_IP_PORT_LIST"
#define PREVIOUS "PADDLE_PREVIOUS_HETER_TRAINER_IP_PORT_LIST"

static void check_value(const char *log, const char *variable, const char *want)
{
    CHECK_TEXT(launch_value(log, variable), want);
}

/* Entries of a list, from `first` on. */
static const char *part(const char *list, int first, int n)
{
    char text[300] = "";

    for (int i = 0; i < first + n; i++) {
        const size_t length = strcspn(list, ",");

        if (i >= first)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%.*s",
                     *text ? "," : "", (int)length, list);
        list += length + (list[length] == ',');
    }
    return test_keep(text);
}

static void check_stage(const char *log, const char *id, const char *next,
                        const char *previous)
{
    check_value(log, "STAGE_ID", id);
    check_value(log, "STAGE_NUM", "3");
    check_value(log, "PADDLE_STAGE_TRAINERS_NUM", "[2, 2, 1]");
    check_value(log, "PADDLE_TRAINERS_NUM", "2");
    check_value(log, NEXT, next);
    check_value(log, PREVIOUS, previous);
}

TEST(tells_each_process_its_stage)
{
    const char *all, *workers;
    char own[100];

    setenv("STAGE_ID", "7", 1); /* another launcher's */
    CHECK_INT(launch_run("--server_num 1 --worker_num 2 --heter_worker_num 2;1 "
                         "--heter_devices cpu;gpu --job_id night",
                         "env"),
              0);
    all = launch_value("serverlog.0", ALL);
    workers = launch_value("serverlog.0", "PADDLE_TRAINER_ENDPOINTS");
    check_value("serverlog.0", "STAGE_ID", "(unset)");
    check_value("serverlog.0", NEXT, "(unset)");
    check_value("workerlog.1", ALL, all);
    check_stage("workerlog.1", "1", part(all, 0, 2), "(unset)");
    check_value("workerlog.1", "HETER_DEVICE_TYPE", "(unset)");
    check_stage("heterlog.1", "2", part(all, 2, 1), workers);
    check_value("heterlog.1", "HETER_DEVICE_TYPE", "cpu");
    check_value("heterlog.1", "FLAGS_selected_gpus", "(unset)");
    check_stage("heterlog.2", "3", "(unset)", part(all, 0, 2));
    check_value("heterlog.2", "HETER_DEVICE_TYPE", "gpu");
    check_value("heterlog.2", "FLAGS_selected_gpus", "0");
    check_value("heterlog.2", "TRAINING_ROLE", "HETER_TRAINER");
    check_value("heterlog.2", "PADDLE_TRAINER_ID", "(unset)");
    check_value("heterlog.2", "POD_NAME", "night.heter.2");
    snprintf(own, sizeof own, "%s:%s", launch_value("heterlog.2", "POD_IP"),
             launch_value("heterlog.2", "PADDLE_PORT"));
    CHECK_TEXT(own, part(all, 2, 1));
    CHECK(atoi(launch_value("heterlog.2", "FLEET_LISTEN_FD")) > 2);
}

/* A process of the test below is this program, once more: it has a socket that
 * listens, and keys, or fleet_init() would say so. */
__attribute__((constructor)) static void be_of_a_job(void)
{
    fleet *f;

    if (!getenv("TEST_STAGES"))
        return;
    if (fleet_init(&f, NULL) != FLEET_OK) {
        puts(fleet_last_error());
    } else {
        printf("stage %d of %d, heter worker %d of %d\n", fleet_stage_id(f),
               fleet_stage_num(f), fleet_heter_worker_index(f),
               fleet_heter_worker_num(f));
        fleet_destroy(f);
    }
    fflush(stdout);
    _Exit(0);
}

TEST(the_library_understands_what_it_is_told)
{
    setenv("TEST_STAGES", "1", 1);
    CHECK_INT(launch_command((char *[]){
                  (char *)"--server_num=1", (char *)"--worker_num=1",
                  (char *)"--heter_worker_num=1;1", (char *)"--log_dir",
                  (char *)test_path("log"), (char *)test_program(), NULL}),
              0);
    CHECK_TEXT(launch_log("serverlog.0"),
               "stage -1 of 0, heter worker -1 of 2\n");
    CHECK_TEXT(launch_log("workerlog.0"),
               "stage 0 of 3, heter worker -1 of 2\n");
    CHECK_TEXT(launch_log("heterlog.0"), "stage 1 of 3, heter worker 0 of 2\n");
    CHECK_TEXT(launch_log("heterlog.1"), "stage 2 of 3, heter worker 1 of 2\n");
}

TEST(names_a_heter_worker_that_fails)
{
    CHECK_INT(launch_run("--server_num 1 --worker_num 1 --heter_worker_num 1 "
                         "--grace 0",
                         "[ $TRAINING_ROLE = HETER_TRAINER ] && exit 7; "
                         "sleep 60"),
              7);
    CHECK_CONTAINS(launch_err(), "the job has failed: heter worker 0");
    CHECK_CONTAINS(launch_err(), "log/heterlog.0");
}

static void check_refused(const char *flags, const char *words)
{
    CHECK_INT(launch_run(flags, "true"), 2);
    CHECK_CONTAINS(launch_err(), words);
}

TEST(refuses_flags_that_contradict)
{
    check_refused("--server_num 1 --heter_worker_num 1;x",
                  "--heter_worker_num: expected an integer from 1 to 4096, got "
                  "\"x\"");
    check_refused("--server_num 1 --heter_worker_num 1;0", "got \"0\"");
    check_refused("--server_num 1 --heter_worker_num 1 --heter_workers h:1",
                  "--heter_workers and --heter_worker_num: give one");
    check_refused("--heter_worker_num 1", "heter workers are for jobs with "
                                          "servers");
    check_refused("--server_num 1 --collective --heter_worker_num 1",
                  "workers that are no ranks");
    check_refused("--server_num 1 --heter_worker_num 1;1 --heter_devices cpu",
                  "--heter_devices has 1 stages, but the heter workers have 2");
    check_refused("--server_num 1 --heter_devices gpu",
                  "--heter_devices has 1 stages, but the heter workers have 0");
    check_refused("--server_num 1 --heter_worker_num 1 --heter_devices xpu",
                  "expected cpu or gpu for each stage, got \"xpu\"");
    check_refused("--server_num 1 --heter_workers 127.0.0.1:1;127.0.0.1",
                  "--heter_workers: expected ip:port, got \"127.0.0.1\"");
}
