/* param_home_test.c - who keeps a parameter or a table: what programs and
 * configurations may say, and what is refused where. */
#define SUITE param_home
#include "fake_remote.h"
#include "fake_comm.h"
#include "golden.h"
#include "test.h"
#include "train_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fleet/fleet.h>

#include "fleet/job/handle.h"

#define SERVER "127.0.0.1:6000"

static char said[2000]; /* warnings */

static void keep_warnings(void *user, fleet_log_level level, const char *line)
{
    size_t n = strlen(said);

    (void)user;
    if (level == FLEET_LOG_WARNING)
        snprintf(said + n, sizeof said - n, "%s\n", line);
}

static fleet *open_job(const char *servers, int workers, int ranks)
{
    const fleet_role role = {.worker_num = workers,
                             .server_endpoints = servers,
                             .collective = ranks};
    fleet_options o = {.role = &role, .log = keep_warnings};
    fleet *f;

    *said = 0;
    CHECK_OK(fleet_init(&f, &o));
    return f;
}

static fleet_program *model(fleet *f, fleet_model *m)
{
    static const fleet_id_slot ids = {.name = "ids"};
    fleet_program *p = fleet_program_create(f);

    fleet_wide_deep(
        p,
        &(fleet_ctr_options){
            .ids = &ids, .n_ids = 1, .hidden = (int64_t[]){4}, .n_hidden = 1},
        m);
    CHECK_OK(fleet_program_status(p));
    return p;
}

/* --- saying it ------------------------------------------------------------ */

TEST(only_parameters_and_tables_of_a_program_not_trained_yet_have_a_keeper)
{
    fleet *f = open_job(NULL, 1, 0);
    fleet_model m;
    fleet_program *p = model(f, &m);

    CHECK_OK(fleet_param_set_ps(p, "embedding", FLEET_PS_RANKS));
    CHECK_OK(fleet_param_set_ps(p, "tower_0.w", FLEET_PS_SERVERS));
    CHECK_FAILS(fleet_param_set_ps(p, "tower", FLEET_PS_RANKS), FLEET_ENOENT,
                "the program has no \"tower\"; it has \"embedding\", "
                "\"tower_0.w\", \"tower_0.b\", \"tower_out.w\", "
                "\"tower_out.b\"" /* the end */);
    CHECK_FAILS(fleet_param_set_ps(p, NULL, FLEET_PS_RANKS), FLEET_ENOENT,
                "no \"(null)\"");
    CHECK_FAILS(fleet_param_set_ps(NULL, "ids", FLEET_PS_RANKS), FLEET_EINVAL,
                "no program");
    CHECK_FAILS(fleet_param_set_ps(p, "ids", FLEET_PS_RANKS), FLEET_EINVAL,
                "\"ids\" is no parameter and no table");
    CHECK_FAILS(fleet_param_set_ps(p, "wide.b", (fleet_ps)3), FLEET_ENOENT,
                "no \"wide.b\"");
    CHECK_FAILS(fleet_param_set_ps(p, "tower_0.b", (fleet_ps)3), FLEET_EINVAL,
                "tower_0.b: ps 3 does not exist");
    CHECK_OK(fleet_minimize(fleet_sgd(f, 0.1f), m.loss));
    CHECK_FAILS(fleet_param_set_ps(p, "tower_0.b", FLEET_PS_RANKS),
                FLEET_ESTATE, "\"tower_0.b\": the program is trained already");
    fleet_destroy(f);
}

TEST(who_shares_a_parameter_says_the_same_keeper_or_none)
{
    fleet *f = open_job(NULL, 1, 0);
    fleet_program *p = fleet_program_create(f);
    fleet_param_attr a = {.name = "w", .ps = FLEET_PS_SERVERS};
    int64_t dims[] = {3};

    CHECK(fleet_parameter(p, dims, 1, &a));
    a.ps = FLEET_PS_BY_MODE;
    CHECK(fleet_parameter(p, dims, 1, &a));
    a.ps = FLEET_PS_RANKS;
    CHECK(!fleet_parameter(p, dims, 1, &a));
    CHECK_CONTAINS(fleet_last_error(),
                   "\"w\" is there already with another ps");
    fleet_destroy(f);
}

TEST(two_programs_of_a_handle_do_not_contradict)
{
    fleet *f = open_job(NULL, 1, 0);
    fleet_model m, again;
    fleet_program *p = model(f, &m), *q = model(f, &again);
    fleet_executor *e;

    CHECK_OK(fleet_param_set_ps(q, "embedding", FLEET_PS_RANKS));
    e = fleet_executor_create(p, NULL);
    CHECK(e);
    CHECK(!fleet_executor_create(q, NULL));
    CHECK_INT(fleet_last_status(), FLEET_EEXIST);
    CHECK_CONTAINS(fleet_last_error(),
                   "\"embedding\" is there already with another ps");
    fleet_executor_destroy(e);
    fleet_destroy(f);
}

/* --- where there is nobody ------------------------------------------------ */

/* A job in which the parameter has that keeper; words NULL: it may. */
static void check_job(fleet *f, fleet_distributed_strategy s, const char *name,
                      fleet_ps ps, const char *words)
{
    fleet_model m;
    fleet_program *p = model(f, &m);
    fleet_optimizer *o =
        s.lamb ? fleet_adam(f, 0.1f, NULL) : fleet_momentum(f, 0.1f, NULL);

    CHECK_OK(fleet_param_set_ps(p, name, ps));
    o = fleet_distributed_optimizer(f, o, &s);
    CHECK(o);
    if (words)
        CHECK_FAILS(fleet_minimize(o, m.loss), FLEET_EUNSUPPORTED, words);
    else
        CHECK_OK(fleet_minimize(o, m.loss));
    fleet_destroy(f);
}

#define JOB(servers, ranks, name, ps, change, words)                           \
    do {                                                                       \
        fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;        \
                                                                               \
        s.is_collective = ranks;                                               \
        change;                                                                \
        check_job(open_job(servers, 2, ranks), s, name, ps, words);            \
    } while (0)

TEST(a_keeper_that_is_not_there_is_refused_by_name)
{
    JOB(NULL, 1, "tower_0.w", FLEET_PS_SERVERS, (void)0,
        "\"tower_0.w\": ps says servers, but mode collective has none");
    JOB(NULL, 1, "embedding", FLEET_PS_SERVERS, (void)0,
        "\"embedding\": ps says servers, but mode collective has none");
    JOB(SERVER, 0, "embedding", FLEET_PS_RANKS, (void)0,
        "\"embedding\": ps says ranks, but workers are none in mode ps-async");
    JOB(SERVER, 0, "tower_0.w", FLEET_PS_RANKS, s.a_sync = 0,
        "\"tower_0.w\": ps says ranks, but workers are none in mode ps-sync");
    JOB(SERVER, 1, "tower_0.w", FLEET_PS_RANKS, s.is_collective = 0,
        "and set strategy.is_collective)");
}

TEST(a_keeper_that_is_there_may_be_said)
{
    JOB(NULL, 1, "tower_0.w", FLEET_PS_RANKS, (void)0, NULL);
    JOB(NULL, 1, "embedding", FLEET_PS_RANKS, (void)0, NULL);
    JOB(SERVER, 0, "tower_0.w", FLEET_PS_SERVERS, (void)0, NULL);
    JOB(SERVER, 0, "embedding", FLEET_PS_SERVERS, (void)0, NULL);
    for (int i = FLEET_PS_BY_MODE; i <= FLEET_PS_RANKS; i++) {
        JOB(SERVER, 1, "tower_0.w", (fleet_ps)i, (void)0, NULL);
        JOB(SERVER, 1, "embedding", (fleet_ps)i, (void)0, NULL);
    }
}

TEST(servers_and_ranks_have_rates_by_layer)
{
    JOB(SERVER, 1, "tower_0.w", FLEET_PS_SERVERS, s.lars = 1, NULL);
    JOB(SERVER, 1, "tower_0.w", FLEET_PS_SERVERS, s.lamb = 1, NULL);
    JOB(SERVER, 1, "embedding", FLEET_PS_SERVERS, s.lars = 1, NULL);
    JOB(SERVER, 1, "tower_0.w", FLEET_PS_RANKS, s.lars = 1, NULL);
}

TEST(one_process_keeps_all_and_says_so)
{
    fleet *f = open_job(NULL, 1, 0);
    fleet_model m;
    fleet_program *p = model(f, &m);
    char *dump;

    CHECK_OK(fleet_param_set_ps(p, "embedding", FLEET_PS_RANKS));
    CHECK_OK(fleet_param_set_ps(p, "tower_0.w", FLEET_PS_SERVERS));
    CHECK_OK(fleet_minimize(fleet_sgd(f, 0.1f), m.loss));
    CHECK_TEXT(said,
               "\"embedding\": ps has no effect: one process keeps it all\n"
               "\"tower_0.w\": ps has no effect: one process keeps it all\n");
    dump = fleet_strategy_dump(f);
    CHECK_CONTAINS(dump, "ps ranks embedding\nps servers tower_0.w\n");
    fleet_free(dump);
    fleet_destroy(f);
}

/* --- plans ---------------------------------------------------------------- */

static void keep(const kit_model *m, const char *name, fleet_ps ps)
{
    fleet_program_var(m->p, name)->attr.ps = ps;
}

/* Beside servers: the first layer's weights are theirs, and a table the
 * ranks'. */
static void check_plan(const kit_options *how, const char *golden)
{
    fake_server s;
    fake_worker w;
    fake_group g;
    kit_model m;
    char *text;

    kit_build(&m, KIT_CTR, how);
    keep(&m, "tower_0.w", FLEET_PS_SERVERS);
    keep(&m, "second", FLEET_PS_RANKS);
    fake_server_open(&s, m.p, 1, true);
    fake_worker_open(&w, &s, m.f, 0);
    fake_group_open(&g, 2);
    m.f->store->agree = &g.rank[0].rounds;
    m.f->store->dense_local = true;
    text = fleet_program_dump(m.p, FLEET_DUMP_PLAN, 40);
    golden_check(golden, text);
    fleet_free(text);
    m.f->store->agree = NULL;
    m.f->store->dense_local = false;
    fake_group_close(&g);
    fake_worker_close(&w);
    fake_server_close(&s);
    kit_close(&m);
}

TEST(a_plan_of_both_is_as_listed)
{
    check_plan(&(kit_options){.merge = 2}, "wide_deep_hybrid_merge.txt");
    check_plan(&(kit_options){.clip = 1}, "wide_deep_hybrid_clip.txt");
}

/* --- configurations ------------------------------------------------------- */

#define SLOT(name, more)                                                       \
    "{\"name\": \"" name "\", \"type\": \"uint64\", \"columns\": [1]" more "}"
#define TABLE(name) ", \"table\": \"" name "\""
#define PS(what)    ", \"ps\": " what

/* Trains on one line; the warnings are in said. */
static fleet_status train(const char *model_more, const char *slots)
{
    const char *data = test_file("data.csv", "1,a,0.5\n");
    fleet_config_options o = {.log = keep_warnings};
    char text[4000], *line = NULL;
    fleet_status status;

    snprintf(text, sizeof text,
             "{\"model\": {\"type\": \"wide_deep\", \"hidden\": [4]%s}, "
             "\"dataset\": {\"format\": \"csv\", \"train\": [\"%s\"]}, "
             "\"slots\": [{\"name\": \"y\", \"type\": \"float\", \"role\": "
             "\"label\", \"columns\": [0]}, %s]}",
             model_more, data, slots);
    *said = 0;
    status = fleet_train_from_config(test_file("c.json", text), &o, &line);
    fleet_free(line);
    return status;
}

#define EFFECT(name)                                                           \
    "\"" name "\": ps has no effect: one process keeps it all\n"

TEST(a_slot_says_who_keeps_its_tables)
{
    CHECK_OK(train(", \"wide_ids\": true",
                   SLOT("u", PS("false")) ", " SLOT(
                       "v", TABLE("second") PS("true")) ", " SLOT("w", "")));
    CHECK_TEXT(said, EFFECT("embedding") EFFECT("second")
                         EFFECT("embedding_wide") EFFECT("second_wide"));
}

TEST(a_layer_or_a_parameter_of_the_model_does)
{
    CHECK_OK(train(PS("{\"tower_0\": true, \"tower_out.b\": false, "
                      "\"embedding\": false}"),
                   SLOT("u", "")));
    CHECK_TEXT(said, EFFECT("embedding") EFFECT("tower_0.w") EFFECT("tower_0.b")
                         EFFECT("tower_out.b"));
}

TEST(what_a_configuration_cannot_say_is_refused_with_its_path)
{
    CHECK_FAILS(train(PS("{\"tower\": true}"), SLOT("u", "")), FLEET_ECONFIG,
                "model.ps.tower: unknown key; expected one of: embedding, "
                "tower_0, tower_0.w");
    CHECK_FAILS(train(PS("true"), SLOT("u", "")), FLEET_ECONFIG,
                "model.ps: expected an object");
    CHECK_FAILS(train(PS("{\"tower_0\": \"servers\"}"), SLOT("u", "")),
                FLEET_ECONFIG, "model.ps.tower_0: expected true or false");
    CHECK_FAILS(
        train(PS("{\"tower_0\": true, \"tower_0.b\": false}"), SLOT("u", "")),
        FLEET_ECONFIG,
        "model.ps.tower_0.b: another ps says true of \"tower_0.b\"");
    CHECK_FAILS(train(PS("{\"embedding\": true}"), SLOT("u", PS("false"))),
                FLEET_ECONFIG,
                "model.ps.embedding: another ps says false of \"embedding\"");
    CHECK_FAILS(train("", SLOT("u", PS("true")) ", " SLOT("v", PS("false"))),
                FLEET_ECONFIG,
                "slots[2].ps: another ps says true of \"embedding\"");
    CHECK_FAILS(train("", SLOT("u", PS("1"))), FLEET_ECONFIG,
                "slots[1].ps: expected true or false, got 1");
    CHECK_FAILS(train("", SLOT("u", "") ", {\"name\": \"x\", \"type\": "
                                        "\"float\", \"columns\": [2], "
                                        "\"ps\": true}"),
                FLEET_ECONFIG,
                "slots[2].ps: expected false: only ids have a table");
    CHECK_OK(train("", SLOT("u", "") ", {\"name\": \"x\", \"type\": "
                                     "\"float\", \"columns\": [2], "
                                     "\"ps\": false}"));
    CHECK_TEXT(said, "");
}
