/* config_slots.c - the configuration's slots. */
#include <float.h>
#include <string.h>

#include "data/format/formats.h"
#include "data/layout/check_spec.h"
#include "data/layout/layout.h"
#include "fleet/config/models.h"

static fleet_status read_transforms(fl_config *c, const fl_at *at,
                                    fleet_slot *s)
{
    bool list = fl_at_is_array(at);
    int n = list ? fl_at_count(at) : 1;
    fleet_transform *t;

    if (!at->json)
        return FLEET_OK;
    s->transforms = t = fl_arena_alloc(&c->arena, (size_t)(n + 1) * sizeof *t);
    if (!t)
        return FLEET_ENOMEM;
    for (fl_at one = list ? fl_at_first(at) : *at; one.json;
         fl_at_next(at, &one)) {
        int which = 0;

        FL_TRY(fl_at_choice(&one, fl_transform_names, &which));
        t[one.index] = (fleet_transform)which;
        if (!list)
            break;
    }
    s->n_transform = n;
    return FLEET_OK;
}

/* Names, or positions as numbers. */
static fleet_status read_columns(fl_config *c, const fl_at *at, fleet_slot *s)
{
    const char **text;

    FL_TRY(fl_at_array(at));
    s->n_column = fl_at_count(at);
    s->columns = text =
        fl_arena_alloc(&c->arena, (size_t)(s->n_column + 1) * sizeof *text);
    if (!text)
        return FLEET_ENOMEM;
    for (fl_at one = fl_at_first(at); one.json; fl_at_next(at, &one)) {
        const char **to = &text[one.index];
        int64_t position = 0;

        if (fl_at_is_string(&one)) {
            FL_TRY(fl_at_string(&one, to));
            continue;
        }
        FL_TRY(fl_at_int(&one, 0, 1000000, &position));
        *to = fl_arena_format(&c->arena, "%lld", (long long)position);
        if (!*to)
            return FLEET_ENOMEM;
    }
    return FLEET_OK;
}

/* A column of Parquet has the slot's name, if it has none of its own. */
static fleet_status name_column(fl_config *c, fleet_slot *s)
{
    const char **name;

    if (c->dataset.format != FLEET_PARQUET || s->n_column > 0)
        return FLEET_OK;
    s->columns = name = fl_arena_alloc(&c->arena, sizeof *name);
    if (!name)
        return FLEET_ENOMEM;
    *name = s->name;
    s->n_column = 1;
    return FLEET_OK;
}

/* Of its table; without one it has nothing for servers to keep. */
static fleet_status read_keeper(const fl_at *at, fl_config_slot *s)
{
    bool has_table = s->slot.dtype == FLEET_INT64 && !s->label;
    fl_at ps = fl_at_key(at, "ps");
    bool servers = false;

    if (!ps.json)
        return FLEET_OK;
    FL_TRY(fl_at_bool(&ps, &servers));
    if (!has_table && servers)
        return fl_at_expected(&ps, "false: only ids have a table; model.ps is "
                                   "for other parameters");
    if (has_table)
        s->ps = servers ? FLEET_PS_SERVERS : FLEET_PS_RANKS;
    return FLEET_OK;
}

/* What the model does with the slot. */
static fleet_status read_use(const fl_at *at, fl_config_slot *s)
{
    enum { LABEL, WEIGHT, LOG_Q, DRAW, HISTORY };
    static const char *const roles[] = {"label",   "weight", "log_q",    "draw",
                                        "history", "item",   "negative", NULL};
    static const char *const combiners[] = {"sum",   "mean", "sqrt", "max",
                                            "first", "last", NULL};
    fl_at role = fl_at_key(at, "role"), combiner = fl_at_key(at, "combiner");
    fl_at table = fl_at_key(at, "table"), weighted = fl_at_key(at, "weighted");
    fl_at loss = fl_at_key(at, "loss_weight"),
          positive = fl_at_key(at, "pos_weight");
    bool is_weighted = false;
    int what = -1, which = 0;

    FL_TRY(fl_at_choice(&role, roles, &what));
    s->label = what == LABEL;
    s->weight = what == WEIGHT;
    s->log_q = what == LOG_Q;
    s->draw = what == DRAW;
    if (what >= HISTORY) /* in the order of fleet_slot_role */
        s->role = (fleet_slot_role)(FLEET_SLOT_HISTORY + what - HISTORY);
    if (s->role != FLEET_SLOT_FEATURE && s->slot.dtype != FLEET_INT64)
        return fl_at_expected(&role,
                              "\"label\", \"weight\", \"log_q\" or \"draw\": "
                              "others are of slots of type \"uint64\"");
    if ((s->weight || s->log_q || s->draw) &&
        (s->slot.dtype != FLEET_FLOAT32 || s->slot.dim != 1))
        return fl_at_expected(&role,
                              s->weight  ? "\"label\": a weight is a slot of "
                                           "type \"float\" and dim 1"
                              : s->log_q ? "another one: log_q is a slot of "
                                           "type \"float\" and dim 1"
                                         : "another one: draw is a slot of "
                                           "type \"float\" and dim 1");
    if (combiner.json && s->slot.dim != -1)
        return fl_at_expected(&combiner, "nothing: it is for dim -1");
    FL_TRY(fl_at_bool(&weighted, &is_weighted));
    if (is_weighted &&
        (s->slot.dim != -1 || s->slot.dtype != FLEET_INT64 || s->label))
        return fl_at_expected(&weighted, "false: only ids of any number, of "
                                         "dim -1, have weights");
    s->slot.weighted = is_weighted;
    if (table.json && (s->slot.dtype != FLEET_INT64 || s->label))
        return fl_at_expected(&table, "nothing: only ids have a table");
    FL_TRY(fl_at_choice(&combiner, combiners, &which));
    s->combiner = (fleet_combiner)which;
    FL_TRY(fl_at_string(&table, &s->table));
    if (loss.json && !s->label)
        return fl_at_expected(&loss, "nothing: it is for a label");
    if (positive.json && !s->label)
        return fl_at_expected(&positive, "nothing: it is for a label");
    FL_TRY(fl_at_double(&positive, 1e-6, 1e6, &s->pos_weight));
    FL_TRY(fl_at_double(&loss, 1e-9, 1e9, &s->loss_weight));
    return read_keeper(at, s);
}

/* A label and a weight must not be missing, and a class is the number in its
 * cell, where an id is the hash of its cell. */
static void read_label(const fl_config *c, fl_config_slot *s)
{
    static const fleet_transform none = FLEET_TRANSFORM_NONE;

    if (!fl_slots_by_name(c->dataset.format) ||
        !(s->label || s->weight || s->log_q || s->draw))
        return;
    s->slot.required = 1;
    if (!fl_has_columns(c->dataset.format) || s->slot.transforms || !s->label)
        return;
    s->slot.transforms = &none;
    s->slot.n_transform = 1;
}

/* Of a slot that no line has. */
static fleet_status read_sources(fl_config *c, const fl_at *at, fleet_slot *s)
{
    fl_at from = fl_at_key(at, "from"), buckets = fl_at_key(at, "buckets");
    const char **name = NULL;
    float *x;

    if (buckets.json && !from.json)
        return fl_at_expected(&buckets, "nothing: it goes with from");
    FL_TRY(fl_config_texts(c, &from, &name, &s->n_from));
    s->from = name;
    FL_TRY(fl_at_array(&buckets));
    s->n_bucket = fl_at_count(&buckets);
    s->buckets = x =
        fl_arena_alloc(&c->arena, (size_t)(s->n_bucket + 1) * sizeof *x);
    if (!x)
        return FLEET_ENOMEM;
    for (fl_at one = fl_at_first(&buckets); one.json;
         fl_at_next(&buckets, &one)) {
        double number = 0;

        FL_TRY(fl_at_double(&one, -FLT_MAX, FLT_MAX, &number));
        x[one.index] = (float)number;
    }
    return FLEET_OK;
}

static fleet_status read_slot(fl_config *c, const fl_at *at, fl_config_slot *s)
{
    static const char *const keys[] = {
        "name",       "type",  "dim",      "role",
        "combiner",   "table", "ps",       "columns",
        "transform",  "value", "weighted", "loss_weight",
        "pos_weight", "from",  "buckets",  NULL};
    static const char *const types[] = {"float", "uint64", NULL};
    static const char *const of_columns[] = {"columns", "transform", "value",
                                             NULL};
    fl_at name = fl_at_key(at, "name"), type = fl_at_key(at, "type");
    fl_at dim = fl_at_key(at, "dim"), columns = fl_at_key(at, "columns");
    fl_at transform = fl_at_key(at, "transform"),
          value = fl_at_key(at, "value");
    const char **equals = NULL;
    int which = 0;

    FL_TRY(fl_at_required(at));
    FL_TRY(fl_at_keys(at, keys));
    FL_TRY(fl_at_required(&name));
    FL_TRY(fl_at_string(&name, &s->slot.name));
    FL_TRY(fl_at_required(&type));
    FL_TRY(fl_at_choice(&type, types, &which));
    s->slot.dtype = which ? FLEET_INT64 : FLEET_FLOAT32;
    s->slot.dim = 1;
    FL_TRY(fl_at_int(&dim, -1, 1 << 20, &s->slot.dim));
    if (s->slot.dim == 0)
        return fl_at_expected(&dim, "1 or more, or -1 for any number");
    FL_TRY(fl_config_columns_alone(c, at, of_columns));
    FL_TRY(read_columns(c, &columns, &s->slot));
    FL_TRY(name_column(c, &s->slot));
    FL_TRY(read_transforms(c, &transform, &s->slot));
    FL_TRY(read_sources(c, at, &s->slot));
    FL_TRY(fl_config_texts(c, &value, &equals, &s->slot.n_equals));
    s->slot.equals = equals;
    FL_TRY(read_use(at, s));
    read_label(c, s);
    return FLEET_OK;
}

static fl_config_slot own_slot(const char *name, fleet_dtype dtype, int64_t dim)
{
    return (fl_config_slot){.slot = {.name = name, .dtype = dtype, .dim = dim}};
}

/* Formats that bring their slots with them: only how they are used is said by
 * the format, too. */
static fleet_status own_slots(fl_config *c, const fl_at *at)
{
    enum { N_ID = 26 };

    if (at->json)
        return fl_at_expected(at, "nothing: this format has slots of its own");
    c->n_slot = c->dataset.format == FLEET_IDX ? 2 : 2 + N_ID;
    c->slot = fl_arena_alloc(&c->arena, (size_t)c->n_slot * sizeof *c->slot);
    if (!c->slot)
        return FLEET_ENOMEM;
    if (c->dataset.format == FLEET_IDX) {
        c->slot[0] = own_slot("image", FLEET_FLOAT32, 0); /* as wide as it is */
        c->slot[1] = own_slot("label", FLEET_INT64, 1);
        c->slot[1].label = true;
        return FLEET_OK;
    }
    c->slot[0] = own_slot("label", FLEET_INT64, 1);
    c->slot[0].label = true;
    c->slot[1] = own_slot("dense_input", FLEET_FLOAT32, 13);
    for (int i = 0; i < N_ID; i++) {
        const char *name = fl_arena_format(&c->arena, "%d", i + 1);

        if (!name)
            return FLEET_ENOMEM;
        c->slot[2 + i] = own_slot(name, FLEET_INT64, 1);
    }
    return FLEET_OK;
}

/* The dataset's own checks, under the slot's path. */
static fleet_status check_slots(fl_config *c, const fl_at *at)
{
    fl_stream_spec spec = {.format = c->dataset.format,
                           .header = c->dataset.header,
                           .n_slot = c->n_slot};
    fleet_status status;
    int bad;

    spec.slots = c->data_slot =
        fl_arena_alloc(&c->arena, (size_t)c->n_slot * sizeof *c->data_slot);
    if (!c->data_slot)
        return FLEET_ENOMEM;
    for (int i = 0; i < c->n_slot; i++)
        c->data_slot[i] = c->slot[i].slot;
    status = fl_spec_check_slots(&spec, &bad);
    return fl_config_in(status, fl_at_index(at, bad).path);
}

fleet_status fl_config_one_label(const fl_config_counts *n, const char *path)
{
    return n->labels == 1
               ? FLEET_OK
               : fl_fail(FLEET_ECONFIG,
                         "%s: expected one slot with \"role\": \"label\", "
                         "got %d",
                         path, n->labels);
}

fleet_status fl_config_class_label(const fl_config *c,
                                   const fl_config_counts *n, const char *path)
{
    return n->real < 0
               ? FLEET_OK
               : fl_fail(FLEET_ECONFIG,
                         "%s[%d].type: the label of model %s is a class: "
                         "expected \"uint64\", got \"float\"",
                         path, n->real, c->model->name);
}

static bool takes_log_q(const fl_model_kind *m)
{
    return m->ctr && m->ctr->in_batch;
}

/* Of a model of one label they would have no effect, or another place. */
static fleet_status check_weights(const fl_config *c, const char *path)
{
    if (c->model->ctr && c->model->ctr->most_tasks > 0)
        return FLEET_OK;
    for (int i = 0; i < c->n_slot; i++) {
        if (c->slot[i].loss_weight != 0)
            return fl_fail(FLEET_ECONFIG,
                           "%s[%d].loss_weight: expected nothing: model %s has "
                           "one label",
                           path, i, c->model->name);
        if (c->slot[i].pos_weight != 0)
            return fl_fail(FLEET_ECONFIG,
                           "%s[%d].pos_weight: expected nothing: of model %s, "
                           "which has one label, it would be model.pos_weight "
                           "or model.class_weights",
                           path, i, c->model->name);
    }
    return FLEET_OK;
}

static fleet_status check_draws(const fl_config *c, int n, const char *path)
{
    if (n > 1)
        return fl_fail(FLEET_ECONFIG,
                       "%s: expected at most one slot with \"role\": \"draw\", "
                       "got %d",
                       path, n);
    if (n > 0 && c->in_memory)
        return fl_fail(FLEET_ECONFIG,
                       "%s: expected no slot with \"role\": \"draw\": with "
                       "in_memory each pass has all samples",
                       path);
    return n > 0 || c->dataset.draw_most == 0
               ? FLEET_OK
               : fl_fail(FLEET_ECONFIG,
                         "dataset.draw_most: expected nothing: no slot has the "
                         "role \"draw\"");
}

static fleet_status check_model(const fl_config *c, const char *path)
{
    fl_config_counts n = {.real = -1};
    int draws = 0;

    for (int i = 0; i < c->n_slot; i++) {
        bool id = c->slot[i].slot.dtype == FLEET_INT64;

        n.labels += c->slot[i].label;
        if (c->slot[i].label && !id)
            n.real = i;
        n.weights += c->slot[i].weight;
        n.log_q += c->slot[i].log_q;
        draws += c->slot[i].draw;
        n.numbers += !c->slot[i].label && !c->slot[i].weight &&
                     !c->slot[i].log_q && !c->slot[i].draw && !id;
        n.ids += !c->slot[i].label && id;
    }
    if (n.weights > 1)
        return fl_fail(FLEET_ECONFIG,
                       "%s: expected at most one slot with \"role\": "
                       "\"weight\", got %d",
                       path, n.weights);
    if (n.log_q > 1 || (n.log_q > 0 && !takes_log_q(c->model)))
        return fl_fail(FLEET_ECONFIG,
                       "%s: expected %s with \"role\": \"log_q\" of model %s, "
                       "got %d",
                       path, n.log_q > 1 ? "at most one slot" : "no slot",
                       c->model->name, n.log_q);
    FL_TRY(check_draws(c, draws, path));
    FL_TRY(c->model->family->check(c, &n, path));
    return check_weights(c, path);
}

/* What an accessor counts is a slot of one number: the label, or one of floats.
 * Another one of uint64 holds ids, which are no count. */
static fleet_status check_shown(const fl_config *c, const fl_at *at,
                                const char *name)
{
    for (int i = 0; name && i < c->n_slot; i++) {
        const fl_config_slot *s = &c->slot[i];

        if (strcmp(s->slot.name, name) != 0)
            continue;
        if (s->slot.dim == 1 && (s->label || s->slot.dtype == FLEET_FLOAT32))
            return FLEET_OK;
        return fl_at_expected(at, "the label, or a slot of type \"float\" and "
                                  "dim 1; that slot has ids, or another dim");
    }
    return name ? fl_at_expected(at, "the name of the label, or of a slot of "
                                     "type \"float\" and dim 1; no slot has "
                                     "that name")
                : FLEET_OK;
}

fleet_status fl_config_check_shown(const fl_config *c, const fl_at *model)
{
    const fleet_accessor *a = &c->life.accessor;
    fl_at accessor = fl_at_key(model, "accessor"), at;

    at = fl_at_key(&accessor, "show");
    FL_TRY(check_shown(c, &at, a->show));
    at = fl_at_key(&accessor, "click");
    return check_shown(c, &at, a->click);
}

fleet_status fl_config_read_slots(fl_config *c, const fl_at *at)
{
    enum { MOST = 10000 };

    if (fl_format_has_slots(c->dataset.format)) {
        FL_TRY(own_slots(c, at));
        return check_model(c, "dataset.format");
    }
    FL_TRY(fl_at_required(at));
    c->n_slot = fl_at_count(at);
    if (!fl_at_is_array(at) || c->n_slot < 1 || c->n_slot > MOST)
        return fl_at_expected(at, "an array of slots");
    c->slot = fl_arena_alloc(&c->arena, (size_t)c->n_slot * sizeof *c->slot);
    if (!c->slot)
        return FLEET_ENOMEM;
    for (fl_at one = fl_at_first(at); one.json; fl_at_next(at, &one))
        FL_TRY(read_slot(c, &one, &c->slot[one.index]));
    FL_TRY(check_slots(c, at));
    return check_model(c, at->path);
}
