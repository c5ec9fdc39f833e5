/* run_parts.c - datasets, model and executors of a configuration. */
#include "data/format/formats.h"
#include "fleet/config/models.h"
#include "fleet/job/dataset.h"
#include "runtime/exec/executor.h"

/* --- data ---------------------------------------------------------------- */

/* Of negative samples, too. */
static bool keeps_all_samples(const fl_config *c)
{
    return c->dataset.negative_rate == 0 || c->dataset.negative_rate == 1;
}

static fleet_status make_dataset(fl_config_run *t, bool in_memory,
                                 fleet_dataset_options o, fleet_dataset **out)
{
    if (!fl_format_has_slots(o.format)) {
        o.slots = t->c->data_slot;
        o.n_slot = t->c->n_slot;
    }
    o.negative_rate = keeps_all_samples(t->c) ? 0 : o.negative_rate;
    for (int i = 0; i < t->c->n_slot; i++)
        if (t->c->slot[i].label && o.negative_rate != 0)
            o.negative_label = t->c->slot[i].slot.name;
        else if (t->c->slot[i].draw)
            o.draw_slot = t->c->slot[i].slot.name;
    *out = in_memory ? fleet_in_memory_dataset(t->f, &o)
                     : fleet_queue_dataset(t->f, &o);
    return *out ? FLEET_OK : fl_last_code();
}

/* Without files where it does not read. What is tried once is not loaded. */
static fleet_status make_training(fl_config_run *t, bool reads)
{
    const bool in_memory =
        t->c->in_memory && t->o->action != FLEET_CONFIG_CHECK;
    fleet_dataset_options o = t->c->dataset;

    o.memory_limit = in_memory ? t->c->memory_limit : 0;
    FL_TRY(make_dataset(t, in_memory, o, &t->train));
    return reads ? fleet_dataset_set_filelist(t->train, t->c->train,
                                              t->c->n_train)
                 : FLEET_OK;
}

static fleet_status make_unshuffled(fl_config_run *t, const char *const *files,
                                    int n, fleet_dataset **out)
{
    fleet_dataset_options o = t->c->dataset;

    o.shuffle = 0;
    FL_TRY(make_dataset(t, false, o, out));
    return fleet_dataset_set_filelist(*out, files, n);
}

/* By default the items of the training. */
static fleet_status make_items(fl_config_run *t)
{
    const fl_config *c = t->c;

    if (c->n_ranking == 0)
        return FLEET_OK;
    return c->n_items > 0 ? make_unshuffled(t, c->items, c->n_items, &t->items)
                          : make_unshuffled(t, c->train, c->n_train, &t->items);
}

fleet_status fl_run_make_datasets(fl_config_run *t)
{
    bool by_files =
        t->c->model->family->one_input &&
        (t->c->mlp.classes == 0 || t->c->dataset.format == FLEET_IDX);
    bool dumps = t->o->action == FLEET_CONFIG_DUMP;
    bool reads = (fleet_is_worker(t->f) && !dumps) || by_files;

    FL_TRY(make_training(t, reads));
    if (!fleet_is_first_worker(t->f) || dumps)
        return FLEET_OK;
    if (t->c->n_test > 0)
        FL_TRY(make_unshuffled(t, t->c->test, t->c->n_test, &t->test));
    FL_TRY(make_items(t));
    if (!t->c->validates || t->o->action == FLEET_CONFIG_EVALUATE)
        return FLEET_OK;
    t->validated = t->test;
    return t->c->n_validation > 0
               ? make_unshuffled(t, t->c->validation, t->c->n_validation,
                                 &t->validated)
               : FLEET_OK;
}

/* --- model --------------------------------------------------------------- */

/* What is evaluated and saved is as of all samples. */
static fleet_status calibrate(fl_config_run *t)
{
    if (keeps_all_samples(t->c))
        return FLEET_OK;
    if (t->model.n_task > 0)
        return fl_fail(FLEET_ECONFIG,
                       "dataset.negative_rate: expected nothing: "
                       "the model has several labels");
    t->model.prediction = fleet_calibrate(t->program, t->model.prediction,
                                          (float)t->c->dataset.negative_rate);
    return fleet_program_status(t->program);
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
    FL_TRY(t->c->model->family->make(t));
    FL_TRY(calibrate(t));
    FL_TRY(fl_config_set_param_home(t->c, t->program));
    FL_TRY(fl_config_set_own(t->c, t->f, t->program, o));
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
    if (t->items)
        FL_TRY(fleet_dataset_use_statistics_of(t->items, t->train));
    t->trainer = fleet_executor_create(t->program, NULL);
    if (t->trainer && scores)
        t->tester = fleet_executor_create(t->program, &for_test);
    return t->trainer && (!scores || t->tester) ? FLEET_OK : fl_last_code();
}

fleet_status fl_run_evaluate(fl_config_run *t, fleet_dataset *d,
                             fleet_evaluation *found)
{
    const fl_config *c = t->c;

    return t->items ? fleet_evaluate_ranking(t->tester, d, t->items, &t->model,
                                             c->ranking, c->n_ranking, found)
                    : fleet_evaluate(t->tester, d, &t->model, found);
}
