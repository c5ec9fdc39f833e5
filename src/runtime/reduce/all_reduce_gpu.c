/* all_reduce_gpu.c - sums of ranks in a GPU's memory, in the order of its
 * queue. */
#include "runtime/reduce/all_reduce_gpu.h"

#include "runtime/plan/agree.h"

fl_gpu *fl_comm_gpu_of_plan(const fl_plan *plan)
{
    const fl_agree *r = plan->store->agree;

    return r && r->comm->methods->after ? plan->place->gpu : NULL;
}

/* With -0.0, which changes no sum. */
static fleet_status fill_neutral(const fl_reduced *r, fl_gpu *g)
{
    static const char name[] = "all_reduce.idle";
    const fl_device_kernel *k = g->m->kernel(g->d, name, FLEET_FLOAT32);
    bool half = r->type == FL_WIRE_F16;
    fl_device_arg arg = {.data = r->data,
                         .cols = r->n * (half ? 2 : 1),
                         .rows = 1,
                         .dtype = half ? FLEET_UINT8 : FLEET_FLOAT32};
    const fl_device_step step = {.arg = &arg, .n_arg = 1};

    if (!k)
        return fl_fail(FLEET_ENODEVICE, "gpu:%d has no kernel \"%s\"",
                       g->d->ordinal, name);
    return k->run(g->d, g->queue, &step);
}

/* A hierarchy of communicators knows no queue. */
fleet_status fl_reduced_follows(const fl_reduced *r, fl_gpu *g, fl_comm *p)
{
    if (r->joins)
        FL_TRY(fill_neutral(r, g));
    return p->methods->after ? p->methods->after(p, g->queue) : fl_gpu_wait(g);
}
