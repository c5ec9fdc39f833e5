/* config_optimizer.c - "optimizer" of the configuration, and optimizers of
 * single tables below it. */
#include <string.h>

#include "base/text.h"
#include "fleet/config/models.h"
#include "runtime/graph/program.h"
#include "runtime/optim/optimizer.h"

static fleet_status read_boundaries(fl_config *c, const fl_at *at,
                                    fleet_schedule *s)
{
    fl_at boundaries = fl_at_key(at, "boundaries");
    int n = fl_at_count(&boundaries);
    int64_t *to;

    if (!fl_at_is_array(&boundaries) || n < 1)
        return fl_at_expected(&boundaries, "an array of growing steps");
    to = fl_arena_alloc(&c->arena, (size_t)n * sizeof *to);
    if (!to)
        return FLEET_ENOMEM;
    for (fl_at b = fl_at_first(&boundaries); b.json;
         fl_at_next(&boundaries, &b))
        FL_TRY(fl_at_int(&b, 1, FL_MOST_EXACT, &to[b.index]));
    s->boundaries = to;
    s->n = n;
    return FLEET_OK;
}

static fleet_status read_values(fl_config *c, const fl_at *at,
                                fleet_schedule *s)
{
    fl_at values = fl_at_key(at, "values");
    float *to;

    if (!fl_at_is_array(&values) || fl_at_count(&values) != s->n + 1)
        return fl_at_expected(&values,
                              "one learning rate more than boundaries");
    to = fl_arena_alloc(&c->arena, (size_t)(s->n + 1) * sizeof *to);
    if (!to)
        return FLEET_ENOMEM;
    for (fl_at v = fl_at_first(&values); v.json; fl_at_next(&values, &v)) {
        double x = 0;

        FL_TRY(fl_at_double(&v, 1e-30, 1e9, &x));
        to[v.index] = (float)x;
    }
    s->values = to;
    return FLEET_OK;
}

/* A number without a default is required. */
static fleet_status read_scheduled(const fl_at *at, const fl_schedule_number *n,
                                   fleet_schedule *s)
{
    fl_at one = fl_at_key(at, n->name);
    double x = 0;

    if (n->otherwise < n->low)
        FL_TRY(fl_at_required(&one));
    if (n->type == FL_SCHEDULE_FLAG) {
        bool flag = false;

        FL_TRY(fl_at_bool(&one, &flag));
        x = (double)flag;
    } else if (n->type == FL_SCHEDULE_INT) {
        int64_t whole = 0;

        FL_TRY(fl_at_int(&one, (int64_t)n->low, (int64_t)n->high, &whole));
        x = (double)whole;
    } else {
        FL_TRY(fl_at_double(&one, n->low, n->high, &x));
    }
    fl_schedule_put(s, n, x);
    return FLEET_OK;
}

static fleet_status read_decay(fl_config *c, const fl_at *at, fleet_schedule *s)
{
    static const char *const types[] = {
#define FL_SCHEDULE(KIND, name) #name,
#include "runtime/optim/schedules.def"
        NULL};
    enum { MOST_KEYS = 16 };
    const char *keys[MOST_KEYS] = {"type"};
    fl_at type = fl_at_key(at, "type");
    const fl_schedule_number *number;
    int kind = 0, n = 1;

    if (!at->json)
        return FLEET_OK;
    FL_TRY(fl_at_required(&type));
    FL_TRY(fl_at_choice(&type, types, &kind));
    s->kind = (fleet_schedule_kind)kind;
    if (fl_schedule_has_boundaries(s->kind))
        keys[n++] = "boundaries";
    if (fl_schedule_has_values(s->kind))
        keys[n++] = "values";
    for (int i = 0; (number = fl_schedule_number_of(s->kind, i)) != NULL; i++)
        keys[n++] = number->name;
    FL_TRY(fl_at_keys(at, keys));
    for (int i = 0; (number = fl_schedule_number_of(s->kind, i)) != NULL; i++)
        FL_TRY(read_scheduled(at, number, s));
    if (fl_schedule_has_boundaries(s->kind))
        FL_TRY(read_boundaries(c, at, s));
    return fl_schedule_has_values(s->kind) ? read_values(c, at, s) : FLEET_OK;
}

static fleet_status read_double(const fl_at *object, const char *key,
                                double low, double high, double *out)
{
    fl_at at = fl_at_key(object, key);

    return fl_at_double(&at, low, high, out);
}

enum { NUMBER_KEYS = FL_N_RULE * FL_MAX_NUMBER };

/* The names of all rules' numbers, each once; how many. */
static int number_keys(const char *key[NUMBER_KEYS])
{
    int n = 0;

    for (int i = 0; i < NUMBER_KEYS; i++) {
        const fl_rule *rule = fl_rule_of((fl_rule_kind)(i / FL_MAX_NUMBER));
        const char *name = rule->number[i % FL_MAX_NUMBER].name;
        int k = 0;

        while (name && k < n && strcmp(key[k], name) != 0)
            k++;
        if (name && k == n)
            key[n++] = name;
    }
    return n;
}

/* The rule's own numbers; a key of another rule says nothing to it. */
static fleet_status read_numbers(fl_config_optimizer *o, const fl_at *at)
{
    const fl_rule_number *own = fl_rule_of((fl_rule_kind)o->type)->number;
    const char *key[NUMBER_KEYS];
    int n = number_keys(key);

    for (int k = 0; k < n; k++) {
        fl_at one = fl_at_key(at, key[k]);
        bool flag = false;
        double x = 0;
        int i = 0;

        while (i < FL_MAX_NUMBER &&
               !(own[i].name && strcmp(own[i].name, key[k]) == 0))
            i++;
        if (i == FL_MAX_NUMBER && one.json)
            return fl_at_expected(&one, "nothing: it is another optimizer's");
        if (i == FL_MAX_NUMBER)
            continue;
        if (own[i].flag)
            FL_TRY(fl_at_bool(&one, &flag));
        else
            FL_TRY(fl_at_double(&one, own[i].low, own[i].high, &x));
        o->number[i] = own[i].flag ? (float)flag : (float)x;
    }
    return fl_config_in(
        fl_optimizer_check_numbers((fl_rule_kind)o->type, o->number), at->path);
}

static fleet_status read_bounds(const fl_at *at, fl_config_optimizer *o)
{
    fl_at low = fl_at_index(at, 0), high = fl_at_index(at, 1);

    if (!at->json)
        return FLEET_OK;
    if (!fl_at_is_array(at) || fl_at_count(at) != 2)
        return fl_at_expected(at, "a number and a larger one");
    FL_TRY(fl_at_double(&low, -1e30, 1e30, &o->low));
    FL_TRY(fl_at_double(&high, -1e30, 1e30, &o->high));
    o->bounds = true;
    return o->low < o->high ? FLEET_OK
                            : fl_at_expected(at, "a number and a larger one");
}

static fleet_status read_plateau(const fl_at *at, fl_config_optimizer *o)
{
    static const char *const keys[] = {"factor",   "patience", "threshold",
                                       "absolute", "cooldown", "least",
                                       NULL};
    fl_at patience_at = fl_at_key(at, "patience");
    fl_at cooldown_at = fl_at_key(at, "cooldown");
    fl_at absolute_at = fl_at_key(at, "absolute");
    int64_t patience = 10, cooldown = 0;
    double factor = 0.1, threshold = 1e-4, least = 0;
    bool absolute = false;

    if (!at->json)
        return FLEET_OK;
    FL_TRY(fl_at_keys(at, keys));
    FL_TRY(fl_at_int(&patience_at, 0, INT32_MAX, &patience));
    FL_TRY(fl_at_int(&cooldown_at, 0, INT32_MAX, &cooldown));
    FL_TRY(fl_at_bool(&absolute_at, &absolute));
    FL_TRY(read_double(at, "factor", 1e-6, 0.999999, &factor));
    FL_TRY(read_double(at, "threshold", 0, 1e9, &threshold));
    FL_TRY(read_double(at, "least", 0, 1e6, &least));
    o->has_plateau = true;
    o->plateau = (fleet_plateau_options){
        .factor = (float)factor,
        .patience = patience > 0 ? (int)patience : -1,
        .threshold = threshold > 0 ? threshold : -1,
        .absolute = absolute,
        .cooldown = (int)cooldown,
        .least = (float)least,
    };
    return FLEET_OK;
}

/* What tables' optimizers have, too, and then what only the first one has. */
enum { SHARED_KEYS = 7, OWN_KEYS = 5 };

static fleet_status read_one(fl_config *c, const fl_at *at, bool is_table,
                             fl_config_optimizer *o)
{
    static const char *const types[] = {
#define FL_RULE(KIND, name, ...) #name,
#include "runtime/optim/rules.def"
        NULL};
    const char *keys[NUMBER_KEYS + SHARED_KEYS + OWN_KEYS + 1] = {
        "type",      "learning_rate", "l2_decay",   "l1_decay",
        "decay",     "row_bounds",    "clip_value", "clip_global_norm",
        "clip_norm", "tables",        "groups",     "plateau"};
    int n = SHARED_KEYS + (is_table ? 0 : OWN_KEYS);
    fl_at type = fl_at_key(at, "type"), decay = fl_at_key(at, "decay");
    fl_at bounds = fl_at_key(at, "row_bounds");
    fl_at plateau = fl_at_key(at, "plateau");

    *o = fl_config_optimizer_default();
    keys[n + number_keys(keys + n)] = NULL;
    FL_TRY(fl_at_keys(at, keys));
    FL_TRY(fl_at_choice(&type, types, &o->type));
    FL_TRY(read_numbers(o, at));
    FL_TRY(read_double(at, "learning_rate", 1e-30, 1e6, &o->learning_rate));
    FL_TRY(read_double(at, "l2_decay", 0, 1e6, &o->l2_decay));
    FL_TRY(read_double(at, "l1_decay", 0, 1e6, &o->l1_decay));
    FL_TRY(read_double(at, "clip_value", 1e-30, 1e30, &o->clip_value));
    FL_TRY(
        read_double(at, "clip_global_norm", 1e-30, 1e30, &o->clip_global_norm));
    FL_TRY(read_double(at, "clip_norm", 1e-30, 1e30, &o->clip_norm));
    FL_TRY(read_bounds(&bounds, o));
    FL_TRY(read_plateau(&plateau, o));
    return read_decay(c, &decay, &o->schedule);
}

fl_config_optimizer fl_config_optimizer_default(void)
{
    return (fl_config_optimizer){.type = FL_RULE_ADAM, .learning_rate = 1e-3};
}

static fleet_status refuse_row_keys(const fl_at *at, const char *why)
{
    static const char *const keys[] = {"row_bounds", "row_steps", NULL};

    for (int i = 0; keys[i]; i++) {
        fl_at one = fl_at_key(at, keys[i]);

        if (one.json)
            return fl_at_expected(&one, why);
    }
    return FLEET_OK;
}

/* Of tables by their names, or of groups by their patterns. */
static fleet_status read_own(fl_config *c, const fl_at *at, bool is_group)
{
    fl_config_optimizer *o = &c->optimizer;
    const int before = o->n_own;

    FL_TRY(fl_at_any_keys(at));
    for (fl_at e = fl_at_first_member(at); e.json; fl_at_next_member(at, &e)) {
        fl_config_optimizer *one = &o->own[o->n_own];

        if (!fl_at_is_object(&e))
            return fl_at_expected(&e, "an optimizer: an object");
        FL_TRY(read_one(c, &e, true, one));
        if (is_group)
            FL_TRY(refuse_row_keys(&e, "nothing: a group has no rows"));
        one->name = fl_at_name(&e);
        one->is_group = is_group;
        for (int i = before; i < o->n_own; i++)
            if (strcmp(o->own[i].name, one->name) == 0)
                return fl_fail(FLEET_ECONFIG, "%s: stands twice", e.path);
        o->n_own++;
    }
    return FLEET_OK;
}

fleet_status fl_config_read_optimizer(fl_config *c, const fl_at *at)
{
    fl_at tables = fl_at_key(at, "tables"), groups = fl_at_key(at, "groups");
    size_t n = (size_t)(fl_at_count(&tables) + fl_at_count(&groups) + 1);
    fl_config_optimizer *o = &c->optimizer;

    FL_TRY(read_one(c, at, false, o));
    if (!c->model->family->tables)
        FL_TRY(refuse_row_keys(at, "nothing: the model has no embedding"));
    o->own = fl_arena_alloc(&c->arena, n * sizeof *o->own);
    if (!o->own)
        return FLEET_ENOMEM;
    FL_TRY(read_own(c, &tables, false));
    return read_own(c, &groups, true);
}

/* --- made ----------------------------------------------------------------- */

fleet_optimizer *fl_config_make_optimizer(fleet *f,
                                          const fl_config_optimizer *o)
{
    fleet_optimizer *made = fl_handle_optimizer(
        f, (fl_rule_kind)o->type, (float)o->learning_rate, o->number);
    fleet_status status = made ? FLEET_OK : fl_last_code();

    if (status == FLEET_OK)
        status = fleet_optimizer_set_l2_decay(made, (float)o->l2_decay);
    if (status == FLEET_OK)
        status = fleet_optimizer_set_l1_decay(made, (float)o->l1_decay);
    if (status == FLEET_OK && o->clip_value > 0)
        status = fleet_optimizer_set_value_clip(made, (float)o->clip_value);
    if (status == FLEET_OK && o->bounds)
        status =
            fleet_optimizer_set_row_bounds(made, (float)o->low, (float)o->high);
    if (status == FLEET_OK && o->clip_global_norm > 0)
        status = fleet_optimizer_set_global_norm_clip(
            made, (float)o->clip_global_norm);
    if (status == FLEET_OK && o->clip_norm > 0)
        status = fleet_optimizer_set_norm_clip(made, (float)o->clip_norm);
    if (status == FLEET_OK)
        status = fleet_optimizer_set_schedule(made, &o->schedule);
    if (status == FLEET_OK && o->has_plateau)
        status = fleet_optimizer_set_plateau(made, &o->plateau);
    return status == FLEET_OK ? made : NULL;
}

static bool has_table(const fleet_program *p, const char *name)
{
    for (size_t i = 0; i < p->n_var; i++)
        if (p->var[i]->kind == FL_VAR_TABLE &&
            strcmp(p->var[i]->name, name) == 0)
            return true;
    return false;
}

static fleet_status no_such_table(const fleet_program *p, const char *name)
{
    fl_text names = {0};
    fleet_status status;

    for (size_t i = 0; i < p->n_var; i++)
        if (p->var[i]->kind == FL_VAR_TABLE)
            fl_text_add(&names, " \"%s\"", p->var[i]->name);
    status =
        fl_fail(FLEET_ECONFIG, "optimizer.tables.%s: the model's tables are%s",
                name, names.length ? fl_text_chars(&names) : " none");
    fl_text_done(&names);
    return status;
}

static fleet_status set_group(const fleet_program *p, const char *pattern,
                              fleet_optimizer *o, fleet_optimizer *own)
{
    fleet_status status = fleet_optimizer_add_group(o, p, pattern, own);

    return status == FLEET_ENOENT
               ? fl_fail(FLEET_ECONFIG,
                         "optimizer.groups.%s: the model has no dense "
                         "parameter of such a name",
                         pattern)
               : status;
}

fleet_status fl_config_set_own(const fl_config *c, fleet *f,
                               const fleet_program *p, fleet_optimizer *o)
{
    for (int i = 0; i < c->optimizer.n_own; i++) {
        const fl_config_optimizer *said = &c->optimizer.own[i];
        fleet_optimizer *own;

        if (!said->is_group && !has_table(p, said->name))
            return no_such_table(p, said->name);
        own = fl_config_make_optimizer(f, said);
        if (!own)
            return fl_last_code();
        FL_TRY(said->is_group ? set_group(p, said->name, o, own)
                              : fleet_optimizer_set_table(o, said->name, own));
    }
    return FLEET_OK;
}
