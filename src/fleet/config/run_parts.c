/* run_parts.c - datasets, model and executors of a configuration. */
#include "fleet/config/run_internal.h"

#include "data/format/formats.h"
#include "fleet/config/config_internal.h"
#include "fleet/job/dataset.h"
#include "runtime/exec/executor.h"

/* --- data ---------------------------------------------------------------- */

/* files NULL: without files. */
static fleet_status make_dataset(fl_config_run *t, const char *const *files,
                                 int n, fleet_dataset **out)
{
    fleet_dataset_options o = t->c->dataset;

    if (!fl_format_has_slots(o.format)) {
        o.slots = t->c->data_slot;
        o.n_slot = t->c->n_slot;
    }
    *out = fleet_queue_dataset(t->f, &o);
    if (!*out)
        return fl_last_code();
    return files ? fleet_dataset_set_filelist(*out, files, n) : FLEET_OK;
}

static fleet_status make_unshuffled(fl_config_run *t, const char *const *files,
                                    int n, fleet_dataset **out)
{
    FL_TRY(make_dataset(t, files, n, out));
    (*out)->options.shuffle = 0;
    return FLEET_OK;
}

fleet_status fl_run_make_datasets(fl_config_run *t)
{
    bool by_files = t->c->model == FL_MLP &&
                    (t->c->classes == 0 || t->c->dataset.format == FLEET_IDX);
    bool reads = fleet_is_worker(t->f) || by_files;

    FL_TRY(
        make_dataset(t, reads ? t->c->train : NULL, t->c->n_train, &t->train));
    if (!fleet_is_first_worker(t->f))
        return FLEET_OK;
    if (t->c->n_test > 0)
        FL_TRY(make_unshuffled(t, t->c->test, t->c->n_test, &t->test));
    if (!t->c->validates || t->o->action == FLEET_CONFIG_EVALUATE)
        return FLEET_OK;
    t->validated = t->test;
    return t->c->n_validation > 0
               ? make_unshuffled(t, t->c->validation, t->c->n_validation,
                                 &t->validated)
               : FLEET_OK;
}

/* --- model --------------------------------------------------------------- */

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
    fleet_mlp_options o = {.classes = c->classes};
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
    if (c->has_hidden) {
        o.hidden = c->hidden;
        o.n_hidden = c->n_hidden;
    }
    fleet_mlp(t->program, &o, &t->model);
    return fleet_program_status(t->program);
}

/* Slots by what they are: the label, numbers, ids. */
static void sort_slots(const fl_config *c, fleet_ctr_options *o,
                       fleet_dense_slot *dense, fleet_id_slot *ids)
{
    for (int i = 0; i < c->n_slot; i++) {
        const fl_config_slot *s = &c->slot[i];

        if (s->label) {
            o->label = s->slot.name;
            o->label_dtype = s->slot.dtype;
        } else if (s->weight) {
            o->weight = s->slot.name;
        } else if (s->slot.dtype == FLEET_FLOAT32) {
            dense[o->n_dense++] =
                (fleet_dense_slot){s->slot.name, s->slot.dim, s->combiner};
        } else {
            ids[o->n_ids++] =
                (fleet_id_slot){s->slot.name, s->slot.dim, s->combiner,
                                s->table, s->slot.weighted};
        }
    }
    o->dense = dense;
    o->ids = ids;
    o->no_dense = o->n_dense == 0;
}

static fleet_status make_ctr(fl_config_run *t)
{
    static fleet_var *(*const build[])(
        fleet_program *, const fleet_ctr_options *,
        fleet_model *) = {fleet_wide_deep, fleet_ctr_dnn, fleet_deepfm};
    const fl_config *c = t->c;
    fleet_ctr_options o = {.embedding_dim = c->embedding_dim,
                           .wide_ids = c->wide_ids,
                           .rows = c->rows,
                           .check_ids = c->check_ids,
                           .fresh = c->fresh,
                           .default_id = c->default_id,
                           .life = c->life,
                           .memory_cap_bytes = c->memory_cap_bytes,
                           .cold_folder = c->cold_folder,
                           .storage = c->storage};
    fleet_dense_slot *dense =
        fl_alloc_array((size_t)c->n_slot + 1, sizeof *dense);
    fleet_id_slot *ids = fl_alloc_array((size_t)c->n_slot + 1, sizeof *ids);
    fleet_status status = FLEET_ENOMEM;

    if (c->has_hidden) {
        o.hidden = c->hidden;
        o.n_hidden = c->n_hidden;
    }
    if (dense && ids) {
        sort_slots(c, &o, dense, ids);
        build[c->model](t->program, &o, &t->model);
        status = fleet_program_status(t->program);
    }
    fl_free(dense);
    fl_free(ids);
    return status;
}

fleet_status fl_run_make_model(fl_config_run *t)
{
    fleet_optimizer *o = fl_config_make_optimizer(t->f, &t->c->optimizer);
    fleet_place own = FLEET_GPU(fleet_worker_gpu(t->f));

    if (!o)
        return fl_last_code();
    t->program = fleet_program_create(t->f);
    if (!t->program)
        return fl_last_code();
    if (fleet_is_worker(t->f)) /* servers need none */
        FL_TRY(fleet_program_place(t->program,
                                   t->c->own_gpu ? own : t->c->device, NULL));
    FL_TRY(t->c->model == FL_MLP ? make_mlp(t) : make_ctr(t));
    FL_TRY(fl_config_set_param_home(t->c, t->program));
    FL_TRY(fl_config_set_tables(t->c, t->f, t->program, o));
    o = fleet_distributed_optimizer(t->f, o, &t->c->strategy);
    if (!o)
        return fl_last_code();
    if (t->o->action == FLEET_CONFIG_EVALUATE) /* a log is a training's */
        t->f->strategy.log = FLEET_DURABLE_NONE;
    return fleet_minimize(o, t->model.loss);
}

/* --- executors ----------------------------------------------------------- */

fleet_status fl_run_make_executors(fl_config_run *t)
{
    const bool scores =
        t->test || t->validated || t->o->action == FLEET_CONFIG_CHECK;
    fleet_executor_options for_test = {.for_test = 1};

    if (t->load)
        FL_TRY(fleet_load_model_with(t->f, t->load, &t->load_options));
    if (t->test)
        FL_TRY(fleet_dataset_use_statistics_of(t->test, t->train));
    if (t->validated && t->validated != t->test)
        FL_TRY(fleet_dataset_use_statistics_of(t->validated, t->train));
    t->trainer = fleet_executor_create(t->program, NULL);
    if (t->trainer && scores)
        t->tester = fleet_executor_create(t->program, &for_test);
    return t->trainer && (!scores || t->tester) ? FLEET_OK : fl_last_code();
}
