/* onnx_export.c - fleet_export_onnx(): a predictor's program, node by node. */
#include <fleet/onnx.h>

#include <string.h>

#include "fleet/inference_internal.h"
#include "fleet/onnx/onnx_ops.h"
#include "fleet/onnx/onnx_ragged.h"
#include "fleet/onnx/onnx_write.h"

static void put_inputs(fl_onnx *x, const fleet_predictor *p)
{
    for (int i = 0; i < p->n_input; i++) {
        const fleet_var *v = p->input[i];
        fl_onnx_type type =
            v->dtype == FLEET_INT64 ? FL_ONNX_INT64 : FL_ONNX_FLOAT;

        x->value[v->id] = v->name;
        if (v->ragged)
            fl_onnx_input_ragged(x, v);
        else
            fl_onnx_input(x, fl_onnx_value_of(x, v->name, type, &v->shape));
    }
}

/* By its own name, which another value may stand for. */
static void put_output(fl_onnx *x, const fleet_var *v)
{
    const char *name = fl_onnx_of(x, v);
    fl_onnx_node *node;

    if (name && strcmp(name, v->name) != 0 && FL_ONNX(x, "Identity", name)) {
        node = x->newest;
        node->out[0] = v->name;
    }
    fl_onnx_output(x, fl_onnx_value_of(x, v->name,
                                       v->dtype == FLEET_INT64 ? FL_ONNX_INT64
                                                               : FL_ONNX_FLOAT,
                                       &v->shape));
}

static void put_outputs(fl_onnx *x, const fleet_predictor *p)
{
    for (int i = 0; i < p->n_output; i++) {
        for (int k = 0; k < i; k++)
            if (p->output[k] == p->output[i])
                fl_onnx_failed(x, fl_fail(FLEET_EINVAL,
                                          "onnx: output \"%s\" is there twice",
                                          p->output[i]->name));
        put_output(x, p->output[i]);
    }
}

static fleet_status build_model(fl_onnx *x, const fleet_predictor *p)
{
    put_inputs(x, p);
    for (size_t i = 0; i < p->program->n_node; i++)
        fl_onnx_emit_node(x, p->program->node[i]);
    put_outputs(x, p);
    return x->status;
}

fleet_status fleet_export_onnx(fleet_predictor *p, const char *path,
                               const fleet_onnx_options *options)
{
    static const fleet_onnx_options defaults;
    const fleet_onnx_options *o = options ? options : &defaults;
    fleet_status status;
    fl_onnx x;

    if (!p || !path)
        return fl_fail(FLEET_EINVAL, "fleet_export_onnx: no %s",
                       p ? "path" : "predictor");
    if (o->external_data && strcmp(path, "-") == 0)
        return fl_fail(FLEET_EINVAL,
                       "fleet_export_onnx: external_data is a second file, "
                       "which standard output does not have");
    FL_TRY(fl_onnx_can_write());
    FL_TRY(fl_context_check(&p->context));
    status = fl_onnx_init(&x, p->program, p->store);
    if (status == FLEET_OK) {
        fl_predictor_begin_change(p);
        status = build_model(&x, p);
        fl_predictor_end_change(p);
    }
    if (status == FLEET_OK)
        status = fl_onnx_write(&x, path, o->external_data != 0);
    fl_onnx_done(&x);
    return status;
}
