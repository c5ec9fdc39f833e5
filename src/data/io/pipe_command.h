/* pipe_command.h - a shell command as a child process, in a process group of
 * its own. It is killed when the thread that started it ends, and all of its
 * group when this process does, however that ends. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

typedef struct fl_pipe_command {
    pid_t pid;   /* 0: none, or reaped */
    pid_t guard; /* of the same group: kills it when this process has died */
    int alive;   /* a pipe that only this process holds open, for the guard */
} fl_pipe_command;

/* Does it say {path} somewhere: does it open what it reads itself? */
bool fl_pipe_command_has_path(const char *command);

/* The command with the path, quoted for the shell, in place of each {path}.
 * NULL: no memory. The caller's, by fl_free(). */
char *fl_pipe_command_with_path(const char *command, const char *path);

/* in and out, which stay the caller's, become its standard input and output. */
fleet_status fl_pipe_command_start(fl_pipe_command *c, const char *command,
                                   int in, int out);

/* Wait until it has ended, end what is left of its group and reap it: FLEET_OK
 * for exit code 0, FLEET_ECHILD with what it was instead. FLEET_ESTATE: the
 * wakeup came first. FLEET_ETIMEDOUT as by fl_fd_wait(). */
fleet_status fl_pipe_command_wait(fl_pipe_command *c, int wakeup,
                                  int64_t timeout_ms);

/* Its group, at once; and reap it. */
void fl_pipe_command_kill(fl_pipe_command *c);
