/* fleetrun_ranks_test.c - collective jobs: what fleetrun tells each rank, how
 * it starts them by mpirun or for GPUs, and how such a job ends. */
#define _GNU_SOURCE
#define SUITE fleetrun_ranks
#include "launch_kit.h"
#include "net/keys.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fleet/fleet.h>

static void check_value(const char *log, const char *variable, const char *want)
{
    CHECK_TEXT(launch_value(log, variable), want);
}

static void check_number(const char *log, const char *variable, int want)
{
    char text[16];

    snprintf(text, sizeof text, "%d", want);
    check_value(log, variable, text);
}

static const char *log_of(int rank)
{
    char name[24];

    snprintf(name, sizeof name, "workerlog.%d", rank);
    return test_keep(name);
}

static void check_rank(int rank, int local, int n)
{
    const char *log = log_of(rank);

    check_number(log, "PADDLE_TRAINER_ID", rank);
    check_number(log, "PADDLE_GLOBAL_RANK", rank);
    check_number(log, "PADDLE_LOCAL_RANK", local);
    check_number(log, "PADDLE_RANK_IN_NODE", local);
    check_number(log, "PADDLE_TRAINERS_NUM", n);
    check_number(log, "PADDLE_GLOBAL_SIZE", n);
    check_value(log, "TRAINING_ROLE", "TRAINER");
    check_value(log, "PADDLE_ROLE", "TRAINER");
}

static void check_endpoint(int rank)
{
    const char *log = log_of(rank);
    const char *list = launch_value(log, "PADDLE_TRAINER_ENDPOINTS");
    char own[100], among[4096], wanted[110];

    snprintf(own, sizeof own, "%s:%s", launch_value(log, "POD_IP"),
             launch_value(log, "PADDLE_PORT"));
    check_value(log, "PADDLE_CURRENT_ENDPOINT", own);
    snprintf(among, sizeof among, ",%s,", list);
    snprintf(wanted, sizeof wanted, ",%s,", own);
    CHECK_CONTAINS(among, wanted);
}

/* --- by mpirun ------------------------------------------------------------ */

TEST(tells_a_rank_its_part)
{
    launch_need_mpirun();
    setenv("PADDLE_TRAINER_ID", "77", 1); /* another launcher's */
    setenv("PMIX_RANK", "5", 1);
    CHECK_INT(launch_run("--nproc_per_node 3 --job_id night", "env"), 0);
    for (int i = 0; i < 3; i++) {
        char name[40];

        snprintf(name, sizeof name, "night.worker.%d", i);
        check_rank(i, i, 3);
        check_endpoint(i);
        check_number(log_of(i), "PADDLE_LOCAL_SIZE", 3);
        check_number(log_of(i), "PADDLE_NNODES", 1);
        check_number(log_of(i), "OMPI_COMM_WORLD_RANK", i);
        check_value(log_of(i), "POD_NAME", name);
        check_value(log_of(i), "PADDLE_LOG_DIR", test_path("log"));
        check_value(log_of(i), "FLAGS_selected_gpus", "(unset)");
        check_value(log_of(i), "FLEETRUN_TOKEN", "(unset)");
        CHECK_TEXT(launch_value(log_of(i), "PADDLE_MASTER"),
                   launch_value(log_of(0), "PADDLE_CURRENT_ENDPOINT"));
    }
}

TEST(reads_the_other_spellings)
{
    static const char *const same[] = {"--collective --worker_num 2",
                                       "--nnodes=1 --trainer_num=2",
                                       "--nnodes 1 --rank 0 --worker_num 2",
                                       "--hosts 127.0.0.1 --nproc_per_node 2"};

    launch_need_mpirun();
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        CHECK_INT(launch_run(same[i], "env"), 0);
        check_rank(1, 1, 2);
    }
}

TEST(a_rank_has_its_log_and_no_other_descriptor)
{
    launch_need_mpirun();
    /* a log's two streams are two pipes: their lines have no order */
    CHECK_INT(launch_run("--nproc_per_node 2",
                         "ls /proc/$$/fd; echo out$PADDLE_TRAINER_ID;"
                         "echo err$PADDLE_TRAINER_ID >&2; cat"),
              0);
    for (int i = 0; i < 2; i++) {
        char log[24];
        char out[24];
        char err[24];

        snprintf(log, sizeof log, "workerlog.%d", i);
        snprintf(out, sizeof out, "out%d\n", i);
        snprintf(err, sizeof err, "err%d\n", i);
        CHECK_CONTAINS(launch_log(log), "0\n1\n2\n");
        CHECK_CONTAINS(launch_log(log), out);
        CHECK_CONTAINS(launch_log(log), err);
    }
    CHECK_TEXT(launch_out(), "0\n1\n2\nout0\n");
    CHECK_TEXT(launch_err(), "");
    /* mpirun's own words: without /sys it has some */
    CHECK(!strstr(launch_log("mpirun.log"), "err0"));
    CHECK(!strstr(launch_log("mpirun.log"), "err1"));
}

TEST(ranks_get_the_programs_arguments)
{
    char *arguments[] = {(char *)"--log_dir",
                         (char *)test_path("log"),
                         (char *)"--nproc_per_node=2",
                         (char *)"printf",
                         (char *)"<%s>",
                         (char *)"a b",
                         (char *)"",
                         (char *)"-n",
                         NULL};

    launch_need_mpirun();
    CHECK_INT(launch_command(arguments), 0);
    CHECK_TEXT(launch_log("workerlog.1"), "<a b><><-n>");
}

TEST(divides_processors_among_ranks)
{
    launch_need_mpirun();
    unsetenv("OMP_NUM_THREADS");
    setenv("FLEET_NUM_THREADS", "5", 1);
    CHECK_INT(launch_run("--nproc_per_node 2", "env"), 0);
    check_value("workerlog.1", "FLEET_NUM_THREADS", "5");
    CHECK(atoi(launch_value("workerlog.1", "OMP_NUM_THREADS")) >= 1);
    CHECK(atoi(launch_value("workerlog.1", "OMP_NUM_THREADS")) <=
          (int)sysconf(_SC_NPROCESSORS_ONLN) / 2 + 1);
}

TEST(servers_and_ranks_know_of_each_other)
{
    launch_need_mpirun();
    CHECK_INT(launch_run("--server_num 1 --worker_num 2 --collective", "env"),
              0);
    check_rank(0, 0, 2);
    check_rank(1, 1, 2);
    check_value("serverlog.0", "TRAINING_ROLE", "PSERVER");
    check_value("serverlog.0", "PADDLE_GLOBAL_SIZE", "2");
    check_value("serverlog.0", "PADDLE_TRAINER_ID", "(unset)");
    check_value("serverlog.0", "OMPI_COMM_WORLD_RANK", "(unset)");
    CHECK(atoi(launch_value("serverlog.0", "FLEET_LISTEN_FD")) > 2);
    check_value("workerlog.1", "FLEET_LISTEN_FD", "(unset)");
    CHECK_TEXT(launch_value("workerlog.1", "PADDLE_PSERVERS_IP_PORT_LIST"),
               launch_value("serverlog.0", "PADDLE_PSERVERS_IP_PORT_LIST"));
    CHECK_TEXT(launch_value("workerlog.1", "FLEET_IPC_FOLDER"),
               launch_value("serverlog.0", "FLEET_IPC_FOLDER"));
}

TEST(names_what_to_install_where_there_is_no_mpirun)
{
    setenv("PATH", test_folder(), 1);
    CHECK_INT(launch_run("--nproc_per_node 2", "true"), 1);
    CHECK_CONTAINS(launch_err(), "mpirun is not in PATH");
    CHECK_CONTAINS(launch_err(), "apt-get install openmpi-bin");
}

TEST(says_why_ranks_cannot_be_executed)
{
    char *log = (char *)test_path("log");
    char *text = (char *)test_file("text", "not a program");
    char *flags[] = {(char *)"--nproc_per_node=2", (char *)"--log_dir", log,
                     (char *)"no-such-program", NULL};

    launch_need_mpirun();
    CHECK_INT(launch_command(flags), 127);
    CHECK_CONTAINS(launch_err(), "fleetrun: cannot execute no-such-program: No "
                                 "such file or directory\n");
    flags[3] = text;
    CHECK_INT(launch_command(flags), 126);
    CHECK_CONTAINS(launch_err(), "Permission denied");
}

/* On "another host", which an agent in place of ssh reaches. */
TEST(starts_ranks_on_several_hosts)
{
    const char *agent =
        test_file("agent", "#!/bin/sh\nshift\nexec sh -c \"$*\"\n");

    launch_need_mpirun();
    CHECK(chmod(agent, 0700) == 0);
    setenv("OMPI_MCA_plm_rsh_agent", agent, 1);
    setenv("FLEET_MINE", "passed on", 1);
    CHECK_INT(launch_run("--ips 127.0.0.1,127.0.0.2 --nproc_per_node 2", "env"),
              0);
    for (int i = 0; i < 4; i++) {
        check_rank(i, i % 2, 4);
        check_endpoint(i);
        check_number(log_of(i), "PADDLE_NNODES", 2);
        check_value(log_of(i), "POD_IP", i < 2 ? "127.0.0.1" : "127.0.0.2");
        check_value(log_of(i), "FLEET_MINE", "passed on");
    }
    CHECK_CONTAINS(launch_out(), "PADDLE_TRAINER_ID=0");
}

/* What the ranks of the test below are: this program, once more. */
__attribute__((constructor)) static void be_a_rank(void)
{
    fleet *f;

    if (!getenv("TEST_SAYS_RANK"))
        return;
    if (fleet_init(&f, NULL) == FLEET_OK)
        printf("worker %d of %d\n", fleet_worker_index(f), fleet_worker_num(f));
    else
        printf("%s\n", fleet_last_error());
    fleet_destroy(f);
    fflush(stdout);
    _exit(0);
}

static void check_voices(const char *text)
{
    CHECK_CONTAINS(text, "worker 0 of 2\n");
    CHECK_CONTAINS(text, "worker 1 of 2\n");
}

TEST(a_bare_mpirun_starts_the_same_ranks)
{
    launch_need_mpirun();
    setenv("TEST_SAYS_RANK", "1", 1);
    setenv("SELF", test_program(), 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    CHECK_INT(launch_run("", "mpirun --oversubscribe -n 2 $SELF"), 0);
    check_voices(launch_log("workerlog.0"));
    CHECK_INT(launch_run("--nproc_per_node 2", "exec $SELF"), 0);
    CHECK_TEXT(launch_log("workerlog.0"), "worker 0 of 2\n");
    CHECK_TEXT(launch_log("workerlog.1"), "worker 1 of 2\n");
}

/* --- for GPUs ------------------------------------------------------------- */

TEST(gives_each_rank_a_device)
{
    unsetenv("CUDA_VISIBLE_DEVICES");
    CHECK_INT(launch_run("--devices 2,3", "env"), 0);
    for (int i = 0; i < 2; i++) {
        check_rank(i, i, 2);
        check_endpoint(i);
        check_number(log_of(i), "FLAGS_selected_gpus", 2 + i);
        check_value(log_of(i), "OMPI_COMM_WORLD_RANK", "(unset)");
    }
    CHECK(atoi(launch_value("workerlog.0", "FLEET_LISTEN_FD")) > 2);
    check_value("workerlog.1", "FLEET_LISTEN_FD", "(unset)");
}

TEST(gives_one_rank_all_devices)
{
    unsetenv("CUDA_VISIBLE_DEVICES");
    CHECK_INT(launch_run("--gpus 0,3 --nproc_per_node 1", "env"), 0);
    check_rank(0, 0, 1);
    check_value("workerlog.0", "FLAGS_selected_gpus", "0,3");
    check_value("workerlog.0", "FLEET_LISTEN_FD", "(unset)");
}

TEST(counts_devices_as_CUDA_does)
{
    setenv("CUDA_VISIBLE_DEVICES", "4,5,GPU-9f", 1);
    CHECK_INT(launch_run("--devices GPU-9f,4", "env"), 0);
    check_value("workerlog.0", "FLAGS_selected_gpus", "2");
    check_value("workerlog.1", "FLAGS_selected_gpus", "0");
    check_value("workerlog.1", "CUDA_VISIBLE_DEVICES", "4,5,GPU-9f");
    CHECK_INT(launch_run("--devices 3", "true"), 2);
    CHECK_CONTAINS(launch_err(), "--devices: 3 is none of "
                                 "CUDA_VISIBLE_DEVICES, \"4,5,GPU-9f\"");
}

TEST(counts_ranks_over_nodes)
{
    const char *keys = test_path("k");
    char flags[400], master[40];

    unsetenv("CUDA_VISIBLE_DEVICES");
    CHECK_OK(fl_keys_make(keys, 1, 4));
    snprintf(master, sizeof master, "127.0.0.1:%d",
             launch_free_port("127.0.0.1"));
    for (int node = 0; node < 2; node++) {
        snprintf(flags, sizeof flags,
                 "--keys %s --devices 0,1 --nnodes 2 --node_rank %d "
                 "--master %s",
                 keys, node, master);
        CHECK_INT(launch_run(flags, "env"), 0);
        for (int i = 0; i < 2; i++) {
            const char *log = log_of(2 * node + i);

            check_rank(2 * node + i, i, 4);
            check_number(log, "PADDLE_NNODES", 2);
            check_value(log, "FLEET_KEYS", keys);
            check_number(log, "FLAGS_selected_gpus", i);
            check_value(log, "PADDLE_MASTER", master);
            check_value(log, "PADDLE_TRAINER_ENDPOINTS", "(unset)");
        }
    }
    CHECK(strcmp(launch_value(log_of(0), "FLEET_LISTEN_FD"), "(unset)") != 0);
    check_value(log_of(2), "FLEET_LISTEN_FD", "(unset)");
}

TEST(gives_workers_of_servers_devices_too)
{
    unsetenv("CUDA_VISIBLE_DEVICES");
    CHECK_INT(launch_run("--server_num 1 --worker_num 2 --devices 1,0", "env"),
              0);
    check_value("workerlog.0", "FLAGS_selected_gpus", "1");
    check_value("workerlog.1", "FLAGS_selected_gpus", "0");
    check_value("workerlog.1", "PADDLE_GLOBAL_SIZE", "(unset)");
    check_value("serverlog.0", "FLAGS_selected_gpus", "(unset)");
}

/* --- flags ---------------------------------------------------------------- */

TEST(refuses_what_does_not_go_together)
{
    static const struct {
        const char *flags, *words;
    } wrong[] = {
        {"--nproc_per_node 0", "expected an integer from 1 to 4096"},
        {"--nnodes 1:2", "--nnodes: expected an integer from 1 to 4096, got"},
        {"--nproc_per_node 2 --worker_num 3",
         "--nproc_per_node is 2 and --worker_num 3"},
        {"--collective --workers a:1", "ranks are not listed but counted"},
        {"--nnodes 2 --nproc_per_node 2",
         "--nnodes is 2: ranks on the CPUs of several nodes are processes of "
         "one MPI job: give --ips on one of them, or start the program with "
         "mpirun or srun"},
        {"--nnodes 2 --devices 0", "--nnodes is 2: give --master, too"},
        {"--nnodes 2 --devices 0 --master a:1", "give --node_rank, too"},
        {"--nnodes 2 --devices 0 --master a:1 --node_rank 2",
         "--node_rank: expected 0 to 1, one of --nnodes, got 2"},
        {"--node_rank 1", "--node_rank: expected 0 to 0"},
        {"--nnodes 2 --devices 0 --master a:1 --rank 0 --server_num 1 "
         "--collective",
         "servers beside ranks are for one node"},
        {"--devices 0 --master here", "--master: expected ip:port, got"},
        {"--ips a,b --devices 0", "--ips is for ranks on CPUs"},
        {"--ips a,b --nnodes 3", "--ips has 2 hosts, but --nnodes is 3"},
        {"--ips a,b --node_rank 1", "with --ips fleetrun is started once"},
        {"--ips a,b --host a", "the first of --ips is this host"},
        {"--ips a,,b", "--ips: a host is missing in \"a,,b\""},
        {"--devices 0,x", "--devices: expected an integer from 0 to 4095"},
        {"--devices 0,", "--devices: expected an integer from 0 to 4095"},
        {"--devices 1,1", "--devices: 1 stands twice"},
        {"--devices 0,1 --nproc_per_node 3",
         "--devices has 2, but there are 3 workers on this node"},
        {"--servers a:1 --host a --workers a:2 --devices 0",
         "--devices and --workers"},
        {"--servers 10.0.0.1:1 --collective",
         "beside ranks all servers are on this node"},
    };

    unsetenv("CUDA_VISIBLE_DEVICES");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_INT(launch_run(wrong[i].flags, "true"), 2);
        CHECK_CONTAINS(launch_err(), wrong[i].words);
    }
}

TEST(explains_the_flags_of_ranks)
{
    CHECK_INT(launch_command((char *[]){(char *)"--help", NULL}), 0);
    CHECK_CONTAINS(launch_out(), "--nproc_per_node N");
    CHECK_CONTAINS(launch_out(), "--node_rank K");
    CHECK_CONTAINS(launch_out(), "--devices LIST");
}
