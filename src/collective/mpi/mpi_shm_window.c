/* mpi_shm_window.c - the first memory that all ranks of one host map: a shared
 * window of MPI, of which room collective/shm makes a communicator. */
#include <stdlib.h>
#include <string.h>

#include "collective/mpi/mpi_internal.h"
#include "collective/shm/shm.h"

enum { PAGE = 4096 };

/* FLEET_MPI_WINDOW=0: as if each rank were on a host of its own. */
fleet_status fl_mpi_is_one_host(MPI_Comm comm, int64_t deadline_ms, bool *is)
{
    const char *window = getenv("FLEET_MPI_WINDOW");
    MPI_Request all;
    MPI_Comm host;
    int on_host, size, mine, least;

    FL_MPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL,
                               &host));
    FL_MPI(MPI_Comm_size(host, &on_host));
    FL_MPI(MPI_Comm_size(comm, &size));
    FL_MPI(MPI_Comm_free(&host));
    mine = on_host == size && (!window || strcmp(window, "0") != 0);
    FL_MPI(MPI_Iallreduce(&mine, &least, 1, MPI_INT, MPI_MIN, comm, &all));
    FL_TRY(fl_mpi_wait(&all, deadline_ms, "open a group"));
    *is = least != 0;
    return FLEET_OK;
}

/* All of the memory lies in rank 0's part, which begins at the same place of a
 * page for all ranks. It stays until MPI ends: to free it is a call of all
 * ranks, and a rank that leaves cannot count on the other ranks. */
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

fleet_status fl_mpi_shm_open(MPI_Comm comm, int rank, int size,
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
