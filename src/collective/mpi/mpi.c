/* mpi.c - the plug-in libfleet_mpi.so, and communicators of the ranks that MPI
 * started: through shared memory if all of them are on one host, else by
 * MPI. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "collective/mpi/mpi_internal.h"
#include "collective/shm/shm.h"
#include "runtime/device/plugin_side.h"

enum { PAGE = 4096 };

/* FLEET_MPI_WINDOW=0: as if each rank were on a host of its own. */
static bool wants_shm(void)
{
    const char *text = getenv("FLEET_MPI_WINDOW");

    return !text || strcmp(text, "0") != 0;
}

/* Are all ranks on one host, and do all of them want shared memory? */
static fleet_status is_one_host(MPI_Comm comm, int64_t deadline_ms, bool *is)
{
    MPI_Request all;
    MPI_Comm host;
    int on_host, size, mine, least;

    FL_MPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL,
                               &host));
    FL_MPI(MPI_Comm_size(host, &on_host));
    FL_MPI(MPI_Comm_size(comm, &size));
    FL_MPI(MPI_Comm_free(&host));
    mine = on_host == size && wants_shm();
    FL_MPI(MPI_Iallreduce(&mine, &least, 1, MPI_INT, MPI_MIN, comm, &all));
    FL_TRY(fl_mpi_wait(&all, deadline_ms, "open a group"));
    *is = least != 0;
    return FLEET_OK;
}

/* All of it lies in rank 0's part, which begins at the same place of a page for
 * all. It stays until MPI ends: to free it is a call of all ranks, and a rank
 * that leaves cannot count on the others. */
static fleet_status allocate_shm(MPI_Comm comm, int rank, int size,
                                 void **memory)
{
    MPI_Aint bytes = rank == 0 ? (MPI_Aint)fl_shm_bytes(size) + PAGE : 0;
    MPI_Win window;
    uintptr_t at;
    int unit;

    FL_MPI(MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, comm, memory,
                                   &window));
    FL_MPI(MPI_Win_shared_query(window, 0, &bytes, &unit, memory));
    at = ((uintptr_t)*memory + PAGE - 1) / PAGE * PAGE;
    *memory = (void *)at;
    return FLEET_OK;
}

static fleet_status open_shm(MPI_Comm comm, int rank, int size,
                             const fl_comm_options *o, fl_comm **out)
{
    MPI_Request all;
    void *memory;

    FL_TRY(allocate_shm(comm, rank, size, &memory));
    fl_shm_prepare(memory, rank, size);
    FL_MPI(MPI_Ibarrier(comm, &all));
    FL_TRY(fl_mpi_wait(&all, o->deadline_ms, "open a window"));
    return fl_shm_open(memory, rank, size, "mpi", o, NULL, out);
}

fleet_status fl_mpi_open(MPI_Comm comm, const fl_comm_options *options,
                         fl_comm **out)
{
    int rank, size;
    bool is_shm = false;

    FL_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    FL_MPI(MPI_Comm_rank(comm, &rank));
    FL_MPI(MPI_Comm_size(comm, &size));
    FL_TRY(is_one_host(comm, options->deadline_ms, &is_shm));
    if (is_shm)
        return open_shm(comm, rank, size, options, out);
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
