/* run_memory.c - a configuration's samples in memory. */
#include "fleet/config/run_internal.h"
#include "fleet/job/dataset.h"
#include "fleet/job/stop.h"

fleet_status fl_run_memory_load(fl_config_run *t)
{
    fleet_status status;

    if (!t->train->memory)
        return FLEET_OK;
    status = fleet_dataset_load_into_memory(t->train);
    if (status != FLEET_EEND || !fl_stop_wanted(t->f))
        return status;
    t->f->stops_met = fl_stop_count();
    t->r.stopped = 1;
    FL_WARN(&t->f->context.log, "%s", fleet_last_error());
    fl_error_clear();
    return FLEET_OK;
}

fleet_status fl_run_memory_shuffle(fl_config_run *t)
{
    if (!t->train->memory || t->c->memory_shuffle == FL_MEMORY_IN_ORDER)
        return FLEET_OK;
    return t->c->memory_shuffle == FL_MEMORY_GLOBAL
               ? fleet_dataset_global_shuffle(t->train)
               : fleet_dataset_local_shuffle(t->train);
}
