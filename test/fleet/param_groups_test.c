/* param_groups_test.c - dense parameters in groups with optimizers of their
 * own: PyTorch's weights with param_groups; each state begins, is saved and
 * comes back as its own rule has it; configurations have groups; what cannot be
 * is refused by name. */
#define SUITE param_groups
#include "golden.h"
#include "model_kit.h"
#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "fleet/config/config.h"
#include "fleet/job/handle.h"

enum { SAMPLES = 4, MOST = 20, UPDATES = 100 };

static float noise(int64_t i)
{
    return (float)sin((double)i * 12.9898) * 0.99f;
}

static const struct {
    const char *name;
    int64_t n;
} params[] = {{"a.w", 15}, {"a.b", 5}, {"b.w", 20},
              {"b.b", 4},  {"c.w", 4}, {"c.b", 1}};

enum { N_PARAM = sizeof params / sizeof *params };

typedef struct net {
    fleet *f;
    fleet_program *p;
    fleet_var *loss;
    fleet_optimizer *all;
    fleet_executor *e;
} net;

static fleet_var *layer(fleet_program *p, fleet_var *x, int64_t units,
                        const char *name, fleet_activation activation)
{
    return fleet_fc(
        p, x, units,
        &(fleet_fc_options){.name = name, .activation = activation});
}

static void build_net(net *n)
{
    fleet_var *x, *y, *h;

    *n = (net){.f = kit_handle(&(kit_options){0})};
    n->p = fleet_program_create(n->f);
    x = kit_data(n->p, "x", 3);
    y = kit_data(n->p, "y", 1);
    h = layer(n->p, x, 5, "a", FLEET_TANH);
    h = layer(n->p, h, 4, "b", FLEET_TANH);
    h = layer(n->p, h, 1, "c", FLEET_LINEAR);
    n->loss = fleet_mean(n->p, fleet_square(n->p, fleet_sub(n->p, h, y)));
    CHECK_OK(fleet_program_status(n->p));
}

static void group(const net *n, const char *pattern, fleet_optimizer *own)
{
    CHECK(own != NULL);
    CHECK_OK(fleet_optimizer_add_group(n->all, n->p, pattern, own));
}

static void start_net(net *n)
{
    CHECK_OK(fleet_minimize(n->all, n->loss));
    n->e = fleet_executor_create(n->p, NULL);
    CHECK(n->e != NULL);
}

/* As param_groups_ref.py has them. */
static void open_net(net *n)
{
    fleet_optimizer *b, *c;

    build_net(n);
    n->all = fleet_adam(n->f, 0.02f, NULL);
    CHECK_OK(fleet_optimizer_set_l2_decay(n->all, 0.01f));
    b = fleet_sgd(n->f, 0.05f);
    CHECK_OK(fleet_optimizer_set_l2_decay(b, 0.02f));
    CHECK_OK(fleet_optimizer_set_value_clip(b, 0.05f));
    c = fleet_adam(n->f, 0.005f, NULL);
    group(n, "[bc].*", b);
    group(n, "c.w", c);
    group(n, "*.b",
          fleet_momentum(n->f, 0.01f,
                         &(fleet_momentum_options){.momentum = 0.8f}));
    start_net(n);
}

static void close_net(net *n)
{
    fleet_executor_destroy(n->e);
    fleet_destroy(n->f);
}

static void set_first(const net *n)
{
    float w[MOST];

    for (int k = 0; k < N_PARAM; k++) {
        for (int64_t i = 0; i < params[k].n; i++)
            w[i] = noise(100 * k + i);
        CHECK_OK(fleet_parameter_set(n->f, params[k].name, w, params[k].n));
    }
}

static void update(const net *n, int64_t t)
{
    const int64_t of_x[] = {SAMPLES, 3}, of_y[] = {SAMPLES, 1};
    float x[SAMPLES * 3], y[SAMPLES];
    const fleet_feed feed[] = {{"x", FLEET_FLOAT32, x, of_x, 2, NULL},
                               {"y", FLEET_FLOAT32, y, of_y, 2, NULL}};

    for (int i = 0; i < SAMPLES * 3; i++)
        x[i] = noise(1000 + 20 * t + i);
    for (int i = 0; i < SAMPLES; i++)
        y[i] = noise(1000 + 20 * t + 12 + i);
    CHECK_OK(fleet_executor_run(n->e, feed, 2, NULL, 0));
}

/* --- formulas ------------------------------------------------------------- */

static void check_line(const net *n, const char *name, const char *words)
{
    float got[MOST];
    int64_t count = 0;
    char *rest;

    for (int k = 0; k < N_PARAM; k++)
        if (strcmp(params[k].name, name) == 0)
            count = params[k].n;
    CHECK(count > 0);
    CHECK_OK(fleet_parameter_get(n->f, name, got, count));
    for (int64_t i = 0; i < count; i++, words = rest) {
        double want = strtod(words, &rest);

        CHECK(rest != words);
        if (!(fabs((double)got[i] - want) <= 1e-5))
            test_fail(__FILE__, __LINE__, "%s, weight %d: %.9g, not %.9g", name,
                      (int)i, (double)got[i], want);
    }
}

TEST(weights_are_those_of_pytorchs_groups_over_a_hundred_updates)
{
    char *text = golden_read("param_groups.txt"), name[8];
    int64_t t = 0;
    int lines = 0;
    net n;

    open_net(&n);
    set_first(&n);
    for (const char *at = text; *at; at += strcspn(at, "\n") + 1, lines++) {
        int length, after;

        CHECK(sscanf(at, "after %d %7s%n", &after, name, &length) == 2);
        for (; t < after; t++)
            update(&n, t);
        check_line(&n, name, at + length);
    }
    CHECK_INT(t, UPDATES);
    CHECK_INT(lines, 3 * N_PARAM);
    fl_free(text);
    close_net(&n);
}

/* --- states, saves -------------------------------------------------------- */

static void open_of_sums(net *n, float first)
{
    build_net(n);
    n->all = fleet_adagrad(
        n->f, 0.1f, &(fleet_adagrad_options){.initial_accumulator = 0.5f});
    group(
        n, "b.*",
        fleet_adagrad(n->f, 0.1f,
                      &(fleet_adagrad_options){.initial_accumulator = first}));
    group(n, "c.*", fleet_adam(n->f, 0.01f, NULL));
    start_net(n);
}

TEST(states_begin_as_the_groups_rule_says)
{
    float plain[MOST], own[MOST];
    net a, b;

    open_of_sums(&a, 0.5f);
    open_of_sums(&b, 2);
    for (int64_t t = 0; t < 3; t++) {
        update(&a, t);
        update(&b, t);
    }
    CHECK_OK(fleet_parameter_get(a.f, "b.w", plain, 20));
    CHECK_OK(fleet_parameter_get(b.f, "b.w", own, 20));
    CHECK(memcmp(plain, own, sizeof own) != 0);
    for (size_t k = 0; k < 2; k++) {
        const fl_param *p = fl_store_param((k ? b : a).f->store, "b.b");

        CHECK((p->flat->state[0][p->offset] > 2) == (k == 1));
    }
    close_net(&a);
    close_net(&b);
}

/* Saved in the middle, loaded, and gone on with. */
TEST(a_save_has_the_states_of_each_group)
{
    const char *path = test_path("saved");
    uint64_t want;
    net n, later;

    open_net(&n);
    for (int64_t t = 0; t < 8; t++) {
        if (t == 4)
            CHECK_OK(fleet_save_persistables(n.f, path));
        update(&n, t);
    }
    want = kit_hash(n.f);
    open_net(&later);
    CHECK_OK(fleet_load_model(later.f, path));
    for (int64_t t = 4; t < 8; t++)
        update(&later, t);
    CHECK(kit_hash(later.f) == want);
    close_net(&n);
    close_net(&later);
}

TEST(a_list_of_parameters_says_how_many_states_each_has)
{
    fleet_parameter_info list[N_PARAM];
    net n;
    int count;

    open_net(&n);
    CHECK_OK(fleet_parameter_list(n.f, list, N_PARAM, &count));
    CHECK_INT(count, N_PARAM);
    for (int i = 0; i < N_PARAM; i++)
        CHECK_INT(list[i].n_state, list[i].name[2] == 'b'        ? 1
                                   : strcmp(list[i].name, "b.w") ? 2
                                                                 : 0);
    close_net(&n);
}

/* --- configurations ------------------------------------------------------- */

#define CONFIG(optimizer)                                                      \
    "{\"model\": {\"type\": \"wide_deep\"}, \"optimizer\": " optimizer ", "    \
    "\"dataset\": {\"format\": \"criteo\", \"train\": [\"a\"]}}"

TEST(a_configuration_has_groups_beside_tables)
{
    const char *text = CONFIG(
        "{\"type\": \"sgd\", \"groups\": {\"tower_*\": {\"type\": "
        "\"momentum\", \"learning_rate\": 0.25}, \"*.b\": {\"l2_decay\": "
        "0.5}}, \"tables\": {\"embedding\": {\"type\": \"adagrad\"}}}");
    const fl_config_optimizer *own;
    fl_config c;

    CHECK_OK(fl_config_read(&c, text, strlen(text), "f.json"));
    CHECK_INT(c.optimizer.n_own, 3);
    own = c.optimizer.own;
    CHECK(!own[0].is_group && own[1].is_group && own[2].is_group);
    CHECK_TEXT(own[0].name, "embedding");
    CHECK_TEXT(own[1].name, "tower_*");
    CHECK_INT(own[1].type, FL_RULE_MOMENTUM);
    CHECK(own[1].learning_rate == 0.25 && own[2].l2_decay == 0.5);
    fl_config_done(&c);
    text = CONFIG("{\"groups\": {\"a\": {\"clip_norm\": 1}}}");
    CHECK_FAILS(fl_config_read(&c, text, strlen(text), "f.json"), FLEET_ECONFIG,
                "optimizer.groups.a.clip_norm");
    fl_config_done(&c);
    text = CONFIG("{\"groups\": {\"a\": {\"row_bounds\": [0, 1]}}}");
    CHECK_FAILS(fl_config_read(&c, text, strlen(text), "f.json"), FLEET_ECONFIG,
                "groups.a.row_bounds: expected nothing: a group has no rows");
    fl_config_done(&c);
}

/* --- what cannot be ------------------------------------------------------- */

TEST(groups_that_cannot_be_are_refused_by_name)
{
    fleet_optimizer *own, *clips, *bounds, *other;
    fleet *g;
    net n;

    build_net(&n);
    g = kit_handle(&(kit_options){0});
    other = fleet_sgd(g, 0.1f);
    n.all = fleet_sgd(n.f, 0.1f);
    own = fleet_adam(n.f, 0.1f, NULL);
    clips = fleet_sgd(n.f, 0.1f);
    bounds = fleet_sgd(n.f, 0.1f);
    CHECK_OK(fleet_optimizer_set_global_norm_clip(clips, 1));
    CHECK_FAILS(fleet_optimizer_add_group(n.all, n.p, "a", own), FLEET_ENOENT,
                "group \"a\": the program has no dense parameter");
    CHECK_FAILS(fleet_optimizer_add_group(n.all, n.p, "*", n.all), FLEET_EINVAL,
                "group \"*\": the optimizer is that of all other");
    CHECK_FAILS(fleet_optimizer_add_group(n.all, n.p, "*", other), FLEET_EINVAL,
                "another handle");
    CHECK_FAILS(fleet_optimizer_add_group(n.all, n.p, "*", clips), FLEET_EINVAL,
                "the norm is that of all gradients");
    CHECK_FAILS(fleet_optimizer_add_group(n.all, n.p, "*",
                                          fleet_rowwise_adagrad(n.f, 1, NULL)),
                FLEET_EINVAL, "rowwise_adagrad keeps numbers of whole rows");
    CHECK_OK(fleet_optimizer_set_row_bounds(bounds, 0, 1));
    CHECK_FAILS(fleet_optimizer_add_group(n.all, n.p, "*", bounds),
                FLEET_EINVAL, "bounds weights of rows, and it has none");
    CHECK_FAILS(fleet_optimizer_add_group(
                    n.all, n.p, "*",
                    fleet_adam(n.f, 1, &(fleet_adam_options){.row_steps = 1})),
                FLEET_EINVAL, "(row_steps), and it has none");
    CHECK_FAILS(fleet_optimizer_add_group(n.all, NULL, "*", own), FLEET_EINVAL,
                "no program");
    CHECK_FAILS(fleet_optimizer_add_group(n.all, n.p, NULL, own), FLEET_EINVAL,
                "no group");
    group(&n, "*", own);
    CHECK_FAILS(fleet_optimizer_set_row_bounds(own, 0, 1), FLEET_EINVAL,
                "the optimizer is a group's, which has no rows");
    CHECK_FAILS(fleet_optimizer_add_group(own, n.p, "*", n.all), FLEET_EINVAL,
                "a table's or a group's itself");
    CHECK_FAILS(fleet_minimize(own, n.loss), FLEET_EINVAL, "or a group's");
    start_net(&n);
    CHECK_FAILS(fleet_optimizer_add_group(n.all, n.p, "*", NULL), FLEET_ESTATE,
                "before fleet_minimize()");
    CHECK_FAILS(fleet_optimizer_set_l2_decay(own, 1), FLEET_ESTATE,
                "of a table or of a group");
    close_net(&n);
    fleet_destroy(g);
}

TEST(layerwise_rates_and_groups_are_refused_by_name)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    net n;

    build_net(&n);
    n.all = fleet_momentum(n.f, 0.1f, NULL);
    group(&n, "a.*", fleet_sgd(n.f, 0.1f));
    s.lars = 1;
    CHECK(fleet_distributed_optimizer(n.f, n.all, &s) == n.all);
    CHECK_FAILS(fleet_minimize(n.all, n.loss), FLEET_EUNSUPPORTED,
                "\"a.w\" is of a group with an optimizer of its own, and "
                "strategy.lars");
    close_net(&n);
}

/* Such a rule may be minimized where all dense parameters have another. */
TEST(what_is_in_a_group_again_is_of_the_last_one)
{
    float first[MOST], got[MOST];
    net n;

    build_net(&n);
    n.all = fleet_rowwise_adagrad(n.f, 1, NULL);
    group(&n, "*", fleet_sgd(n.f, 1));
    CHECK_OK(fleet_optimizer_add_group(n.all, n.p, "c.*", NULL));
    CHECK_FAILS(fleet_minimize(n.all, n.loss), FLEET_EUNSUPPORTED,
                "\"c.w\" is a dense parameter");
    group(&n, "c.*", fleet_sgd(n.f, 1e-30f));
    start_net(&n);
    CHECK_OK(fleet_parameter_get(n.f, "c.w", first, 4));
    update(&n, 0);
    CHECK_OK(fleet_parameter_get(n.f, "c.w", got, 4));
    CHECK(memcmp(first, got, 4 * sizeof *got) == 0);
    close_net(&n);
}
