/* fleetrun.c - start a job's servers and workers, watch them, end them;
 * docs/fleetrun.md. It links the library's errors, memory and text, and needs
 * no libfleet when it runs. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fleetrun/folders.h"
#include "fleetrun/guard.h"
#include "fleetrun/rank.h"
#include "fleetrun/watch.h"

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

enum { FAILED = 1, CALLED_WRONGLY = 2 };

static int complain(fleet_status status)
{
    fprintf(stderr, "fleetrun: %s\n", fleet_last_error());
    return status == FLEET_EINVAL ? CALLED_WRONGLY : FAILED;
}

/* In the keeper. */
static int keep(void *user, int life)
{
    run_job job;
    fleet_status status = run_job_open(&job, user);
    int result = status == FLEET_OK ? run_watch(&job, life) : complain(status);

    run_job_close(&job);
    return result;
}

/* Or a pipe would become what somebody closed before us. */
static void have_standard_streams(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= 2);
    if (fd > 2)
        close(fd);
}

int main(int argc, char **argv)
{
    run_options options;
    fleet_status status;
    int result = 0;

    have_standard_streams();
    if (argc > 1 && strcmp(argv[1], RUN_RANK_FLAG) == 0)
        return run_rank(argv + 2);
    status = run_options_read(&options, argc, argv);
    if (status != FLEET_OK)
        return complain(status);
    if (options.help) {
        fputs(run_options_usage, stdout);
        return 0;
    }
    if (options.version) {
        puts("fleetrun " TEXT(FLEET_VERSION_MAJOR) "." TEXT(
            FLEET_VERSION_MINOR) "." TEXT(FLEET_VERSION_PATCH));
        return 0;
    }
    status = run_folders_choose(options.word);
    if (status == FLEET_OK)
        status = run_guard(keep, &options, &result);
    run_folders_remove(options.word);
    return status == FLEET_OK ? result : complain(status);
}
