/* host_backend.c - the backend of executors that run on the host alone: an
 * iteration is over when its last region is, so there is little to do besides
 * its regions (run.c). */
#include "runtime/exec/host_backend.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/exec/compile.h"
#include "runtime/exec/find_nonfinite.h"
#include "runtime/exec/run.h"

static fleet_status host_alloc(const fleet_executor *e, size_t bytes, char **p)
{
    (void)e;
    *p = NULL;
    return FL_NEW(p, bytes);
}

static void host_free(const fleet_executor *e, char *p)
{
    (void)e;
    fl_free(p);
}

static fleet_status begin_iteration(fleet_executor *e, fl_compiled *c,
                                    int64_t batch)
{
    (void)e;
    return fl_compiled_begin(c, batch, false);
}

fleet_status fl_host_check(fleet_executor *e, fl_compiled *c, int64_t batch)
{
    const fleet_var *v = e->program->training.loss;
    int at = v ? c->plan->value_of[v->id] : -1;
    float loss;

    if (at < 0)
        return FLEET_OK;
    memcpy(&loss, fl_compiled_pointer(c, at), sizeof loss);
    if (c->plan->loss >= 0 && !isfinite(loss))
        return fl_compiled_report_nonfinite(c, batch, e->n_run);
    fl_executor_note_loss(e, e->n_run, batch, loss);
    return FLEET_OK;
}

fleet_status fl_host_read(const fl_compiled *c, int value, int64_t rows,
                          void *to)
{
    const fl_value *v = &c->plan->value[value];
    size_t element = fleet_dtype_size(v->dtype);
    size_t bytes = (size_t)fl_shape_cols(&v->shape) * element;
    const char *from = fl_compiled_pointer(c, value);

    for (size_t r = 0; r < (size_t)rows; r++)
        memcpy((char *)to + r * bytes, from + r * (size_t)v->ld * element,
               bytes);
    return FLEET_OK;
}

/* --- nothing is queued, so there is nothing to wait for ------------------ */

static void no_effect(fleet_executor *e)
{
    (void)e;
}

static fleet_status nothing_to_wait_for(fleet_executor *e)
{
    (void)e;
    return FLEET_OK;
}

static fleet_status nothing_to_do(fleet_executor *e, fl_compiled *c)
{
    (void)e;
    (void)c;
    return FLEET_OK;
}

static fleet_status end_iteration(fleet_executor *e, fl_compiled *c,
                                  int64_t batch, bool updated)
{
    (void)batch;
    (void)updated;
    return nothing_to_do(e, c);
}

static void nothing_to_release(fl_compiled *c)
{
    (void)c;
}

const fl_backend fl_host_backend = {
    .alloc = host_alloc,
    .free = host_free,
    .lock = no_effect,
    .unlock = no_effect,
    .prepare = nothing_to_do,
    .release = nothing_to_release,
    .begin = begin_iteration,
    .copy_rows = nothing_to_do,
    .prefetch_rows = nothing_to_do,
    .check = fl_host_check,
    .begin_update = nothing_to_do,
    .end = end_iteration,
    .run_region = fl_host_run_region,
    .begin_join = nothing_to_do,
    .wait = nothing_to_do,
    .finish_update = nothing_to_do,
    .read = fl_host_read,
    .drain = nothing_to_wait_for,
    .synchronize = nothing_to_wait_for,
    .abandon = no_effect,
    .destroy = no_effect,
};
