/* config_ctr.c - click models by a configuration. */
#include <stdio.h>

#include "base/memory.h"
#include "fleet/config/models.h"

/* Slots by what they are: labels, weights, numbers, ids. */
static fleet_id_slot ids_of(const fl_config_slot *s)
{
    return (fleet_id_slot){.name = s->slot.name,
                           .dim = s->slot.dim,
                           .combiner = s->combiner,
                           .table = s->table,
                           .weighted = s->slot.weighted,
                           .role = s->role};
}

static void sort_slots(const fl_config *c, fleet_ctr_options *o,
                       fleet_dense_slot *dense, fleet_id_slot *ids,
                       fleet_task_options *tasks)
{
    for (int i = 0; i < c->n_slot; i++) {
        const fl_config_slot *s = &c->slot[i];

        if (s->label && c->model->ctr->most_tasks > 0) {
            tasks[o->n_tasks++] = (fleet_task_options){
                s->slot.name, s->slot.dtype, (float)s->loss_weight,
                (float)s->pos_weight};
        } else if (s->label) {
            o->label = s->slot.name;
            o->label_dtype = s->slot.dtype;
        } else if (s->weight) {
            o->weight = s->slot.name;
        } else if (s->log_q) {
            o->log_q = s->slot.name;
        } else if (s->draw) {
            continue; /* no input of the model */
        } else if (s->slot.dtype == FLEET_FLOAT32) {
            dense[o->n_dense++] =
                (fleet_dense_slot){s->slot.name, s->slot.dim, s->combiner};
        } else {
            ids[o->n_ids++] = ids_of(s);
        }
    }
    o->dense = dense;
    o->ids = ids;
    o->tasks = o->n_tasks > 0 ? tasks : NULL;
    o->no_dense = o->n_dense == 0;
    o->no_label = !o->label && !o->tasks;
}

static fleet_status make_ctr(fl_config_run *t)
{
    const fl_config *c = t->c;
    fleet_ctr_options o = c->ctr;
    fleet_dense_slot *dense =
        fl_alloc_array((size_t)c->n_slot + 1, sizeof *dense);
    fleet_id_slot *ids = fl_alloc_array((size_t)c->n_slot + 1, sizeof *ids);
    fleet_task_options tasks[FLEET_MOST_TASKS];
    fleet_status status = FLEET_ENOMEM;

    o.rows = c->rows;
    o.check_ids = c->check_ids;
    o.fresh = c->fresh;
    o.default_id = c->default_id;
    o.life = c->life;
    o.memory_cap_bytes = c->memory_cap_bytes;
    o.cold_folder = c->cold_folder;
    o.storage = c->storage;
    if (dense && ids) {
        sort_slots(c, &o, dense, ids, tasks);
        fl_ctr_build(t->program, &o, &t->model, c->model->ctr);
        status = fleet_program_status(t->program);
    }
    fl_free(dense);
    fl_free(ids);
    return status;
}

static fleet_status check_labels(const fl_config *c, const fl_config_counts *n,
                                 const char *path)
{
    const fl_ctr_model *m = c->model->ctr;

    if (m->most_tasks > 0)
        return n->labels >= m->least_tasks && n->labels <= m->most_tasks
                   ? FLEET_OK
                   : fl_fail(FLEET_ECONFIG,
                             "%s: model %s: expected %d to %d slots with "
                             "\"role\": \"label\", got %d",
                             path, m->name, m->least_tasks, m->most_tasks,
                             n->labels);
    if (!m->label_may_lack || n->labels != 0)
        FL_TRY(fl_config_one_label(n, path));
    else if (c->n_ranking == 0 && (c->n_test > 0 || c->n_validation > 0))
        return fl_fail(FLEET_ECONFIG,
                       "%s: expected one slot with \"role\": \"label\", by "
                       "which dataset.%s is evaluated, or `metrics`, got 0",
                       path, c->n_test > 0 ? "test" : "validation");
    return FLEET_OK;
}

/* Each by itself, then how many there are of a role; numbers are features. */
static fleet_status check_roles(const fl_config *c, const char *path)
{
    const fl_ctr_model *m = c->model->ctr;
    fleet_id_slot *ids = fl_alloc_array((size_t)c->n_slot + 1, sizeof *ids);
    fleet_status status = ids ? FLEET_OK : FLEET_ENOMEM;
    char at[64];
    int n = 0;

    for (int i = 0; i < c->n_slot && status == FLEET_OK; i++) {
        if (c->slot[i].label || c->slot[i].weight || c->slot[i].log_q ||
            c->slot[i].draw)
            continue;
        ids[n] = ids_of(&c->slot[i]);
        snprintf(at, sizeof at, "%.40s[%d].role", path, i);
        status = fl_config_in(fl_ctr_check_role(m, &ids[n++]), at);
    }
    if (status == FLEET_OK)
        status = fl_config_in(fl_ctr_check_roles(m, ids, n, 0), path);
    fl_free(ids);
    return status;
}

static fleet_status check_ctr(const fl_config *c, const fl_config_counts *n,
                              const char *path)
{
    FL_TRY(check_labels(c, n, path));
    if (n->ids == 0)
        return fl_fail(FLEET_ECONFIG,
                       "%s: model %s needs at least one slot of type uint64 "
                       "that is not the label",
                       path, c->model->name);
    FL_TRY(check_roles(c, path));
    return c->model->ctr->classes ? fl_config_class_label(c, n, path)
                                  : FLEET_OK;
}

static fleet_status read_option(fl_config *c, const fl_at *at,
                                const fl_ctr_option *o)
{
    void *to = (char *)&c->ctr + o->at, *n = (char *)&c->ctr + o->n_at;
    double number = 0;
    bool yes = false;

    switch (o->type) {
    case FL_OPTION_INT:
        return fl_at_int(at, (int64_t)o->low, (int64_t)o->high, to);
    case FL_OPTION_FLOAT:
        FL_TRY(fl_at_double(at, o->low, o->high, &number));
        if (at->json)
            *(float *)to = (float)number;
        return FLEET_OK;
    case FL_OPTION_LAYERS:
        return fl_config_layers(c, at, to, n);
    case FL_OPTION_FLOATS:
        return fl_config_floats(c, at, o->low, o->high, to, n);
    case FL_OPTION_BOOL:
        break;
    }
    FL_TRY(fl_at_bool(at, &yes));
    *(int *)to = yes;
    return FLEET_OK;
}

static fleet_status read_ctr(fl_config *c, const fl_at *model)
{
    for (const fl_ctr_option *o = fl_ctr_options; o->name; o++) {
        fl_at at = fl_at_key(model, o->name);

        FL_TRY(read_option(c, &at, o));
    }
    return FLEET_OK;
}

static const char *const keys[] = {"rows",
                                   "check_ids",
                                   "fresh",
                                   "default_id",
                                   "entry",
                                   "unknown_zeros",
                                   "ttl_updates",
                                   "ttl_seconds",
                                   "most_rows",
                                   "most_bytes",
                                   "accessor",
                                   "storage",
                                   "memory_cap_bytes",
                                   "cold_folder",
                                   NULL};

const fl_model_family fl_family_ctr = {
    .tables = true,
    .keys = keys,
    .read = read_ctr,
    .check = check_ctr,
    .make = make_ctr,
};
