/* mpi_process.c - MPI begins once in a process and never again; waits with a
 * deadline. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "collective/mpi/mpi_internal.h"

enum { SPIN_NS = 20000, SHORT_NS = 1000000, END_MS = 5000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t owner; /* the process that began MPI; 0: none yet */
static _Atomic bool is_given_up;
static MPI_Comm end_comm = MPI_COMM_NULL;
static int64_t end_ms;

fleet_status fl_mpi_fail(int code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n;

    MPI_Error_string(code, text, &n);
    return fl_fail(FLEET_EIO, "%.60s: %.200s", call, text);
}

void fl_mpi_give_up(void)
{
    atomic_store(&is_given_up, true);
}

bool fl_mpi_is_given_up(void)
{
    return atomic_load(&is_given_up);
}

void fl_mpi_pause(int64_t since_ns)
{
    int64_t ns = fl_now_ns() - since_ns;
    struct timespec t = {0, ns < SHORT_NS ? 10000 : 100000};

    if (ns > SPIN_NS)
        nanosleep(&t, NULL);
}

fleet_status fl_mpi_poll(MPI_Request *request, int n, int64_t ms,
                         fl_mpi_meanwhile *meanwhile, void *arg, bool *is_done)
{
    fl_wait wait = fl_wait_for(ms);
    int64_t began = fl_now_ns();
    int done = 0;

    for (;;) {
        FL_MPI(MPI_Testall(n, request, &done, MPI_STATUSES_IGNORE));
        *is_done = done != 0;
        if (done || fl_wait_left(&wait) == 0)
            return FLEET_OK;
        if (meanwhile)
            FL_TRY(meanwhile(arg));
        fl_mpi_pause(began);
    }
}

fleet_status fl_mpi_wait(MPI_Request *request, int64_t deadline_ms,
                         const char *what)
{
    bool is_done;

    FL_TRY(fl_mpi_poll(request, 1, deadline_ms, NULL, NULL, &is_done));
    if (is_done)
        return FLEET_OK;
    fl_mpi_give_up();
    return fl_fail(FLEET_ETIMEDOUT,
                   "mpi: not all ranks came within %lld ms to %s",
                   (long long)deadline_ms, what);
}

void fl_mpi_end_with(MPI_Comm comm, int64_t deadline_ms)
{
    pthread_mutex_lock(&lock);
    if (end_comm == MPI_COMM_NULL) {
        end_comm = comm;
        end_ms = deadline_ms < END_MS ? deadline_ms : END_MS;
    }
    pthread_mutex_unlock(&lock);
}

/* Two barriers: a rank that gives up waiting has come to the first all the
 * same, and does not come to the second. */
static bool all_come(void)
{
    for (int i = 0; i < 2; i++) {
        MPI_Request all = MPI_REQUEST_NULL;

        if (MPI_Ibarrier(end_comm, &all) != MPI_SUCCESS ||
            fl_mpi_wait(&all, end_ms, "the end") != FLEET_OK)
            return false;
    }
    return true;
}

/* MPI_Finalize() waits for all ranks, with no deadline: it is called once all
 * of them have said that they come. */
static void end_mpi(void)
{
    int is_over = 0;

    if (owner != getpid() || fl_mpi_is_given_up() || end_comm == MPI_COMM_NULL)
        return;
    MPI_Finalized(&is_over);
    if (!is_over && all_come())
        fl_mpi_finalize();
}

/* A process that MPI did not start as a rank is a job of its own: unless
 * begin_mpi() says so in the environment, Open MPI starts a daemon for it. */
static bool is_started_by_mpi(void)
{
    static const char *const mark[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK",
                                       "PMI_RANK", "PMI2_JOBID"};

    for (size_t i = 0; i < sizeof mark / sizeof *mark; i++)
        if (getenv(mark[i]))
            return true;
    return false;
}

static fleet_status begin_mpi(int64_t deadline_ms)
{
    static const char alone[] = "OMPI_MCA_ess_singleton_isolated";
    bool is_set = !is_started_by_mpi() && !getenv(alone);
    fleet_status status;

    if (is_set)
        setenv(alone, "1", 1);
    status = fl_mpi_init(deadline_ms);
    if (is_set && !fl_mpi_is_given_up())
        unsetenv(alone);
    FL_TRY(status);
    owner = getpid();
    atexit(end_mpi);
    return FLEET_OK;
}

static fleet_status begin_or_join(int64_t deadline_ms)
{
    int is_begun = 0, is_over = 0;

    MPI_Initialized(&is_begun);
    MPI_Finalized(&is_over);
    if (is_over)
        return fl_fail(FLEET_ESTATE, "mpi: MPI has been finalized");
    if (owner && owner != getpid())
        return fl_fail(FLEET_ESTATE,
                       "mpi: MPI began before a fork: it works in process "
                       "%lld alone",
                       (long long)owner);
    if (fl_mpi_is_given_up())
        return fl_fail(FLEET_EPEER, "mpi: a group of ranks has failed in this "
                                    "process");
    return is_begun ? FLEET_OK : begin_mpi(deadline_ms);
}

fleet_status fl_mpi_begin(int64_t deadline_ms)
{
    fleet_status status;

    pthread_mutex_lock(&lock);
    status = begin_or_join(deadline_ms);
    pthread_mutex_unlock(&lock);
    return status;
}
