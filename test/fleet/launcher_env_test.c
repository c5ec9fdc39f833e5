/* launcher_env_test.c - which rank of a collective job a process is: what each
 * launcher sets, what is refused, and with which words; beside servers, too. */
#define SUITE launcher_env
#include "test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fleet/fleet.h>

#include "fleet/job/handle.h"

#define SERVERS   "PADDLE_PSERVERS_IP_PORT_LIST=10.0.0.1:6000"
#define ENDPOINTS "PADDLE_TRAINER_ENDPOINTS=10.0.0.1:7000,10.0.0.2:7000"

/* "A=1 B=2", cut at spaces. */
static void set_all(const char *variables)
{
    char *rest = (char *)test_keep(variables), *save = NULL;

    for (char *v = strtok_r(rest, " ", &save); v;
         v = strtok_r(NULL, " ", &save))
        putenv(v);
}

static void unset_all(const char *variables)
{
    char *rest = (char *)test_keep(variables), *save = NULL;

    for (char *v = strtok_r(rest, " ", &save); v;
         v = strtok_r(NULL, " ", &save)) {
        v[strcspn(v, "=")] = 0;
        unsetenv(v);
    }
}

static fleet *open_with(const char *variables)
{
    fleet *f;

    set_all(variables);
    CHECK_OK(fleet_init(&f, NULL));
    unset_all(variables);
    return f;
}

TEST(a_rank_is_what_its_launcher_says)
{
    static const struct {
        const char *variables;
        int index, num, gpu;
    } ranks[] = {
        {"PADDLE_TRAINER_ID=1 PADDLE_TRAINERS_NUM=3", 1, 3, 1},
        {"PADDLE_TRAINER_ID=2 PADDLE_TRAINERS_NUM=3 TRAINING_ROLE=TRAINER", 2,
         3, 2},
        {"PADDLE_GLOBAL_RANK=4 PADDLE_GLOBAL_SIZE=5 PADDLE_LOCAL_RANK=1", 4, 5,
         1},
        {"PADDLE_TRAINER_ID=4 PADDLE_TRAINERS_NUM=5 PADDLE_RANK_IN_NODE=0 "
         "PADDLE_TRAINING_ROLE=TRAINER",
         4, 5, 0},
        {"PADDLE_TRAINER_ID=1 " ENDPOINTS, 1, 2, 1},
        {"PADDLE_CURRENT_ENDPOINT=10.0.0.2:7000 " ENDPOINTS, 1, 2, 1},
        {"PADDLE_TRAINER_ID=5 PADDLE_TRAINERS_NUM=8 FLAGS_selected_gpus=3", 5,
         8, 3},
        {"PADDLE_TRAINER_ID=1 PADDLE_TRAINERS_NUM=2 FLAGS_selected_gpus=6,7", 1,
         2, 6},
        {"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 "
         "OMPI_COMM_WORLD_LOCAL_RANK=1 PMIX_RANK=3",
         3, 4, 1},
        {"PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=0", 1, 2, 0},
        {"SLURM_PROCID=6 SLURM_STEP_NUM_TASKS=8 SLURM_LOCALID=2 "
         "SLURM_NTASKS=8",
         6, 8, 2},
        {"PMIX_RANK=1 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2", 1, 2, 1},
        /* mpirun has started its daemons by srun */
        {"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 SLURM_PROCID=1 "
         "SLURM_STEP_NUM_TASKS=2",
         3, 4, 3},
        /* what one leaves out another one says */
        {"PADDLE_TRAINERS_NUM=2 OMPI_COMM_WORLD_RANK=1", 1, 2, 1},
        {"OMPI_COMM_WORLD_RANK= PADDLE_TRAINER_ID=1 PADDLE_TRAINERS_NUM=2", 1,
         2, 1},
    };

    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        fleet *f = open_with(ranks[i].variables);

        CHECK(fleet_is_worker(f) && f->role.collective);
        CHECK_INT(fleet_worker_index(f), ranks[i].index);
        CHECK_INT(fleet_is_first_worker(f), ranks[i].index == 0);
        CHECK_INT(fleet_worker_num(f), ranks[i].num);
        CHECK_INT(fleet_server_num(f), 0);
        CHECK_INT(fleet_worker_gpu(f), ranks[i].gpu);
        fleet_destroy(f);
    }
    CHECK_INT(fleet_worker_gpu(NULL), 0);
}

TEST(a_process_of_a_job_of_one_is_alone)
{
    static const char *const alone[] = {
        "PADDLE_TRAINER_ID=0 PADDLE_TRAINERS_NUM=1",
        "PADDLE_TRAINER_ID=0",
        "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1",
        "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1",
        /* a batch script of Slurm's is none of the tasks */
        "SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_LOCALID=0 SLURM_JOB_ID=17",
        "PADDLE_TRAINERS_NUM= OMPI_COMM_WORLD_SIZE=",
    };

    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++) {
        fleet *f = open_with(alone[i]);

        CHECK(!f->role.collective && fleet_is_first_worker(f));
        CHECK_INT(fleet_worker_num(f), 1);
        fleet_destroy(f);
    }
}

TEST(rank_0_can_be_met_where_its_launcher_says)
{
    fleet *f = open_with("PADDLE_TRAINER_ID=1 " ENDPOINTS);

    CHECK_TEXT(f->role.first_rank, "tcp://10.0.0.1:7000");
    fleet_destroy(f);
    f = open_with("PADDLE_TRAINER_ID=1 PADDLE_MASTER=10.0.0.7:99 " ENDPOINTS);
    CHECK_TEXT(f->role.first_rank, "tcp://10.0.0.7:99");
    fleet_destroy(f);
    f = open_with("PADDLE_TRAINER_ID=1 PADDLE_TRAINERS_NUM=2");
    CHECK_TEXT(f->role.first_rank, "");
    fleet_destroy(f);
}

TEST(rank_0_takes_the_socket_that_was_made_for_it)
{
    struct sockaddr_in any = {.sin_family = AF_INET,
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    char variables[200];
    fleet *f;

    CHECK(bind(fd, (struct sockaddr *)&any, sizeof any) == 0);
    CHECK(listen(fd, 5) == 0);
    for (int rank = 0; rank < 2; rank++) {
        snprintf(variables, sizeof variables,
                 "PADDLE_TRAINERS_NUM=2 PADDLE_TRAINER_ID=%d "
                 "FLEET_LISTEN_FD=%d",
                 rank, fd);
        f = open_with(variables);
        CHECK_INT(f->role.listen_fd, rank ? -1 : fd);
        fleet_destroy(f);
    }
    close(fd);
}

static const struct refusal {
    const char *variables;
    fleet_status status;
    const char *words;
} refusals[] = {
    /* what is no number */
    {"PADDLE_TRAINERS_NUM=two", FLEET_EINVAL,
     "PADDLE_TRAINERS_NUM is \"two\": expected an integer from 1 to 4096"},
    {"PADDLE_GLOBAL_SIZE=0", FLEET_EINVAL, "PADDLE_GLOBAL_SIZE is \"0\""},
    {"OMPI_COMM_WORLD_SIZE=4097", FLEET_EINVAL,
     "OMPI_COMM_WORLD_SIZE is \"4097\": expected an integer from 1 to 4096"},
    {"PMI_SIZE=-1", FLEET_EINVAL, "PMI_SIZE is \"-1\""},
    {"SLURM_STEP_NUM_TASKS=2x", FLEET_EINVAL, "SLURM_STEP_NUM_TASKS is \"2x\""},
    {"PADDLE_TRAINERS_NUM=2 PADDLE_TRAINER_ID=2", FLEET_EINVAL,
     "PADDLE_TRAINER_ID is \"2\": expected an integer from 0 to 1"},
    {"PADDLE_TRAINERS_NUM=2 PADDLE_GLOBAL_RANK=+1", FLEET_EINVAL,
     "PADDLE_GLOBAL_RANK is \"+1\""},
    {"OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=2", FLEET_EINVAL,
     "OMPI_COMM_WORLD_RANK is \"2\": expected an integer from 0 to 1"},
    {"PMI_SIZE=2 PMI_RANK=one", FLEET_EINVAL, "PMI_RANK is \"one\""},
    {"PMI_SIZE=2 PMIX_RANK=1.0", FLEET_EINVAL, "PMIX_RANK is \"1.0\""},
    {"SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=2", FLEET_EINVAL,
     "SLURM_PROCID is \"2\": expected an integer from 0 to 1"},
    {"SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 SLURM_LOCALID=x", FLEET_EINVAL,
     "SLURM_LOCALID is \"x\""},
    {"PADDLE_TRAINERS_NUM=2 PADDLE_LOCAL_RANK=2", FLEET_EINVAL,
     "PADDLE_LOCAL_RANK is \"2\": expected an integer from 0 to 1"},
    {"PADDLE_TRAINERS_NUM=2 PADDLE_RANK_IN_NODE=a", FLEET_EINVAL,
     "PADDLE_RANK_IN_NODE is \"a\""},
    {"PMI_SIZE=2 MPI_LOCALRANKID=-1", FLEET_EINVAL,
     "MPI_LOCALRANKID is \"-1\""},
    {"PMI_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=9", FLEET_EINVAL,
     "OMPI_COMM_WORLD_LOCAL_RANK is \"9\""},
    {"FLAGS_selected_gpus=all", FLEET_EINVAL,
     "FLAGS_selected_gpus is \"all\": expected the numbers of GPUs"},
    {"FLAGS_selected_gpus=,1", FLEET_EINVAL, "FLAGS_selected_gpus is \",1\""},
    /* what is no endpoint */
    {"PADDLE_TRAINER_ENDPOINTS=a:1,b", FLEET_EINVAL,
     "PADDLE_TRAINER_ENDPOINTS: \"b\": expected ip:port"},
    {"PADDLE_CURRENT_ENDPOINT=b:x", FLEET_EINVAL,
     "PADDLE_CURRENT_ENDPOINT: \"b:x\": expected ip:port"},
    {"PADDLE_MASTER=http://a", FLEET_EINVAL,
     "PADDLE_MASTER: \"http://a\": expected ip:port"},
    {"PADDLE_CURRENT_ENDPOINT=10.0.0.3:7000 " ENDPOINTS, FLEET_EINVAL,
     "PADDLE_CURRENT_ENDPOINT is \"10.0.0.3:7000\": expected one of "
     "PADDLE_TRAINER_ENDPOINTS"},
    /* what is missing */
    {"PADDLE_TRAINERS_NUM=2", FLEET_ENOENT,
     "there are 2 workers, but nothing says which one this is: expected "
     "PADDLE_TRAINER_ID"},
    {"OMPI_COMM_WORLD_SIZE=3", FLEET_ENOENT, "there are 3 workers"},
    {"PADDLE_TRAINER_ID=1", FLEET_ENOENT,
     "this process is rank 1, but nothing says of how many: expected "
     "PADDLE_TRAINERS_NUM"},
    {"PMIX_RANK=2", FLEET_ENOENT, "this process is rank 2"},
    /* what contradicts */
    {"PADDLE_TRAINERS_NUM=2 PADDLE_TRAINER_ID=1 OMPI_COMM_WORLD_RANK=0",
     FLEET_EINVAL,
     "PADDLE_TRAINER_ID says 1, but OMPI_COMM_WORLD_RANK says 0: expected the "
     "same"},
    {"PADDLE_TRAINERS_NUM=1 OMPI_COMM_WORLD_SIZE=2", FLEET_EINVAL,
     "PADDLE_TRAINERS_NUM says 1, but OMPI_COMM_WORLD_SIZE says 2"},
    {"OMPI_COMM_WORLD_SIZE=2 PMI_SIZE=3", FLEET_EINVAL,
     "OMPI_COMM_WORLD_SIZE says 2, but PMI_SIZE says 3"},
    {"PADDLE_TRAINERS_NUM=3 " ENDPOINTS, FLEET_EINVAL,
     "PADDLE_TRAINERS_NUM says 3, but PADDLE_TRAINER_ENDPOINTS says 2"},
    {"PADDLE_TRAINER_ID=0 PADDLE_CURRENT_ENDPOINT=10.0.0.2:7000 " ENDPOINTS,
     FLEET_EINVAL, "PADDLE_CURRENT_ENDPOINT says 1, but PADDLE_TRAINER_ID"},
    {"PMIX_RANK=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2", FLEET_EINVAL,
     "PMIX_RANK says 0, but SLURM_PROCID says 1"},
    {"PADDLE_TRAINERS_NUM=2 PADDLE_TRAINER_ID=1 PADDLE_LOCAL_RANK=0 "
     "OMPI_COMM_WORLD_LOCAL_RANK=1",
     FLEET_EINVAL,
     "PADDLE_LOCAL_RANK says 0, but OMPI_COMM_WORLD_LOCAL_RANK says 1"},
    /* who is no rank */
    {"PADDLE_TRAINING_ROLE=PSERVER", FLEET_ENOENT,
     "but PADDLE_TRAINING_ROLE is \"PSERVER\""},
};

static void check_refusals(const struct refusal *r, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        fleet *none;

        set_all(r[i].variables);
        CHECK_FAILS(fleet_init(&none, NULL), r[i].status, r[i].words);
        CHECK(none == NULL);
        unset_all(r[i].variables);
    }
}

TEST(what_cannot_be_is_refused_with_what_came)
{
    check_refusals(refusals, sizeof refusals / sizeof *refusals);
}

/* --- beside servers ------------------------------------------------------- */

TEST(a_worker_that_something_of_ranks_has_started_is_one)
{
    static const struct {
        const char *variables;
        int index;
        bool collective;
    } workers[] = {
        {"PADDLE_TRAINER_ID=1", 1, false},
        {"PADDLE_TRAINER_ID=1 PADDLE_GLOBAL_SIZE=2", 1, true},
        {"PADDLE_TRAINER_ID=1 PADDLE_GLOBAL_SIZE=2 PADDLE_GLOBAL_RANK=1 "
         "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1",
         1, true},
        {"OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1", 1, true},
        {"PADDLE_TRAINER_ID=0 PMI_RANK=0 PMI_SIZE=2", 0, true},
        /* mpirun has started the servers, too */
        {"PADDLE_TRAINER_ID=1 OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_RANK=2", 1,
         false},
        {"PADDLE_TRAINER_ID=1 SLURM_STEP_NUM_TASKS=3 SLURM_PROCID=2", 1, false},
    };

    set_all(SERVERS " PADDLE_TRAINERS_NUM=2 TRAINING_ROLE=TRAINER");
    for (size_t i = 0; i < sizeof workers / sizeof *workers; i++) {
        fleet *f = open_with(workers[i].variables);

        CHECK_INT(fleet_worker_index(f), workers[i].index);
        CHECK_INT(fleet_server_num(f), 1);
        CHECK_INT(f->role.collective, workers[i].collective);
        fleet_destroy(f);
    }
}

TEST(a_server_knows_that_the_workers_are_ranks)
{
    fleet *f;

    set_all(SERVERS " PADDLE_TRAINERS_NUM=2 TRAINING_ROLE=PSERVER "
                    "POD_IP=10.0.0.1 PADDLE_PORT=6000");
    f = open_with("PADDLE_GLOBAL_SIZE=2");
    CHECK(fleet_is_server(f) && f->role.collective);
    fleet_destroy(f);
    f = open_with("OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_RANK=0");
    CHECK(fleet_is_server(f) && !f->role.collective);
    fleet_destroy(f);
}

TEST(ranks_that_were_promised_must_be_there)
{
    static const struct refusal promised[] = {
        {"PADDLE_GLOBAL_SIZE=3", FLEET_EINVAL,
         "PADDLE_TRAINERS_NUM says 2, but PADDLE_GLOBAL_SIZE says 3"},
        {"PADDLE_GLOBAL_SIZE=2 PADDLE_TRAINER_ID=1 OMPI_COMM_WORLD_RANK=0",
         FLEET_EINVAL,
         "PADDLE_TRAINER_ID says 1, but OMPI_COMM_WORLD_RANK says 0"},
        {"PADDLE_GLOBAL_SIZE=2", FLEET_ENOENT, "PADDLE_TRAINER_ID is not set"},
    };

    set_all(SERVERS " PADDLE_TRAINERS_NUM=2 TRAINING_ROLE=TRAINER");
    check_refusals(promised, sizeof promised / sizeof *promised);
}

/* --- the struct ----------------------------------------------------------- */

TEST(a_role_of_ranks_wins_over_the_environment)
{
    fleet_role role = {.index = 1, .worker_num = 2, .gpu = 3};
    fleet *f, *none;

    set_all("OMPI_COMM_WORLD_SIZE=7 OMPI_COMM_WORLD_RANK=5");
    CHECK_OK(fleet_init(&f, &(fleet_options){.role = &role}));
    CHECK(f->role.collective);
    CHECK_INT(fleet_worker_index(f), 1);
    CHECK_INT(fleet_worker_gpu(f), 3);
    fleet_destroy(f);
    role = (fleet_role){.worker_num = 2, .server_endpoints = "a:1"};
    CHECK_OK(fleet_init(&f, &(fleet_options){.role = &role}));
    CHECK(!f->role.collective);
    fleet_destroy(f);
    role.collective = 1;
    CHECK_OK(fleet_init(&f, &(fleet_options){.role = &role}));
    CHECK(f->role.collective);
    fleet_destroy(f);
    role.collective = 2;
    CHECK_FAILS(fleet_init(&none, &(fleet_options){.role = &role}),
                FLEET_EINVAL, "role.collective: expected 0 to 1, got 2");
    role = (fleet_role){.gpu = -1};
    CHECK_FAILS(fleet_init(&none, &(fleet_options){.role = &role}),
                FLEET_EINVAL, "role.gpu: expected 0 to 4096, got -1");
}

TEST(ranks_do_not_train_apart)
{
    fleet *f = open_with("PADDLE_TRAINER_ID=1 PADDLE_TRAINERS_NUM=2");
    fleet_program *p = fleet_program_create(f);
    fleet_var *x = fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, 2}, 2);
    fleet_var *loss = fleet_mean(p, fleet_fc(p, x, 1, NULL));
    const float values[] = {1, 2};
    const fleet_feed feed = {.dtype = FLEET_FLOAT32,
                             .name = "x",
                             .data = values,
                             .dims = (int64_t[]){1, 2},
                             .n_dim = 2};
    fleet_executor *e;

    CHECK_OK(fleet_minimize(fleet_sgd(f, 0.1f), loss));
    e = fleet_executor_create(p, NULL);
    CHECK_FAILS(fleet_executor_run(e, &feed, 1, NULL, 0), FLEET_ESTATE,
                "between fleet_init_worker() and");
    fleet_executor_destroy(e);
    fleet_destroy(f);
}
