/* job_signature.c - a line for the seed, each parameter, each table and the
 * optimizer, in one order in all processes. A line is its name, a colon, and
 * fields with commas between them; a field is its key, a space, its value. */
#define _GNU_SOURCE
#include "runtime/plan/job_signature.h"

#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "runtime/graph/table_options.h"

/* --- written -------------------------------------------------------------- */

static const char *const initializers[] = {
    [FLEET_INIT_DEFAULT] = "default",
    [FLEET_INIT_CONSTANT] = "constant",
    [FLEET_INIT_UNIFORM] = "uniform",
    [FLEET_INIT_NORMAL] = "normal",
    [FLEET_INIT_TRUNCATED_NORMAL] = "truncated_normal",
    [FLEET_INIT_XAVIER_UNIFORM] = "xavier_uniform",
    [FLEET_INIT_XAVIER_NORMAL] = "xavier_normal",
    [FLEET_INIT_KAIMING_UNIFORM] = "kaiming_uniform",
    [FLEET_INIT_KAIMING_NORMAL] = "kaiming_normal",
};

static void add_number(fl_text *t, const char *before, float x)
{
    fl_text_add(t, "%s", before);
    fl_text_float(t, x);
}

static void add_attr(fl_text *t, const fleet_param_attr *a)
{
    const fl_update_rates rates = fl_update_rates_of(a);

    add_number(t, ", learning_rate ", rates.learning_rate);
    if (rates.decay < 0)
        fl_text_add(t, ", l2_decay of the optimizer");
    else
        add_number(t, ", l2_decay ", rates.decay);
    if (rates.average > 0)
        add_number(t, ", average ", rates.average);
    fl_text_add(t, ", frozen %s", a->frozen ? "yes" : "no");
    fl_text_add(t, ", initializer %s", initializers[a->initializer.kind]);
    add_number(t, " ", a->initializer.a);
    add_number(t, " ", a->initializer.b);
}

static void add_one(fl_text *t, const fleet_optimizer *o, float rate)
{
    const fl_rule *rule = fl_rule_of(o->kind);

    fl_text_add(t, "type %s", rule->name);
    add_number(t, ", learning_rate ", rate);
    for (int i = 0; i < FL_MAX_NUMBER; i++)
        if (rule->number[i].name) {
            fl_text_add(t, ", %s", rule->number[i].name);
            add_number(t, " ", o->number[i]);
        }
    add_number(t, ", l2_decay ", o->l2_decay);
    add_number(t, ", l1_decay ", o->l1_decay);
    add_number(t, ", global_norm_clip ", o->clip_norm);
    add_number(t, ", value_clip ", o->value_clip);
    add_number(t, ", norm_clip ", o->norm_clip);
    if (o->bounds) {
        add_number(t, ", row_bounds ", o->low);
        add_number(t, " to ", o->high);
    }
    fl_text_add(t, ", schedule ");
    fl_schedule_print(&o->schedule, t);
    fl_text_add(t, "\n");
}

/* By name, a table before a parameter. */
static bool is_before(const fl_own_optimizer *a, const fl_own_optimizer *b)
{
    const int order = strcmp(a->name, b->name);

    return order < 0 || (order == 0 && a->is_param < b->is_param);
}

/* The next of its list behind `after`; NULL: there is none. */
static const fl_own_optimizer *next_own(const fleet_optimizer *o,
                                        const fl_own_optimizer *after)
{
    const fl_own_optimizer *next = NULL;

    for (size_t i = 0; i < o->n_own; i++) {
        const fl_own_optimizer *one = &o->own[i];

        if ((!after || is_before(after, one)) &&
            (!next || is_before(one, next)))
            next = one;
    }
    return next;
}

static void add_all_optimizers(fl_text *t, const fleet_optimizer *o, float rate)
{
    const fl_own_optimizer *one = NULL;

    fl_text_add(t, "optimizer: ");
    add_one(t, o, rate);
    while ((one = next_own(o, one))) {
        fl_text_add(t, "optimizer of %s \"%s\": ",
                    one->is_param ? "parameter" : "table", one->name);
        add_one(t, one->optimizer, one->optimizer->learning_rate);
    }
}

void fl_job_signature_add_optimizer(fl_text *t, const fleet_optimizer *o)
{
    add_all_optimizers(t, o, o->learning_rate);
}

static fleet_status add_all(fl_text *t, const fl_store *s)
{
    fl_map_entry *param = fl_map_sorted(&s->params),
                 *table = fl_map_sorted(&s->tables);

    for (size_t i = 0; param && table && i < s->params.n; i++) {
        const fl_param *p = param[i].value;
        const char *keeper = !s->dense_local            ? "default"
                             : fl_param_is_remote(s, p) ? "servers"
                                                        : "ranks";

        fl_text_add(t, "parameter \"%s\": shape %s", p->name,
                    fl_shape_print(&p->shape).chars);
        add_attr(t, &p->attr);
        fl_text_add(t, ", keeper %s\n", keeper);
    }
    for (size_t i = 0; param && table && i < s->tables.n; i++) {
        const fl_rows *r = table[i].value;

        fl_text_add(t, "table \"%s\": rows %" PRId64 ", dim %" PRId64, r->name,
                    r->modulo, r->dim);
        add_attr(t, &r->attr);
        if (r->life) {
            fl_text_add(t, ", ");
            fl_table_options_print(&r->life->o, ", ", t);
        }
        if (!fl_rows_are_floats(r))
            fl_text_add(t, ", storage %s", fl_storage_names[r->storage]);
        fl_text_add(t, ", keeper %s\n",
                    fl_table_is_remote(&r->attr) ? "default" : "ranks");
    }
    fl_free(param);
    fl_free(table);
    return param && table ? FLEET_OK : FLEET_ENOMEM;
}

char *fl_job_signature_text(const fl_store *s)
{
    fl_text t = {0};
    fleet_status status;

    fl_text_add(&t, "seed: value %" PRIu64 "\n", s->context->seed);
    status = add_all(&t, s);
    if (s->optimizer)
        add_all_optimizers(&t, s->optimizer, s->optimizer->first_rate);
    if (status == FLEET_OK && t.status == FLEET_OK)
        return t.chars;
    fl_text_done(&t);
    return NULL;
}

/* --- compared ------------------------------------------------------------- */

/* A part of a text, and of which process it is. */
typedef struct signature_part {
    const char *process;
    const char *at;
    size_t n;
} signature_part;

static int cut(const signature_part *p)
{
    enum { MOST = 200 }; /* of a part, in a message */

    return p->n < MOST ? (int)p->n : MOST;
}

static bool is_same(const signature_part *a, const signature_part *b)
{
    return a->n == b->n && memcmp(a->at, b->at, a->n) == 0;
}

/* Take what comes before `end`, or all of it; false: nothing is left. */
static bool take_until(signature_part *from, const char *end,
                       signature_part *part)
{
    const char *at;

    *part = *from;
    if (from->n == 0)
        return false;
    at = memmem(from->at, from->n, end, strlen(end));
    if (at) {
        part->n = (size_t)(at - from->at);
        from->at = at + strlen(end);
        from->n -= part->n + strlen(end);
    } else {
        from->at += from->n;
        from->n = 0;
    }
    return true;
}

/* The value of a line's field; false: the line has none of that key. */
static bool find_field(signature_part line, const signature_part *key,
                       signature_part *value)
{
    signature_part own;

    while (take_until(&line, ", ", value)) {
        take_until(value, " ", &own);
        if (is_same(&own, key))
            return true;
    }
    return false;
}

/* The first of our fields that theirs does not have, or has with another
 * value. */
static bool fields_differ(fl_text *t, const signature_part *name,
                          signature_part ours, const signature_part *theirs)
{
    signature_part key, value, other;

    while (take_until(&ours, ", ", &value)) {
        take_until(&value, " ", &key);
        if (!find_field(*theirs, &key, &other))
            other = (signature_part){theirs->process, "none", 4};
        if (is_same(&value, &other))
            continue;
        fl_text_add(t, "%.*s: %.*s is %.*s in %s, %.*s in %s", cut(name),
                    name->at, cut(&key), key.at, cut(&value), value.at,
                    value.process, cut(&other), other.at, other.process);
        return true;
    }
    return false;
}

/* A line of that name? */
static bool has_line(signature_part text, const signature_part *name)
{
    signature_part line, own;

    while (take_until(&text, "\n", &line)) {
        take_until(&line, ": ", &own);
        if (is_same(&own, name))
            return true;
    }
    return false;
}

static bool line_is_missing(fl_text *t, const signature_part *name,
                            const signature_part *rest)
{
    if (name->n == 0 || has_line(*rest, name))
        return false;
    fl_text_add(t, "%s has %.*s, %s has not", name->process, cut(name),
                name->at, rest->process);
    return true;
}

char *fl_job_signature_difference(const char *us, const char *ours,
                                  const char *them, const char *theirs)
{
    signature_part a = {us, ours, strlen(ours)}, name_a, line_a;
    signature_part b = {them, theirs, strlen(theirs)}, name_b, line_b;
    signature_part rest_a, rest_b;
    fl_text t = {0};

    do {
        bool has_a, has_b;

        rest_a = a;
        rest_b = b;
        has_a = take_until(&a, "\n", &line_a);
        has_b = take_until(&b, "\n", &line_b);
        if (!has_a && !has_b)
            return NULL;
    } while (is_same(&line_a, &line_b));
    take_until(&line_a, ": ", &name_a);
    take_until(&line_b, ": ", &name_b);
    if (is_same(&name_a, &name_b)
            ? !fields_differ(&t, &name_a, line_a, &line_b) &&
                  !fields_differ(&t, &name_a, line_b, &line_a)
            : !line_is_missing(&t, &name_a, &rest_b) &&
                  !line_is_missing(&t, &name_b, &rest_a))
        fl_text_add(&t, "%.*s has another place", cut(&name_a), name_a.at);
    return t.chars;
}
