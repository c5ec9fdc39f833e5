/* config_mlp.c - an mlp by a configuration. */
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
    FL_TRY(fl_dataset_open(t->train, false, NULL, &stream));
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

static fleet_status make_mlp(fl_config_run *t)
{
    const fl_config *c = t->c;
    fleet_mlp_options o = c->mlp;
    const fleet_slot *input = NULL;
    int label = 0;

    for (int i = 0; i < c->n_slot; i++)
        if (c->slot[i].label)
            label = i;
        else if (c->slot[i].weight)
            o.weight = c->slot[i].slot.name;
        else
            input = &t->train->slots[i];

    if (o.classes == 0) {
        FL_TRY(largest_label(t, label, &o.classes));
        if (o.classes >= FL_CONFIG_MOST_CLASSES)
            return fl_fail(FLEET_ECONFIG,
                           "dataset.train: the largest label is %lld: expected "
                           "less than %d classes",
                           (long long)o.classes, (int)FL_CONFIG_MOST_CLASSES);
        o.classes = o.classes < 1 ? 2 : o.classes + 1;
    }
    o.input = input->name;
    o.dim = input->dim;
    o.label = t->train->slots[label].name;
    fleet_mlp(t->program, &o, &t->model);
    return fleet_program_status(t->program);
}

static fleet_status check_mlp(const fl_config *c, const fl_config_counts *n,
                              const char *path)
{
    FL_TRY(fl_config_one_label(n, path));
    if (n->numbers != 1 || n->ids > 0)
        return fl_fail(FLEET_ECONFIG,
                       "%s: beside its label an mlp reads one slot of floats, "
                       "got %d of floats and %d of uint64",
                       path, n->numbers, n->ids);
    return fl_config_class_label(c, n, path);
}

static fleet_status read_mlp(fl_config *c, const fl_at *model)
{
    fl_at hidden = fl_at_key(model, "hidden");
    fl_at classes = fl_at_key(model, "classes");

    FL_TRY(fl_at_int(&classes, 2, FL_CONFIG_MOST_CLASSES, &c->mlp.classes));
    return fl_config_layers(c, &hidden, &c->mlp.hidden, &c->mlp.n_hidden);
}

const fl_model_family fl_family_mlp = {
    .keys = (const char *const[]){"hidden", "classes", NULL},
    .read = read_mlp,
    .check = check_mlp,
    .make = make_mlp,
};
