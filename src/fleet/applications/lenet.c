/* lenet.c - convolutions of images, of several classes. */
#include <stdio.h>

#include "base/error.h"
#include "fleet/applications/model_parts.h"
#include "runtime/graph/program.h"

/* A convolution, and the largest numbers of its squares. */
static fleet_var *add_stage(fleet_program *p, fleet_var *x, int i,
                            int64_t filters, int64_t padding,
                            fleet_activation activation)
{
    char name[16];
    fleet_conv_options o = {
        .name = name, .padding = {padding, padding}, .activation = activation};

    snprintf(name, sizeof name, "conv_%d", i);
    x = fleet_conv2d(p, x, filters, (const int64_t[]){5, 5}, &o);
    return fleet_pool2d(p, x, &(fleet_pool_options){.size = {2, 2}});
}

static int64_t or_else(int64_t n, int64_t otherwise)
{
    return n ? n : otherwise;
}

static fleet_status check(const int64_t *image, int64_t classes, int n_hidden)
{
    enum { MOST = 1 << 15 };

    for (int i = 1; i <= 3; i++)
        if (image[i] < 1 || image[i] > MOST)
            return fl_fail(FLEET_EINVAL,
                           "lenet: images of %lld x %lld x %lld; expected 1 to "
                           "%d of each",
                           (long long)image[1], (long long)image[2],
                           (long long)image[3], (int)MOST);
    if (classes < 2 || n_hidden < 0)
        return fl_fail(FLEET_EINVAL,
                       "lenet: %lld classes and %d hidden layers are not "
                       "possible",
                       (long long)classes, n_hidden);
    return FLEET_OK;
}

fleet_var *fleet_lenet(fleet_program *p, const fleet_lenet_options *options,
                       fleet_model *out)
{
    static const fleet_lenet_options defaults;
    static const int64_t paddle[] = {120, 84};
    const fleet_lenet_options *o = options ? options : &defaults;
    int64_t image[4] = {-1, or_else(o->channels, 1), or_else(o->height, 28),
                        or_else(o->width, 28)};
    int64_t classes = or_else(o->classes, 10);
    fleet_activation activation = o->activation ? o->activation : FLEET_RELU;
    fleet_model m = {.label = NULL};
    fl_loss_weights weights;
    fleet_var *x;

    if (!p || !fl_program_ok(p))
        return NULL;
    if (check(image, classes, o->n_hidden) != FLEET_OK ||
        fl_model_check_classes("lenet", o->class_weights, o->n_class_weights,
                               classes) != FLEET_OK)
        return fl_program_failed(p, FLEET_EINVAL);
    x = fl_model_data(p, o->input ? o->input : "image", FLEET_FLOAT32,
                      image[1] * image[2] * image[3]);
    m.label = fl_model_data(p, o->label ? o->label : "label", FLEET_INT64, 1);
    weights = (fl_loss_weights){.sample = fl_model_weight(p, o->weight),
                                .classes = o->class_weights,
                                .n_class = o->n_class_weights};
    x = fleet_reshape(p, x, image, 4);
    x = add_stage(p, x, 0, 6, 2, activation);
    x = add_stage(p, x, 1, 16, 0, activation);
    x = fl_model_tower(p, x, "tower", o->hidden ? o->hidden : paddle,
                       o->hidden ? o->n_hidden : 2, activation, classes);
    fl_model_finish_classes(p, x, &weights, &m);
    if (out)
        *out = m;
    return m.loss;
}
