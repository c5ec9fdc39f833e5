/* plan_dump.c - a plan as text and as a Graphviz digraph. */
#include <inttypes.h>

#include "runtime/plan/plan.h"
#include "runtime/graph/program_dump.h"
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

/* --- Graphviz ------------------------------------------------------------- */

static const char *fill_of(fl_value_kind kind)
{
    if (kind == FL_VALUE_FEED)
        return FL_DOT_FEED;
    return kind == FL_VALUE_TEMP || kind == FL_VALUE_PERSISTENT ? "white"
                                                                : FL_DOT_PARAM;
}

static const char *step_fill(const fl_step *s)
{
    switch (s->phase) {
    case FL_FORWARD:
        return "#d9ead3";
    case FL_BACKWARD:
    case FL_MERGE:
        return "#f4cccc";
    case FL_UPDATE:
    case FL_AVERAGE:
        return "#d9d2e9";
    default: /* what other processes and the GPU are waited for */
        return "#eeeeee";
    }
}

static void dot_region(const fl_plan *plan, size_t r, fl_text *out)
{
    const fl_region *region = &plan->region[r];

    fl_text_add(out,
                "  subgraph cluster_%zu {\n    label=\"region %zu by %s\";\n",
                r, r, region->split == FL_SPLIT_ROWS ? "rows" : "parts");
    for (int i = region->first; i < region->first + region->n; i++) {
        const fl_step *s = plan->step[i];

        fl_text_add(out, "    s%d [shape=box," FL_DOT_FILLED, i, step_fill(s));
        fl_text_add(out, "label=\"%s\\n%s\"];\n", s->kernel->name,
                    phase_names[s->phase]);
    }
    fl_text_add(out, "  }\n");
}

/* What is fed, or of the store, is a node; a value of the plan is lines between
 * steps. */
static bool is_node(const fl_value *v)
{
    return v->kind != FL_VALUE_TEMP && v->kind != FL_VALUE_PERSISTENT;
}

static bool uses(const fl_plan *plan, const fl_step *s, int value)
{
    for (int j = 0; j < s->n_operand; j++)
        if (s->operand[j].value >= 0 &&
            (s->operand[j].value == value ||
             plan->value[s->operand[j].value].root == value))
            return true;
    return false;
}

/* A node that no step names, nor a view of it, is left out. */
static bool is_used(const fl_plan *plan, int value)
{
    for (size_t i = 0; i < plan->n_step; i++)
        if (uses(plan, plan->step[i], value))
            return true;
    return false;
}

static void dot_value(const fl_plan *plan, int i, fl_text *out)
{
    const fl_value *v = &plan->value[i];

    if (!is_node(v) || !is_used(plan, i))
        return;
    fl_text_add(out, "  v%d [" FL_DOT_FILLED, i, fill_of(v->kind));
    fl_dot_label(v->name, v->object ? NULL : &v->shape, out);
    fl_text_add(out, "];\n");
    if (v->root != i) /* a view of it */
        fl_text_add(out, "  v%d -> v%d [style=dotted,dir=none];\n", v->root, i);
}

/* Does a write of one change what is read of the other? */
static bool overlap(const fl_plan *plan, int a, int b)
{
    return a == b || plan->value[a].root == b || plan->value[b].root == a;
}

/* What step w writes of the value: -1: nothing; 0: some of it; 1: all. */
static int writes(const fl_plan *plan, const fl_step *w, int value)
{
    int some = -1;

    for (int j = 0; j < w->n_operand; j++) {
        const fl_operand *o = &w->operand[j];

        if (o->value < 0 || o->mode == FL_READ ||
            !overlap(plan, o->value, value))
            continue;
        if (o->value == value)
            return 1;
        some = 0;
    }
    return some;
}

static bool has_views(const fl_plan *plan, int value)
{
    for (size_t i = 0; i < plan->n_value; i++)
        if ((int)i != value && plan->value[i].root == value)
            return true;
    return false;
}

/* From the steps that have written what step i reads of it. One that writes
 * what has views may have left these to steps before it, as a concat does. */
static void dot_read(const fl_plan *plan, int i, int value, fl_text *out)
{
    const bool in_parts = has_views(plan, value);
    int wrote = -1;

    for (int j = i - 1; j >= 0 && (wrote < 1 || in_parts); j--) {
        wrote = writes(plan, plan->step[j], value);
        if (wrote < 0)
            continue;
        fl_text_add(out, "  s%d -> s%d [fontsize=9,", j, i);
        fl_dot_label(plan->value[value].name, &plan->value[value].shape, out);
        fl_text_add(out, "];\n");
    }
}

static void dot_edges(const fl_plan *plan, int i, fl_text *out)
{
    const fl_step *s = plan->step[i];

    for (int j = 0; j < s->n_operand; j++) {
        const fl_operand *o = &s->operand[j];

        if (o->value < 0)
            continue;
        if (!is_node(&plan->value[o->value])) {
            if (o->mode != FL_WRITE)
                dot_read(plan, i, o->value, out);
            continue;
        }
        if (o->mode != FL_WRITE)
            fl_text_add(out, "  v%d -> s%d;\n", o->value, i);
        if (o->mode != FL_READ) /* above what reads it, not below */
            fl_text_add(out, "  s%d -> v%d [constraint=false,style=dashed];\n",
                        i, o->value);
    }
}

/* One below the other, as they run. */
static void dot_order(const fl_plan *plan, fl_text *out)
{
    for (size_t r = 1; r < plan->n_region; r++)
        fl_text_add(out, "  s%d -> s%d [style=invis];\n",
                    plan->region[r - 1].first + plan->region[r - 1].n - 1,
                    plan->region[r].first);
}

fleet_status fl_plan_dot(const fl_plan *plan, fl_text *out)
{
    fl_text_add(out, "digraph plan {\n  rankdir=TB;\n" FL_DOT_FONT
                     "  edge [fontname=\"Helvetica\",color=\"#666666\"];\n");
    for (size_t r = 0; r < plan->n_region; r++)
        dot_region(plan, r, out);
    for (size_t i = 0; i < plan->n_value; i++)
        dot_value(plan, (int)i, out);
    for (size_t i = 0; i < plan->n_step; i++)
        dot_edges(plan, (int)i, out);
    dot_order(plan, out);
    fl_text_add(out, "}\n");
    return out->status;
}
