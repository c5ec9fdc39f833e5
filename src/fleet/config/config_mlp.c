/* config_mlp.c - models of one slot of numbers and several classes by a
 * configuration: an mlp, and a lenet, whose numbers are an image. */
#include "fleet/config/models.h"
#include "fleet/job/dataset.h"

/* The largest label of all the training data, read once through: the model is
 * the same for all. */
static fleet_status largest_label(fl_config_run *t, int slot, int64_t *largest)
{
    fl_stream *stream;
    fleet_status status;
    fl_batch *b;

    *largest = 0;
    FL_TRY(fl_dataset_open_files(t->train, &stream));
    while ((status = fl_stream_next(stream, &b)) == FLEET_OK) {
        const int64_t *label = b->slot[slot].values;

        for (int64_t i = 0; i < b->rows; i++)
            if (label[i] > *largest)
                *largest = label[i];
        fl_stream_release(stream, b);
    }
    fl_stream_close(stream);
    return status == FLEET_EEND ? FLEET_OK : status;
}

/* Of the slots: input, label, and weight if there is one. */
static const fleet_slot *read_input(fl_config_run *t, int *label,
                                    const char **weight)
{
    const fl_config *c = t->c;
    const fleet_slot *input = NULL;

    *label = 0;
    *weight = NULL;
    for (int i = 0; i < c->n_slot; i++)
        if (c->slot[i].label)
            *label = i;
        else if (c->slot[i].weight)
            *weight = c->slot[i].slot.name;
        else if (!c->slot[i].draw)
            input = &t->train->slots[i];
    return input;
}

/* As many as are configured, or as the training data have. */
static fleet_status count_classes(fl_config_run *t, int label, int64_t *classes)
{
    *classes = t->c->mlp.classes;
    if (*classes > 0)
        return FLEET_OK;
    FL_TRY(largest_label(t, label, classes));
    if (*classes >= FL_CONFIG_MOST_CLASSES)
        return fl_fail(FLEET_ECONFIG,
                       "dataset.train: the largest label is %lld: expected "
                       "less than %d classes",
                       (long long)*classes, (int)FL_CONFIG_MOST_CLASSES);
    *classes = *classes < 1 ? 2 : *classes + 1;
    return FLEET_OK;
}

static fleet_status make_mlp(fl_config_run *t)
{
    fleet_mlp_options o = t->c->mlp;
    int label;
    const fleet_slot *input = read_input(t, &label, &o.weight);

    FL_TRY(count_classes(t, label, &o.classes));
    o.input = input->name;
    o.dim = input->dim;
    o.label = t->train->slots[label].name;
    fleet_mlp(t->program, &o, &t->model);
    return fleet_program_status(t->program);
}

static fleet_status make_lenet(fl_config_run *t)
{
    fleet_lenet_options o = t->c->lenet;
    int label;
    const fleet_slot *input = read_input(t, &label, &o.weight);

    FL_TRY(count_classes(t, label, &o.classes));
    if (o.channels * o.height * o.width != input->dim)
        return fl_fail(FLEET_ECONFIG,
                       "model: images of %lld x %lld x %lld (channels, height, "
                       "width), but slot \"%s\" has %lld numbers",
                       (long long)o.channels, (long long)o.height,
                       (long long)o.width, input->name, (long long)input->dim);
    o.input = input->name;
    o.label = t->train->slots[label].name;
    o.hidden = t->c->mlp.hidden;
    o.n_hidden = t->c->mlp.n_hidden;
    o.class_weights = t->c->mlp.class_weights;
    o.n_class_weights = t->c->mlp.n_class_weights;
    fleet_lenet(t->program, &o, &t->model);
    return fleet_program_status(t->program);
}

static fleet_status check_classes(const fl_config *c, const fl_config_counts *n,
                                  const char *path)
{
    FL_TRY(fl_config_one_label(n, path));
    if (n->numbers != 1 || n->ids > 0)
        return fl_fail(FLEET_ECONFIG,
                       "%s: beside its label %s %s reads one slot of floats, "
                       "got %d of floats and %d of uint64",
                       path, c->model->family == &fl_family_mlp ? "an" : "a",
                       c->model->name, n->numbers, n->ids);
    return fl_config_class_label(c, n, path);
}

static fleet_status read_mlp(fl_config *c, const fl_at *model)
{
    fl_at hidden = fl_at_key(model, "hidden");
    fl_at classes = fl_at_key(model, "classes");
    fl_at weights = fl_at_key(model, "class_weights");

    FL_TRY(fl_config_floats(c, &weights, 1e-6, 1e6, &c->mlp.class_weights,
                            &c->mlp.n_class_weights));
    FL_TRY(fl_at_int(&classes, 2, FL_CONFIG_MOST_CLASSES, &c->mlp.classes));
    return fl_config_layers(c, &hidden, &c->mlp.hidden, &c->mlp.n_hidden);
}

static fleet_status read_lenet(fl_config *c, const fl_at *model)
{
    enum { MOST = 1 << 15 };
    fl_at channels = fl_at_key(model, "channels");
    fl_at height = fl_at_key(model, "height"),
          width = fl_at_key(model, "width");
    fleet_lenet_options *o = &c->lenet;

    *o = (fleet_lenet_options){.channels = 1, .height = 28, .width = 28};
    FL_TRY(fl_at_int(&channels, 1, MOST, &o->channels));
    FL_TRY(fl_at_int(&height, 1, MOST, &o->height));
    FL_TRY(fl_at_int(&width, 1, MOST, &o->width));
    return read_mlp(c, model);
}

const fl_model_family fl_family_mlp = {
    .one_input = true,
    .keys = (const char *const[]){"hidden", "classes", "class_weights", NULL},
    .read = read_mlp,
    .check = check_classes,
    .make = make_mlp,
};

const fl_model_family fl_family_lenet = {
    .one_input = true,
    .keys = (const char *const[]){"hidden", "classes", "class_weights",
                                  "channels", "height", "width", NULL},
    .read = read_lenet,
    .check = check_classes,
    .make = make_lenet,
};
