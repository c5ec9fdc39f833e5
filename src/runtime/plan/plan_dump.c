/* plan_dump.c - a plan as text and as a Graphviz digraph. */
#include <inttypes.h>

#include "runtime/plan/plan.h"
#include "runtime/plan/plan_dump.h"

static const char *const phase_names[] = {
    "pull",  "pull wait",    "prefetch", "forward", "backward",
    "merge", "reduce begin", "update",   "average"};
static const char *const engine_names[] = {"compute", "comm", "gpu"};
static const char *const kind_names[] = {"feed",  "param", "table",
                                         "state", "temp",  "persistent"};

static void print_operands(const fl_step *s, bool writes, fl_text *out)
{
    bool first = true;

    for (int i = 0; i < s->n_operand; i++) {
        const fl_operand *o = &s->operand[i];

        if (o->value < 0 || (writes ? o->mode == FL_READ : o->mode == FL_WRITE))
            continue;
        fl_text_add(out, "%s%%%d", first ? "" : ",", o->value);
        first = false;
    }
    if (first)
        fl_text_add(out, "-");
}

static void print_steps(const fl_plan *plan, const fl_region *region,
                        fl_text *out)
{
    for (int i = region->first; i < region->first + region->n; i++) {
        const fl_step *s = plan->step[i];

        fl_text_add(out, "  %-16s ", s->kernel->name);
        print_operands(s, true, out);
        fl_text_add(out, " <- ");
        print_operands(s, false, out);
        fl_text_add(out, "  %s", phase_names[s->phase]);
        if (s->engine != FL_ENGINE_COMPUTE)
            fl_text_add(out, " engine %s", engine_names[s->engine]);
        if (s->period > 1)
            fl_text_add(out, " every %d", s->period);
        fl_text_add(out, "\n");
    }
}

static void print_value(const fl_plan *plan, int i, fl_text *out)
{
    const fl_value *v = &plan->value[i];

    fl_text_add(out, "  %%%d %s %s %s", i, v->name, kind_names[v->kind],
                v->object ? "object" : fleet_dtype_name(v->dtype));
    if (!v->object)
        fl_text_add(out, "%s", fl_shape_print(&v->shape).chars);
    if (v->on_gpu)
        fl_text_add(out, " on gpu:%d", plan->place->gpu->d->ordinal);
    if (v->root != i)
        fl_text_add(out, " in %%%d + %" PRId64 " by %" PRId64, v->root,
                    v->column, v->ld);
    else if (v->positions)
        fl_text_add(out, " and more");
    else if (v->kind == FL_VALUE_PERSISTENT && v->pointer)
        fl_text_add(out, " of all ranks");
    else if ((v->kind == FL_VALUE_TEMP || v->kind == FL_VALUE_PERSISTENT) &&
             v->end >= 0)
        fl_text_add(out, " at %zu%s %s %d-%d", v->offset,
                    v->per_slot ? " of a slot" : "",
                    v->on_gpu ? "steps" : "regions", v->begin, v->end);
    fl_text_add(out, "\n");
}

fleet_status fl_plan_text(const fl_plan *plan, fl_text *out)
{
    fl_text_add(out,
                "plan %s, batch %" PRId64 ", slices of %" PRId64
                " rows, arena %zu bytes\npasses %s\n",
                plan->training ? "train" : "infer", plan->batch, plan->slice,
                plan->arena_bytes, fl_text_chars(&plan->passes));
    if (plan->place->gpu)
        fl_text_add(out, "gpu:%d, arena %zu bytes\n",
                    plan->place->gpu->d->ordinal, plan->gpu_arena_bytes);
    for (size_t i = 0; i < plan->n_region; i++) {
        fl_text_add(out, "region %zu by %s\n", i,
                    plan->region[i].split == FL_SPLIT_ROWS ? "rows" : "parts");
        print_steps(plan, &plan->region[i], out);
    }
    fl_text_add(out, "values\n");
    for (size_t i = 0; i < plan->n_value; i++)
        print_value(plan, (int)i, out);
    return out->status;
}

static void dot_edges(const fl_plan *plan, int i, fl_text *out)
{
    const fl_step *s = plan->step[i];

    for (int j = 0; j < s->n_operand; j++) {
        const fl_operand *o = &s->operand[j];

        if (o->value < 0)
            continue;
        if (o->mode != FL_WRITE)
            fl_text_add(out, "  v%d -> s%d;\n", o->value, i);
        if (o->mode != FL_READ)
            fl_text_add(out, "  s%d -> v%d;\n", i, o->value);
    }
}

fleet_status fl_plan_dot(const fl_plan *plan, fl_text *out)
{
    fl_text_add(out, "digraph plan {\n  rankdir=TB;\n");
    for (size_t r = 0; r < plan->n_region; r++) {
        const fl_region *region = &plan->region[r];

        fl_text_add(out, "  subgraph cluster_%zu { label=\"region %zu\";\n", r,
                    r);
        for (int i = region->first; i < region->first + region->n; i++)
            fl_text_add(out, "    s%d [shape=box,label=\"%s\"];\n", i,
                        plan->step[i]->kernel->name);
        fl_text_add(out, "  }\n");
    }
    for (size_t i = 0; i < plan->n_value; i++)
        fl_text_add(out, "  v%zu [label=\"%s %s\"];\n", i, plan->value[i].name,
                    fl_shape_print(&plan->value[i].shape).chars);
    for (size_t i = 0; i < plan->n_step; i++)
        dot_edges(plan, (int)i, out);
    fl_text_add(out, "}\n");
    return out->status;
}
