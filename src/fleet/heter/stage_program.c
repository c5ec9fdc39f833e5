/* stage_program.c - the program of a stage, by way of JSON, as clones are
 * made. */
#include "fleet/heter/stage_program.h"

#include "base/memory.h"
#include "base/json/json_write.h"
#include "fleet/job/handle.h"
#include "fleet/save/program_copy.h"
#include "runtime/exec/backend.h"
#include "runtime/exec/compile.h"
#include "runtime/stages/stage_exchange.h"

static fleet_status read_stage(fleet_program *p, const fl_cut *cut, int stage)
{
    fleet_status status;
    fl_json *json;
    char *text;

    FL_TRY(fl_cut_to_json(cut, stage, &json));
    text = fl_json_print(json, false);
    fl_json_free(json);
    status = text ? fl_program_read_text(p, text) : FLEET_ENOMEM;
    fl_free(text);
    return status;
}

/* What the stage before wants back. */
static void keep_gradients(const fleet_program *p, const fl_stage *before)
{
    for (int i = 0; i < before->n_out; i++)
        if (before->out[i].has_gradient)
            fleet_program_var(p, before->out[i].var->name)->keep_gradient =
                true;
}

static fleet_status finish_stage(fleet_program *p, const fl_cut *cut, int stage,
                                 fl_stage_link *link, fleet_var **loss)
{
    const fl_stage *s = &cut->stage[stage];

    FL_TRY(read_stage(p, cut, stage));
    if (stage > 0)
        keep_gradients(p, &cut->stage[stage - 1]);
    p->link = link;
    *loss = stage + 1 < cut->n_stage ? fl_stage_exchange(p, s->out, s->n_out)
                                     : fleet_program_var(p, cut->loss->name);
    return fleet_program_status(p);
}

fleet_status fl_stage_program(fleet *f, const fl_cut *cut, int stage,
                              fl_stage_link *link, fleet_program **program,
                              fleet_var **loss)
{
    fleet_status status;

    *loss = NULL;
    *program = fleet_program_create(f);
    if (!*program)
        return fl_last_code();
    status = fl_place_of(&cut->program->place, 0, &(*program)->place);
    if (status == FLEET_OK)
        status = finish_stage(*program, cut, stage, link, loss);
    if (status != FLEET_OK) {
        fleet_program_destroy(*program);
        *program = NULL;
    }
    return status;
}

fleet_status fl_stage_gradient(fleet_executor *e, const fleet_var *v, float *to,
                               int64_t n)
{
    const fl_plan *plan = e->last ? e->last->plan : NULL;
    int at = plan && plan->training ? plan->gradient_of[v->id] : -1;
    int64_t count = fl_shape_count(&v->shape, e->last_batch);

    if (at < 0)
        return fl_fail(FLEET_ESTATE,
                       "the gradient of \"%.200s\" was not computed", v->name);
    if (n != count)
        return fl_fail(FLEET_ESHAPE,
                       "the gradient of \"%.200s\": expected room for %lld "
                       "floats, got %lld",
                       v->name, (long long)count, (long long)n);
    FL_TRY(e->backend->synchronize(e));
    return e->last->backend->read(e->last, at,
                                  fl_shape_rows(&v->shape, e->last_batch), to);
}
