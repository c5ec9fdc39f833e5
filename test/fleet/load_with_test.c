/* load_with_test.c - saves that have more or less than the programs: what is
 * kept, initialized, left out or refused, and by which name; in one process and
 * on servers, before and after fleet_init_worker(). */
#define SUITE load_with
#include "grown_kit.h"
#include "rule_kit.h"
#include "test.h"
#include "train_kit.h"

#include <stdio.h>
#include <string.h>

typedef struct values {
    float w[GROWN_W], extra[2], row[GROWN_DIM];
} values;

static values values_of(grown *g, bool larger)
{
    values v = {0};

    grown_fetch(g, "w", v.w, sizeof v.w);
    if (larger)
        grown_fetch(g, "extra", v.extra, sizeof v.extra);
    grown_row(g, 1, v.row);
    return v;
}

static bool same(const float *a, const float *b, size_t n)
{
    return memcmp(a, b, n * sizeof *a) == 0;
}

/* A save of the small model, trained for two steps; what is in it. */
static values save_small(const char *path, const char *optimizer)
{
    values v;
    grown g;

    grown_open(&g, &(grown_how){.optimizer = optimizer, .options.seed = 3});
    grown_train(&g, 4);
    grown_train(&g, 3);
    v = values_of(&g, false);
    CHECK_OK(fleet_save_persistables(g.f, path));
    grown_close(&g);
    return v;
}

/* --- lines of the log ----------------------------------------------------- */

typedef struct lines {
    char text[8000];
} lines;

static void keep(void *user, fleet_log_level level, const char *line)
{
    lines *l = user;
    size_t n = strlen(l->text);

    (void)level;
    snprintf(l->text + n, sizeof l->text - n, "%s\n", line);
}

/* --- what the save does not have ------------------------------------------ */

static void check_missing(fleet_on_missing on_missing)
{
    const char *path = test_path("saved");
    values saved = save_small(path, "adam"), first, trained, now;
    lines log = {""};
    grown g;

    grown_open(&g, &(grown_how){
                       "adam", true,
                       .options = {.seed = 9, .log = keep, .log_user = &log}});
    first = values_of(&g, true);
    grown_train(&g, 2);
    trained = values_of(&g, true);
    CHECK(!same(first.extra, trained.extra, 2));
    CHECK_FAILS(fleet_load_model(g.f, path), FLEET_ENOENT, "has no \"extra\"");
    CHECK_OK(fleet_load_model_with(
        g.f, path, &(fleet_load_options){.on_missing = on_missing}));
    now = values_of(&g, true);
    CHECK(same(now.w, saved.w, GROWN_W));
    CHECK(same(now.row, saved.row, GROWN_DIM));
    CHECK(same(now.extra,
               on_missing == FLEET_MISSING_KEEP ? trained.extra : first.extra,
               2));
    CHECK_CONTAINS(log.text, "has no parameter \"extra\": it is ");
    CHECK_CONTAINS(log.text, "has no table \"more\": it is ");
    CHECK_CONTAINS(log.text, on_missing == FLEET_MISSING_KEEP ? "kept as it is"
                                                              : "initialized");
    grown_close(&g);
}

TEST(a_parameter_and_a_table_that_the_save_lacks_are_kept)
{
    check_missing(FLEET_MISSING_KEEP);
}

TEST(a_parameter_and_a_table_that_the_save_lacks_are_initialized)
{
    check_missing(FLEET_MISSING_INITIALIZE);
}

/* The same model at its start, trained alike, is the same to the bit: states of
 * what was initialized started anew, too. */
TEST(what_is_initialized_goes_on_as_a_new_model)
{
    static const fleet_load_options o = {.on_missing = FLEET_MISSING_INITIALIZE,
                                         .restart = 1};
    const char *path = test_path("saved");
    const grown_how how = {
        .optimizer = "adam", .larger = true, .options.seed = 9};
    grown old, fresh;

    save_small(path, "adam");
    grown_open(&old, &how);
    grown_open(&fresh, &how);
    grown_train(&old, 3);
    CHECK_OK(fleet_load_model_with(old.f, path, &o));
    CHECK_OK(fleet_load_model_with(fresh.f, path, &o));
    CHECK(grown_hash(&old) == grown_hash(&fresh));
    grown_train(&old, 3);
    grown_train(&fresh, 3);
    CHECK(grown_hash(&old) == grown_hash(&fresh));
    grown_close(&old);
    grown_close(&fresh);
}

/* --- what the programs do not have ---------------------------------------- */

TEST(what_no_program_has_is_left_out_or_refused_by_name)
{
    const char *path = test_path("saved");
    lines log = {""};
    grown a, b;
    uint64_t before;

    grown_open(&a, &(grown_how){
                       .optimizer = "adam", .larger = true, .options.seed = 3});
    grown_train(&a, 4);
    CHECK_OK(fleet_save_persistables(a.f, path));
    grown_open(&b, &(grown_how){.optimizer = "adam",
                                .options = {.log = keep, .log_user = &log}});
    before = grown_hash(&b);
    CHECK_FAILS(
        fleet_load_model_with(
            b.f, path, &(fleet_load_options){.on_extra = FLEET_EXTRA_REFUSE}),
        FLEET_ENOENT, "the parameter \"extra\"");
    CHECK(grown_hash(&b) == before);
    CHECK_OK(fleet_load_model(b.f, path));
    CHECK(grown_hash(&b) != before);
    CHECK_CONTAINS(log.text, "\"extra\"");
    CHECK_CONTAINS(log.text, "the table \"more\" of ");
    grown_close(&a);
    grown_close(&b);
}

/* --- another optimizer ---------------------------------------------------- */

static void check_optimizers(const char *from, const char *to)
{
    static const fleet_load_options o = {.states = FLEET_STATES_INITIALIZE,
                                         .restart = 1};
    const char *path = test_path("saved");
    values saved = save_small(path, from), now;
    uint64_t trained;
    grown a, b;

    grown_open(&a, &(grown_how){.optimizer = to, .options.seed = 4});
    grown_open(&b, &(grown_how){.optimizer = to, .options.seed = 4});
    grown_train(&a, 4);
    CHECK_OK(fleet_load_model_with(a.f, path, &o));
    now = values_of(&a, false);
    CHECK(same(now.w, saved.w, GROWN_W));
    CHECK(same(now.row, saved.row, GROWN_DIM));
    CHECK_OK(fleet_load_model_with(b.f, path, &o));
    grown_train(&a, 4);
    trained = grown_hash(&a);
    grown_train(&b, 4);
    CHECK(grown_hash(&b) == trained);
    grown_close(&a);
    grown_close(&b);
}

TEST(a_save_of_any_optimizer_is_loaded_into_another_and_its_states_start_anew)
{
    for (int i = 0; kit_rule_name(i); i++)
        for (int j = 0; kit_rule_of_shape(j); j++)
            if (strcmp(kit_rule_of_shape(j), "ftrl") != 0)
                check_optimizers(kit_rule_name(i), kit_rule_of_shape(j));
}

TEST(other_states_are_refused_unless_asked_for)
{
    static const fleet_load_options refuse = {.states = FLEET_STATES_INITIALIZE,
                                              .on_extra = FLEET_EXTRA_REFUSE};
    const char *path = test_path("saved");
    grown g;

    save_small(path, "adam");
    grown_open(&g, &(grown_how){.optimizer = "momentum"});
    CHECK_FAILS(fleet_load_model(g.f, path), FLEET_ESHAPE,
                "another optimizer than momentum: expected velocity, got m, v");
    CHECK_FAILS(fleet_load_model_with(g.f, path, &refuse), FLEET_ESHAPE,
                "expected velocity, got m, v");
    grown_close(&g);
}

TEST(ftrl_refuses_weights_without_the_states_that_they_follow_from)
{
    static const fleet_load_options o = {.states = FLEET_STATES_INITIALIZE};
    const char *path = test_path("saved");
    grown g;

    save_small(path, "adam");
    grown_open(&g, &(grown_how){.optimizer = "ftrl"});
    CHECK_FAILS(fleet_load_model_with(g.f, path, &o), FLEET_ESHAPE,
                "states z and n of ftrl");
    grown_close(&g);
}

/* Adam's corrections follow the updates, and of rows with their own steps the
 * row's: without a restart both go on. */
static float first_step(const char *path, int restart)
{
    const fleet_load_options o = {.restart = restart};
    values before, after;
    grown g;

    grown_open(&g, &(grown_how){.optimizer = KIT_ROW_ADAM});
    CHECK_OK(fleet_load_model_with(g.f, path, &o));
    before = values_of(&g, false);
    grown_train(&g, 2);
    after = values_of(&g, false);
    grown_close(&g);
    return after.row[0] - before.row[0];
}

TEST(a_restart_counts_updates_from_0_again)
{
    const char *path = test_path("saved");

    save_small(path, KIT_ROW_ADAM);
    CHECK(first_step(path, 0) != first_step(path, 1));
    CHECK(first_step(path, 1) == first_step(path, 7));
}

TEST(an_option_that_is_no_choice_is_named)
{
    grown g;

    grown_open(&g, &(grown_how){.optimizer = "sgd"});
    CHECK_FAILS(
        fleet_load_model_with(
            g.f, "x", &(fleet_load_options){.on_missing = (fleet_on_missing)3}),
        FLEET_EINVAL, "on_missing: expected one of its choices, 0 to 2, got 3");
    CHECK_FAILS(
        fleet_load_model_with(
            g.f, "x", &(fleet_load_options){.on_extra = (fleet_on_extra)2}),
        FLEET_EINVAL, "on_extra");
    CHECK_FAILS(
        fleet_load_model_with(
            g.f, "x", &(fleet_load_options){.states = (fleet_load_states)2}),
        FLEET_EINVAL, "states");
    CHECK_FAILS(fleet_load_model_with(g.f, NULL, NULL), FLEET_EINVAL, "NULL");
    grown_close(&g);
}

/* --- servers -------------------------------------------------------------- */

static const fleet_load_options grow = {.on_missing = FLEET_MISSING_INITIALIZE,
                                        .states = FLEET_STATES_INITIALIZE,
                                        .restart = 1};

/* Before and after fleet_init_worker(): the job has trained meanwhile. */
static fleet_status load_before(ps_node *n)
{
    FL_TRY(fleet_load_model_with(n->s.f, n->job->load, &grow));
    FL_TRY(fleet_init_worker(n->s.f));
    n->s.e = fleet_executor_create(n->s.p, NULL);
    FL_TRY(ps_passes(n, 1));
    return ps_end(n);
}

static fleet_status load_between(ps_node *n)
{
    FL_TRY(fleet_init_worker(n->s.f));
    n->s.e = fleet_executor_create(n->s.p, NULL);
    FL_TRY(ps_passes(n, 1));
    FL_TRY(fleet_load_model_with(n->s.f, n->job->load, &grow));
    FL_TRY(ps_passes(n, 1));
    return ps_end(n);
}

/* One process that merges what two workers bring. */
static uint64_t grown_alone(const char *path, const char *file)
{
    grown_how how = {.optimizer = "momentum", .larger = true};
    ps_job j = {.open = grown_open_node, .user = &how, .file = {file}};
    ps_node n = {.job = &j};
    uint64_t hash = 0;

    grown_open_node(&n, &(fleet_options){.seed = 5, .num_threads = 1});
    CHECK_OK(fleet_load_model_with(n.s.f, path, &grow));
    scene_train(&n.s, 1);
    CHECK_OK(fleet_params_hash(n.s.f, &hash));
    scene_close(&n.s);
    return hash;
}

TEST(servers_load_a_smaller_model_of_another_optimizer_as_one_process_does)
{
    static const int shape[][2] = {{1, 1}, {2, 2}, {3, 1}};
    grown_how how = {.optimizer = "momentum", .larger = true};
    const char *path = test_path("saved"), *file = grown_ids("ids", 0, 12);
    uint64_t want;

    save_small(path, "adam");
    want = grown_alone(path, file);
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
        for (int between = 0; between < 2; between++) {
            ps_job j = {.servers = shape[i][0],
                        .lanes = shape[i][1],
                        .open = grown_open_node,
                        .user = &how,
                        .file = {file},
                        .load = path,
                        .work = between ? load_between : load_before};

            CHECK(ps_hash(&j) == want);
        }
}

static fleet_status load_refused(ps_node *n)
{
    fleet_status status;

    FL_TRY(fleet_init_worker(n->s.f));
    status = fleet_load_model_with(
        n->s.f, n->job->load,
        &(fleet_load_options){.states = FLEET_STATES_INITIALIZE});
    CHECK_INT(status, FLEET_ENOENT);
    CHECK_CONTAINS(fleet_last_error(), "has no \"extra\"");
    return ps_end(n);
}

TEST(a_load_that_is_refused_on_servers_changes_nothing)
{
    grown_how how = {.optimizer = "sgd", .larger = true};
    const char *path = test_path("saved");
    ps_job j = {.servers = 2,
                .open = grown_open_node,
                .user = &how,
                .load = path,
                .work = load_refused};

    save_small(path, "adam");
    CHECK(ps_hash(&j) != 0);
}
