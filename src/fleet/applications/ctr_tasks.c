/* ctr_tasks.c - models of several labels: a shared bottom, mixtures of experts
 * (MMoE, PLE), and ESMM, whose second task is a product of probabilities. */
#include <stdio.h>

#include "fleet/applications/ctr_internal.h"

/* "task_<i>_0", ..., "task_<i>_out" on x. */
static fleet_var *task_tower(fl_ctr *c, fleet_var *x, const int64_t *hidden,
                             int n_hidden, int i)
{
    bool own = c->o.hidden != NULL;
    char name[32];

    snprintf(name, sizeof name, "task_%d", i);
    return fl_model_tower(c->p, x, name, own ? c->o.hidden : hidden,
                          own ? c->o.n_hidden : n_hidden, FLEET_RELU, 1);
}

/* A task's probability, and its loss. */
static void finish_task(fl_ctr *c, fleet_var *prediction, int i, fleet_model *m)
{
    fleet_task *t = &m->task[i];

    t->prediction = prediction;
    t->loss = fl_model_loss(
        c->p,
        fl_model_log_loss(c->p, prediction, t->label, c->o.tasks[i].pos_weight),
        c->weights.sample);
}

/* The loss is the sum of the tasks', each times its weight. */
static void finish_tasks(fl_ctr *c, fleet_model *m)
{
    for (int i = 0; i < m->n_task; i++) {
        float weight = c->o.tasks[i].weight;
        fleet_var *loss = m->task[i].loss;

        if (weight != 0 && weight != 1)
            loss = fleet_scale(c->p, loss, weight, 0);
        m->loss = m->loss ? fleet_add(c->p, m->loss, loss) : loss;
    }
    m->prediction = m->task[0].prediction;
}

static void finish_towers(fl_ctr *c, fleet_var *const *x, fleet_model *m)
{
    static const int64_t hidden[] = {8};

    for (int i = 0; i < m->n_task; i++) {
        fleet_var *logit = task_tower(c, x[i], hidden, 1, i);

        finish_task(c, fleet_sigmoid(c->p, logit), i, m);
    }
    finish_tasks(c, m);
}

static void share_bottom(fl_ctr *c, fleet_model *m)
{
    static const int64_t paddle[] = {117};
    fleet_var *x = fl_model_hidden(c->p, fl_ctr_input(c), "bottom",
                                   c->o.bottom ? c->o.bottom : paddle,
                                   c->o.bottom ? c->o.n_bottom : 1, FLEET_RELU);
    fleet_var *all[FLEET_MOST_TASKS];

    for (int i = 0; i < m->n_task; i++)
        all[i] = x;
    finish_towers(c, all, m);
}

/* --- experts -------------------------------------------------------------- */

static int64_t or_else(int64_t given, int64_t otherwise)
{
    return given ? given : otherwise;
}

static int64_t expert_units(const fl_ctr *c)
{
    return or_else(c->o.expert_units, 16);
}

/* n of them are the columns of one layer. */
static fleet_var *experts(fl_ctr *c, fleet_var *x, const char *name, int64_t n)
{
    return fl_model_layer(c->p, x, name, n * expert_units(c), FLEET_RELU);
}

/* n experts, each as much as the softmax of a layer on x says. */
static fleet_var *mixture(fl_ctr *c, fleet_var *of, int64_t n, fleet_var *x,
                          const char *gate)
{
    fleet_program *p = c->p;
    int64_t units = expert_units(c);
    fleet_var *g =
        fleet_softmax(p, fl_model_layer(p, x, gate, n, FLEET_LINEAR));

    g = fleet_reshape(p, g, (int64_t[]){-1, 1, n}, 3);
    of = fleet_reshape(p, of, (int64_t[]){-1, n, units}, 3);
    return fleet_reshape(p, fleet_batch_matmul(p, g, of, 0, 0),
                         (int64_t[]){-1, units}, 2);
}

static void mmoe(fl_ctr *c, fleet_model *m)
{
    int64_t n = or_else(c->o.experts, 8);
    fleet_var *x = fl_ctr_input(c), *all = experts(c, x, "experts", n);
    fleet_var *mixed[FLEET_MOST_TASKS];
    char name[32];

    for (int i = 0; i < m->n_task; i++) {
        snprintf(name, sizeof name, "gate_%d", i);
        mixed[i] = mixture(c, all, n, x, name);
    }
    finish_towers(c, mixed, m);
}

/* A level of PLE: x[i] of each task, behind them the shared one. The last level
 * needs no shared one behind it. */
static void extract(fl_ctr *c, fleet_var **x, int n_task, int64_t level,
                    bool last)
{
    int64_t own = or_else(c->o.experts, 3);
    int64_t shared = or_else(c->o.shared_experts, 2);
    fleet_var *part[FLEET_MOST_TASKS + 1], *next[FLEET_MOST_TASKS + 1];
    char name[64];

    for (int i = 0; i < n_task; i++) {
        snprintf(name, sizeof name, "level_%d_experts_%d", (int)level, i);
        part[i] = experts(c, x[i], name, own);
    }
    snprintf(name, sizeof name, "level_%d_shared", (int)level);
    part[n_task] = experts(c, x[n_task], name, shared);
    for (int i = 0; i < n_task; i++) {
        fleet_var *both[] = {part[i], part[n_task]};

        snprintf(name, sizeof name, "level_%d_gate_%d", (int)level, i);
        next[i] = mixture(c, fleet_concat(c->p, both, 2, 1), own + shared, x[i],
                          name);
    }
    snprintf(name, sizeof name, "level_%d_gate_shared", (int)level);
    next[n_task] = last ? NULL
                        : mixture(c, fleet_concat(c->p, part, n_task + 1, 1),
                                  own * n_task + shared, x[n_task], name);
    for (int i = 0; i <= n_task; i++)
        x[i] = next[i];
}

static void ple(fl_ctr *c, fleet_model *m)
{
    int64_t levels = or_else(c->o.levels, 1);
    fleet_var *x[FLEET_MOST_TASKS + 1], *in = fl_ctr_input(c);

    for (int i = 0; i <= m->n_task; i++)
        x[i] = in;
    for (int64_t i = 0; i < levels; i++)
        extract(c, x, m->n_task, i, i == levels - 1);
    finish_towers(c, x, m);
}

/* --- ESMM ----------------------------------------------------------------- */

/* Of a click; and of a click with a conversion behind it. */
static void esmm(fl_ctr *c, fleet_model *m)
{
    static const int64_t hidden[] = {256, 64};
    fleet_var *x = fl_ctr_input(c);
    fleet_var *click = fleet_sigmoid(c->p, task_tower(c, x, hidden, 2, 0));

    m->conversion = fleet_sigmoid(c->p, task_tower(c, x, hidden, 2, 1));
    finish_task(c, click, 0, m);
    finish_task(c, fleet_mul(c->p, click, m->conversion), 1, m);
    finish_tasks(c, m);
}

const fl_ctr_model fl_model_share_bottom = {
    .name = "share_bottom",
    .own = {"embedding_dim", "hidden", "bottom"},
    .least_tasks = 2,
    .most_tasks = FLEET_MOST_TASKS,
    .embedding_dim = 9,
    .build = share_bottom};
const fl_ctr_model fl_model_mmoe = {
    .name = "mmoe",
    .own = {"embedding_dim", "hidden", "experts", "expert_units"},
    .least_tasks = 2,
    .most_tasks = FLEET_MOST_TASKS,
    .embedding_dim = 9,
    .build = mmoe};
const fl_ctr_model fl_model_ple = {.name = "ple",
                                   .own = {"embedding_dim", "hidden", "experts",
                                           "shared_experts", "expert_units",
                                           "levels"},
                                   .least_tasks = 2,
                                   .most_tasks = FLEET_MOST_TASKS,
                                   .embedding_dim = 9,
                                   .build = ple};
const fl_ctr_model fl_model_esmm = {.name = "esmm",
                                    .own = {"embedding_dim", "hidden"},
                                    .least_tasks = 2,
                                    .most_tasks = 2,
                                    .embedding_dim = 12,
                                    .build = esmm};
