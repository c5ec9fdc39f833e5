/* own_optimizers.c - optimizers of single tables, and of groups of dense
 * parameters: what an optimizer leaves to another one. */
#include "runtime/optim/own_optimizers.h"

#include <fnmatch.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/graph/program.h"

/* A handle's programs may have a table and a parameter of one name. */
static int find(const fleet_optimizer *o, const char *name, bool is_param)
{
    for (size_t i = 0; i < o->n_own; i++)
        if (o->own[i].is_param == is_param && strcmp(o->own[i].name, name) == 0)
            return (int)i;
    return -1;
}

fleet_optimizer *fl_optimizer_own(const fleet_optimizer *o, const char *name,
                                  bool is_param)
{
    int at = find(o, name, is_param);

    return at < 0 ? NULL : o->own[at].optimizer;
}

/* Does no entry before it have its optimizer? */
static bool is_first(const fleet_optimizer *o, size_t at)
{
    for (size_t i = 0; i < at; i++)
        if (o->own[i].optimizer == o->own[at].optimizer)
            return false;
    return true;
}

fleet_optimizer *fl_optimizer_own_of(const fleet_optimizer *o, int number)
{
    for (size_t i = 0; i < o->n_own; i++)
        if (is_first(o, i) && number-- == 0)
            return o->own[i].optimizer;
    return NULL;
}

int fl_optimizer_own_number(const fleet_optimizer *o, const char *name,
                            bool is_param)
{
    const fleet_optimizer *own = fl_optimizer_own(o, name, is_param);
    int number = 0;

    while (own && fl_optimizer_own_of(o, number) != own)
        number++;
    return own ? number : -1;
}

void fl_update_take_own(fl_update *u, const fleet_optimizer *own, int64_t done)
{
    const fl_update all = *u;

    fl_optimizer_update(own, done, 1, u);
    u->scale = all.scale;
    u->mean = all.mean;
    u->clip = all.clip;
    u->version = all.version;
}

fl_update fl_own_update(const fleet_optimizer *own,
                        const fleet_param_attr *attr, const fl_update *all,
                        int64_t done)
{
    fl_update u = *all;

    if (own)
        fl_update_take_own(&u, own, done);
    return fl_update_with(&u, attr);
}

void fl_optimizer_fix(fleet_optimizer *o)
{
    o->is_fixed = true;
    for (size_t i = 0; i < o->n_own; i++)
        o->own[i].optimizer->is_fixed = true;
}

/* --- giving an optimizer -------------------------------------------------- */

/* Of what the call gives an optimizer of its own. */
typedef struct giving {
    const char *call, *kind, *name;
    bool is_param;
} giving;

static fleet_status refuse_giving(const giving *g, fleet_status code,
                                  const char *why)
{
    return fl_fail(code, "%s: %s \"%.200s\": %s", g->call, g->kind, g->name,
                   why);
}

static fleet_status check_pair(const fleet_optimizer *o, const giving *g,
                               const fleet_optimizer *own)
{
    if (own == o)
        return refuse_giving(g, FLEET_EINVAL,
                             "the optimizer is that of all other parameters");
    if (own->context != o->context)
        return refuse_giving(g, FLEET_EINVAL,
                             "the optimizer belongs to another handle");
    if (own->n_own > 0)
        return refuse_giving(g, FLEET_EINVAL,
                             "its optimizer has tables or groups itself");
    if (own->clip_norm > 0)
        return refuse_giving(
            g, FLEET_EINVAL,
            "its optimizer clips: the norm is that of all gradients, "
            "set it on the optimizer that is minimized");
    if (own->norm_clip > 0)
        return refuse_giving(
            g, FLEET_EINVAL,
            "its optimizer clips by norm: set it on the optimizer "
            "that is minimized");
    if (own->plateau.on)
        return refuse_giving(
            g, FLEET_EINVAL,
            "its optimizer has a plateau: its learning rate stays as "
            "it was when training began");
    if (g->is_param && fl_rule_of(own->kind)->n_row > 0)
        return fl_fail(FLEET_EINVAL,
                       "%s: %s \"%.200s\": %s keeps numbers of whole rows and "
                       "is for tables",
                       g->call, g->kind, g->name, fl_rule_of(own->kind)->name);
    if (g->is_param && (own->bounds || fl_optimizer_has_row_steps(own)))
        return refuse_giving(g, FLEET_EINVAL,
                             own->bounds ? "its optimizer bounds weights of "
                                           "rows, and it has none"
                                         : "its optimizer counts the steps of "
                                           "rows (row_steps), and it has none");
    return own->is_fixed && own->n_user == 0
               ? refuse_giving(g, FLEET_ESTATE,
                               "a program is minimized with its optimizer")
               : FLEET_OK;
}

static fleet_status check_call(const fleet_optimizer *o, const giving *g,
                               const fleet_optimizer *own)
{
    if (!o || !g->name || !*g->name)
        return fl_fail(FLEET_EINVAL, "%s: no %s", g->call,
                       o ? g->kind : "optimizer");
    if (o->n_user > 0)
        return refuse_giving(g, FLEET_EINVAL,
                             "this optimizer is a table's or a group's itself");
    if (o->is_fixed || o->serves)
        return refuse_giving(g, FLEET_ESTATE,
                             "call it before fleet_minimize()");
    return own ? check_pair(o, g, own) : FLEET_OK;
}

static void leave_out(fleet_optimizer *o, const char *name, bool is_param)
{
    int at = find(o, name, is_param);

    if (at < 0)
        return;
    o->own[at].optimizer->n_user--;
    o->own[at].optimizer->n_group -= is_param;
    fl_free(o->own[at].name);
    memmove(&o->own[at], &o->own[at + 1],
            (--o->n_own - (size_t)at) * sizeof *o->own);
}

/* own NULL: it has none any more. */
static fleet_status give(fleet_optimizer *o, const char *name, bool is_param,
                         fleet_optimizer *own)
{
    char *copy;

    if (!own) {
        leave_out(o, name, is_param);
        return FLEET_OK;
    }
    FL_TRY(fl_grow(&o->own, &o->own_capacity, o->n_own + 1, sizeof *o->own));
    copy = fl_strdup(name);
    if (!copy)
        return FLEET_ENOMEM;
    leave_out(o, name, is_param);
    o->own[o->n_own++] = (fl_own_optimizer){copy, is_param, own};
    own->n_user++;
    own->n_group += is_param;
    return FLEET_OK;
}

fleet_status fleet_optimizer_set_table(fleet_optimizer *o, const char *table,
                                       fleet_optimizer *of_table)
{
    const giving g = {"fleet_optimizer_set_table", "table", table, false};

    FL_TRY(check_call(o, &g, of_table));
    return give(o, table, false, of_table);
}

static bool is_in_group(const fleet_var *v, const char *pattern)
{
    return v->kind == FL_VAR_PARAM && fnmatch(pattern, v->name, 0) == 0;
}

/* In memory that runs out a part of a group would be left. */
static fleet_status make_room(fleet_optimizer *o, const fleet_program *p,
                              const char *pattern, int *n)
{
    for (size_t i = 0; i < p->n_var; i++)
        *n += is_in_group(p->var[i], pattern);
    return fl_grow(&o->own, &o->own_capacity, o->n_own + (size_t)*n,
                   sizeof *o->own);
}

fleet_status fleet_optimizer_add_group(fleet_optimizer *o,
                                       const fleet_program *p,
                                       const char *pattern,
                                       fleet_optimizer *of_group)
{
    const giving g = {"fleet_optimizer_add_group", "group", pattern, true};
    fleet_status status = FLEET_OK;
    int n = 0;

    FL_TRY(check_call(o, &g, of_group));
    FL_TRY(fleet_program_status(p));
    if (p->context != o->context)
        return refuse_giving(&g, FLEET_EINVAL,
                             "the program is another handle's");
    FL_TRY(make_room(o, p, pattern, &n));
    if (n == 0)
        return refuse_giving(
            &g, FLEET_ENOENT,
            "the program has no dense parameter of such a name");
    for (size_t i = 0; status == FLEET_OK && i < p->n_var; i++)
        if (is_in_group(p->var[i], pattern))
            status = give(o, p->var[i]->name, true, of_group);
    return status;
}
