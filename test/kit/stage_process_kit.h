/* stage_process_kit.h - a process of a job of stages, which fleetrun starts
 * from the program of the test itself: what it does in each role. */
#pragma once

#include <fleet/fleet.h>

/* In a process whose environment has the variable: run, say what failed, and
 * end. Called by a constructor, before there are tests. */
typedef fleet_status stage_process_run(fleet **f);
void stage_process_main(const char *variable, stage_process_run *run);

/* A server serves, a heter worker does its stage, a worker trains. Behind
 * fleet_minimize(). */
typedef fleet_status stage_process_train(fleet *f, fleet_executor *e,
                                         fleet_dataset *d);
fleet_status stage_process_work(fleet *f, fleet_program *p,
                                const fleet_dataset_options *o,
                                const char *file, stage_process_train *train);
