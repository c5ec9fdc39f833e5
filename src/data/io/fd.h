/* fd.h - descriptors: pipes, and waiting that can be ended from outside. */
#ifndef FL_DATA_IO_FD_H
#define FL_DATA_IO_FD_H

#include "base/error.h"

/* A pipe, close on exec, that holds 1 MB if the system lets it. */
fleet_status fl_fd_pipe(int ends[2]);

/* Something to wait for: readable once fl_fd_ring() was called. */
fleet_status fl_fd_bell(int *bell);
void fl_fd_ring(int bell);

/* Wait for events on fd. FLEET_ESTATE: a bell rang first. Each may be -1. */
fleet_status fl_fd_wait(int fd, short events, int bell, int other_bell);

void fl_fd_close(int *fd); /* sets it to -1; -1 is fine */

#endif
