/* test_exchange.c - training with parameters that are kept elsewhere: the same
 * bits as in one process, one batch ahead or not, and what happens when the
 * others fail. fake_exchange.h is the others. */
#define SUITE exchange
#include "fake_exchange.h"
#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/executor.h"
#include "runtime/pass.h"

/* --- workers and what they train on -------------------------------------- */

enum { MOST_WORKERS = 3, MOST_BATCHES = 12 };

typedef struct crew {
    kit_model m[MOST_WORKERS];
    fake_worker w[MOST_WORKERS];
    fake_server server;
    int n;
} crew;

/* Workers of a model; the executors are made. */
static void crew_open(crew *c, int n, bool sync, kit_kind kind,
                      const kit_options *o)
{
    c->n = n;
    for (int i = 0; i < n; i++) {
        kit_build(&c->m[i], kind, o);
        if (i == 0)
            fake_server_open(&c->server, c->m[0].p, n, sync);
        fake_worker_open(&c->w[i], &c->server, c->m[i].f, i);
        c->m[i].e = fleet_executor_create(
            c->m[i].p, &(fleet_executor_options){.max_batch = o->max_batch});
        CHECK(c->m[i].e != NULL);
    }
}

static void crew_close(crew *c)
{
    for (int i = 0; i < c->n; i++) {
        fleet_executor_destroy(c->m[i].e);
        c->m[i].e = NULL;
        fake_worker_close(&c->w[i]);
    }
    fake_server_close(&c->server);
    for (int i = c->n; i-- > 0;)
        kit_close(&c->m[i]);
}

/* Batches of 50, the last one short. */
typedef struct work {
    kit_batch *b[MOST_BATCHES];
    int n;
} work;

static void work_open(work *k, const kit_model *m, int n, int64_t last)
{
    k->n = n;
    for (int i = 0; i < n; i++)
        k->b[i] = kit_batch_for(m, i + 1 < n ? 50 : last, i);
}

static void work_close(work *k)
{
    for (int i = 0; i < k->n; i++)
        kit_batch_free(k->b[i]);
}

/* A batch as executors know it. */
static void to_input(const fleet_executor *e, const kit_batch *b,
                     fl_input *input)
{
    memset(input, 0, e->program->n_var * sizeof *input);
    for (int i = 0; i < b->n; i++) {
        const fleet_var *v = fleet_program_var(e->program, b->feed[i].name);

        input[v->id] = (fl_input){b->feed[i].data, b->feed[i].offsets};
    }
}

static void announce(fleet_executor *e, const kit_batch *b)
{
    fl_input *input = malloc(e->program->n_var * sizeof *input);

    to_input(e, b, input);
    fl_executor_ahead(e, input, b->rows);
    free(input);
}

static fleet_status iterate(fleet_executor *e, const kit_batch *b)
{
    to_input(e, b, e->input);
    return fl_executor_iterate(e, b->rows);
}

/* Batch i; the one `step` after it is announced, if it is there. */
static fleet_status train_one(fleet_executor *e, const work *k, int i, int step)
{
    if (step && i + step < k->n)
        announce(e, k->b[i + step]);
    return iterate(e, k->b[i]);
}

/* --- the same bits ------------------------------------------------------- */

static uint64_t alone(kit_kind kind, const kit_options *o, int n, int64_t last)
{
    uint64_t hash;
    kit_model m;
    work k;

    kit_open(&m, kind, o);
    work_open(&k, &m, n, last);
    for (int i = 0; i < n; i++)
        CHECK_OK(kit_run(m.e, k.b[i]));
    CHECK_OK(fleet_executor_flush(m.e));
    hash = kit_hash(m.f);
    work_close(&k);
    kit_close(&m);
    return hash;
}

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
        CHECK_OK(train_one(c.m[0].e, &k, i, ahead));
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
    uint64_t want = alone(kind, o, 5, 23);

    CHECK(away(kind, o, 5, 23, true, false) == want);
    CHECK(away(kind, o, 5, 23, true, true) == want);
    CHECK(away(kind, o, 5, 23, false, false) == want);
}

TEST(one_worker_trains_as_one_process_does)
{
    static const char *const optimizers[] = {"sgd", "momentum", "adagrad",
                                             "adam"};

    for (int i = 0; i < 4; i++) {
        check_same(KIT_MLP, &(kit_options){.optimizer = optimizers[i]});
        check_same(KIT_CTR, &(kit_options){.optimizer = optimizers[i],
                                           .threads = 2,
                                           .l2_decay = 0.01f});
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

    CHECK(away(KIT_CTR, &o, 4, 400, true, true) == alone(KIT_CTR, &o, 4, 400));
}

/* Steps of n batches: one process merges them, n workers have one each. */
static void check_crew(kit_kind kind, int n, bool ahead)
{
    kit_options o = {.merge = n, .optimizer = "adam", .threads = 2};
    uint64_t want = alone(kind, &o, 3 * n, 50);
    crew c;
    work k;

    o.merge = 1;
    crew_open(&c, n, true, kind, &o);
    work_open(&k, &c.m[0], 3 * n, 50);
    for (int i = 0; i < 3 * n; i++)
        CHECK_OK(train_one(c.m[i % n].e, &k, i, ahead ? n : 0));
    CHECK(fake_server_hash(&c.server) == want);
    work_close(&k);
    crew_close(&c);
}

TEST(workers_with_a_batch_each_are_one_that_merges_them)
{
    for (int n = 2; n <= MOST_WORKERS; n++)
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
        CHECK_OK(train_one(c.m[0].e, &k, i, 1));
    CHECK_TEXT(c.w[0].calls, "pull0 pull1 arrive0 pull0a arrive1 push "
                             "pull1 arrive0 arrive1 push");
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
    CHECK_TEXT(c.w[0].calls, "pull0 arrive0 push pull0 arrive0 push");
    work_close(&k);
    crew_close(&c);
}

TEST(another_batch_than_the_announced_one_is_trained_as_it_is)
{
    uint64_t want = alone(KIT_CTR, &(kit_options){0}, 4, 30);
    crew c;
    work k;

    crew_open(&c, 1, true, KIT_CTR, &(kit_options){0});
    work_open(&k, &c.m[0], 4, 30);
    announce(c.m[0].e, k.b[3]);
    CHECK_OK(iterate(c.m[0].e, k.b[0]));
    announce(c.m[0].e, k.b[0]);
    CHECK_OK(iterate(c.m[0].e, k.b[1]));
    CHECK_OK(iterate(c.m[0].e, k.b[2]));
    CHECK_OK(iterate(c.m[0].e, k.b[3]));
    CHECK(fake_server_hash(&c.server) == want);
    CHECK_TEXT(c.w[0].calls, "pull0 pull1a arrive0 push drop1 pull0 pull1a "
                             "arrive0 push drop1 pull0 arrive0 push pull0 "
                             "arrive0 push");
    work_close(&k);
    crew_close(&c);
}

TEST(a_pull_ahead_inside_a_group_that_ends_early_is_made_again)
{
    crew c;
    work k;

    crew_open(&c, 1, true, KIT_CTR, &(kit_options){.merge = 3});
    work_open(&k, &c.m[0], 2, 50);
    CHECK_OK(train_one(c.m[0].e, &k, 0, 1));
    CHECK_OK(fleet_executor_flush(c.m[0].e));
    CHECK_OK(iterate(c.m[0].e, k.b[1])); /* of the new version */
    CHECK_TEXT(c.w[0].calls, "pull0 pull1 arrive0 drop1 push pull0 arrive0");
    work_close(&k);
    crew_close(&c);
}

TEST(an_executor_that_goes_drops_what_it_pulled)
{
    crew c;
    work k;

    crew_open(&c, 1, true, KIT_CTR, &(kit_options){0});
    work_open(&k, &c.m[0], 2, 50);
    CHECK_OK(train_one(c.m[0].e, &k, 0, 1));
    fleet_executor_destroy(c.m[0].e);
    c.m[0].e = NULL;
    CHECK_TEXT(c.w[0].calls, "pull0 pull1a arrive0 push drop1");
    work_close(&k);
    crew_close(&c);
}

TEST(many_batch_sizes_after_a_pull_ahead_do_no_harm)
{
    crew c;
    work k;

    crew_open(&c, 1, true, KIT_CTR, &(kit_options){0});
    work_open(&k, &c.m[0], 2, 50);
    CHECK_OK(train_one(c.m[0].e, &k, 0, 1));
    for (int64_t rows = 1; rows < 12; rows++) { /* more plans than are kept */
        fl_compiled *other;

        CHECK_OK(fl_executor_plan(c.m[0].e, rows, &other));
    }
    CHECK_CONTAINS(c.w[0].calls, "push drop1");
    CHECK_OK(iterate(c.m[0].e, k.b[1]));
    CHECK(fake_server_hash(&c.server) ==
          alone(KIT_CTR, &(kit_options){0}, 2, 50));
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
    CHECK_OK(train_one(c.m[0].e, &k, 0, 1));
    CHECK_OK(train_one(c.m[0].e, &k, 1, 1)); /* the third is pulled */
    c.w[0].calls[0] = '\0';
    CHECK_OK(fl_executor_refresh(tester));
    announce(tester, k.b[0]); /* no slot is free for that one */
    check_prediction(&c.m[0], tester, k.b[2], want);
    CHECK_TEXT(c.w[0].calls, "refresh pull1n arrive1");
    c.w[0].calls[0] = '\0';
    CHECK_OK(iterate(c.m[0].e, k.b[2]));
    CHECK_TEXT(c.w[0].calls, "arrive0 push");
    announce(tester, k.b[0]); /* but now */
    CHECK_OK(iterate(tester, k.b[2]));
    CHECK_OK(iterate(tester, k.b[0]));
    CHECK_CONTAINS(c.w[0].calls, "push pull0n pull1n arrive0 arrive1");
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
    announce(tester, k.b[1]);
    CHECK_OK(iterate(tester, k.b[0]));
    CHECK_OK(iterate(tester, k.b[1]));
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
    CHECK_OK(train_one(c.m[0].e, &k, 0, 2));
    CHECK_OK(iterate(other, k.b[1]));
    CHECK_OK(iterate(c.m[0].e, k.b[2]));
    CHECK(fake_server_hash(&c.server) ==
          alone(KIT_CTR, &(kit_options){0}, 3, 50));
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
    CHECK_OK(iterate(c.m[0].e, k.b[0]));
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
              alone(KIT_CTR, &o, 5, 23));
        crew_open(&c, 1, false, KIT_CTR, &o);
        work_open(&k, &c.m[0], merge, 50);
        for (int i = 0; i < merge; i++)
            CHECK_OK(iterate(c.m[0].e, k.b[i]));
        CHECK(c.w[0].clip > 0 && c.w[0].clip < 1);
        work_close(&k);
        crew_close(&c);
    }
}

/* --- failures ------------------------------------------------------------ */

/* The n-th call of that kind fails; the batch does, and what was promised for
 * the next one; then all goes on as if that batch had not been. */
static void check_failure(fake_call call, int nth, int merge, bool ahead)
{
    kit_options o = {.merge = merge};
    int failed = 0;
    crew c;
    work k;

    crew_open(&c, 1, true, KIT_CTR, &o);
    work_open(&k, &c.m[0], 6, 50);
    c.w[0].fail_at[call] = nth;
    for (int i = 0; i < 6; i++)
        if (train_one(c.m[0].e, &k, i, ahead) != FLEET_OK) {
            CHECK_TEXT(fleet_last_error(), "server 3 is not what it was");
            CHECK_INT(c.m[0].e->micro, 0);
            CHECK_INT(c.m[0].f->store->n_group, 0);
            CHECK(!c.w[0].x.taken[0] && !c.w[0].x.taken[1]);
            failed++;
        }
    CHECK_INT(c.w[0].fail_at[call], 0);
    CHECK(failed == 1 || (failed == 0 && call == FAKE_PULL && ahead));
    CHECK_OK(fleet_executor_flush(c.m[0].e));
    CHECK_INT(c.m[0].f->store->updates, c.server.updates);
    work_close(&k);
    crew_close(&c);
}

TEST(a_call_that_fails_ends_its_iteration_and_no_other)
{
    for (int merge = 1; merge <= 2; merge++)
        for (int ahead = 0; ahead < 2; ahead++)
            for (int nth = 1; nth <= 3; nth++) {
                check_failure(FAKE_PULL, nth, merge, ahead);
                check_failure(FAKE_ARRIVE, nth, merge, ahead);
                check_failure(FAKE_PUSH, nth, merge, ahead);
            }
}

TEST(a_push_that_fails_at_the_end_of_a_group_is_reported_by_the_flush)
{
    crew c;
    work k;

    crew_open(&c, 1, true, KIT_CTR, &(kit_options){.merge = 3});
    work_open(&k, &c.m[0], 1, 50);
    CHECK_OK(iterate(c.m[0].e, k.b[0]));
    c.w[0].fail_at[FAKE_PUSH] = 1;
    CHECK_FAILS(fleet_executor_flush(c.m[0].e), FLEET_EINVAL, "server 3");
    CHECK_INT(c.m[0].f->store->updates, 0);
    CHECK_OK(fleet_executor_flush(c.m[0].e)); /* the group is given up */
    CHECK_INT(c.server.updates, 0);
    work_close(&k);
    crew_close(&c);
}

TEST(a_batch_that_fails_is_not_pushed_and_the_next_is_pulled_again)
{
    crew c;
    work k;

    crew_open(&c, 1, true, KIT_CTR, &(kit_options){0});
    work_open(&k, &c.m[0], 3, 50);
    ((float *)(uintptr_t)k.b[1]->feed[0].data)[7] = NAN;
    CHECK_OK(train_one(c.m[0].e, &k, 0, 1));
    CHECK_FAILS(train_one(c.m[0].e, &k, 1, 1), FLEET_ENUMERIC,
                "batch 2: the loss is not finite, because input \"numbers\"");
    CHECK_OK(train_one(c.m[0].e, &k, 2, 1));
    CHECK_TEXT(c.w[0].calls, "pull0 pull1a arrive0 push pull0a arrive1 drop1 "
                             "drop0 pull0 arrive0 push");
    work_close(&k);
    crew_close(&c);
}

/* The exchange comes and goes between groups alone. */
TEST(an_executor_follows_its_stores_exchange)
{
    crew c;
    work k;

    crew_open(&c, 1, true, KIT_MLP, &(kit_options){.merge = 2});
    work_open(&k, &c.m[0], 4, 50);
    CHECK_OK(train_one(c.m[0].e, &k, 0, 1));
    c.m[0].f->store->exchange = NULL;
    CHECK_FAILS(iterate(c.m[0].e, k.b[1]), FLEET_ESTATE,
                "inside a merge group");
    c.m[0].f->store->exchange = &c.w[0].x;
    CHECK_OK(train_one(c.m[0].e, &k, 1, 1));
    c.m[0].f->store->exchange = NULL;
    CHECK_OK(iterate(c.m[0].e, k.b[2]));
    CHECK_OK(iterate(c.m[0].e, k.b[3]));
    CHECK_INT(c.server.updates, 1);
    CHECK_INT(c.m[0].f->store->updates, 2);
    memset(c.w[0].x.taken, 0, sizeof c.w[0].x.taken); /* it went with a pull */
    work_close(&k);
    crew_close(&c);
}

static bool train_without_memory(int64_t n)
{
    bool enough = true;
    crew c;
    work k;

    crew_open(&c, 1, true, KIT_CTR, &(kit_options){.merge = 2});
    work_open(&k, &c.m[0], 4, 50);
    fl_memory_fail_at(n, false);
    for (int i = 0; i < 4; i++) {
        fleet_status status = train_one(c.m[0].e, &k, i, 1);

        CHECK(status == FLEET_OK || status == FLEET_ENOMEM);
        enough = enough && status == FLEET_OK;
    }
    enough = enough && fl_memory_count() < n;
    fl_memory_fail_at(0, false);
    CHECK_OK(train_one(c.m[0].e, &k, 0, 1));
    CHECK_OK(train_one(c.m[0].e, &k, 1, 1));
    work_close(&k);
    crew_close(&c);
    return enough;
}

TEST_LIMIT(training_survives_every_allocation_that_fails, 120)
{
    int64_t n = 1;

    while (!train_without_memory(n))
        n += 1 + n / 40;
    CHECK(n > 100);
}

/* --- memory -------------------------------------------------------------- */

TEST(a_step_allocates_nothing_once_its_capacities_have_settled)
{
    crew c;
    work k;

    crew_open(&c, 1, true, KIT_CTR,
              &(kit_options){.merge = 2, .threads = 2, .max_batch = 50});
    work_open(&k, &c.m[0], 8, 50);
    c.server.idle = true;
    fl_memory_fail_at(0, false);
    for (int i = 0; i < 32; i++)
        CHECK_OK(train_one(c.m[0].e, &k, i % 8, i % 8 < 7));
    CHECK(fl_memory_count() > 0);
    CHECK_CONTAINS(c.w[0].calls, "arrive0 pull0a arrive1"); /* both slots */
    fl_memory_fail_at(0, false);
    for (int i = 0; i < 16; i++)
        CHECK_OK(train_one(c.m[0].e, &k, i % 8, i % 8 < 7));
    CHECK_INT(fl_memory_count(), 0);
    work_close(&k);
    crew_close(&c);
}
