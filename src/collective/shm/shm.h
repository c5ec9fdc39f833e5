/* shm.h - ranks of one host, joined by memory that all of them map. The caller
 * brings that memory: MPI allocates it (mpi/mpi_shm_window.c), tests do
 * otherwise. */
#pragma once

#include <stddef.h>

#include "runtime/device/comm.h"

/* Bytes of shared memory for `size` ranks. */
size_t fl_shm_bytes(int size);

/* Prepare this rank's part of shared memory that is new, and aligned to 64. All
 * ranks have done it before any opens. */
void fl_shm_prepare(void *memory, int rank, int size);

/* unmap: called with the memory when the communicator ends, or NULL. */
typedef void fl_shm_unmap(void *memory, size_t bytes);
fleet_status fl_shm_open(void *memory, int rank, int size, const char *name,
                         const fl_comm_options *options, fl_shm_unmap *unmap,
                         fl_comm **comm);
