/* mpirun.c - mpirun's path, its environment and its command line. */
#define _GNU_SOURCE
#include "mpirun.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "environment.h"
#include "rank_agent.h"

static fleet_status find_mpirun(run_job *j)
{
    const char *at = getenv("PATH");
    char path[PATH_MAX];

    while (at && *at) {
        int n = (int)strcspn(at, ":");

        snprintf(path, sizeof path, "%.*s/mpirun", n, at);
        if (n > 0 && access(path, X_OK) == 0) {
            j->mpirun = fl_strdup(path);
            return j->mpirun ? FLEET_OK : FLEET_ENOMEM;
        }
        at += n + (at[n] == ':');
    }
    return fl_fail(FLEET_EIO,
                   "mpirun is not in PATH: ranks on CPUs are MPI processes; "
                   "install Open MPI, on Debian with apt-get install "
                   "openmpi-bin");
}

fleet_status run_mpirun_open(run_job *j)
{
    FL_TRY(find_mpirun(j));
    return run_job_has_hosts(j)
               ? FLEET_OK
               : run_folders_make_shared(j->options->word, j->mpi_files);
}

void run_mpirun_close(run_job *j)
{
    fl_free(j->mpirun);
}

/* Variables that the user has set stay. Hosts are those of --ips: mpirun's own
 * choice, as in a batch job of Slurm's, would be a surprise. */
static void set_mpirun_environment(const run_job *j)
{
    static const char *const settings[][2] = {
        {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
        {"OMPI_MCA_rmaps_base_mapping_policy", "slot"},
        {"OMPI_MCA_hwloc_base_binding_policy", "none"},
        {"OMPI_MCA_plm", "rsh"},
        {"OMPI_MCA_ras", "^slurm,tm,lsf,gridengine,loadleveler"},
    };
    static const char *const folders[] = {
        "OMPI_MCA_orte_tmpdir_base", "OMPI_MCA_btl_vader_backing_directory",
        "OMPI_MCA_osc_sm_backing_directory"};

    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        setenv(settings[i][0], settings[i][1], 0);
    for (size_t i = 0; *j->mpi_files && i < sizeof folders / sizeof *folders;
         i++)
        setenv(folders[i], j->mpi_files, 0);
    if (geteuid() == 0) {
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
    }
    setenv(RUN_AGENT_ADDRESS, j->agent_address, 1);
    setenv(RUN_AGENT_TOKEN, j->agent_token, 1);
}

typedef struct arguments {
    char **at;
    size_t n;
} arguments;

static void add_argument(arguments *a, const char *argument)
{
    a->at[a->n++] = (char *)argument;
}

/* "a:2,b:2" */
static const char *list_hosts(const run_job *j)
{
    fl_text text = {0};

    for (const char *at = j->options->ips; at;) {
        int n = (int)strcspn(at, ",");

        fl_text_add(&text, "%s%.*s:%d", text.length ? "," : "", n, at,
                    j->options->n_worker);
        at = at[n] ? at + n + 1 : NULL;
    }
    return fl_text_chars(&text);
}

/* By itself mpirun passes only its own variables to other hosts. */
static void add_hosts(const run_job *j, arguments *a)
{
    extern char **environ;

    add_argument(a, "--host");
    add_argument(a, list_hosts(j));
    for (char **v = environ; *v; v++)
        if (run_environment_is_passed(*v)) {
            add_argument(a, "-x");
            add_argument(a, fl_strndup(*v, strcspn(*v, "=")));
        }
}

/* Room for all arguments, and the NULL behind the last one. */
static size_t count_arguments(const run_job *j)
{
    extern char **environ;
    size_t n = 8; /* mpirun -n N --host LIST SELF FLAG */

    for (char **v = environ; *v; v++)
        n += 2;
    for (char **v = j->options->command; *v; v++)
        n++;
    return n;
}

char **run_mpirun_command(const run_job *j)
{
    static char self[PATH_MAX], number[12];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    arguments a = {0};

    self[n > 0 ? n : 0] = 0;
    snprintf(number, sizeof number, "%d", j->n_worker);
    set_mpirun_environment(j);
    a.at = fl_alloc_array(count_arguments(j), sizeof *a.at);
    if (!a.at)
        return NULL;
    add_argument(&a, j->mpirun);
    add_argument(&a, "-n");
    add_argument(&a, number);
    if (run_job_has_hosts(j))
        add_hosts(j, &a);
    add_argument(&a, self);
    add_argument(&a, RUN_AGENT_FLAG);
    for (char **c = j->options->command; *c; c++)
        add_argument(&a, *c);
    return a.at;
}
