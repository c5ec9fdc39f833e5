/* model_parts.c - inputs, towers and losses of models. */
#include <math.h>
#include <stdio.h>

#include "base/error.h"
#include "fleet/applications/model_parts.h"

fleet_var *fl_model_data(fleet_program *p, const char *name, fleet_dtype dtype,
                         int64_t dim)
{
    return fleet_data(p, name, dtype, (int64_t[]){-1, dim ? dim : 1}, 2);
}

fleet_var *fl_model_weight(fleet_program *p, const char *name)
{
    return name ? fl_model_data(p, name, FLEET_FLOAT32, 1) : NULL;
}

/* Of the dimensions from `first` on. */
static fleet_var *layer_of(fleet_program *p, fleet_var *x, int first,
                           const char *name, int64_t units,
                           fleet_activation activation)
{
    double fan_in = 1;
    fleet_fc_options o = {
        .name = name, .activation = activation, .num_flatten_dims = first};

    if (x) {
        int64_t dims[FLEET_MAX_DIM];
        int n = fleet_var_shape(x, dims);

        for (int i = first; i < n; i++)
            fan_in *= (double)dims[i];
    }
    o.weight.initializer =
        (fleet_initializer){FLEET_INIT_NORMAL, 0, (float)(1 / sqrt(fan_in))};
    return fleet_fc(p, x, units, &o);
}

fleet_var *fl_model_layer(fleet_program *p, fleet_var *x, const char *name,
                          int64_t units, fleet_activation activation)
{
    return layer_of(p, x, 1, name, units, activation);
}

fleet_var *fl_model_place_layer(fleet_program *p, fleet_var *x,
                                const char *name, int64_t units,
                                fleet_activation activation)
{
    return layer_of(p, x, 2, name, units, activation);
}

fleet_var *fl_model_hidden(fleet_program *p, fleet_var *x, const char *name,
                           const int64_t *hidden, int n_hidden,
                           fleet_activation activation)
{
    char layer[80];

    for (int i = 0; i < n_hidden; i++) {
        snprintf(layer, sizeof layer, "%s_%d", name, i);
        x = fl_model_layer(p, x, layer, hidden[i], activation);
    }
    return x;
}

fleet_var *fl_model_tower(fleet_program *p, fleet_var *x, const char *name,
                          const int64_t *hidden, int n_hidden,
                          fleet_activation activation, int64_t out)
{
    char layer[80];

    x = fl_model_hidden(p, x, name, hidden, n_hidden, activation);
    snprintf(layer, sizeof layer, "%s_out", name);
    return fl_model_layer(p, x, layer, out, FLEET_LINEAR);
}

fleet_var *fl_model_loss(fleet_program *p, fleet_var *loss, fleet_var *weight)
{
    return fleet_mean(p, weight ? fleet_weighted_loss(p, loss, weight) : loss);
}

fleet_var *fl_model_log_loss(fleet_program *p, fleet_var *prediction,
                             fleet_var *label, float pos_weight)
{
    return fleet_weighted_log_loss(p, prediction, label, 0,
                                   pos_weight == 0 ? 1 : pos_weight);
}

fleet_status fl_model_check_classes(const char *model, const float *weights,
                                    int n, int64_t classes)
{
    if (n == 0 && !weights)
        return FLEET_OK;
    if (!weights)
        return fl_fail(FLEET_EINVAL,
                       "%s: class_weights: %d of them, but they are NULL",
                       model, n);
    return n == classes ? FLEET_OK
                        : fl_fail(FLEET_EINVAL,
                                  "%s: class_weights: expected one for each of "
                                  "%lld classes, got %d",
                                  model, (long long)classes, n);
}

void fl_model_finish_binary(fleet_program *p, fleet_var *logit,
                            const fl_loss_weights *w, fleet_model *m)
{
    m->prediction = fleet_sigmoid(p, logit);
    m->loss = fl_model_loss(
        p, fl_model_log_loss(p, m->prediction, m->label, w->pos_weight),
        w->sample);
}

/* A sample's own weight scales its loss, its class's is divided by the sum of
 * all, as PyTorch has it. */
static fleet_var *loss_of_classes(fleet_program *p, fleet_var *loss,
                                  const fl_loss_weights *w, fleet_var *label)
{
    fleet_var *of_class = fleet_class_weight(p, label, w->classes, w->n_class);

    if (loss && w->sample)
        loss = fleet_weighted_loss(p, loss, w->sample);
    return fleet_weighted_mean(p, loss, of_class);
}

/* The prediction is not the loss's second result: that depends on the label,
 * which a predictor is not fed. */
void fl_model_finish_classes(fleet_program *p, fleet_var *logits,
                             const fl_loss_weights *w, fleet_model *m)
{
    fleet_var *loss =
        fleet_softmax_with_cross_entropy(p, logits, m->label, NULL);

    m->loss = w->classes ? loss_of_classes(p, loss, w, m->label)
                         : fl_model_loss(p, loss, w->sample);
    m->prediction = fleet_softmax(p, logits);
}
