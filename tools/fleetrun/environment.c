/* environment.c - the variables of a process, set one group after the other. */
#define _GNU_SOURCE
#include "environment.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "options.h"

/* A process inherits none of these from fleetrun's own environment, */
static const char *const own_variables[] = {
    "PADDLE_PSERVERS_IP_PORT_LIST",
    "PADDLE_TRAINER_ENDPOINTS",
    "PADDLE_TRAINERS_NUM",
    "PADDLE_TRAINER_ID",
    "PADDLE_CURRENT_ENDPOINT",
    "PADDLE_PORT",
    "PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST",
    "PADDLE_NEXT_HETER_TRAINER_IP_PORT_LIST",
    "PADDLE_PREVIOUS_HETER_TRAINER_IP_PORT_LIST",
    "PADDLE_STAGE_TRAINERS_NUM",
    "STAGE_ID",
    "STAGE_NUM",
    "HETER_DEVICE_TYPE",
    "PADDLE_ROLE",
    "PADDLE_JOB_ID",
    "PADDLE_NNODES",
    "PADDLE_LOG_DIR",
    "PADDLE_MASTER",
    "PADDLE_GLOBAL_SIZE",
    "PADDLE_GLOBAL_RANK",
    "PADDLE_LOCAL_SIZE",
    "PADDLE_LOCAL_RANK",
    "PADDLE_RANK_IN_NODE",
    "FLAGS_selected_gpus",
    "TRAINING_ROLE",
    "PADDLE_TRAINING_ROLE",
    "POD_IP",
    "POD_NAME",
    "FLEET_LISTEN_FD",
    "FLEET_IPC_FOLDER",
    "FLEET_KEYS",
    "FLEET_INSECURE",
    "FLEET_REPLICAS",
    "FLEET_JOIN",
};

/* nor what the launcher that started fleetrun says of fleetrun's own rank. */
static const char *const launcher_prefixes[] = {"OMPI_COMM_WORLD_", "PMI_",
                                                "PMIX_", "MPI_LOCAL"};

static bool begins_with_any(const char *text, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strncmp(text, list[i], strlen(list[i])) == 0)
            return true;
    return false;
}

bool run_environment_is_passed(const char *variable)
{
    static const char *const passed[] = {
        "PADDLE_", "FLEET", "FLAGS_", "TRAINING_ROLE",   "POD_",
        "OMP_",    "GOMP_", "PATH=",  "LD_LIBRARY_PATH="};

    return begins_with_any(variable, passed, sizeof passed / sizeof *passed);
}

static void set_number(const char *name, int value)
{
    char text[16];

    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

static void unset_launchers(void)
{
    extern char **environ;
    char name[100];

    for (char **v = environ; *v;) {
        size_t n = strcspn(*v, "=");

        if (n < sizeof name && begins_with_any(*v, launcher_prefixes,
                                               sizeof launcher_prefixes /
                                                   sizeof *launcher_prefixes)) {
            snprintf(name, sizeof name, "%.*s", (int)n, *v);
            unsetenv(name); /* the next one takes its place */
        } else {
            v++;
        }
    }
}

static int count_processors(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

/* The processes of a node share its processors. Variables that the user has
 * set stay. libgomp's threads would spin for long beside processes that have
 * work. */
static void set_threads(const run_job *j)
{
    int n = count_processors() / j->n_on_node;
    char text[16];

    snprintf(text, sizeof text, "%d", n > 1 ? n : 1);
    setenv("OMP_NUM_THREADS", text, 0);
    setenv("FLEET_NUM_THREADS", text, 0);
    setenv("GOMP_SPINCOUNT", j->n_on_node == 1 ? "10000" : "0", 0);
}

static void set_identity(const run_job *j, const run_process *p)
{
    char name[300];

    setenv("POD_IP", p->host, 1);
    set_number("PADDLE_PORT", p->port);
    snprintf(name, sizeof name, "%s.%s.%d", j->options->job,
             p->is_server   ? "server"
             : p->stage > 0 ? "heter"
                            : "worker",
             p->index);
    setenv("POD_NAME", name, 1);
    if (!p->is_server && p->stage == 0)
        set_number("PADDLE_TRAINER_ID", p->index);
    if (p->joins)
        set_number("FLEET_JOIN", p->index);
    if (p->listens)
        set_number("FLEET_LISTEN_FD", p->socket);
}

/* --- ranks ---------------------------------------------------------------- */

static void set_size(const run_job *j)
{
    set_number("PADDLE_GLOBAL_SIZE", j->n_worker);
    set_number("PADDLE_LOCAL_SIZE", j->options->n_worker);
    if (*fl_text_chars(&j->master))
        setenv("PADDLE_MASTER", fl_text_chars(&j->master), 1);
}

/* The rank's own endpoint, if the endpoints are known. */
static void set_endpoint(int rank)
{
    const char *at = getenv("PADDLE_TRAINER_ENDPOINTS"), *colon;
    char text[300];

    for (; at && rank > 0; rank--) {
        at = strchr(at, ',');
        at = at ? at + 1 : NULL;
    }
    if (!at)
        return;
    snprintf(text, sizeof text, "%.*s", (int)strcspn(at, ","), at);
    setenv("PADDLE_CURRENT_ENDPOINT", text, 1);
    colon = strrchr(text, ':');
    if (!colon)
        return;
    setenv("PADDLE_PORT", colon + 1, 1);
    text[colon - text] = 0;
    setenv("POD_IP", text, 1);
}

void run_environment_set_rank(int rank, int local_rank)
{
    const char *job = getenv("PADDLE_JOB_ID");
    char name[300];

    set_endpoint(rank);
    snprintf(name, sizeof name, "%s.worker.%d", job ? job : "default", rank);
    setenv("POD_NAME", name, 1);
    set_number("PADDLE_TRAINER_ID", rank);
    set_number("PADDLE_GLOBAL_RANK", rank);
    set_number("PADDLE_LOCAL_RANK", local_rank);
    set_number("PADDLE_RANK_IN_NODE", local_rank);
}

/* --- stages --------------------------------------------------------------- */

static void set_stage_list(const run_job *j, const char *name, int stage)
{
    fl_text list = {0};

    run_job_stage(j, stage, &list);
    setenv(name, fl_text_chars(&list), 1);
    fl_text_done(&list);
}

/* Fleet's launcher counts stages from 1, and writes a list of Python's. */
static void set_stage(const run_job *j, const run_process *p)
{
    const run_options *o = j->options;
    fl_text counts = {0};

    fl_text_add(&counts, "[%d", j->n_worker);
    for (int i = 1; i < o->n_stage; i++)
        fl_text_add(&counts, ", %d", o->stage[i]);
    fl_text_add(&counts, "]");
    setenv("PADDLE_STAGE_TRAINERS_NUM", fl_text_chars(&counts), 1);
    fl_text_done(&counts);
    set_number("STAGE_NUM", o->n_stage);
    set_number("STAGE_ID", p->stage + 1);
    if (p->stage + 1 < o->n_stage)
        set_stage_list(j, "PADDLE_NEXT_HETER_TRAINER_IP_PORT_LIST",
                       p->stage + 1);
    if (p->stage == 0)
        return;
    set_stage_list(j, "PADDLE_PREVIOUS_HETER_TRAINER_IP_PORT_LIST",
                   p->stage - 1);
    setenv("HETER_DEVICE_TYPE", o->stage_on_gpu[p->stage] ? "gpu" : "cpu", 1);
    if (p->gpu >= 0)
        set_number("FLAGS_selected_gpus", p->gpu);
}

/* --- the job -------------------------------------------------------------- */

static void set_job(const run_job *j, const char *role)
{
    const char *log = getenv("FLEET_LOG");

    if (j->n_server > 0) {
        setenv("PADDLE_PSERVERS_IP_PORT_LIST", fl_text_chars(&j->servers), 1);
        setenv("FLEET_IPC_FOLDER", j->sockets, 1);
        set_number("FLEET_REPLICAS", j->options->replicas);
    }
    if (*j->keys)
        setenv("FLEET_KEYS", j->keys, 1);
    else if (j->options->insecure)
        setenv("FLEET_INSECURE", "1", 1);
    if (*j->journals)
        setenv("FLEET_LOG_FOLDER", j->journals, 1);
    if (j->options->supervise && j->options->replicas < 2 && !(log && *log))
        setenv("FLEET_LOG", "process", 1);
    if (*fl_text_chars(&j->workers))
        setenv("PADDLE_TRAINER_ENDPOINTS", fl_text_chars(&j->workers), 1);
    if (j->n_heter > 0)
        setenv("PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST",
               fl_text_chars(&j->heter), 1);
    set_number("PADDLE_TRAINERS_NUM", j->n_worker);
    set_number("PADDLE_NNODES", j->n_host);
    setenv("PADDLE_JOB_ID", j->options->job, 1);
    setenv("PADDLE_LOG_DIR", j->options->log_folder, 1);
    setenv("TRAINING_ROLE", role, 1);
    setenv("PADDLE_ROLE", role, 1);
    if (j->options->collective)
        set_size(j);
}

void run_environment_set(const run_job *j, const run_process *p)
{
    const char *gpus;

    for (size_t i = 0; i < sizeof own_variables / sizeof *own_variables; i++)
        unsetenv(own_variables[i]);
    unset_launchers();
    set_threads(j);
    if (j->n_server == 0 && !j->options->collective)
        return;
    set_job(j, p->is_server   ? "PSERVER"
               : p->stage > 0 ? "HETER_TRAINER"
                              : "TRAINER");
    if (p->is_mpirun)
        return;
    set_identity(j, p);
    if (p->is_server)
        return;
    if (j->n_heter > 0)
        set_stage(j, p);
    if (p->stage > 0)
        return;
    if (j->options->collective)
        run_environment_set_rank(p->index, p->local_rank);
    gpus = run_options_gpus(j->options, p->local_rank);
    if (gpus)
        setenv("FLAGS_selected_gpus", gpus, 1);
}
