/* agree_test.c - ranks that update have set their optimizers alike, or all of
 * them fail with what differs. */
#define SUITE agree
#include "rank_kit.h"
#include "test.h"

#include <string.h>

#include "runtime/plan/agree.h"

static int rank_of(const kit_model *m)
{
    return m->f->store->agree->comm->rank;
}

static void decay_everywhere(kit_model *m)
{
    CHECK_OK(fleet_optimizer_set_l2_decay(m->o, 0.1f));
}

static void rate_everywhere(kit_model *m)
{
    CHECK_OK(fleet_optimizer_set_learning_rate(m->o, 0.01f));
}

static void decay_in_rank_2(kit_model *m)
{
    CHECK_OK(fleet_optimizer_set_l2_decay(m->o, rank_of(m) == 2 ? 0.1f : 0));
}

/* The learning rate is the same for the next 1,000 updates. */
static void pieces_in_rank_0(kit_model *m)
{
    if (rank_of(m) == 0)
        CHECK_OK(fleet_optimizer_set_piecewise_decay(
            m->o, (int64_t[]){1000}, (float[]){0.05f, 0.01f}, 1));
}

/* The same two rates, from another update on. */
static void pieces_of_another_length(kit_model *m)
{
    CHECK_OK(fleet_optimizer_set_piecewise_decay(
        m->o, (int64_t[]){1000 + rank_of(m)}, (float[]){0.05f, 0.01f}, 1));
}

static void fall_in_rank_1(kit_model *m)
{
    if (rank_of(m) == 1)
        CHECK_OK(fleet_optimizer_set_exponential_decay(m->o, 0.9f, 100, 0));
}

static void clip_differently(kit_model *m)
{
    CHECK_OK(fleet_optimizer_set_global_norm_clip(
        m->o, 0.5f * (float)(rank_of(m) + 1)));
}

static void rates_differ(kit_model *m)
{
    CHECK_OK(fleet_optimizer_set_learning_rate(m->o, rank_of(m) == 1 ? 0.25f
                                                                     : 0.125f));
}

static void warm_up_in_rank_1(kit_model *m)
{
    if (rank_of(m) == 1)
        CHECK_OK(fleet_optimizer_set_schedule(
            m->o, &(fleet_schedule){.warmup_steps = 9, .warmup_start = 1}));
}

static const rank_lesson lesson = {
    .how.optimizer = "sgd", .batches = 7, .passes = 2, .last = 20};

TEST(ranks_that_set_their_optimizers_alike_train)
{
    rank_lesson s = lesson, plain = lesson;

    rank_train(&plain, 3);
    s.prepare = decay_everywhere;
    rank_train(&s, 3);
    CHECK(memcmp(s.weight[0], plain.weight[0], sizeof s.weight[0]) != 0);
    s = lesson;
    s.prepare = rate_everywhere;
    rank_train(&s, 3);
    CHECK(memcmp(s.weight[0], plain.weight[0], sizeof s.weight[0]) != 0);
}

static void check_difference(void (*prepare)(kit_model *m), int ranks,
                             const char *words)
{
    rank_lesson s = lesson, none = lesson;

    s.prepare = prepare;
    none.passes = 0;
    rank_try(&s, ranks);
    rank_try(&none, ranks);
    for (int i = 0; i < ranks; i++) {
        CHECK_INT(s.status[i], FLEET_EINVAL);
        CHECK_CONTAINS(s.error[i], words);
        CHECK_INT(s.updates[i], 0);
        CHECK(memcmp(s.weight[i], none.weight[i], sizeof s.weight[i]) == 0);
    }
}

TEST(a_setter_that_was_called_in_one_rank_fails_the_next_update_of_all)
{
    check_difference(decay_in_rank_2, 3,
                     "ranks do not train alike: optimizer: l2_decay is 0 in "
                     "rank 0, 0.1 in rank 2: all of them must set their "
                     "optimizer to the same");
    check_difference(fall_in_rank_1, 2,
                     "optimizer: schedule is none in rank 0, exponential "
                     "rate 0.9 steps 100 in rank 1");
    check_difference(rates_differ, 2,
                     "optimizer: learning_rate is 0.125 in rank 0, 0.25 in "
                     "rank 1");
    check_difference(clip_differently, 4,
                     "optimizer: global_norm_clip is 0.5 in rank 0, 1 in rank "
                     "1");
}

TEST(a_schedule_that_differs_is_found_before_it_matters)
{
    check_difference(pieces_in_rank_0, 2,
                     "optimizer: schedule is piecewise 0.05 below 1000 then "
                     "0.01 in rank 0, none in rank 1");
    check_difference(warm_up_in_rank_1, 2,
                     "optimizer: schedule is none in rank 0, constant "
                     "warmup_steps 9 warmup_start 1 in rank 1");
    check_difference(pieces_of_another_length, 2,
                     "optimizer: schedule is piecewise 0.05 below 1000 then "
                     "0.01 in rank 0, piecewise 0.05 below 1001 then 0.01 in "
                     "rank 1");
}

/* Ranks that update on their own compare when they average. */
TEST(ranks_of_localsgd_compare_at_their_average)
{
    rank_lesson s = lesson;

    s.also.localsgd.steps = 2;
    s.prepare = decay_in_rank_2;
    rank_try(&s, 3);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(s.status[i], FLEET_EINVAL);
        CHECK_CONTAINS(s.error[i], "l2_decay is 0 in rank 0, 0.1 in rank 2");
    }
}

/* --- they stop together --------------------------------------------------- */

static void update_once(fake_rank *r, void *arg)
{
    const int *who = arg;
    fl_agreed agreed;

    r->rounds.wants_stop = r->p.rank == *who;
    CHECK_OK(fl_agree_on(&r->rounds, FL_INTENT_UPDATE, 1, &agreed));
    CHECK_INT(agreed.stops, *who < r->p.size);
}

TEST(ranks_stop_together_whichever_of_them_wants_to)
{
    for (int who = 0; who < 4; who++) { /* the last one: nobody */
        fake_group g;

        fake_group_open(&g, 3);
        fake_group_run(&g, update_once, &who);
        fake_group_close(&g);
    }
}
