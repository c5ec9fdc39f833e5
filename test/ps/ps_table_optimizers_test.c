/* ps_table_optimizers_test.c - tables with rules of their own in jobs with
 * servers: in sync the bits of one process, by any number of servers and lanes;
 * processes that disagree are told which table, which number, both values. */
#define SUITE ps_table_optimizers
#include "ps_kit.h"
#include "test.h"

#include <math.h>
#include <string.h>

#include "fleet/job/handle.h"
#include "runtime/optim/optimizer.h"
#include "train_kit.h"

static ps_job job_of(const char *optimizer, const char *embedding,
                     const char *wide)
{
    return (ps_job){
        .servers = 1,
        .workers = 2,
        .how = {.optimizer = optimizer, .embedding = embedding, .wide = wide},
        .file = {scene_file("a.txt", 200, 1)}};
}

/* --- bits ----------------------------------------------------------------- */

static void check_bits(ps_job *j)
{
    uint64_t want = ps_alone(j, j->workers);

    if (ps_hash(j) != want)
        test_fail(__FILE__, __LINE__, "%s, %s: a server differs",
                  j->how.embedding, j->how.wide);
    j->servers = 2;
    j->lanes = 2;
    if (ps_hash(j) != want)
        test_fail(__FILE__, __LINE__, "%s, %s: two servers differ",
                  j->how.embedding, j->how.wide);
}

TEST(each_rule_of_a_table_has_the_bits_of_one_process)
{
    for (int i = 0; kit_rule_name(i); i++) {
        ps_job j = job_of("momentum", kit_rule_name(i), NULL);

        check_bits(&j);
    }
}

TEST(two_tables_have_two_rules_under_one_clip)
{
    ps_job j = job_of("adam", "rowwise_adagrad", "ftrl");

    j.how.clip = 0.05f;
    check_bits(&j);
}

/* In geo a server has no rule, and workers' copies have their own. */
TEST(groups_of_dense_parameters_have_the_bits_of_one_process)
{
    static const char *const rule[] = {"adam", "ftrl"};

    for (int i = 0; i < 2; i++) {
        ps_job j = job_of("momentum", "adagrad", NULL);

        j.how.group = rule[i];
        j.how.clip = i ? 0.05f : 0;
        check_bits(&j);
    }
}

/* A hash that does not depend on the table's rule would be right above, too. */
TEST(a_tables_rule_is_not_that_of_the_others)
{
    ps_job plain = job_of("adam", NULL, NULL);
    ps_job own = job_of("adam", "adam", NULL);
    uint64_t hash = ps_hash(&plain);

    CHECK(ps_hash(&own) != hash);
    own = job_of("adam", "rowwise_adagrad", NULL);
    CHECK(ps_hash(&own) != hash);
}

/* --- async, geo ----------------------------------------------------------- */

/* Rows that a rate of nothing trains stay what they began with: job.user. */
static void open_still(ps_node *n, const fleet_options *o)
{
    fleet_optimizer *all, *still;
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    const fleet_id_slot ids[] = {
        {.name = "u"}, {.name = "v"}, {.name = "w", .dim = -1}};
    const fleet_dense_slot dense = {.name = "dense", .dim = 3};

    memset(&n->s, 0, sizeof n->s);
    CHECK_OK(fleet_init(&n->s.f, o));
    n->s.p = fleet_program_create(n->s.f);
    fleet_wide_deep(n->s.p,
                    &(fleet_ctr_options){.label_dtype = FLEET_FLOAT32,
                                         .dense = &dense,
                                         .n_dense = 1,
                                         .ids = ids,
                                         .n_ids = 3,
                                         .embedding_dim = 4,
                                         .wide_ids = 1},
                    &n->s.m);
    all = fleet_adam(n->s.f, 0.01f, NULL);
    still = fleet_rowwise_adagrad(
        n->s.f, 1e-30f,
        &(fleet_rowwise_adagrad_options){.initial_accumulator = 0.25f});
    CHECK_OK(fleet_optimizer_set_table(all, "embedding", still));
    s.a_sync = 1;
    s.a_sync_configs.k_steps = n->job->how.geo;
    CHECK_OK(fleet_minimize(fleet_distributed_optimizer(n->s.f, all, &s),
                            n->s.m.loss));
    if (!n->server)
        scene_data(&n->s, n->job->file[0], PS_BATCH, 1, 0);
}

/* number[0]: columns of rows that have changed; [1]: of the wide part. */
static fleet_status train_and_look(ps_node *n)
{
    static const uint64_t key[] = {1, 2, 3, 4, 5, 6, 7, 8};
    const char *const table[] = {"embedding", "embedding_wide"};
    const int dim[] = {4, 1};

    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    for (int t = 0; t < 2; t++) {
        const fl_rows *rows = fl_store_rows(n->s.f->store, table[t]);
        float row[8 * 4], first[4];
        int found[8];

        FL_TRY(fleet_table_get(n->s.f, table[t], key, 8, dim[t], row, NULL,
                               found));
        for (int i = 0; i < 8; i++) {
            CHECK(found[i]);
            fl_filler_row(&rows->filler, key[i], first, dim[t]);
            for (int k = 0; k < dim[t]; k++)
                n->number[t] += row[i * dim[t] + k] != first[k];
        }
    }
    return ps_end(n);
}

static void check_still(int64_t geo)
{
    ps_job j = {.servers = 2,
                .workers = 1,
                .how = {.a_sync = true, .geo = geo},
                .open = open_still,
                .work = train_and_look,
                .file = {scene_file("a.txt", 400, 1)}};

    ps_run(&j);
    ps_check(&j);
    CHECK(ps_worker(&j, 0)->number[0] == 0);
    CHECK(ps_worker(&j, 0)->number[1] > 6);
}

TEST(in_async_a_table_has_its_own_rate)
{
    check_still(0);
}

TEST(copies_of_geo_have_the_tables_own_rule)
{
    check_still(3);
}

/* --- processes that disagree ---------------------------------------------- */

/* Worker 1's table has another number; job.user: 1 if it has none at all. */
static void open_otherwise(ps_node *n, const fleet_options *o)
{
    scene_training how = n->job->how;
    const int *none = n->job->user;
    bool other = !n->server && n->index == 1;

    if (other)
        how.embedding = *none ? NULL : "adagrad";
    scene_open_as(&n->s, o, &how);
    if (!n->server)
        scene_data(&n->s, n->job->file[0], PS_BATCH, 1, 0);
}

static void check_refused(int none, const char *words)
{
    ps_job j = job_of("adam", "rowwise_adagrad", "sgd");

    j.open = open_otherwise;
    j.user = &none;
    j.connect_ms = 2 * PS_SECOND;
    ps_run(&j);
    CHECK(ps_worker(&j, 1)->status != FLEET_OK);
    CHECK_CONTAINS(ps_worker(&j, 1)->error, words);
}

TEST(a_worker_with_another_rule_of_a_table_is_refused)
{
    check_refused(0, "optimizer of table \"embedding\": type is");
}

TEST(a_worker_without_the_tables_rule_is_refused)
{
    check_refused(1, "optimizer of table \"embedding\"");
}
