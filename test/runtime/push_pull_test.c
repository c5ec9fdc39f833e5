/* push_pull_test.c - training with parameters that are kept elsewhere: the same
 * bits as in one process, one batch ahead or not. fake_remote.h is the
 * others. */
#define SUITE push_pull
#include "workers_kit.h"
#include "test.h"

#include "runtime/exec/feed_fetch.h"
#include "runtime/exec/prefetch.h"
#include "runtime/exec/plan_cache.h"

#include <stdlib.h>
#include <string.h>

/* --- the same bits ------------------------------------------------------- */

/* One worker, with the next batch announced or not. */
static uint64_t away(kit_kind kind, const kit_options *o, int n, int64_t last,
                     bool sync, bool ahead)
{
    uint64_t hash;
    crew c;
    work k;

    crew_open(&c, 1, sync, kind, o);
    work_open(&k, &c.m[0], n, last);
    for (int i = 0; i < n; i++)
        CHECK_OK(crew_train(c.m[0].e, &k, i, ahead));
    CHECK_OK(fleet_executor_flush(c.m[0].e));
    CHECK_INT(c.m[0].f->store->updates, c.server.updates);
    CHECK(ahead == (strstr(c.w[0].calls, "pull1") != NULL));
    CHECK(strstr(c.w[0].calls, "drop") == NULL);
    hash = fake_server_hash(&c.server);
    work_close(&k);
    crew_close(&c);
    return hash;
}

static void check_same(kit_kind kind, const kit_options *o)
{
    uint64_t want = crew_alone(kind, o, 5, 23);

    CHECK(away(kind, o, 5, 23, true, false) == want);
    CHECK(away(kind, o, 5, 23, true, true) == want);
    CHECK(away(kind, o, 5, 23, false, false) == want);
    CHECK(away(kind, o, 5, 23, false, true) == want); /* nobody else pushes */
}

TEST(one_worker_trains_as_one_process_does)
{
    for (int i = 0; kit_rule_name(i); i++) {
        check_same(KIT_MLP, &(kit_options){.optimizer = kit_rule_name(i)});
        check_same(KIT_CTR, &(kit_options){.optimizer = kit_rule_name(i),
                                           .threads = 2,
                                           .l2_decay = 0.01f});
    }
}

/* The pull for the next batch has had its data in hand, maybe shorter. */
TEST(data_that_is_fetched_is_of_the_batch_that_was_trained)
{
    float *numbers;
    size_t bytes;
    crew c;
    work k;

    crew_open(&c, 1, true, KIT_CTR, &(kit_options){.max_batch = 50});
    work_open(&k, &c.m[0], 2, 3);
    const fleet_feed *feed = &k.b[0]->feed[0];
    const fleet_var *v = fleet_program_var(c.m[0].p, feed->name);
    bytes = (size_t)(k.b[0]->rows * k.b[0]->dims[0][1]) * sizeof *numbers;
    numbers = malloc(bytes);
    CHECK_OK(fl_executor_want(c.m[0].e, v));
    CHECK_OK(crew_train(c.m[0].e, &k, 0, 1));
    CHECK(strstr(c.w[0].calls, "pull1") != NULL);
    CHECK_OK(fl_executor_fetch(
        c.m[0].e, &(fleet_fetch){.var = v, .data = numbers, .size = bytes}));
    CHECK(memcmp(numbers, feed->data, bytes) == 0);
    free(numbers);
    CHECK_OK(crew_train(c.m[0].e, &k, 1, 0));
    work_close(&k);
    crew_close(&c);
}

TEST(pooled_slots_train_as_in_one_process)
{
    for (int i = 0; i < 2; i++) {
        check_same(KIT_POOLED, &(kit_options){.threads = 1 + i});
        check_same(KIT_POOLED, &(kit_options){.merge = 3, .threads = 1 + i});
    }
}

TEST(histories_train_as_in_one_process)
{
    for (int i = 0; i < 2; i++) {
        check_same(KIT_SEQUENCE, &(kit_options){.threads = 1 + i});
        check_same(KIT_SEQUENCE, &(kit_options){.merge = 3, .threads = 1 + i});
    }
}

TEST(merge_groups_train_as_in_one_process)
{
    for (int i = 0; i < 2; i++) {
        check_same(KIT_MLP, &(kit_options){.merge = 3, .sum = i});
        check_same(KIT_CTR,
                   &(kit_options){.merge = 3, .threads = 1 + i, .sum = i});
        check_same(KIT_CTR, &(kit_options){.merge = 2, .max_batch = 64});
    }
}

TEST(a_batch_larger_than_all_before_may_be_pulled_ahead)
{
    const kit_options o = {.threads = 2};

    CHECK(away(KIT_CTR, &o, 4, 400, true, true) ==
          crew_alone(KIT_CTR, &o, 4, 400));
}

/* Steps of n batches: one process merges them, n workers have one each. */
static void check_crew(kit_kind kind, int n, bool ahead)
{
    kit_options o = {.merge = n, .optimizer = "adam", .threads = 2};
    uint64_t want = crew_alone(kind, &o, 3 * n, 50);
    crew c;
    work k;

    o.merge = 1;
    crew_open(&c, n, true, kind, &o);
    work_open(&k, &c.m[0], 3 * n, 50);
    for (int i = 0; i < 3 * n; i++)
        CHECK_OK(crew_train(c.m[i % n].e, &k, i, ahead ? n : 0));
    CHECK(fake_server_hash(&c.server) == want);
    work_close(&k);
    crew_close(&c);
}

TEST(workers_with_a_batch_each_are_one_that_merges_them)
{
    for (int n = 2; n <= CREW_MOST; n++)
        for (int ahead = 0; ahead < 2; ahead++) {
            check_crew(KIT_MLP, n, ahead);
            check_crew(KIT_CTR, n, ahead);
        }
}

/* --- order of calls ------------------------------------------------------ */

TEST(the_next_batch_is_pulled_of_the_version_that_it_will_meet)
{
    crew c;
    work k;

    crew_open(&c, 1, true, KIT_CTR, &(kit_options){.merge = 2});
    work_open(&k, &c.m[0], 4, 50);
    for (int i = 0; i < 4; i++)
        CHECK_OK(crew_train(c.m[0].e, &k, i, 1));
    CHECK_TEXT(c.w[0].calls, "pull0 pull1 arrive0 arrive1 push pull0a settle "
                             "pull1 arrive0 arrive1 push settle");
    work_close(&k);
    crew_close(&c);
}

/* In async it needs no answer to the push. */
TEST(in_async_the_next_batch_is_pulled_while_this_one_is_computed)
{
    crew c;
    work k;

    crew_open(&c, 1, false, KIT_CTR, &(kit_options){0});
    work_open(&k, &c.m[0], 2, 50);
    CHECK_OK(crew_train(c.m[0].e, &k, 0, 1));
    CHECK_OK(crew_iterate(c.m[0].e, k.b[1]));
    CHECK_TEXT(c.w[0].calls, "pull0 pull1a arrive0 push arrive1 push");
    work_close(&k);
    crew_close(&c);
}

TEST(without_an_announcement_a_pull_comes_first)
{
    crew c;
    work k;

    crew_open(&c, 1, true, KIT_MLP, &(kit_options){0});
    work_open(&k, &c.m[0], 2, 50);
    CHECK_OK(kit_run(c.m[0].e, k.b[0]));
    CHECK_OK(kit_run(c.m[0].e, k.b[1]));
    CHECK_TEXT(c.w[0].calls, "pull0 arrive0 push settle pull0 arrive0 push "
                             "settle");
    work_close(&k);
    crew_close(&c);
}

TEST(another_batch_than_the_announced_one_is_trained_as_it_is)
{
    uint64_t want = crew_alone(KIT_CTR, &(kit_options){0}, 4, 30);
    crew c;
    work k;

    crew_open(&c, 1, true, KIT_CTR, &(kit_options){0});
    work_open(&k, &c.m[0], 4, 30);
    crew_announce(c.m[0].e, k.b[3]);
    CHECK_OK(crew_iterate(c.m[0].e, k.b[0]));
    crew_announce(c.m[0].e, k.b[0]);
    CHECK_OK(crew_iterate(c.m[0].e, k.b[1]));
    CHECK_OK(crew_iterate(c.m[0].e, k.b[2]));
    CHECK_OK(crew_iterate(c.m[0].e, k.b[3]));
    CHECK(fake_server_hash(&c.server) == want);
    CHECK_TEXT(c.w[0].calls, "pull0 arrive0 push pull1a settle drop1 "
                             "pull0 arrive0 push pull1a settle drop1 "
                             "pull0 arrive0 push settle "
                             "pull0 arrive0 push settle");
    work_close(&k);
    crew_close(&c);
}

TEST(a_pull_ahead_inside_a_group_that_ends_early_is_made_again)
{
    crew c;
    work k;

    crew_open(&c, 1, true, KIT_CTR, &(kit_options){.merge = 3});
    work_open(&k, &c.m[0], 2, 50);
    CHECK_OK(crew_train(c.m[0].e, &k, 0, 1));
    CHECK_OK(fleet_executor_flush(c.m[0].e));
    CHECK_OK(crew_iterate(c.m[0].e, k.b[1])); /* of the new version */
    CHECK_TEXT(c.w[0].calls, "pull0 pull1 arrive0 drop1 push settle pull0 "
                             "arrive0");
    work_close(&k);
    crew_close(&c);
}

TEST(an_executor_that_goes_drops_what_it_pulled)
{
    crew c;
    work k;

    crew_open(&c, 1, true, KIT_CTR, &(kit_options){0});
    work_open(&k, &c.m[0], 2, 50);
    CHECK_OK(crew_train(c.m[0].e, &k, 0, 1));
    fleet_executor_destroy(c.m[0].e);
    c.m[0].e = NULL;
    CHECK_TEXT(c.w[0].calls, "pull0 arrive0 push pull1a settle drop1");
    work_close(&k);
    crew_close(&c);
}

TEST(many_batch_sizes_after_a_pull_ahead_do_no_harm)
{
    crew c;
    work k;

    crew_open(&c, 1, true, KIT_CTR, &(kit_options){0});
    work_open(&k, &c.m[0], 2, 23);
    CHECK_OK(crew_train(c.m[0].e, &k, 0, 1));
    for (int64_t rows = 1; rows < 12; rows++) { /* more plans than are kept */
        fl_compiled *other;

        CHECK_OK(fl_executor_plan(c.m[0].e, rows, &other));
    }
    CHECK_CONTAINS(c.w[0].calls, "settle drop1");
    CHECK_OK(crew_iterate(c.m[0].e, k.b[1]));
    CHECK(fake_server_hash(&c.server) ==
          crew_alone(KIT_CTR, &(kit_options){0}, 2, 23));
    work_close(&k);
    crew_close(&c);
}

/* --- executors for test -------------------------------------------------- */

static void check_prediction(kit_model *m, fleet_executor *tester,
                             const kit_batch *b, const float *want)
{
    float got[50];

    CHECK_OK(kit_fetch(tester, b, m->m.prediction, got, b->rows));
    CHECK(memcmp(got, want, (size_t)b->rows * sizeof *got) == 0);
}

/* What an own process predicts after two batches. */
static void predict_alone(float *want)
{
    kit_model m;
    work k;

    kit_open(&m, KIT_CTR, &(kit_options){0});
    work_open(&k, &m, 3, 50);
    CHECK_OK(kit_run(m.e, k.b[0]));
    CHECK_OK(kit_run(m.e, k.b[1]));
    fleet_executor *tester =
        fleet_executor_create(m.p, &(fleet_executor_options){.for_test = 1});
    CHECK_OK(kit_fetch(tester, k.b[2], m.m.prediction, want, 50));
    fleet_executor_destroy(tester);
    work_close(&k);
    kit_close(&m);
}

TEST(a_test_takes_rows_as_they_are_while_a_pull_is_under_way)
{
    float want[50];
    crew c;
    work k;

    predict_alone(want);
    crew_open(&c, 1, true, KIT_CTR, &(kit_options){0});
    work_open(&k, &c.m[0], 3, 50);
    fleet_executor *tester = fleet_executor_create(
        c.m[0].p, &(fleet_executor_options){.for_test = 1});
    CHECK_OK(crew_train(c.m[0].e, &k, 0, 1));
    CHECK_OK(crew_train(c.m[0].e, &k, 1, 1)); /* the third is pulled */
    c.w[0].calls[0] = '\0';
    CHECK_OK(fl_executor_refresh(tester));
    crew_announce(tester, k.b[0]); /* no slot is free for that one */
    check_prediction(&c.m[0], tester, k.b[2], want);
    CHECK_TEXT(c.w[0].calls, "refresh pull1n arrive1");
    c.w[0].calls[0] = '\0';
    CHECK_OK(crew_iterate(c.m[0].e, k.b[2]));
    CHECK_TEXT(c.w[0].calls, "arrive0 push settle");
    crew_announce(tester, k.b[0]); /* but now */
    CHECK_OK(crew_iterate(tester, k.b[2]));
    CHECK_OK(crew_iterate(tester, k.b[0]));
    CHECK_CONTAINS(c.w[0].calls, "settle pull0n pull1n arrive0 arrive1");
    fleet_executor_destroy(tester);
    work_close(&k);
    crew_close(&c);
}

TEST(a_test_without_tables_asks_for_nothing)
{
    crew c;
    work k;

    crew_open(&c, 1, true, KIT_MLP, &(kit_options){0});
    work_open(&k, &c.m[0], 2, 50);
    fleet_executor *tester = fleet_executor_create(
        c.m[0].p, &(fleet_executor_options){.for_test = 1});
    crew_announce(tester, k.b[1]);
    CHECK_OK(crew_iterate(tester, k.b[0]));
    CHECK_OK(crew_iterate(tester, k.b[1]));
    CHECK_TEXT(c.w[0].calls, "");
    fleet_executor_destroy(tester);
    work_close(&k);
    crew_close(&c);
}

TEST(in_sync_a_pull_ahead_that_another_executor_has_overtaken_is_made_again)
{
    crew c;
    work k;

    crew_open(&c, 1, true, KIT_CTR, &(kit_options){0});
    work_open(&k, &c.m[0], 3, 50);
    fleet_executor *other = fleet_executor_create(c.m[0].p, NULL);
    CHECK_OK(crew_train(c.m[0].e, &k, 0, 2));
    CHECK_OK(crew_iterate(other, k.b[1]));
    CHECK_OK(crew_iterate(c.m[0].e, k.b[2]));
    CHECK(fake_server_hash(&c.server) ==
          crew_alone(KIT_CTR, &(kit_options){0}, 3, 50));
    fleet_executor_destroy(other);
    work_close(&k);
    crew_close(&c);
}

/* --- single parameters --------------------------------------------------- */

/* A layer and a table that say something of their own; a second table that is
 * not trained. */
static fleet_program *own_program(fleet *f)
{
    fleet_fc_options first = {.name = "first",
                              .weight = {.learning_rate = 0.25f},
                              .bias = {.l2_decay = 0.75f}};
    fleet_sparse_embedding_options rows = {
        .table = "own", .learning_rate = 0.5f, .l2_decay = 0.25f};
    fleet_sparse_embedding_options still = {.table = "still", .frozen = 1};
    fleet_program *p = fleet_program_create(f);
    fleet_var *x = fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, 7}, 2);
    fleet_var *id = fleet_data(p, "id", FLEET_INT64, (int64_t[]){-1, 2}, 2);
    fleet_optimizer *o = fleet_momentum(f, 0.5f, NULL);
    fleet_var *part[3];

    part[0] = fleet_fc(p, x, 5, &first);
    part[1] = fleet_sparse_embedding(p, id, 3, &rows);
    part[2] = fleet_sparse_embedding(p, id, 2, &still);
    x = fleet_concat(p, part, 3, 1);
    x = fleet_fc(
        p, x, 1,
        &(fleet_fc_options){.name = "last", .weight = {.no_decay = 1}});
    CHECK_OK(fleet_optimizer_set_l2_decay(o, 0.125f));
    CHECK_OK(fleet_minimize(o, fleet_mean(p, fleet_square(p, x))));
    return p;
}

static void train_own(fleet_program *p)
{
    fleet_executor *e = fleet_executor_create(p, NULL);

    CHECK(e != NULL);
    for (int i = 0; i < 4; i++) {
        kit_batch *b = kit_batch_new(13);

        kit_floats(b, "x", 7, i);
        kit_ids(b, "id", 2, 30, 50 + i);
        CHECK_OK(kit_run(e, b));
        kit_batch_free(b);
    }
    fleet_executor_destroy(e);
}

TEST(what_parameters_say_of_themselves_is_known_to_both_sides)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet *g = kit_handle(&(kit_options){0});
    fleet_program *p = own_program(f);
    fake_server server;
    fake_worker w;

    fake_server_open(&server, p, 1, true);
    fake_worker_open(&w, &server, f, 0);
    train_own(p);
    train_own(own_program(g));
    CHECK(fake_server_hash(&server) == kit_hash(g));
    CHECK_INT(fl_store_rows(server.store, "still")
                  ->methods->count(fl_store_rows(server.store, "still")),
              0);
    fake_worker_close(&w);
    fake_server_close(&server);
    fleet_destroy(f);
    fleet_destroy(g);
}

/* --- clip by global norm ------------------------------------------------- */

static bool has_step(const fl_plan *plan, const char *kernel)
{
    for (size_t i = 0; i < plan->n_step; i++)
        if (strcmp(plan->step[i]->kernel->name, kernel) == 0)
            return true;
    return false;
}

TEST(in_sync_a_clip_is_the_servers_work)
{
    crew c;
    work k;

    crew_open(&c, 1, true, KIT_CTR, &(kit_options){.clip = 0.01f});
    work_open(&k, &c.m[0], 1, 50);
    CHECK_OK(crew_iterate(c.m[0].e, k.b[0]));
    CHECK(!has_step(c.m[0].e->last->plan, "clip.factor"));
    CHECK(c.w[0].clip == 1.0f);
    work_close(&k);
    crew_close(&c);
}

TEST(without_sync_each_worker_clips_its_own_gradient)
{
    for (int merge = 1; merge <= 3; merge++) {
        kit_options o = {.clip = 0.05f, .merge = merge, .threads = 2};
        crew c;
        work k;

        CHECK(away(KIT_CTR, &o, 5, 23, false, false) ==
              crew_alone(KIT_CTR, &o, 5, 23));
        crew_open(&c, 1, false, KIT_CTR, &o);
        work_open(&k, &c.m[0], merge, 50);
        for (int i = 0; i < merge; i++)
            CHECK_OK(crew_iterate(c.m[0].e, k.b[i]));
        CHECK(c.w[0].clip > 0 && c.w[0].clip < 1);
        work_close(&k);
        crew_close(&c);
    }
}
