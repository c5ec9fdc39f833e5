/* run_memory.c - a configuration's samples in memory, and the rows of its
 * passes on a GPU. */
#include "fleet/config/run_internal.h"
#include "fleet/job/dataset.h"
#include "fleet/job/stop.h"

static fleet_status make_psgpu(fl_config_run *t)
{
    const fleet_psgpu_options o = {.memory_bytes = t->c->ps_gpu_bytes,
                                   .folder = t->every.folder};
    const int device =
        t->c->own_gpu ? fleet_worker_gpu(t->f) : t->c->device - FLEET_GPU(0);
    fleet_psgpu *g;

    if (!t->c->strategy.a_sync_configs.use_ps_gpu)
        return FLEET_OK;
    g = fleet_psgpu_create(t->f, &o); /* the handle frees it */
    if (!g)
        return fl_last_code();
    FL_TRY(fleet_psgpu_init_gpu_ps(g, &device, 1));
    return fleet_psgpu_set_dataset(g, t->train);
}

fleet_status fl_run_begin_pass(fl_config_run *t)
{
    if (!t->f->psgpu)
        return FLEET_OK;
    FL_TRY(fleet_psgpu_begin_pass(t->f->psgpu));
    return t->epoch < t->c->epochs ? fleet_psgpu_expect_pass(t->f->psgpu)
                                   : FLEET_OK;
}

fleet_status fl_run_end_pass(fl_config_run *t)
{
    return t->f->psgpu ? fleet_psgpu_end_pass(t->f->psgpu) : FLEET_OK;
}

fleet_status fl_run_memory_load(fl_config_run *t)
{
    fleet_status status;

    if (!t->train->memory)
        return FLEET_OK;
    FL_TRY(make_psgpu(t));
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
