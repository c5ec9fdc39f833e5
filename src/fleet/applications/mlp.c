/* mlp.c - layers on one slot of numbers, of several classes. */
#include "base/error.h"
#include "fleet/applications/model_parts.h"
#include "runtime/graph/program.h"

fleet_var *fleet_mlp(fleet_program *p, const fleet_mlp_options *options,
                     fleet_model *out)
{
    static const int64_t paddle[] = {128, 64};
    const fleet_mlp_options *o = options;
    fleet_model m = {.label = NULL};
    fl_loss_weights weights;
    fleet_var *x;

    if (!p || !fl_program_ok(p))
        return NULL;
    if (!o || o->dim < 1 || o->classes < 2 || o->n_hidden < 0) {
        fl_fail(FLEET_EINVAL, "mlp: dim %lld and classes %lld are not possible",
                o ? (long long)o->dim : 0, o ? (long long)o->classes : 0);
        return fl_program_failed(p, FLEET_EINVAL);
    }
    if (fl_model_check_classes("mlp", o->class_weights, o->n_class_weights,
                               o->classes) != FLEET_OK)
        return fl_program_failed(p, FLEET_EINVAL);
    x = fl_model_data(p, o->input ? o->input : "image", FLEET_FLOAT32, o->dim);
    m.label = fl_model_data(p, o->label ? o->label : "label", FLEET_INT64, 1);
    weights = (fl_loss_weights){.sample = fl_model_weight(p, o->weight),
                                .classes = o->class_weights,
                                .n_class = o->n_class_weights};
    x = fl_model_tower(p, x, "tower", o->hidden ? o->hidden : paddle,
                       o->hidden ? o->n_hidden : 2,
                       o->activation ? o->activation : FLEET_RELU, o->classes);
    fl_model_finish_classes(p, x, &weights, &m);
    if (out)
        *out = m;
    return m.loss;
}
