/* all_reduce_test.c - ranks that sum their gradients: the same bits as one
 * process that merges their batches, uneven ends, failures of one rank. */
#define SUITE all_reduce
#include "away_rows.h"
#include "cold_kit.h"
#include "workers_kit.h"
#include "rank_kit.h"
#include "rule_kit.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "collective/sharded/sharded_table.h"
#include "fleet/servers.h"
#include "runtime/exec/prefetch.h"

#include "runtime/optim/rule.h"
#include "runtime/store/store_hash.h"

/* Batch b is rank b mod n's. */
typedef struct lesson {
    kit_kind kind;
    kit_options how;
    int batches;
    int64_t last; /* rows of the last batch */
    int passes;
    uint64_t hash[FAKE_MOST_RANKS];
    int64_t updates[FAKE_MOST_RANKS];
    fleet_status status[FAKE_MOST_RANKS];
    char error[FAKE_MOST_RANKS][400];
    double sum[FAKE_MOST_RANKS];
    bool at_odds; /* rank 1's weights are other ones at first */
    int bad_rank; /* has a batch with a NaN; 0: nobody */
    bool syncs;   /* statistics of batch_norm */
} lesson;

static fleet_status take_part(fake_rank *r, lesson *s, kit_model *m, work *k)
{
    double sum = 1;

    for (int pass = 0; pass < s->passes; pass++) {
        for (int i = r->p.rank; i < k->n; i += r->p.size) {
            fleet_status status = kit_run(m->e, k->b[i]);

            if (status != FLEET_OK)
                return status;
        }
        FL_TRY(fleet_executor_flush(m->e));
        FL_TRY(fl_executor_end_pass(m->e, &sum, 1));
    }
    s->sum[r->p.rank] = sum;
    return FLEET_OK;
}

static fleet_status serve(void *arg, const fl_agreed *round)
{
    CHECK(round->done == FL_INTENT_ROWS);
    return fl_sharded_serve(arg);
}

static void share_out(fake_rank *r, kit_model *m, fl_sharded_tables **shards)
{
    m->f->store->agree = &r->rounds;
    CHECK_OK(fl_add_programs(m->f));
    CHECK_OK(fl_sharded_create(shards, m->f->store, &r->rounds));
    r->rounds.serve = serve;
    r->rounds.arg = *shards;
    m->f->store->remote = fl_sharded_remote(*shards);
    m->f->store->dense_local = true;
}

/* Rows are on all ranks. */
static fleet_status hash_of_all(void *arg, const fl_rows *rows, uint64_t *sum)
{
    fl_comm *p = &((fake_rank *)arg)->p;
    uint64_t each[FAKE_MOST_RANKS], mine;

    FL_TRY(fl_store_hash_rows(rows, &mine));
    FL_TRY(p->methods->all_gather(p, &mine, each, sizeof mine, NULL));
    *sum = 0;
    for (int i = 0; i < p->size; i++)
        *sum += each[i];
    return FLEET_OK;
}

static void learn(fake_rank *r, void *arg)
{
    lesson *s = arg;
    int rank = r->p.rank;
    fl_sharded_tables *shards;
    kit_model m;
    work k;

    kit_build(&m, s->kind, &s->how);
    m.p->training.sync_batch_norm = s->syncs;
    share_out(r, &m, &shards);
    m.e = fleet_executor_create(
        m.p, &(fleet_executor_options){.max_batch = WORK_ROWS});
    work_open(&k, &m, s->batches, s->last);
    if (s->bad_rank && s->bad_rank == rank)
        ((float *)(uintptr_t)k.b[rank]->feed[0].data)[3] = NAN;
    s->status[rank] = take_part(r, s, &m, &k);
    if (s->status[rank] != FLEET_OK)
        snprintf(s->error[rank], sizeof *s->error, "%s", fleet_last_error());
    if (s->status[rank] == FLEET_OK)
        CHECK_OK(fl_store_hash(m.f->store, hash_of_all, r, &s->hash[rank]));
    s->updates[rank] = m.f->store->updates;
    work_close(&k);
    fleet_executor_destroy(m.e);
    m.e = NULL;
    m.f->store->agree = NULL;
    m.f->store->remote = NULL;
    fl_sharded_destroy(shards);
    kit_close(&m);
}

static void check_equal_to_one(lesson *s, int ranks)
{
    kit_options alone = s->how;
    fake_group g;
    uint64_t want;

    s->passes = 1;
    alone.merge = ranks;
    alone.make_rows = NULL;
    alone.max_batch = WORK_ROWS;
    want = crew_alone(s->kind, &alone, s->batches, s->last);
    fake_group_open(&g, ranks);
    fake_group_run(&g, learn, s);
    fake_group_close(&g);
    for (int i = 0; i < ranks; i++) {
        if (s->status[i] != FLEET_OK)
            test_fail(__FILE__, __LINE__, "rank %d: %s", i, s->error[i]);
        CHECK(s->hash[i] == want);
        CHECK_INT(s->updates[i], (s->batches + ranks - 1) / ranks);
        CHECK(s->sum[i] == ranks);
    }
}

TEST(ranks_are_one_process_that_merges_their_batches)
{
    for (int i = 0; i < FL_N_RULE; i++)
        for (int ranks = 1; ranks <= 4; ranks++) {
            lesson s = {.how = {.optimizer = fl_rule_of((fl_rule_kind)i)->name,
                                .learning_rate = 0.1f},
                        .batches = 8,
                        .last = 50};

            check_equal_to_one(&s, ranks);
        }
}

TEST(ranks_may_have_unequal_numbers_of_batches)
{
    for (int ranks = 2; ranks <= 4; ranks++)
        for (int batches = 1; batches <= 9; batches++) {
            lesson s = {.batches = batches, .last = 17};

            check_equal_to_one(&s, ranks);
        }
}

TEST(decay_and_clip_are_those_of_the_mean)
{
    lesson s = {.how = {.l2_decay = 0.01f, .clip = 0.05f, .threads = 2},
                .batches = 7,
                .last = 31};

    check_equal_to_one(&s, 3);
}

TEST(a_clip_by_norm_is_that_of_the_mean)
{
    lesson s = {.how = {.l2_decay = 0.01f, .norm_clip = 0.02f, .threads = 2},
                .batches = 7,
                .last = 31};

    check_equal_to_one(&s, 3);
}

TEST(pooled_slots_train_as_in_one_process)
{
    for (int ranks = 1; ranks <= 4; ranks++) {
        lesson s = {.kind = KIT_POOLED, .batches = 7, .last = 29};

        check_equal_to_one(&s, ranks);
        s.how = (kit_options){.optimizer = "adagrad", .threads = 2};
        check_equal_to_one(&s, ranks);
    }
}

TEST(histories_train_as_in_one_process)
{
    for (int ranks = 2; ranks <= 3; ranks++) {
        lesson s = {.kind = KIT_SEQUENCE, .batches = 7, .last = 29};

        check_equal_to_one(&s, ranks);
    }
}

/* The ratios are of the reduced gradients, alike on all ranks. */
TEST(layers_have_the_rates_of_one_process)
{
    static const char *const rule[] = {"lars", "lamb"};

    for (int i = 0; i < 2; i++)
        for (int ranks = 1; ranks <= 4; ranks++) {
            lesson s = {.how = {.layers = rule[i],
                                .layer_coeff = 0.1f,
                                .l2_decay = 0.01f,
                                .clip = 0.05f},
                        .batches = 7,
                        .last = 29};

            check_equal_to_one(&s, ranks);
            s.kind = KIT_CTR;
            check_equal_to_one(&s, ranks);
        }
}

TEST(ranks_wait_for_rows_that_are_out_of_memory)
{
    static const char *const rule[] = {"sgd", "adagrad", "adam"};

    cold_kit_cap.folder = test_folder();
    cold_kit_cap.hurries = true;
    for (int i = 0; i < 3; i++) {
        lesson s = {.kind = KIT_CTR,
                    .how = {.optimizer = rule[i], .make_rows = away_rows_make},
                    .batches = 7,
                    .last = 29};

        check_equal_to_one(&s, 3);
        s.how.clip = 0.05f;
        check_equal_to_one(&s, 2);
        s.how.make_rows = cold_kit_make; /* each rank's in a file of its own */
        check_equal_to_one(&s, 3);
    }
}

/* Squares of rows come from their owners. */
TEST(the_norm_is_that_of_rows_on_all_ranks_too)
{
    for (int batches = 1; batches <= 9; batches++)
        for (int ranks = 1; ranks <= 4; ranks++) {
            lesson s = {.kind = KIT_CTR,
                        .how = {.clip = 0.05f, .l2_decay = 0.001f},
                        .batches = batches,
                        .last = 29};

            check_equal_to_one(&s, ranks);
        }
}

/* Ranks agree before forward, and have their rows before that; some have
 * joined. */
TEST(rows_come_before_statistics_of_all_ranks)
{
    for (int batches = 1; batches <= 7; batches += 2) {
        lesson s = {.kind = KIT_CTR,
                    .how.normalized = true,
                    .batches = batches,
                    .last = 29,
                    .passes = 2,
                    .syncs = true};
        fake_group g;

        fake_group_open(&g, 3);
        fake_group_run(&g, learn, &s);
        fake_group_close(&g);
        for (int i = 0; i < 3; i++) {
            if (s.status[i] != FLEET_OK)
                test_fail(__FILE__, __LINE__, "rank %d: %s", i, s.error[i]);
            CHECK(s.hash[i] == s.hash[0]);
            CHECK_INT(s.updates[i], 2 * ((batches + 2) / 3));
        }
    }
}

TEST(a_rank_that_fails_ends_the_job_for_all_with_its_words)
{
    lesson s = {.batches = 9, .last = 50, .passes = 1, .bad_rank = 1};
    fake_group g;

    fake_group_open(&g, 3);
    fake_group_run(&g, learn, &s);
    fake_group_close(&g);
    CHECK_INT(s.status[1], FLEET_ENUMERIC);
    for (int i = 0; i < 3; i += 2) {
        CHECK_INT(s.status[i], FLEET_EPEER);
        CHECK_CONTAINS(s.error[i], "rank 1: ");
        CHECK_CONTAINS(s.error[i], "not finite");
    }
}

/* --- sums in place of means ----------------------------------------------- */

static void choose_sum(fleet_distributed_strategy *s)
{
    s->is_collective = 1;
    s->gradient_scale_sum = 1;
}

static void check_weights_of_one(const rank_lesson *s, const kit_options *one,
                                 float tolerance)
{
    const float *want;
    kit_model m;
    work k;

    kit_open(&m, KIT_MLP, one);
    work_open(&k, &m, s->batches, s->last);
    for (int i = 0; i < k.n; i++)
        CHECK_OK(kit_run(m.e, k.b[i]));
    CHECK_OK(fleet_executor_flush(m.e));
    want = rank_group(&m)->weight;
    for (int64_t i = 0; i < rank_group(&m)->n; i++)
        CHECK(fabsf(s->weight[0][i] - want[i]) <= tolerance);
    work_close(&k);
    kit_close(&m);
}

/* At the end of a pass too, when not all ranks have a batch. */
TEST(gradient_scale_sum_is_one_process_that_adds_up_its_batches)
{
    for (int ranks = 2; ranks <= 4; ranks++) {
        rank_lesson s = {.how = {.optimizer = "momentum",
                                 .clip = 0.5f,
                                 .choose = choose_sum},
                         .batches = 10,
                         .passes = 1,
                         .last = 17};
        const kit_options one = {.optimizer = "momentum",
                                 .clip = 0.5f,
                                 .merge = ranks,
                                 .sum = true,
                                 .max_batch = WORK_ROWS};

        rank_train(&s, ranks);
        check_weights_of_one(&s, &one, 0);
    }
}

/* Moving averages are means all the same. */
TEST(gradient_scale_sum_adds_up_no_moving_averages)
{
    rank_lesson s = {.how = {.optimizer = "sgd",
                             .learning_rate = 0.01f,
                             .normalized = true,
                             .choose = choose_sum},
                     .batches = 10,
                     .passes = 1,
                     .last = 50};
    const kit_options one = {.optimizer = "sgd",
                             .learning_rate = 0.01f,
                             .normalized = true,
                             .merge = 2,
                             .sum = true,
                             .max_batch = WORK_ROWS};

    rank_train(&s, 2);
    check_weights_of_one(&s, &one, 0);
}

static void choose_sum_of_means(fleet_distributed_strategy *s)
{
    choose_sum(s);
    s->gradient_merge = 1;
    s->gradient_merge_configs.k_steps = 4;
}

/* Two means of 4 batches are twice the mean of 8. */
TEST(a_sum_over_ranks_is_of_the_means_of_their_merges)
{
    rank_lesson s = {.how = {.optimizer = "sgd",
                             .learning_rate = 0.05f,
                             .choose = choose_sum_of_means},
                     .batches = 16,
                     .passes = 1,
                     .last = 50};
    const kit_options one = {.optimizer = "sgd",
                             .learning_rate = 0.1f,
                             .merge = 8,
                             .max_batch = WORK_ROWS};

    rank_train(&s, 2);
    check_weights_of_one(&s, &one, 1e-6f);
}

/* --- buckets -------------------------------------------------------------- */

/* Merged or not, as float16 or not, in buckets of any size. */
TEST(where_gradients_lie_and_how_they_are_cut_changes_no_bit)
{
    for (int way = 0; way < 8; way++) {
        rank_lesson one = {.how = {.merge = way & 1 ? 2 : 1, .clip = 0.1f},
                           .also.all_reduce.fp16 = way & 2,
                           .shared = way & 4,
                           .batches = 11,
                           .passes = 2,
                           .last = 17};
        rank_lesson two = one, three = one;

        two.also.all_reduce.bucket = 100;
        three.also.all_reduce.bucket = 700;
        three.shared = !one.shared;
        rank_train(&one, 3);
        rank_train(&two, 3);
        rank_train(&three, 3);
        CHECK(two.calls[0] > three.calls[0] && three.calls[0] > one.calls[0]);
        CHECK(memcmp(one.weight, two.weight, sizeof one.weight) == 0);
        CHECK(memcmp(one.weight, three.weight, sizeof one.weight) == 0);
    }
}

/* Whether a round, a bucket that leaves, or one that is waited for. */
TEST(a_rank_that_fails_in_any_call_ends_the_job)
{
    rank_lesson s = {
        .also.all_reduce.bucket = 100, .batches = 5, .passes = 1, .last = 50};
    int calls;

    rank_train(&s, 2);
    calls = s.calls[1];
    CHECK(calls > 20);
    for (s.fail_at = 1; s.fail_at <= calls; s.fail_at++) {
        rank_try(&s, 2);
        CHECK_INT(s.status[1], FLEET_EIO);
        CHECK_INT(s.status[0], FLEET_EPEER);
        CHECK_CONTAINS(s.error[0], "rank 1 cannot go on");
    }
}

/* One that is found wrong leaves all weights as they were. */
static void spoil(kit_model *m)
{
    const fl_agree *r = m->f->store->agree;

    if (r->comm->rank == 1)
        rank_group(m)->weight[0] = NAN;
}

TEST(nothing_leaves_of_a_batch_whose_loss_is_not_finite)
{
    rank_lesson s = {.also.all_reduce.bucket = 100,
                     .batches = 4,
                     .passes = 1,
                     .last = 50,
                     .prepare = spoil};
    rank_lesson none = s;

    none.prepare = NULL;
    none.passes = 0;
    rank_try(&none, 2);
    rank_try(&s, 2);
    CHECK_INT(s.status[1], FLEET_ENUMERIC);
    CHECK_INT(s.status[0], FLEET_EPEER);
    CHECK_CONTAINS(s.error[0], "the loss is not finite");
    CHECK(memcmp(s.weight[0], none.weight[0], sizeof s.weight[0]) == 0);
}

TEST(tables_shared_out_over_ranks_are_those_of_one_process)
{
    for (int i = 0; kit_rule_of_shape(i); i++)
        for (int ranks = 1; ranks <= 4; ranks++) {
            lesson s = {
                .kind = KIT_CTR,
                .how = {.optimizer = kit_rule_of_shape(i), .l2_decay = 0.001f},
                .batches = 7,
                .last = 29};

            check_equal_to_one(&s, ranks);
        }
}

/* --- parameters that the loss does not reach ------------------------------ */

static void find_unused(fleet_distributed_strategy *s)
{
    s->find_unused_parameters = 1;
}

static void find_none(fleet_distributed_strategy *s)
{
    s->find_unused_parameters = 0;
}

/* No rank waits for their gradients, whatever find_unused_parameters says. */
TEST(parameters_that_the_loss_does_not_reach_stay_as_they_are)
{
    rank_lesson s = {.how = {.unreached = true, .choose = find_none},
                     .batches = 6,
                     .last = 50,
                     .passes = 1};
    rank_lesson t = s;
    float before[20 * 3], after[20 * 3];
    kit_batch *b;
    kit_model m;

    t.how.choose = find_unused;
    rank_train(&s, 2);
    rank_train(&t, 2);
    CHECK(memcmp(s.weight[0], t.weight[0], sizeof s.weight[0]) == 0);

    kit_open(&m, KIT_MLP, &t.how);
    b = kit_batch_for(&m, 20, 1);
    CHECK_OK(fleet_parameter_get(m.f, "unreached.w", before, 20 * 3));
    CHECK_OK(kit_run(m.e, b));
    CHECK_OK(fleet_parameter_get(m.f, "unreached.w", after, 20 * 3));
    CHECK(memcmp(before, after, sizeof before) == 0);
    kit_batch_free(b);
    kit_close(&m);
}
