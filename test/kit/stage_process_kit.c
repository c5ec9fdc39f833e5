/* stage_process_kit.c - a process of a job of stages. */
#include "stage_process_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"

void stage_process_main(const char *variable, stage_process_run *run)
{
    fleet *f = NULL;
    fleet_status status;

    if (!getenv(variable))
        return;
    status = run(&f);
    if (status != FLEET_OK)
        puts(fleet_last_error());
    fleet_destroy(f);
    fflush(NULL);
    _exit(status != FLEET_OK);
}

fleet_status stage_process_work(fleet *f, fleet_program *p,
                                const fleet_dataset_options *o,
                                const char *file, stage_process_train *train)
{
    fleet_executor *e;
    fleet_dataset *d;
    fleet_status status;

    if (fleet_is_server(f)) {
        FL_TRY(fleet_init_server(f, NULL));
        return fleet_run_server(f);
    }
    FL_TRY(fleet_init_worker(f));
    if (fleet_is_heter_worker(f))
        return fleet_run_heter_worker(f);
    d = fleet_queue_dataset(f, o);
    if (!d)
        return fleet_last_status();
    FL_TRY(fleet_dataset_set_filelist(d, &file, 1));
    e = fleet_executor_create(p, NULL);
    status = e ? train(f, e, d) : fleet_last_status();
    fleet_executor_destroy(e);
    return status;
}
