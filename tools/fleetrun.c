/* fleetrun.c - the launcher: starts a job's servers and workers, watches
 * them, ends them; docs/fleetrun.md. What the user starts forks a keeper,
 * which starts the job's processes (fleetrun/keeper.h); mpirun starts
 * fleetrun once more per rank (fleetrun/rank_agent.h). It links the
 * library's errors, memory, text and keys, and needs no libfleet when it runs,
 * but ZeroMQ, which draws the keys. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fleetrun/folders.h"
#include "fleetrun/job_keys.h"
#include "fleetrun/keeper.h"
#include "fleetrun/rank_agent.h"
#include "fleetrun/watch.h"

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

enum { FAILED = 1, CALLED_WRONGLY = 2 };

static int report_error(fleet_status status)
{
    fprintf(stderr, "fleetrun: %s\n", fleet_last_error());
    return status == FLEET_EINVAL ? CALLED_WRONGLY : FAILED;
}

/* The keeper's part. */
static int keep_job(void *user, int alive)
{
    run_job job;
    fleet_status status = run_job_open(&job, user, alive);
    int result =
        status == FLEET_OK ? run_watch(&job, alive) : report_error(status);

    if (status != FLEET_OK && job.signal)
        result = 128 + job.signal;
    run_job_close(&job);
    return result;
}

/* If fleetrun is started without stdin, stdout or stderr: a pipe must not
 * get that number. */
static void open_standard_streams(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= 2);
    if (fd > 2)
        close(fd);
}

static int print(const char *text)
{
    if (fputs(text, stdout) >= 0 && fflush(stdout) == 0)
        return 0;
    perror("fleetrun: stdout");
    return FAILED;
}

int main(int argc, char **argv)
{
    run_options options;
    fleet_status status;
    int result = 0;

    open_standard_streams();
    if (argc > 1 && strcmp(argv[1], RUN_AGENT_FLAG) == 0)
        return run_rank_agent(argv + 2);
    if (argc > 1 && strcmp(argv[1], RUN_KEYS_WORD) == 0) {
        status = run_keys_command(argc - 1, argv + 1);
        return status == FLEET_OK ? 0 : report_error(status);
    }
    status = run_options_read(&options, argc, argv);
    if (status != FLEET_OK)
        return report_error(status);
    if (options.help)
        return print(run_options_usage);
    if (options.version)
        return print("fleetrun " TEXT(FLEET_VERSION_MAJOR) "." TEXT(
            FLEET_VERSION_MINOR) "." TEXT(FLEET_VERSION_PATCH) "\n");
    status = run_folders_choose(options.word);
    if (status == FLEET_OK)
        status = run_keeper(keep_job, &options, &result);
    run_folders_remove(options.word, options.log_folder);
    return status == FLEET_OK ? result : report_error(status);
}
