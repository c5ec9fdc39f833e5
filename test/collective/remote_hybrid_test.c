/* remote_hybrid_test.c - one exchange of two: each table and parameter goes to
 * who keeps it, and the bits are those of one process. The ranks are one, in a
 * thread. */
#define SUITE remote_hybrid
#include "workers_kit.h"
#include "fake_comm.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

#include "collective/sharded/sharded_table.h"
#include "fleet/servers.h"
#include "runtime/plan/remote_hybrid.h"
#include "runtime/exec/prefetch.h"
#include "runtime/store/store_hash.h"

enum { BATCHES = 8 };

typedef struct lesson {
    bool pooled; /* KIT_POOLED; else KIT_CTR */
    kit_options how;
    bool async;
    bool sums;                /* of gradients over ranks */
    float mean[2];            /* by rank: of the last push */
    bool ranks_alone;         /* keep anything: servers nothing */
    bool sets;                /* optimizers anew, after half of the batches */
    int fail_at[FAKE_N_CALL]; /* of the servers' calls; 0: none */
    uint64_t hash;
    fleet_status status;
    char error[300], calls[4000];
} lesson;

/* A rank beside servers, with its exchange of both. */
typedef struct scene {
    kit_model m;
    fake_server server;
    fake_worker w;
    fl_sharded_tables *shards;
    fl_remote_hybrid *joint;
} scene;

static fleet_status serve(void *arg, const fl_agreed *round)
{
    CHECK(round->done == FL_INTENT_ROWS);
    return fl_sharded_serve(arg);
}

static void keep(const kit_model *m, const char *name, fleet_ps ps)
{
    fleet_program_var(m->p, name)->attr.ps = ps;
}

static void share_out(const kit_model *m)
{
    keep(m, "tower_0.w", FLEET_PS_SERVERS);
    keep(m, "wide.b", FLEET_PS_SERVERS);
    keep(m, "second", FLEET_PS_RANKS);
    keep(m, "embedding_wide", FLEET_PS_RANKS);
}

static void keep_tables(const kit_model *m)
{
    for (size_t i = 0; i < m->p->n_var; i++)
        if (m->p->var[i]->kind == FL_VAR_TABLE)
            m->p->var[i]->attr.ps = FLEET_PS_RANKS;
}

static kit_kind kind_of(const lesson *l)
{
    return l->pooled ? KIT_POOLED : KIT_CTR;
}

static void scene_open(scene *s, fake_rank *r, const lesson *l)
{
    fl_store *store;

    kit_build(&s->m, kind_of(l), &l->how);
    store = s->m.f->store;
    if (l->ranks_alone)
        keep_tables(&s->m);
    else
        share_out(&s->m);
    fake_server_open(&s->server, s->m.p, 1, !l->async);
    fake_worker_open(&s->w, &s->server, s->m.f, 0);
    memcpy(s->w.fail_at, l->fail_at, sizeof l->fail_at);
    store->dense_local = true;
    store->agree = &r->rounds;
    CHECK_OK(fl_add_programs(s->m.f));
    CHECK_OK(fl_sharded_create(&s->shards, store, &r->rounds));
    CHECK_OK(fl_remote_hybrid_create(&s->joint, &s->w.x,
                                     fl_sharded_remote(s->shards)));
    r->rounds.serve = serve;
    r->rounds.arg = s->shards;
    store->remote = fl_remote_hybrid_remote(s->joint);
    s->m.e = fleet_executor_create(
        s->m.p, &(fleet_executor_options){.max_batch = WORK_ROWS});
    CHECK(s->m.e);
}

static void scene_close(scene *s)
{
    fleet_executor_destroy(s->m.e);
    s->m.e = NULL;
    s->m.f->store->agree = NULL;
    s->m.f->store->remote = NULL;
    fl_remote_hybrid_destroy(s->joint);
    fl_sharded_destroy(s->shards);
    fake_worker_close(&s->w);
    fake_server_close(&s->server);
    kit_close(&s->m);
}

/* Where the rows are. */
static fleet_status hash_rows(void *arg, const fl_rows *r, uint64_t *sum)
{
    const fake_server *s = arg;

    return fl_store_hash_rows(r->remote ? fl_store_rows(s->store, r->name) : r,
                              sum);
}

static void set_anew(fleet_optimizer *o)
{
    CHECK_OK(fleet_optimizer_set_l2_decay(o, 0.5f));
    CHECK_OK(fleet_optimizer_set_l1_decay(o, 0.25f));
    CHECK_OK(fleet_optimizer_set_global_norm_clip(o, 0.05f));
    CHECK_OK(fleet_optimizer_set_exponential_decay(o, 0.7f, 1, 0));
    CHECK_OK(fleet_optimizer_set_learning_rate(o, 0.03f));
}

/* A pass over batches [begin, end). */
static fleet_status pass(scene *s, const work *k, int begin, int end)
{
    double sum[FAKE_N_SUM] = {1, 1, 1};

    for (int i = begin; i < end; i++) {
        fleet_status status = crew_train(s->m.e, k, i, i + 1 < end);

        if (status != FLEET_OK)
            return status;
    }
    if (fleet_executor_flush(s->m.e) != FLEET_OK)
        return fleet_last_status();
    return fl_executor_end_pass(s->m.e, sum, FAKE_N_SUM);
}

static void learn(fake_rank *r, void *arg)
{
    lesson *l = arg;
    const int first = l->sets ? BATCHES / 2 : BATCHES;
    scene s;
    work k;

    scene_open(&s, r, l);
    work_open(&k, &s.m, BATCHES, 17);
    l->status = pass(&s, &k, 0, first);
    if (l->status == FLEET_OK && l->sets) {
        set_anew(s.m.o);
        l->status = pass(&s, &k, first, BATCHES);
    }
    if (l->status == FLEET_OK)
        CHECK_OK(fl_store_hash(s.m.f->store, hash_rows, &s.server, &l->hash));
    else
        snprintf(l->error, sizeof l->error, "%s", fleet_last_error());
    snprintf(l->calls, sizeof l->calls, "%s", s.w.calls);
    work_close(&k);
    scene_close(&s);
}

static void run(lesson *l)
{
    fake_group g;

    fake_group_open(&g, 1);
    fake_group_run(&g, learn, l);
    fake_group_close(&g);
}

static void check_equal_to_one(lesson *l)
{
    kit_options alone = l->how;

    alone.max_batch = WORK_ROWS;
    run(l);
    if (l->status != FLEET_OK)
        test_fail(__FILE__, __LINE__, "%s", l->error);
    CHECK(l->hash == crew_alone(kind_of(l), &alone, BATCHES, 17));
}

static void push_once(fake_rank *r, void *arg)
{
    lesson *l = arg;
    scene s;
    work k;

    scene_open(&s, r, l);
    s.m.p->training.sum_over_ranks = l->sums;
    work_open(&k, &s.m, 1, 17);
    CHECK_OK(pass(&s, &k, 0, 1));
    l->mean[r->rounds.comm->rank] = s.w.mean;
    work_close(&k);
    scene_close(&s);
}

/* A server applies each rank's push by itself, divided by its own batches. */
TEST(in_async_a_push_has_moving_averages_of_its_own_batches)
{
    for (int sums = 0; sums <= 1; sums++) {
        lesson l = {.async = true, .sums = sums != 0};
        fake_group g;

        fake_group_open(&g, 2);
        fake_group_run(&g, push_once, &l);
        fake_group_close(&g);
        CHECK(l.mean[0] == 1.0f && l.mean[1] == 1.0f);
    }
}

TEST(both_together_are_one_process)
{
    for (int i = 0; kit_rule_name(i); i++)
        for (int merge = 1; merge <= 3; merge += 2)
            check_equal_to_one(&(lesson){
                .how = {.optimizer = kit_rule_name(i), .merge = merge}});
}

TEST(pooled_slots_are_those_of_one_process)
{
    for (int merge = 1; merge <= 3; merge += 2)
        check_equal_to_one(
            &(lesson){.pooled = true, .how = {.merge = merge, .threads = 2}});
}

TEST(a_single_worker_of_async_is_too)
{
    check_equal_to_one(&(lesson){.async = true});
}

static void check_clipped(bool ranks_alone)
{
    static const char *const rule[] = {"sgd", "adam"};

    for (int i = 0; i < 2; i++)
        for (int async = 0; async <= 1; async++)
            for (int merge = 1; merge <= 3; merge += 2)
                check_equal_to_one(&(lesson){
                    .how = {.optimizer = rule[i], .merge = merge, .clip = 0.1f},
                    .async = async,
                    .ranks_alone = ranks_alone});
}

/* Rows that are all the ranks' are of one step, whatever servers do. */
TEST(a_clip_by_global_norm_is_of_the_ranks_rows)
{
    check_clipped(true);
}

/* Squares of parameters and tables of both are added up by name, as one process
 * does; in async, of one rank, in double, in another order. */
TEST(a_clip_by_global_norm_is_of_what_both_keep)
{
    check_clipped(false);
}

/* The same in one process. */
static uint64_t alone_that_sets(const kit_options *how)
{
    kit_options o = *how;
    uint64_t hash;
    kit_model m;
    work k;

    o.max_batch = WORK_ROWS;
    kit_open(&m, KIT_CTR, &o);
    work_open(&k, &m, BATCHES, 17);
    for (int i = 0; i < BATCHES; i++) {
        if (i == BATCHES / 2)
            set_anew(m.o);
        CHECK_OK(kit_run(m.e, k.b[i]));
    }
    CHECK_OK(fleet_executor_flush(m.e));
    hash = kit_hash(m.f);
    work_close(&k);
    kit_close(&m);
    return hash;
}

TEST(what_is_set_between_passes_is_in_the_updates_of_both)
{
    for (int i = 0; kit_rule_name(i); i++)
        for (int merge = 1; merge <= 2; merge++) {
            lesson l = {.how = {.optimizer = kit_rule_name(i),
                                .merge = merge,
                                .clip = 0.1f},
                        .sets = true};

            run(&l);
            CHECK_OK(l.status);
            if (l.hash != alone_that_sets(&l.how))
                test_fail(__FILE__, __LINE__, "%s, merge %d: differs",
                          l.how.optimizer, merge);
        }
}

TEST(rows_of_servers_travel_ahead)
{
    lesson l = {0};

    run(&l);
    CHECK_OK(l.status);
    CHECK_CONTAINS(l.calls,
                   "pull0 arrive0 push pull1a settle arrive1 push pull0a");
}

TEST(a_call_that_fails_ends_the_iteration_with_its_words)
{
    static const fake_call call[] = {FAKE_PULL, FAKE_ARRIVE, FAKE_PUSH,
                                     FAKE_SETTLE, FAKE_END_PASS};

    for (int i = 0; i < 5; i++) {
        lesson l = {0};

        l.fail_at[call[i]] = 1;
        run(&l);
        CHECK_INT(l.status, FLEET_EINVAL);
        CHECK_CONTAINS(l.error, "server 3 is not what it was");
    }
}
