/* pipe_command.h - a shell command as a child process: in a group of its own, and dead
 * once the thread that started it is. */
#ifndef FL_DATA_CHILD_H
#define FL_DATA_CHILD_H

#include <sys/types.h>

#include "base/error.h"

typedef struct fl_child {
    pid_t pid; /* 0: none, or reaped */
} fl_child;

/* in and out, which stay the caller's, become its standard input and output. */
fleet_status fl_child_start(fl_child *c, const char *command, int in, int out);

/* Wait until it has ended, end what is left of its group and reap it: FLEET_OK
 * for exit code 0, FLEET_ECHILD with what it was instead. FLEET_ESTATE: the
 * bell rang first. */
fleet_status fl_child_wait(fl_child *c, int bell);

void fl_child_kill(fl_child *c); /* its group, at once; and reap it */

#endif
