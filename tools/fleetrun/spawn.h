/* spawn.h - start a process that has a process group of its own and dies with
 * its parent. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

typedef struct run_spawn {
    char **command;
    int to[2];    /* its stdout and stderr; its stdin is empty */
    bool inherit; /* it inherits all descriptors; else `keep` alone */
    int keep;     /* -1: none */
    /* in the new process, before it becomes the program; may choose another
     * command */
    char **(*prepare)(void *user, char **command);
    void *user;
} run_spawn;

/* Start it. Fails with *error what execvp() says, 0 if it did not come so far:
 * FLEET_ENOENT there is no such program, FLEET_ECHILD it cannot be executed.
 * The main thread calls it, because a process dies with the thread that started
 * it. *pid is set as soon as there is a process. */
fleet_status run_spawn_start(const run_spawn *s, pid_t *pid, int *error);

/* FLEET_ENOENT or FLEET_ECHILD, with the text. */
fleet_status run_spawn_failed(const char *program, int error);
