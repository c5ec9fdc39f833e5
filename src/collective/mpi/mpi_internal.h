/* mpi_internal.h - the inside of the plug-in libfleet_mpi.so: ranks that MPI
 * started. mpi.c opens communicators, mpi_process.c and mpi_thread.c begin and
 * end MPI, mpi_comm.c is the transport of communicators whose ranks are on
 * several hosts, mpi_run.c has their calls. */
#pragma once

#include <mpi.h>

#include "collective/comm_p2p.h"

/* MPI runs, or an error; FLEET_ETIMEDOUT if not all ranks come. MPI that the
 * program has begun is the program's to end. */
fleet_status fl_mpi_begin(int64_t deadline_ms);

/* mpi_thread.c: MPI_Init_thread(), once in a process, and after it
 * MPI_Finalize(), which has no deadline. */
fleet_status fl_mpi_init(int64_t deadline_ms);
void fl_mpi_finalize(void);

/* After a failure MPI is left alone, at the end of the process, too: what it
 * waits for may never come. */
void fl_mpi_give_up(void);
bool fl_mpi_is_given_up(void);

/* The communicator by which ranks say that they are about to end; the first
 * counts. */
void fl_mpi_end_with(MPI_Comm comm, int64_t deadline_ms);

/* A communicator of the ranks of comm, which is its own from now on; the
 * second: on several hosts. */
fleet_status fl_mpi_open(MPI_Comm comm, const fl_comm_options *options,
                         fl_comm **out);
fleet_status fl_mpi_comm_open(MPI_Comm comm, const fl_comm_options *options,
                              fl_comm **out);

/* An MPI call's failure as a status: MPI's text with the call's name. */
fleet_status fl_mpi_fail(int code, const char *call);
#define FL_MPI(call)                                                           \
    do {                                                                       \
        int code_ = (call);                                                    \
        if (code_ != MPI_SUCCESS)                                              \
            return fl_mpi_fail(code_, #call);                                  \
    } while (0)

/* Until all n requests are done or ms are over; between two looks at them,
 * meanwhile(arg) (NULL: nothing), and a pause, longer the longer nothing
 * happens. */
typedef fleet_status fl_mpi_meanwhile(void *arg);
fleet_status fl_mpi_poll(MPI_Request *request, int n, int64_t ms,
                         fl_mpi_meanwhile *meanwhile, void *arg, bool *is_done);
void fl_mpi_pause(int64_t since_ns);

/* Until the request is done; FLEET_ETIMEDOUT says that `what` waits. For
 * before there is a communicator. */
fleet_status fl_mpi_wait(MPI_Request *request, int64_t deadline_ms,
                         const char *what);

/* --- communicators on several hosts --------------------------------------- */

typedef struct fl_mpi_channel {
    MPI_Request request;
    int64_t n; /* bytes of it; 0: none is in progress */
} fl_mpi_channel;

/* What a rank sends when it fails. */
typedef struct fl_mpi_notice {
    int32_t code;
    char text[500];
} fl_mpi_notice;

typedef struct fl_mpi_comm {
    fl_comm_base base;
    MPI_Comm comm;
    MPI_Request notice_request; /* of any rank */
    fl_mpi_notice notice;
    fl_mpi_channel (*channel)[FL_N_CHANNEL][FL_N_WAY]; /* by rank */
    int64_t moved_ns;                                  /* when one last moved */
    fl_call *call;                                     /* of each rank */
    MPI_Request *request;                              /* two for each rank */
} fl_mpi_comm;

static inline fl_mpi_comm *fl_mpi_of(fl_comm_base *g)
{
    return (fl_mpi_comm *)g;
}

/* Until the request is done, with the communicator's deadline; the call is
 * named if it is not. */
fleet_status fl_mpi_finish(fl_mpi_comm *m, MPI_Request *request,
                           const fl_call *call);

/* A call that is known to be the same on all ranks. */
fleet_status fl_mpi_run(fl_mpi_comm *m, const fl_work *w);

/* Are all ranks on one host, and do all of them want shared memory? */
fleet_status fl_mpi_is_one_host(MPI_Comm comm, int64_t deadline_ms, bool *is);

/* A communicator through memory that all ranks of comm map. */
fleet_status fl_mpi_shm_open(MPI_Comm comm, int rank, int size,
                             const fl_comm_options *o, fl_comm **out);
