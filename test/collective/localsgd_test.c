/* localsgd_test.c - ranks that update on their own: the same bits as processes
 * whose weights a test averages, uneven ends, what it does not go with. */
#define SUITE localsgd
#include "rank_kit.h"
#include "test.h"

#include <math.h>
#include <string.h>

/* --- the same by hand ---------------------------------------------------- */

typedef struct alone {
    kit_model m[FAKE_MOST_RANKS];
    int64_t since[FAKE_MOST_RANKS];
    int n;
} alone;

static void average(alone *a)
{
    int counted = 0;

    for (int r = 0; r < a->n; r++)
        counted += a->since[r] > 0;
    for (int64_t i = 0; counted > 0 && i < rank_group(&a->m[0])->n; i++) {
        float sum = -0.0f;

        for (int r = 0; r < a->n; r++)
            sum += a->since[r] > 0 ? rank_group(&a->m[r])->weight[i] : -0.0f;
        for (int r = 0; r < a->n; r++)
            rank_group(&a->m[r])->weight[i] = sum / (float)counted;
    }
    memset(a->since, 0, sizeof a->since);
}

/* Who has most batches is the first rank. */
static void train_alone(alone *a, const rank_lesson *s)
{
    work k;

    for (int r = 0; r < a->n; r++) {
        rank_model(&a->m[r], s);
        rank_executor(&a->m[r]);
    }
    work_open(&k, &a->m[0], s->batches, s->last);
    for (int pass = 0; pass < s->passes; pass++) {
        for (int i = 0; i < k.n; i++) {
            CHECK_OK(kit_run(a->m[i % a->n].e, k.b[i]));
            a->since[i % a->n]++;
            if ((i % a->n == a->n - 1 || i == k.n - 1) &&
                a->since[0] == s->also.localsgd.steps)
                average(a);
        }
        average(a);
    }
    work_close(&k);
}

static void check_equal_to_averages(rank_lesson *s, int ranks)
{
    alone a = {.n = ranks};

    s->passes = 2;
    rank_train(s, ranks);
    train_alone(&a, s);
    CHECK(memcmp(s->weight[0], rank_group(&a.m[0])->weight,
                 (size_t)rank_group(&a.m[0])->n * sizeof(float)) == 0);
    CHECK_INT(s->updates[0], 2 * ((s->batches + ranks - 1) / ranks));
    for (int r = 0; r < ranks; r++)
        kit_close(&a.m[r]);
}

TEST(ranks_are_processes_whose_weights_are_averaged)
{
    for (int ranks = 1; ranks <= 4; ranks++)
        for (int steps = 1; steps <= 3; steps++) {
            rank_lesson s = {.how = {.optimizer = "sgd", .learning_rate = 0.1f},
                             .also.localsgd.steps = steps,
                             .batches = 12,
                             .last = 50};

            check_equal_to_averages(&s, ranks);
        }
}

TEST(ranks_of_unequal_numbers_of_batches_end_with_a_mean)
{
    for (int batches = 1; batches <= 11; batches++) {
        rank_lesson s = {.how = {.optimizer = "sgd", .clip = 0.05f},
                         .also.localsgd.steps = 2,
                         .batches = batches,
                         .last = 17};

        check_equal_to_averages(&s, 3);
    }
}

/* One step of each and their mean is the step of the mean. */
TEST(with_one_step_between_means_it_is_nearly_all_reduce)
{
    static const char *const rule[] = {"sgd", "momentum"};

    for (int i = 0; i < 2; i++) {
        rank_lesson s = {.how = {.optimizer = rule[i], .learning_rate = 0.1f},
                         .batches = 12,
                         .last = 50,
                         .passes = 1};
        rank_lesson local = s;

        local.also.localsgd.steps = 1;
        rank_train(&s, 3);
        rank_train(&local, 3);
        for (int j = 0; j < RANK_MOST_FLOATS; j++)
            CHECK(fabsf(s.weight[0][j] - local.weight[0][j]) <= 1e-6f);
    }
}

TEST(until_it_begins_gradients_are_reduced)
{
    rank_lesson s = {.how = {.optimizer = "momentum", .clip = 0.1f},
                     .batches = 11,
                     .last = 31,
                     .passes = 1};
    rank_lesson late = s;

    late.also.localsgd.steps = 3;
    late.also.localsgd.begin = 4;
    rank_train(&s, 3);
    rank_train(&late, 3);
    CHECK(memcmp(s.weight[0], late.weight[0], sizeof s.weight[0]) == 0);

    late.also.localsgd.begin = 2;
    rank_train(&late, 3);
    CHECK(memcmp(s.weight[0], late.weight[0], sizeof s.weight[0]) != 0);
    CHECK_INT(late.updates[0], 4);
}

TEST(a_rank_talks_to_the_others_only_for_means)
{
    rank_lesson s = {.how = {.optimizer = "sgd"},
                     .also.localsgd.steps = 6,
                     .batches = 12,
                     .last = 50,
                     .passes = 1};

    rank_train(&s, 2);
    /* a round and all parameters; a round at the end, where nobody has updated
     * since; the pass's sum */
    CHECK_INT(s.calls[0], 1 + 1 + 1 + 1);
}

TEST(merge_groups_count_as_updates)
{
    rank_lesson s = {.how = {.optimizer = "sgd", .merge = 2},
                     .also.localsgd.steps = 2,
                     .batches = 12,
                     .last = 50,
                     .passes = 1};

    rank_train(&s, 3);
    CHECK_INT(s.updates[0], 2);
}

/* --- as often as the loss says ------------------------------------------- */

/* The same by hand, without ranks that have no batches. */
static int64_t adapt_alone(alone *a, const rank_lesson *s)
{
    int64_t k = s->also.localsgd.steps;
    double first_loss = 0, first_rate = 0, rate = 0.2;
    work w;

    work_open(&w, &a->m[0], s->batches, 50);
    for (int i = 0; i < w.n; i += a->n) {
        double loss = 0;

        for (int r = 0; r < a->n; r++, a->since[r - 1]++)
            loss += (double)kit_step(a->m[r].e, w.b[i + r], a->m[r].m.loss);
        if (a->since[0] == k) {
            average(a);
            first_loss = first_loss > 0 ? first_loss : loss;
            first_rate = first_rate > 0 ? first_rate : rate;
            k = (int64_t)ceil(sqrt(first_rate * loss / (rate * first_loss) *
                                   (double)s->also.localsgd.steps));
        }
        rate /= 2; /* of the next update */
    }
    average(a);
    work_close(&w);
    return k;
}

/* Half the rate after each update. */
static void let_rate_decay(kit_model *m)
{
    CHECK_OK(fleet_optimizer_set_exponential_decay(m->o, 0.5f, 1, 0));
}

static void choose_adaptive(fleet_distributed_strategy *s)
{
    s->is_collective = 1;
    s->adaptive_localsgd = 1;
    s->adaptive_localsgd_configs.k_steps = 3;
    s->adaptive_localsgd_configs.begin_step = 0;
}

TEST(how_often_weights_are_averaged_follows_loss_and_rate)
{
    rank_lesson s = {.how = {.optimizer = "sgd",
                             .learning_rate = 0.2f,
                             .choose = choose_adaptive},
                     .also.localsgd.steps = 3, /* of adapt_alone() */
                     .batches = 12,
                     .last = 50,
                     .passes = 1,
                     .prepare = let_rate_decay};
    alone a = {.n = 2};
    int64_t k;

    rank_train(&s, 2);
    for (int r = 0; r < 2; r++) {
        rank_model(&a.m[r], &s);
        rank_executor(&a.m[r]);
        let_rate_decay(&a.m[r]);
    }
    k = adapt_alone(&a, &s);
    CHECK(k > 3);
    CHECK_INT(s.steps[0], k);
    CHECK_INT(s.steps[1], k);
    CHECK(memcmp(s.weight[0], rank_group(&a.m[0])->weight,
                 (size_t)rank_group(&a.m[0])->n * sizeof(float)) == 0);
    for (int r = 0; r < 2; r++)
        kit_close(&a.m[r]);
}

/* The first loss is that of the first update; ranks without batches have
 * none. */
TEST(ranks_agree_how_often_with_unequal_numbers_of_batches)
{
    for (int batches = 1; batches <= 10; batches++) {
        rank_lesson s = {.how = {.optimizer = "momentum"},
                         .also.localsgd = {2, 1, true},
                         .batches = batches,
                         .last = 17,
                         .passes = 3};

        rank_train(&s, 3);
        for (int r = 0; r < 3; r++) {
            CHECK(s.first_loss[r] > 0 && s.first_loss[r] == s.first_loss[0]);
            CHECK(s.steps[r] >= 1 && s.steps[r] <= 2 &&
                  s.steps[r] == s.steps[0]);
        }
    }
}

TEST(means_are_at_most_sixteen_updates_apart)
{
    rank_lesson s = {.how = {.optimizer = "sgd", .learning_rate = 0.001f},
                     .also.localsgd = {1000000, 1, true},
                     .batches = 4,
                     .last = 50,
                     .passes = 1};

    rank_train(&s, 2);
    CHECK_INT(s.steps[0], 16);
}

TEST(tables_do_not_go_with_ranks_on_their_own)
{
    fake_group g;
    kit_model m;

    fake_group_open(&g, 2);
    kit_build(&m, KIT_CTR, &(kit_options){.optimizer = "sgd"});
    m.p->training.localsgd.steps = 2;
    m.f->store->agree = &g.rank[0].rounds;
    CHECK(fleet_program_dump(m.p, FLEET_DUMP_PLAN, 40) == NULL);
    CHECK_CONTAINS(fleet_last_error(), "strategy.localsgd: table \"");
    m.f->store->agree = NULL;
    kit_close(&m);
    fake_group_close(&g);
}

TEST(a_mean_that_fails_leaves_the_weights)
{
    rank_lesson s = {.how = {.optimizer = "sgd"},
                     .also = {.localsgd.steps = 2, .all_reduce.bucket = 700},
                     .batches = 6,
                     .last = 50,
                     .passes = 1};
    alone a = {.n = 2};
    rank_lesson two = s;
    fake_group g;

    fake_group_open(&g, 2);
    g.fail_at = 3; /* a round, a bucket, the next one */
    fake_group_run(&g, rank_learn, &s);
    fake_group_close(&g);
    CHECK_INT(s.status[1], FLEET_EIO);
    CHECK_INT(s.status[0], FLEET_EPEER);
    CHECK_CONTAINS(s.error[0], "rank 1 cannot go on");
    two.batches = 4;
    two.also.localsgd.steps = 3;
    two.passes = 0;
    train_alone(&a, &two);
    for (int r = 0; r < 2; r++) {
        work k;

        work_open(&k, &a.m[r], 6, 50);
        CHECK_OK(kit_run(a.m[r].e, k.b[r]));
        CHECK_OK(kit_run(a.m[r].e, k.b[r + 2]));
        work_close(&k);
        CHECK(memcmp(s.weight[r], rank_group(&a.m[r])->weight,
                     (size_t)rank_group(&a.m[r])->n * sizeof(float)) == 0);
        kit_close(&a.m[r]);
    }
}
