/* dump.c - fleet_program_dump(). */
#include "base/json/json_write.h"
#include "runtime/graph/program_json.h"
#include "runtime/plan/plan.h"
#include "runtime/graph/program_dump.h"
#include "runtime/plan/plan_dump.h"
#include "runtime/plan/lower.h"
#include "runtime/stages/cut_text.h"

static fleet_status dump_plan(fleet_program *p, int64_t batch, bool dot,
                              fl_text *out)
{
    bool training = p->training.loss != NULL;
    fleet_status status;
    fl_plan *plan;

    if (batch < 1 || batch > FL_MOST_BATCH)
        return fl_fail(FLEET_EINVAL,
                       "fleet_program_dump: a plan needs a batch, got %lld",
                       (long long)batch);
    p->sealed = true;
    FL_TRY(fl_store_add(p->store, p));
    if (training)
        FL_TRY(fl_store_train(p->store, p->training.optimizer));
    FL_TRY(fl_plan_build(p, p->store, batch, training, NULL, &p->place, &plan));
    status = dot ? fl_plan_dot(plan, out) : fl_plan_text(plan, out);
    fl_plan_destroy(plan);
    return status;
}

static fleet_status dump_json(const fleet_program *p, fl_text *out)
{
    fl_json *json;
    char *text;

    FL_TRY(fl_program_to_json_whole(p, NULL, 0, &json));
    text = fl_json_print(json, true);
    fl_json_free(json);
    if (!text)
        return FLEET_ENOMEM;
    fl_text_add(out, "%s\n", text);
    fl_free(text);
    return out->status;
}

static fleet_status dump_stages(const fleet_program *p, int64_t batch,
                                fl_text *out)
{
    fleet_status status;
    fl_cut cut;

    if (batch < 1 || batch > FL_MOST_BATCH)
        return fl_fail(FLEET_EINVAL,
                       "fleet_program_dump: stages need a batch, got %lld",
                       (long long)batch);
    if (!p->training.loss)
        return fl_fail(FLEET_ESTATE,
                       "fleet_program_dump: stages are of a program that is "
                       "trained: fleet_minimize() comes first");
    status = fl_cut_make(&cut, p, p->training.loss, 0);
    if (status == FLEET_OK)
        status = fl_cut_text(&cut, batch, out);
    fl_cut_done(&cut);
    return status;
}

char *fleet_program_dump(fleet_program *p, fleet_dump how, int64_t batch)
{
    fl_text out = {0};
    fleet_status status = fleet_program_status(p);

    if (status != FLEET_OK)
        return NULL;
    switch (how) {
    case FLEET_DUMP_TEXT:
        status = fl_program_text(p, &out);
        break;
    case FLEET_DUMP_DOT:
        status = fl_program_dot(p, &out);
        break;
    case FLEET_DUMP_PLAN:
    case FLEET_DUMP_PLAN_DOT:
        status = dump_plan(p, batch, how == FLEET_DUMP_PLAN_DOT, &out);
        break;
    case FLEET_DUMP_JSON:
        status = dump_json(p, &out);
        break;
    case FLEET_DUMP_STAGES:
        status = dump_stages(p, batch, &out);
        break;
    default:
        status = fl_fail(FLEET_EINVAL, "fleet_program_dump: %d is no form",
                         (int)how);
    }
    if (status == FLEET_OK)
        return out.chars;
    fl_text_done(&out);
    return NULL;
}
