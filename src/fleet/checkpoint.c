/* checkpoint.c - fleet_save_persistables() and fleet_load_model(). */
#include "base/memory.h"
#include "fleet/datasets.h"
#include "fleet/save.h"
#include "fleet/trainer.h"

/* Parameters exist from a program's first executor on; a save or a load before
 * that makes them now. */
static fleet_status add_programs(fleet *f)
{
    for (size_t i = 0; i < f->n_program; i++) {
        const fleet_program *p = f->program[i];

        FL_TRY(fleet_program_status(p));
        FL_TRY(fl_store_add(f->store, p));
        if (p->training.loss)
            FL_TRY(fl_store_train(f->store, p->training.optimizer));
    }
    return FLEET_OK;
}

/* All values of a map, for fl_free(). */
static void *values_of(const fl_map *m, int *n)
{
    void **v = fl_alloc_array(m->n, sizeof *v);

    for (size_t i = 0; v && i < m->n; i++)
        v[i] = m->entry[i].value;
    *n = (int)m->n;
    return v;
}

static fleet_status save_all(fleet *f, const char *path, fl_save *s)
{
    fleet_status status = FLEET_ENOMEM;

    s->store = f->store;
    s->param = values_of(&f->store->params, &s->n_param);
    s->table = values_of(&f->store->tables, &s->n_table);
    if (s->param && s->table)
        status = fl_save_write(s, path);
    fl_free(s->param);
    fl_free(s->table);
    return status;
}

fleet_status fl_checkpoint_save(fleet *f, const char *path,
                                const fleet_model *model)
{
    fl_json *program = NULL, *statistics = NULL;
    fl_save s = {.states = true, .what = "checkpoint"};
    fleet_status status;

    FL_TRY(add_programs(f));
    status = fl_statistics_of(f, &statistics);
    if (status == FLEET_OK && model)
        status = fl_prediction_json(model->prediction, &program);
    s.program = program;
    s.statistics = statistics;
    if (status == FLEET_OK)
        status = save_all(f, path, &s);
    fl_json_free(program);
    fl_json_free(statistics);
    return status;
}

fleet_status fleet_save_persistables(fleet *f, const char *path)
{
    FL_TRY(fl_handle_check(f, "fleet_save_persistables"));
    return fl_checkpoint_save(f, path, NULL);
}

/* What the save has for datasets; s->n is 0 if it has nothing. */
static fleet_status read_statistics(fleet *f, const fl_saved *save,
                                    fl_statistics *s)
{
    fl_at root = fl_at_root(save->manifest);
    fl_at at = fl_at_key(&root, "statistics");

    if (!at.json)
        return FLEET_OK;
    FL_TRY(fl_statistics_load(s, &at));
    for (fleet_dataset *d = f->datasets; d; d = d->next)
        if (fl_dataset_standardizes(d))
            FL_TRY(fl_dataset_fits(d, s));
    return FLEET_OK;
}

static fleet_status set_statistics(fleet *f, const fl_statistics *s)
{
    for (fleet_dataset *d = f->datasets; s->n > 0 && d; d = d->next)
        if (fl_dataset_standardizes(d))
            FL_TRY(fl_dataset_set_statistics(d, s));
    return FLEET_OK;
}

static fleet_status load(void *arg, fl_saved *s)
{
    fl_statistics statistics = {0};
    fleet *f = arg;
    fleet_status status = read_statistics(f, s, &statistics);

    if (status == FLEET_OK)
        status = fl_saved_apply(s, f->store);
    if (status == FLEET_OK)
        status = set_statistics(f, &statistics);
    if (status == FLEET_OK) { /* for datasets to come */
        fl_statistics_done(&f->loaded);
        f->loaded = statistics;
        statistics = (fl_statistics){0};
    }
    fl_statistics_done(&statistics);
    return status;
}

fleet_status fleet_load_model(fleet *f, const char *path)
{
    FL_TRY(fl_handle_check(f, "fleet_load_model"));
    FL_TRY(add_programs(f));
    return fl_saved_use(path, "checkpoint", load, f);
}
