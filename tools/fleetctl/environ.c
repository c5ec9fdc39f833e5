/* environ.c - reads /proc/PID/environ. */
#define _GNU_SOURCE
#include "environ.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const wanted[] = {"PADDLE_PSERVERS_IP_PORT_LIST",
                                     "PADDLE_JOB_ID",
                                     "FLEET_KEYS",
                                     "FLEET_INSECURE",
                                     "FLEET_TRANSPORT",
                                     "FLEET_IPC_FOLDER",
                                     NULL};

static bool is_wanted(const char *text)
{
    for (int i = 0; wanted[i]; i++)
        if (strncmp(text, wanted[i], strlen(wanted[i])) == 0 &&
            text[strlen(wanted[i])] == '=')
            return true;
    return false;
}

fleet_status environ_of(int pid)
{
    char path[40], *text = NULL;
    size_t size = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    f = fopen(path, "re");
    if (!f)
        return fl_fail(errno == ENOENT ? FLEET_ENOENT : FLEET_EIO,
                       "cannot read the environment of process %d (%s): %s",
                       pid, path, strerror(errno));
    unsetenv("PADDLE_PSERVERS_IP_PORT_LIST"); /* of another job, maybe */
    unsetenv("PADDLE_JOB_ID");
    unsetenv("FLEET_IPC_FOLDER");
    while (getdelim(&text, &size, 0, f) > 0)
        if (is_wanted(text))
            putenv(strdup(text)); /* stays, as environments do */
    free(text);
    fclose(f);
    return FLEET_OK;
}
