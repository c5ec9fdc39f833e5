/* start.c - from fleetrun to a process of the job. */
#define _GNU_SOURCE
#include <string.h>
#include <unistd.h>

#include "ranks.h"
#include "spawn.h"
#include "tell.h"

typedef struct starting {
    const run_job *job;
    const run_process *process;
} starting;

static char **prepare(void *user, char **command)
{
    const starting *s = user;

    run_tell(s->job, s->process);
    return s->process->is_mpirun ? run_ranks_command(s->job) : command;
}

int run_shown(const run_job *j, const run_process *p, int stream)
{
    const bool first = !p->is_server && !p->is_mpirun && p->index == 0;

    if (!first || (stream == 2 && !j->options->verbose && !isatty(2)))
        return -1;
    return stream;
}

fleet_status run_start(run_job *j, run_process *p)
{
    starting s = {j, p};
    run_spawn how = {.command = j->options->command,
                     .to = {-1, -1},
                     .keep = p->listens ? p->socket : -1,
                     .prepare = prepare,
                     .user = &s};
    fleet_status status = FLEET_OK;
    int error;

    for (int i = 0; status == FLEET_OK && i < 2; i++)
        status = run_output_open(&p->output[i], p->log, run_shown(j, p, i + 1),
                                 &how.to[i]);
    if (status == FLEET_OK)
        status = run_spawn_it(&how, &p->pid, &error);
    p->was_started = p->pid > 0;
    for (int i = 0; i < 2; i++)
        if (how.to[i] >= 0)
            close(how.to[i]);
    if (p->listens) { /* it is the process's alone: with it the port closes */
        close(p->socket);
        p->socket = -1;
    }
    return status;
}
