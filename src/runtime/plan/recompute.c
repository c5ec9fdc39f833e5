/* recompute.c - the nodes between checkpoints, which are lowered twice. */
#include "runtime/plan/recompute.h"

#include <string.h>

#include "base/memory.h"

/* By node. */
struct fl_segment {
    int number;
    bool again; /* it is lowered once more */
};

/* --- names ---------------------------------------------------------------- */

/* The next of the names with commas between them; false: there is none. */
static bool next_name(const char **at, const char **name, size_t *n)
{
    *name = *at;
    *n = *at ? strcspn(*at, ",") : 0;
    if (*n > 0)
        *at += *n + ((*at)[*n] == ',');
    return *n > 0;
}

static fleet_var *find_var(const fleet_program *p, const char *name, size_t n)
{
    for (size_t i = 0; i < p->n_var; i++)
        if (strncmp(p->var[i]->name, name, n) == 0 && !p->var[i]->name[n])
            return p->var[i];
    return NULL;
}

fleet_status fl_recompute_check(const fleet_program *p, const char *checkpoints)
{
    static const char field[] = "strategy.recompute_configs.checkpoints";
    const char *name;
    size_t n;

    if (!checkpoints || !*checkpoints)
        return fl_fail(FLEET_EINVAL,
                       "%s: expected names of variables, which recompute "
                       "keeps, got none",
                       field);
    while (next_name(&checkpoints, &name, &n)) {
        const fleet_var *v = find_var(p, name, n);

        if (!v)
            return fl_fail(FLEET_ENOENT,
                           "%s: the program has no variable \"%.*s\"", field,
                           (int)(n < 200 ? n : 200), name);
        if (!v->producer)
            return fl_fail(FLEET_EINVAL,
                           "%s: \"%.200s\" is not computed: expected the "
                           "result of an operator",
                           field, v->name);
    }
    return FLEET_OK;
}

/* --- segments ------------------------------------------------------------- */

static void number_segments(fl_lowering *l, bool *is_last)
{
    const fleet_program *p = l->program;
    const char *at = p->training.recompute.checkpoints, *name;
    size_t n;

    while (next_name(&at, &name, &n)) {
        const fleet_var *v = find_var(p, name, n);

        if (v && v->producer)
            is_last[v->producer->id] = true;
    }
    for (size_t i = 1; i < p->n_node; i++)
        l->segment[i].number = l->segment[i - 1].number + is_last[i - 1];
}

/* Does a node of another segment read it, or the user? */
static bool is_read_elsewhere(const fl_lowering *l, const fleet_var *v,
                              int segment)
{
    const fleet_program *p = l->program;

    if (l->fetched[v->id] || v == p->training.loss || l->var[v->id].inside)
        return true;
    for (size_t i = 0; i < p->n_node; i++)
        for (int j = 0; l->needed[i] && j < p->node[i]->n_in; j++)
            if (p->node[i]->in[j] == v && l->segment[i].number != segment)
                return true;
    return false;
}

/* May its outputs be computed twice? A concatenation whose inputs lie in it
 * has them from other nodes. */
static bool may_run_again(const fl_lowering *l, const fl_node *n)
{
    const int segment = l->segment[n->id].number;

    if (!l->needed[n->id] || l->node[n->id].skip ||
        (n->op->traits & FL_OP_LOOKUP) ||
        segment == l->segment[l->program->n_node - 1].number)
        return false;
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] && (n->in[i]->kind == FL_VAR_STATE ||
                         l->var[n->in[i]->id].inside == n->out[0]))
            return false;
    for (int i = 0; i < n->op->n_out; i++)
        if (is_read_elsewhere(l, fl_out(l, n, i), segment))
            return false;
    return true;
}

fleet_status fl_recompute_begin(fl_lowering *l)
{
    const fleet_program *p = l->program;
    bool *is_last;

    if (!l->plan->training || !p->training.recompute.on)
        return FLEET_OK;
    FL_TRY(FL_NEW(&l->segment, p->n_node * sizeof *l->segment));
    FL_TRY(FL_NEW(&is_last, p->n_node));
    number_segments(l, is_last);
    fl_free(is_last);
    for (size_t i = 0; i < p->n_node; i++)
        l->segment[i].again = may_run_again(l, p->node[i]);
    return FLEET_OK;
}

void fl_recompute_done(fl_lowering *l)
{
    fl_free(l->segment);
}

/* --- lowering ------------------------------------------------------------- */

static void lower_again(fl_lowering *l, int segment)
{
    const fleet_program *p = l->program;

    for (size_t i = 0; i < p->n_node && l->status == FLEET_OK; i++) {
        const fl_node *n = p->node[i];
        fleet_status status;

        if (l->segment[i].number != segment || !l->segment[i].again)
            continue;
        for (int j = 0; j < n->op->n_out; j++)
            l->value[fl_out(l, n, j)->id] = -1;
        status = n->op->forward(l, n);
        if (l->status == FLEET_OK)
            l->status = status;
    }
}

void fl_recompute_enter(fl_lowering *l, size_t i)
{
    if (!l->segment || l->segment[i].number == l->at_segment)
        return;
    l->at_segment = l->segment[i].number;
    l->stage++;
    if (l->phase == FL_BACKWARD)
        lower_again(l, l->at_segment);
}
