/* mpi.h - the plug-in libfleet_mpi.so: ranks that MPI started. mpi.c opens
 * groups, mpi_process.c and mpi_thread.c begin and end MPI, mpi_group.c is the
 * carrier of groups whose ranks are on several hosts. */
#ifndef FL_COLLECTIVE_MPI_MPI_H
#define FL_COLLECTIVE_MPI_MPI_H

#include <mpi.h>

#include "collective/comm_base.h"

/* MPI runs, with these threads, or an error; FLEET_ETIMEDOUT if not all ranks
 * come. What is not ours to begin is not ours to end. */
fleet_status fl_mpi_begin(int64_t deadline_ms, int *thread_level);

/* mpi_thread.c: MPI_Init_thread(), once in a process, and after it
 * MPI_Finalize(), which has no deadline. */
fleet_status fl_mpi_init(int64_t deadline_ms, int *thread_level);
void fl_mpi_finalize(void);

/* After a failure MPI is left alone, at the end of the process, too: what it
 * waits for may never come. */
void fl_mpi_give_up(void);
bool fl_mpi_is_given_up(void);

/* The communicator by which ranks say that they are about to end; the first
 * counts. */
void fl_mpi_end_with(MPI_Comm comm, int64_t deadline_ms);

/* A group of the ranks of comm, which is its own from now on. */
fleet_status fl_mpi_open(MPI_Comm comm, const fl_comm_options *options,
                         fl_comm **peers);
fleet_status fl_mpi_group_open(MPI_Comm comm, const fl_comm_options *options,
                               fl_comm **peers);

/* An MPI call's failure as ours: MPI's text with the call's name. */
fleet_status fl_mpi_fail(int code, const char *call);
#define FL_MPI(call)                                                           \
    do {                                                                       \
        int code_ = (call);                                                    \
        if (code_ != MPI_SUCCESS)                                              \
            return fl_mpi_fail(code_, #call);                                  \
    } while (0)

/* Until the request is done; FLEET_ETIMEDOUT says that `what` waits. For
 * before there is a group. */
fleet_status fl_mpi_wait(MPI_Request *request, int64_t deadline_ms,
                         const char *what);

/* A pause between two looks, longer the longer nothing happens. */
void fl_mpi_pause(int64_t since_ns);

/* --- groups on several hosts ------------------------------------------------
 */

typedef struct fl_mpi_channel {
    MPI_Request request;
    int64_t n; /* bytes of it; 0: none is under way */
} fl_mpi_channel;

/* What a rank says when it fails. */
typedef struct fl_mpi_notice {
    int32_t code;
    char text[500];
} fl_mpi_notice;

typedef struct fl_mpi_group {
    fl_comm_base base;
    MPI_Comm comm;
    MPI_Request hears; /* a notice of any rank */
    fl_mpi_notice heard;
    fl_mpi_channel (*channel)[FL_N_CHANNEL][FL_N_WAY]; /* by rank */
    int64_t moved_ns;                                  /* when one last moved */
    fl_call *call;                                     /* of each rank */
    MPI_Request *request;                              /* two for each rank */
} fl_mpi_group;

static inline fl_mpi_group *fl_mpi_of(fl_comm_base *g)
{
    return (fl_mpi_group *)g;
}

/* Until the request is done, with the group's deadline; the call is named if it
 * is not. */
fleet_status fl_mpi_finish(fl_mpi_group *m, MPI_Request *request,
                           const fl_call *call);

/* A call that is known to be the same on all ranks. */
fleet_status fl_mpi_run(fl_mpi_group *m, const fl_work *w);

#endif
