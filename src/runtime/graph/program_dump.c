/* program_dump.c - a program as text and as a Graphviz digraph. */
#include <inttypes.h>

#include "runtime/graph/program.h"
#include "runtime/graph/program_dump.h"
#include "runtime/graph/table_options.h"

static void print_attr(const fl_attr *a, fl_text *out)
{
    fl_text_add(out, " %s=", a->name);
    switch (a->type) {
    case FL_INT:
        fl_text_add(out, "%" PRId64, a->i);
        break;
    case FL_FLOAT:
        fl_text_add(out, "%g", a->f);
        break;
    case FL_INTS:
        for (int i = 0; i < a->n; i++)
            fl_text_add(out, "%s%" PRId64, i ? "," : "[", a->v[i]);
        fl_text_add(out, "]");
        break;
    case FL_FLOATS:
        for (int i = 0; i < a->n; i++)
            fl_text_add(out, "%s%g", i ? "," : "[", (double)a->w[i]);
        fl_text_add(out, "]");
        break;
    }
}

static void print_vars(fleet_var *const *v, int n, fl_text *out)
{
    for (int i = 0; i < n; i++)
        fl_text_add(out, "%s%s", i ? ", " : "", v[i] ? v[i]->name : "-");
}

static void print_device(fleet_place place, fl_text *out)
{
    if (place != 0)
        fl_text_add(out, " device=%s", fl_place_print(place).chars);
}

static void print_table_ids(const fl_table_ids *ids, fl_text *out)
{
    if (ids->check)
        fl_text_add(out, " check_ids");
    if (ids->storage != FLEET_ROW_FLOAT32)
        fl_text_add(out, " storage=%s", fl_storage_names[ids->storage]);
    if (ids->fresh != FLEET_FRESH_INITIAL)
        fl_text_add(out, " fresh=%s", fl_fresh_names[ids->fresh]);
    if (ids->fresh == FLEET_FRESH_ROW)
        fl_text_add(out, "[%" PRId64 "]", ids->default_id);
    if (fl_table_has_life(&ids->life)) {
        fl_text_add(out, " ");
        fl_table_options_print(&ids->life, " ", out);
    }
}

static void print_var(const fleet_var *v, fl_text *out)
{
    fl_text_add(out, "%s %s %s%s%s%s", fl_var_kind_names[v->kind], v->name,
                fleet_dtype_name(v->dtype), fl_shape_print(&v->shape).chars,
                v->ragged ? " ragged" : "", v->attr.frozen ? " frozen" : "");
    if (v->attr.average > 0) {
        fl_text_add(out, " average=");
        fl_text_float(out, v->attr.average);
    }
    if (v->weights)
        fl_text_add(out, " weights=%s", v->weights->name);
    print_table_ids(&v->ids, out);
    print_device(v->place, out);
    fl_text_add(out, "\n");
}

fleet_status fl_program_text(const fleet_program *p, fl_text *out)
{
    for (size_t i = 0; i < p->n_var; i++)
        if (p->var[i]->kind != FL_VAR_TEMP)
            print_var(p->var[i], out);
    for (size_t i = 0; i < p->n_node; i++) {
        const fl_node *n = p->node[i];

        print_vars(n->out, n->op->n_out, out);
        fl_text_add(out, " %s = %s(", fl_shape_print(&n->out[0]->shape).chars,
                    n->op->name);
        print_vars(n->in, n->n_in, out);
        fl_text_add(out, ")");
        for (int j = 0; j < n->n_attr; j++)
            print_attr(&n->attr[j], out);
        print_device(n->place, out);
        fl_text_add(out, "\n");
    }
    if (p->training.loss)
        fl_text_add(out, "minimize %s\n", p->training.loss->name);
    return out->status;
}

/* --- Graphviz ------------------------------------------------------------- */

void fl_dot_label(const char *name, const fl_shape *shape, fl_text *out)
{
    fl_text_add(out, "label=\"");
    for (const char *c = name; *c; c++)
        fl_text_add(out, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
    fl_text_add(out, "\\n%s\"", shape ? fl_shape_print(shape).chars : "");
}

static const char *fill_of(fl_var_kind kind)
{
    return kind == FL_VAR_DATA ? FL_DOT_FEED : FL_DOT_PARAM;
}

static void dot_node(const fl_node *n, size_t i, fl_text *out)
{
    fl_text_add(out, "  n%zu [shape=box,", i);
    fl_dot_label(n->op->name, &n->out[0]->shape, out);
    fl_text_add(out, "];\n");
    for (int j = 0; j < n->n_in; j++) {
        if (!n->in[j])
            continue;
        if (n->in[j]->producer)
            fl_text_add(out, "  n%d -> n%zu;\n", n->in[j]->producer->id, i);
        else
            fl_text_add(out, "  v%d -> n%zu;\n", n->in[j]->id, i);
    }
}

fleet_status fl_program_dot(const fleet_program *p, fl_text *out)
{
    fl_text_add(out, "digraph program {\n" FL_DOT_FONT);
    for (size_t i = 0; i < p->n_var; i++) {
        const fleet_var *v = p->var[i];

        if (v->kind == FL_VAR_TEMP)
            continue;
        fl_text_add(out, "  v%zu [shape=ellipse," FL_DOT_FILLED, i,
                    fill_of(v->kind));
        fl_dot_label(v->name, &v->shape, out);
        fl_text_add(out, "];\n");
    }
    for (size_t i = 0; i < p->n_node; i++)
        dot_node(p->node[i], i, out);
    fl_text_add(out, "}\n");
    return out->status;
}
