/* cut_text.c - the lines of a cut. */
#include "runtime/stages/cut_text.h"

#include <inttypes.h>

/* Bytes of a variable in a batch; of ragged data, of one value a sample. */
static int64_t bytes_of(const fleet_var *v, int64_t batch)
{
    return fl_shape_count(&v->shape, batch) *
           (int64_t)fleet_dtype_size(v->dtype);
}

static void print_crossings(const fl_cut *cut, int stage, int64_t batch,
                            fl_text *out)
{
    const fl_stage *s = &cut->stage[stage];
    int64_t forward = 0, back = 0;

    for (int i = 0; i < s->n_out; i++) {
        const fleet_var *v = s->out[i].var;

        fl_text_add(out, "  -> %s %s%s%s%s\n", v->name,
                    fleet_dtype_name(v->dtype), fl_shape_print(&v->shape).chars,
                    v->ragged ? " ragged" : "",
                    s->out[i].has_gradient ? ", gradient back" : "");
        forward += bytes_of(v, batch);
        back += s->out[i].has_gradient ? bytes_of(v, batch) : 0;
    }
    fl_text_add(out,
                "  bytes of a batch of %" PRId64 ": %" PRId64
                " forward, %" PRId64 " back\n",
                batch, forward, back);
}

/* By a node of the same stage: a frozen one may be of several. */
static bool has_read_before(const fl_cut *cut, const fleet_var *v, int node)
{
    for (int i = 0; i < node; i++)
        for (int j = 0; cut->stage_of[i] == cut->stage_of[node] &&
                        j < cut->program->node[i]->n_in;
             j++)
            if (cut->program->node[i]->in[j] == v)
                return true;
    return false;
}

/* What the stage keeps, each once. */
static void print_kept(const fl_cut *cut, int stage, fl_text *out)
{
    const fleet_program *p = cut->program;

    for (size_t i = 0; i < p->n_node; i++)
        for (int j = 0; cut->stage_of[i] == stage && j < p->node[i]->n_in;
             j++) {
            const fleet_var *v = p->node[i]->in[j];

            if (v && v->kind != FL_VAR_DATA && v->kind != FL_VAR_TEMP &&
                !has_read_before(cut, v, (int)i))
                fl_text_add(out, "  %s %s%s\n", fl_var_kind_names[v->kind],
                            v->name, v->attr.frozen ? " frozen" : "");
        }
}

static void print_stage(const fl_cut *cut, int stage, fl_text *out)
{
    const fl_stage *s = &cut->stage[stage];

    fl_text_add(out, "stage %d on %s: %d operator%s", stage,
                fl_place_print(s->device).chars, s->n_node,
                s->n_node == 1 ? "" : "s");
    if (s->because_of)
        fl_text_add(out, ", from %s (%s) on", s->because_of->name,
                    s->because_of->producer->op->name);
    fl_text_add(out, "\n");
    print_kept(cut, stage, out);
}

fleet_status fl_cut_text(const fl_cut *cut, int64_t batch, fl_text *out)
{
    for (int s = 0; s < cut->n_stage; s++) {
        print_stage(cut, s, out);
        if (s + 1 < cut->n_stage)
            print_crossings(cut, s, batch, out);
    }
    if (!cut->in_order)
        fl_text_add(out, "operators do not stand in the order of their stages: "
                         "sums of gradients may differ from those of the "
                         "whole program in their last bit\n");
    fl_text_add(out, "loss %s\n", cut->loss->name);
    return out->status;
}
