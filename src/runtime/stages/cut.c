/* cut.c - nodes get stages; what crosses between these; what cannot be cut. */
#include "runtime/stages/cut.h"

#include "base/memory.h"
#include "runtime/graph/program_json.h"

/* While a cut is made. */
typedef struct cutter {
    fl_cut *cut;
    const fleet_program *p;
    bool *wants;   /* by variable: a gradient */
    bool *passes;  /* by node: a gradient of the loss gets to its inputs */
    bool *reached; /* by variable: a gradient of the loss gets to it */
} cutter;

void fl_cut_done(fl_cut *cut)
{
    fl_arena_done(&cut->arena);
    *cut = (fl_cut){0};
}

/* What a stage's device is called. */
static const char *device_of(const fl_cut *cut, int stage, fl_place_text *text)
{
    *text = fl_place_print(cut->stage[stage].device);
    return text->chars;
}

/* --- nodes ---------------------------------------------------------------- */

/* The last stage that the node reads something of, and what that is. */
static int stage_before(const fl_cut *cut, const fl_node *n,
                        const fleet_var **read)
{
    int last = 0;

    *read = NULL;
    for (int i = 0; i < n->n_in; i++) {
        const fleet_var *v = n->in[i];
        int stage = v && v->producer ? cut->stage_of[v->producer->id] : 0;

        if (stage > last || (v && v->producer && !*read)) {
            last = stage;
            *read = v;
        }
    }
    return last;
}

static fleet_status too_many_stages(const fl_cut *cut, const fl_node *n,
                                    const fleet_var *read, int before, int most)
{
    fl_place_text at;

    return fl_fail(FLEET_EUNSUPPORTED,
                   "cut: \"%.200s\" (%s) is guarded for \"%s\", and reads "
                   "\"%.200s\" of stage %d (\"%s\"): it would be stage %d, and "
                   "there are %d. A later stage feeds no earlier one",
                   n->out[0]->name, n->op->name, fl_place_print(n->place).chars,
                   read ? read->name : "data", before,
                   device_of(cut, before, &at), cut->n_stage, most);
}

/* A program uses one GPU: "gpu" is that one, too. */
static bool is_same_device(fleet_place a, fleet_place b)
{
    return (a == FLEET_CPU) == (b == FLEET_CPU);
}

static fleet_status assign(fl_cut *cut, const fl_node *n, int most)
{
    const fleet_var *read;
    int before = stage_before(cut, n, &read), stage = before;

    while (n->place != 0 && stage < cut->n_stage &&
           !is_same_device(cut->stage[stage].device, n->place))
        stage++;
    if (most > 0 && stage >= most)
        return too_many_stages(cut, n, read, before, most);
    if (stage == cut->n_stage)
        cut->stage[cut->n_stage++] =
            (fl_stage){.device = n->place, .because_of = n->out[0]};
    cut->stage_of[n->id] = stage;
    cut->stage[stage].n_node++;
    return FLEET_OK;
}

static fleet_status assign_all(fl_cut *cut, const bool *run, int most)
{
    const fleet_program *p = cut->program;
    int last = 0;

    cut->stage[cut->n_stage++] = (fl_stage){.device = FLEET_CPU};
    cut->in_order = true;
    for (size_t i = 0; i < p->n_node; i++) {
        cut->stage_of[i] = -1;
        if (!run[i])
            continue;
        FL_TRY(assign(cut, p->node[i], most));
        cut->in_order = cut->in_order && cut->stage_of[i] >= last;
        last = cut->stage_of[i];
    }
    return FLEET_OK;
}

/* --- what cannot be cut --------------------------------------------------- */

static fleet_status check_first(const fl_cut *cut)
{
    fl_place_text at;

    if (cut->n_stage == 1 || cut->stage[0].n_node > 0)
        return FLEET_OK;
    return fl_fail(FLEET_EUNSUPPORTED,
                   "cut: stage 0, which has the data and is on CPUs, has no "
                   "operator: \"%.200s\" is guarded for \"%s\" from the "
                   "beginning",
                   cut->stage[1].because_of->name, device_of(cut, 1, &at));
}

static fleet_status check_loss(const fl_cut *cut)
{
    const fl_stage *last = &cut->stage[cut->n_stage - 1];
    int stage = cut->stage_of[cut->loss->producer->id];

    if (stage == cut->n_stage - 1)
        return FLEET_OK;
    return fl_fail(FLEET_EUNSUPPORTED,
                   "cut: the loss \"%.200s\" is in stage %d, and \"%.200s\" "
                   "(%s) in stage %d: the loss has to be in the last stage",
                   cut->loss->name, stage, last->because_of->name,
                   last->because_of->producer->op->name, cut->n_stage - 1);
}

static bool is_of_one_stage(const fleet_var *v)
{
    return v->kind == FL_VAR_STATE ||
           ((v->kind == FL_VAR_PARAM || v->kind == FL_VAR_TABLE) &&
            !v->attr.frozen);
}

static fleet_status two_stages(const fleet_var *v, const fl_node *a, int stage,
                               const fl_node *b, int other)
{
    const char *what = v->kind == FL_VAR_TABLE   ? "the table"
                       : v->kind == FL_VAR_PARAM ? "the parameter"
                                                 : "the metric's state";

    return fl_fail(FLEET_EUNSUPPORTED,
                   "cut: %s \"%.200s\" is read by \"%.200s\" in stage %d and "
                   "by \"%.200s\" in stage %d: one stage has to have it, as "
                   "one process trains it",
                   what, v->name, a->out[0]->name, stage, b->out[0]->name,
                   other);
}

/* Parameters, tables and states of one stage each. `home` has, by variable, the
 * first node that reads it. */
static fleet_status check_kept(const fl_cut *cut, const fl_node **home)
{
    const fleet_program *p = cut->program;

    for (size_t i = 0; i < p->n_node; i++) {
        const fl_node *n = p->node[i];

        for (int j = 0; cut->stage_of[i] >= 0 && j < n->n_in; j++) {
            const fleet_var *v = n->in[j];
            const fl_node **first = v ? &home[v->id] : NULL;

            if (!v || !is_of_one_stage(v))
                continue;
            if (!*first)
                *first = n;
            if (cut->stage_of[(*first)->id] != cut->stage_of[i])
                return two_stages(v, *first, cut->stage_of[(*first)->id], n,
                                  cut->stage_of[i]);
        }
    }
    return FLEET_OK;
}

static fleet_status check_cut(fl_cut *cut)
{
    const fl_node **home =
        fl_arena_alloc(&cut->arena, (cut->program->n_var + 1) * sizeof *home);

    FL_TRY(check_first(cut));
    FL_TRY(check_loss(cut));
    return home ? check_kept(cut, home) : FLEET_ENOMEM;
}

/* --- what crosses --------------------------------------------------------- */

/* Has the node a gradient for its input j? */
static bool gives_gradient(const fl_node *n, int j)
{
    return n->in[j] && (j == 0 || !(n->op->traits & FL_OP_LEARNS_FIRST));
}

static void find_gradients(const cutter *c)
{
    c->reached[c->cut->loss->id] = true;
    for (size_t i = c->p->n_node; i-- > 0;) {
        const fl_node *n = c->p->node[i];

        for (int j = 0;
             n->op->gradient && c->cut->stage_of[i] >= 0 && j < n->op->n_out;
             j++)
            c->passes[i] = c->passes[i] || c->reached[n->out[j]->id];
        for (int j = 0; c->passes[i] && j < n->n_in; j++)
            if (gives_gradient(n, j))
                c->reached[n->in[j]->id] = true;
    }
}

/* An accessor of one of the node's tables counts by it. */
static bool is_counted_by(const fl_node *n, const fleet_var *v)
{
    const fleet_var *t = n->n_in > 0 ? n->in[0] : NULL;
    const fleet_accessor *a;

    if (!t || t->kind != FL_VAR_TABLE || v->kind != FL_VAR_DATA)
        return false;
    a = &t->ids.life.accessor;
    return (a->show && fleet_program_var(v->program, a->show) == v) ||
           (a->click && fleet_program_var(v->program, a->click) == v);
}

static bool reads(const fl_node *n, const fleet_var *v)
{
    for (int j = 0; j < n->n_in; j++)
        if (n->in[j] == v)
            return true;
    return is_counted_by(n, v);
}

static bool learns(const fl_node *n, const fleet_var *v)
{
    for (int j = 0; j < n->n_in; j++)
        if (n->in[j] == v && v->dtype == FLEET_FLOAT32 && gives_gradient(n, j))
            return true;
    return false;
}

/* The last stage that reads it, and the last one that has a gradient for it; 0:
 * none behind its own. */
static void last_readers(const cutter *c, const fleet_var *v, int *reader,
                         int *learner)
{
    *reader = *learner = 0;
    for (size_t i = 0; i < c->p->n_node; i++) {
        int stage = c->cut->stage_of[i];

        if (stage <= *reader && stage <= *learner)
            continue;
        if (!reads(c->p->node[i], v))
            continue;
        if (stage > *reader)
            *reader = stage;
        if (stage > *learner && c->passes[i] && c->wants[v->id] &&
            learns(c->p->node[i], v))
            *learner = stage;
    }
}

static fleet_status add_crossing(fl_cut *cut, int stage, const fl_crossing *x)
{
    fl_stage *s = &cut->stage[stage];

    if (x->var->shape.dim[0] < -1)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "cut: \"%.200s\" of stage %d is read by a later one, "
                       "and has %s: expected one row a sample, [-1,...]",
                       x->var->name, stage,
                       fl_shape_print(&x->var->shape).chars);
    if (!s->out)
        s->out = fl_arena_alloc(&cut->arena,
                                (cut->program->n_var + 1) * sizeof *s->out);
    if (!s->out)
        return FLEET_ENOMEM;
    s->out[s->n_out++] = *x;
    return FLEET_OK;
}

static fleet_status find_crossings(const cutter *c)
{
    fl_cut *cut = c->cut;

    for (size_t i = 0; i < c->p->n_var; i++) {
        const fleet_var *v = c->p->var[i];
        int made = v->producer ? cut->stage_of[v->producer->id] : 0;
        int reader, learner;

        if ((v->kind != FL_VAR_DATA && v->kind != FL_VAR_TEMP) || made < 0)
            continue;
        last_readers(c, v, &reader, &learner);
        for (int s = made; s < reader; s++)
            FL_TRY(add_crossing(cut, s, &(fl_crossing){v, learner > s}));
    }
    return FLEET_OK;
}

/* --- the whole ------------------------------------------------------------ */

static fleet_status make_with(cutter *c, bool *run, int most)
{
    fl_cut *cut = c->cut;

    fl_program_mark_run(c->p, cut->loss, NULL, run);
    FL_TRY(assign_all(cut, run, most));
    FL_TRY(check_cut(cut));
    fl_program_mark_trained(c->p, c->wants);
    find_gradients(c);
    return find_crossings(c);
}

fleet_status fl_cut_make(fl_cut *cut, const fleet_program *p,
                         const fleet_var *loss, int most)
{
    cutter c = {.cut = cut, .p = p};
    bool *run;

    *cut = (fl_cut){.program = p, .loss = loss};
    cut->stage_of =
        fl_arena_alloc(&cut->arena, (p->n_node + 1) * sizeof *cut->stage_of);
    cut->stage =
        fl_arena_alloc(&cut->arena, (p->n_node + 1) * sizeof *cut->stage);
    run = fl_arena_alloc(&cut->arena, p->n_node + 1);
    c.passes = fl_arena_alloc(&cut->arena, p->n_node + 1);
    c.wants = fl_arena_alloc(&cut->arena, p->n_var + 1);
    c.reached = fl_arena_alloc(&cut->arena, p->n_var + 1);
    if (!cut->stage_of || !cut->stage || !run || !c.passes || !c.wants ||
        !c.reached)
        return FLEET_ENOMEM;
    if (!loss->producer)
        return fl_fail(FLEET_EINVAL, "cut: the loss \"%.200s\" is not computed",
                       loss->name);
    return make_with(&c, run, most);
}

/* --- a stage as a program ------------------------------------------------- */

/* Stage 0 takes all data, as the whole program does, also what none reads. */
static void give_data(const fleet_program *p, bool *given)
{
    for (size_t i = 0; i < p->n_var; i++)
        given[i] = given[i] || p->var[i]->kind == FL_VAR_DATA;
}

/* What crosses a boundary is data of the stage behind it, and where it is data
 * of the job, of the stage before it. */
static void give_crossings(const fl_stage *before, bool all, bool *given)
{
    for (int i = 0; i < before->n_out; i++) {
        const fleet_var *v = before->out[i].var;

        given[v->id] = given[v->id] || all || v->kind == FL_VAR_DATA;
    }
}

fleet_status fl_cut_to_json(const fl_cut *cut, int stage, fl_json **json)
{
    const fleet_program *p = cut->program;
    bool *marked = fl_alloc(p->n_node + 1), *given = fl_alloc(p->n_var + 1);
    fleet_status status = FLEET_ENOMEM;

    *json = NULL;
    if (marked && given) {
        for (size_t i = 0; i < p->n_node; i++)
            marked[i] = cut->stage_of[i] == stage;
        if (stage > 0)
            give_crossings(&cut->stage[stage - 1], true, given);
        else
            give_data(p, given);
        give_crossings(&cut->stage[stage], false, given);
        status = fl_program_to_json_stage(p, marked, given, json);
    }
    fl_free(marked);
    fl_free(given);
    return status;
}
