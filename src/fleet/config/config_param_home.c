/* config_param_home.c - "ps" of the configuration: where parameters and tables
 * are kept, set in the program that was made of it. */
#include <stdio.h>
#include <string.h>

#include "fleet/config/config_internal.h"
#include "runtime/graph/program.h"

/* What a program says of a parameter once stays. */
static fleet_status set_home(fleet_program *p, const fleet_var *v, fleet_ps ps,
                             const char *path)
{
    if (v->attr.ps == FLEET_PS_BY_MODE || v->attr.ps == ps)
        return fleet_param_set_ps(p, v->name, ps);
    return fl_fail(FLEET_ECONFIG,
                   "%s: another ps says %s of \"%s\" already: of one table, or "
                   "of a layer and its parameters, all say the same",
                   path, ps == FLEET_PS_RANKS ? "true" : "false", v->name);
}

/* --- slots --------------------------------------------------------------- */

static fleet_status say_of_slot(fleet_program *p, const fl_config_slot *s,
                                int index)
{
    char path[32];

    snprintf(path, sizeof path, "slots[%d].ps", index);
    for (size_t i = 0; i < p->n_node; i++) {
        const fl_node *n = p->node[i];

        if (n->op->traits & FL_OP_LOOKUP &&
            strcmp(n->in[1]->name, s->slot.name) == 0)
            FL_TRY(set_home(p, n->in[0], s->ps, path));
    }
    return FLEET_OK;
}

/* --- the model ----------------------------------------------------------- */

static bool is_kept(const fleet_var *v)
{
    return v->kind == FL_VAR_PARAM || v->kind == FL_VAR_TABLE;
}

static void add_name(const char **names, int *n, const char *name)
{
    for (int i = 0; i < *n; i++)
        if (strcmp(names[i], name) == 0)
            return;
    names[(*n)++] = name;
}

/* Of layers, and of parameters and tables, NULL at the end. */
static const char **list_names(fleet_program *p)
{
    const char **names =
        fl_arena_alloc(&p->arena, (2 * p->n_var + 1) * sizeof *names);
    int n = 0;

    for (size_t i = 0; names && i < p->n_var; i++) {
        const char *name = p->var[i]->name, *dot = strrchr(name, '.');

        if (!is_kept(p->var[i]))
            continue;
        if (dot) { /* the layer "tower_0" of "tower_0.w" */
            const char *layer =
                fl_arena_format(&p->arena, "%.*s", (int)(dot - name), name);

            if (!layer)
                return NULL;
            add_name(names, &n, layer);
        }
        add_name(names, &n, name);
    }
    return names;
}

static bool is_part_of(const fleet_var *v, const char *name)
{
    size_t n = strlen(name);

    return is_kept(v) && strncmp(v->name, name, n) == 0 &&
           (v->name[n] == 0 ||
            (v->name[n] == '.' && !strchr(v->name + n + 1, '.')));
}

static fleet_status say_of_name(const fl_at *all, const char *name,
                                fleet_program *p)
{
    fl_at at = fl_at_key(all, name);
    bool servers = false;

    if (!at.json)
        return FLEET_OK;
    FL_TRY(fl_at_bool(&at, &servers));
    for (size_t i = 0; i < p->n_var; i++)
        if (is_part_of(p->var[i], name))
            FL_TRY(set_home(p, p->var[i],
                            servers ? FLEET_PS_SERVERS : FLEET_PS_RANKS,
                            at.path));
    return FLEET_OK;
}

fleet_status fl_config_set_param_home(const fl_config *c, fleet_program *p)
{
    const char **names;

    for (int i = 0; i < c->n_slot; i++)
        if (c->slot[i].ps != FLEET_PS_BY_MODE)
            FL_TRY(say_of_slot(p, &c->slot[i], i));
    if (!c->model_ps.json)
        return FLEET_OK;
    names = list_names(p);
    if (!names)
        return FLEET_ENOMEM;
    FL_TRY(fl_at_keys(&c->model_ps, names));
    for (int i = 0; names[i]; i++)
        FL_TRY(say_of_name(&c->model_ps, names[i], p));
    return FLEET_OK;
}
