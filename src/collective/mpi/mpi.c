/* mpi.c - the plug-in libfleet_mpi.so, and communicators of the ranks that MPI
 * started: through shared memory if all of them are on one host, else by
 * MPI. */
#include "collective/mpi/mpi_internal.h"
#include "runtime/device/plugin_side.h"

fleet_status fl_mpi_open(MPI_Comm comm, const fl_comm_options *options,
                         fl_comm **out)
{
    int rank, size;
    bool is_shm = false;

    FL_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    FL_MPI(MPI_Comm_rank(comm, &rank));
    FL_MPI(MPI_Comm_size(comm, &size));
    FL_TRY(fl_mpi_is_one_host(comm, options->deadline_ms, &is_shm));
    if (is_shm)
        return fl_mpi_shm_open(comm, rank, size, options, out);
    return fl_mpi_comm_open(comm, options, out);
}

static fleet_status open_world(const fl_comm_options *options, fl_comm **out)
{
    fleet_status status;
    MPI_Request all;
    MPI_Comm comm;

    FL_TRY(fl_mpi_begin(options->deadline_ms));
    FL_MPI(MPI_Comm_idup(MPI_COMM_WORLD, &comm, &all));
    FL_TRY(fl_mpi_wait(&all, options->deadline_ms, "open a group"));
    status = fl_mpi_open(comm, options, out);
    if (status == FLEET_OK)
        fl_mpi_end_with(comm, options->deadline_ms);
    else
        fl_mpi_give_up();
    return status;
}

__attribute__((visibility("default"))) fl_plugin_entry FL_PLUGIN_ENTRY;

const fl_plugin *FL_PLUGIN_ENTRY(const fl_host *host)
{
    static const fl_plugin plugin = {
        .size = sizeof plugin,
        .version = FL_PLUGIN_VERSION,
        .library = FL_PLUGIN_LIBRARY,
        .name = "mpi",
        .open_comm = open_world,
    };

    fl_plugin_side_enter(host);
    return &plugin;
}
