/* sharding_gradients_test.c - strategy.sharding of stages 2 and 3: a rank has
 * memory for its part of the gradients and for two buckets, of stage 3 for its
 * part of the weights and for two units of them, and all end with the bits of
 * ranks that have all of it. */
#define SUITE sharding_gradients
#include "rank_kit.h"
#include "test.h"

#include <malloc.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/optim/rule.h"
#include "runtime/plan/lower.h"
#include "runtime/reduce/whole_weights.h"

/* --- memory, and parameters of several blocks ----------------------------- */

enum { LAYERS = 8, WIDE = 200, ROWS = 4, STEPS = 3, MOST = 400000 };

typedef struct tower {
    int stage, ranks; /* stage 0: nothing is shared out */
    float clip;
    const char *layers;            /* lars, lamb; NULL: neither */
    bool again;                    /* half of it is computed again */
    int64_t kept[FAKE_MOST_RANKS]; /* bytes that a plan has from iteration to
                                      iteration, gradients among them */
    int64_t arena[FAKE_MOST_RANKS];
    int64_t weights[FAKE_MOST_RANKS]; /* bytes of weights that a rank has */
    int64_t floats, part[FAKE_MOST_RANKS];
    float weight[FAKE_MOST_RANKS][MOST];
} tower;

static fleet_program *build(fleet *f, const kit_options *how, bool again)
{
    fleet_program *p = fleet_program_create(f);
    fleet_var *x = fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, WIDE}, 2);
    fleet_fc_options tanh = {.activation = FLEET_TANH};

    for (int i = 0; i < LAYERS; i++) {
        x = fleet_fc(p, x, WIDE, &tanh);
        if (again && i == LAYERS / 2)
            p->training.recompute.checkpoints = x->name;
    }
    p->training.recompute.on = again;
    CHECK_OK(fleet_minimize(kit_optimizer(f, how), fleet_mean(p, x)));
    p->training.all_reduce.bucket = WIDE * WIDE;
    p->training.all_reduce.last_bucket = 1;
    return p;
}

static void climb(fake_rank *r, void *arg)
{
    tower *t = arg;
    const kit_options how = {.clip = t->clip, .layers = t->layers};
    fleet *f = kit_handle(&how);
    fleet_program *p = build(f, &how, t->again);
    float in[ROWS * WIDE];
    const int64_t dims[] = {ROWS, WIDE};
    const fleet_feed feed = {"x", FLEET_FLOAT32, in, dims, 2, NULL};
    fleet_executor *e;
    fl_plan *plan;

    r->rounds.store = f->store;
    f->store->agree = &r->rounds;
    if (t->stage > 0)
        f->store->share = (fl_share){r->p.rank, r->p.size, t->stage};
    e = fleet_executor_create(p, NULL);
    CHECK(e != NULL);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < ROWS * WIDE; i++)
            in[i] = (float)((i * 7 + step * 13 + r->p.rank * 5) % 23) / 23.0f;
        CHECK_OK(fleet_executor_run(e, &feed, 1, NULL, 0));
    }
    t->weights[r->p.rank] =
        (int64_t)(malloc_usable_size(f->store->flats->weight) +
                  malloc_usable_size(f->store->flats->own));
    CHECK_OK(fl_plan_build(p, f->store, ROWS, true, NULL, NULL, &plan));
    t->kept[r->p.rank] = (int64_t)plan->persistent_bytes;
    t->arena[r->p.rank] = (int64_t)plan->arena_bytes;
    if (r->p.rank == 0) /* alike in all */
        t->floats = f->store->flats->n;
    t->part[r->p.rank] = f->store->flats->end - f->store->flats->first;
    CHECK(f->store->flats->n <= MOST);
    CHECK_OK(fl_whole_weights_locked(f->store));
    memcpy(t->weight[r->p.rank], f->store->flats->weight,
           (size_t)f->store->flats->n * sizeof(float));
    fl_plan_destroy(plan);
    fleet_executor_destroy(e);
    f->store->agree = NULL;
    r->rounds.store = NULL;
    fleet_destroy(f);
}

static void run_tower(tower *t)
{
    fake_group g;

    fake_group_open(&g, t->ranks);
    fake_group_run(&g, climb, t);
    fake_group_close(&g);
}

/* Of eight layers of 160 KB each a rank keeps a part, and two in buckets. */
TEST(a_rank_has_memory_for_its_part_of_the_gradients_and_two_buckets)
{
    const int64_t bucket = (WIDE * WIDE + WIDE + 100) * 4, slack = 1000;
    static tower states, part;

    for (int ranks = 2; ranks <= 4; ranks++) {
        states = (tower){.ranks = ranks, .stage = 1};
        part = (tower){.ranks = ranks, .stage = 2};
        run_tower(&states);
        run_tower(&part);
        for (int r = 0; r < ranks; r++) {
            CHECK(states.kept[r] - part.kept[r] >=
                  (part.floats - part.part[r]) * 4 - slack);
            CHECK(part.arena[r] <= states.arena[r] + 2 * bucket);
            CHECK(part.part[r] <= part.floats / ranks + FL_BLOCK);
        }
    }
}

/* Of 1.3 MB of weights, too: what it gathers is in the arena, and is given up
 * before the next but one is gathered. */
TEST(a_rank_has_memory_for_its_part_of_the_weights_and_two_units)
{
    const int64_t unit = (WIDE * WIDE + WIDE + 100) * 4, slack = 1000;
    static tower gradients, weights;

    for (int ranks = 2; ranks <= 4; ranks++) {
        gradients = (tower){.ranks = ranks, .stage = 2};
        weights = (tower){.ranks = ranks, .stage = 3};
        run_tower(&gradients);
        run_tower(&weights);
        for (int r = 0; r < ranks; r++) {
            CHECK(gradients.weights[r] >= gradients.floats * 4);
            CHECK(weights.weights[r] <= weights.part[r] * 4 + slack);
            CHECK(weights.part[r] <= weights.floats / ranks + FL_BLOCK);
            CHECK(weights.arena[r] <= gradients.arena[r] + 2 * unit);
            CHECK(weights.kept[r] <= gradients.kept[r] + slack);
        }
    }
}

/* A part begins inside a parameter: its norm, and with lars and lamb its rate,
 * are of blocks of two ranks. */
static void check_tower(const tower *like)
{
    static tower whole, part;
    const int ranks = like->ranks;

    whole = *like;
    run_tower(&whole);
    for (int stage = 2; stage <= 3; stage++) {
        part = whole;
        part.stage = stage;
        memset(part.weight, 0, sizeof part.weight);
        run_tower(&part);
        for (int r = 0; r < ranks; r++)
            CHECK(memcmp(part.weight[r], whole.weight[0],
                         (size_t)whole.floats * sizeof(float)) == 0);
    }
}

TEST(parameters_of_several_blocks_have_their_bits)
{
    static tower like;

    for (int ranks = 2; ranks <= 4; ranks++) {
        like = (tower){.ranks = ranks};
        check_tower(&like);
        like.clip = 0.01f;
        check_tower(&like);
    }
    like = (tower){.ranks = 3, .layers = "lars"};
    check_tower(&like);
    like.layers = "lamb";
    check_tower(&like);
    like = (tower){.ranks = 3, .again = true};
    check_tower(&like);
}

/* --- bits, of small parameters -------------------------------------------- */

static void check_equal(const rank_lesson *like, int ranks)
{
    static rank_lesson whole, part;

    whole = *like;
    rank_train(&whole, ranks);
    for (int stage = 2; stage <= 3; stage++) {
        part = *like;
        part.also.sharded = true;
        part.also.sharding_stage = stage;
        rank_train(&part, ranks);
        CHECK(memcmp(part.weight[0], whole.weight[0], sizeof *part.weight) ==
              0);
        CHECK_INT(part.updates[0], whole.updates[0]);
    }
}

TEST(ranks_end_with_the_bits_of_ranks_that_have_all_gradients)
{
    static rank_lesson s;

    for (int i = 0; i < FL_N_RULE; i++)
        for (int ranks = 1; ranks <= 4; ranks++) {
            s = (rank_lesson){
                .how = {.optimizer = fl_rule_of((fl_rule_kind)i)->name,
                        .l2_decay = 0.01f},
                .also.all_reduce.bucket = i % 2 ? 300 : 0,
                .batches = 12,
                .last = 50,
                .passes = 1};
            check_equal(&s, ranks);
        }
}

/* The rank that has no batch for the last update takes part in it. */
TEST(so_they_do_clipped_and_with_unequal_ends)
{
    static rank_lesson s;

    for (int batches = 1; batches <= 11; batches++) {
        s = (rank_lesson){.how = {.clip = batches % 2 ? 0.05f : 0,
                                  .norm_clip = batches % 2 ? 0 : 0.05f},
                          .also.all_reduce.bucket = batches % 3 ? 700 : 200,
                          .batches = batches,
                          .last = 17,
                          .passes = 2};
        check_equal(&s, 2 + batches % 2);
    }
}

TEST(so_they_do_with_rates_of_their_own)
{
    static const char *const layers[] = {"lars", "lamb"};
    static rank_lesson s;

    for (int i = 0; i < 2; i++)
        for (int ranks = 2; ranks <= 4; ranks++) {
            s = (rank_lesson){
                .how = {.layers = layers[i], .clip = 0.5f, .l2_decay = 0.01f},
                .also.all_reduce.bucket = 400,
                .batches = 11,
                .last = 31,
                .passes = 1};
            check_equal(&s, ranks);
        }
}

/* --- what goes wrong ------------------------------------------------------ */

/* Whichever call of rank 1 fails, nobody waits for ever, and rank 0 hears. */
TEST(a_rank_that_fails_ends_the_others)
{
    static rank_lesson s;

    for (int i = 2; i <= 25; i++) { /* calls 1 to 12 of both stages */
        fake_group g;

        s = (rank_lesson){.also = {.sharded = true,
                                   .sharding_stage = 2 + i % 2,
                                   .all_reduce.bucket = 700},
                          .batches = 4,
                          .last = 50,
                          .passes = 1};
        fake_group_open(&g, 2);
        g.fail_at = i / 2;
        fake_group_run(&g, rank_learn, &s);
        fake_group_close(&g);
        CHECK_INT(s.status[1], FLEET_EIO);
        CHECK_INT(s.status[0], FLEET_EPEER);
        CHECK_CONTAINS(s.error[0], "rank 1 cannot go on");
    }
}

/* A model of rank 0 of two, of which plans can be made. */
static void open_rank(kit_model *m, fake_group *g, const kit_options *how,
                      int stage)
{
    kit_build(m, KIT_MLP, how);
    fake_group_open(g, 2);
    m->f->store->agree = &g->rank[0].rounds;
    m->f->store->share = (fl_share){0, 2, stage};
    CHECK_OK(fl_store_train(m->f->store, m->o));
    CHECK_OK(fl_store_add(m->f->store, m->p));
}

static void close_rank(kit_model *m, fake_group *g)
{
    m->f->store->agree = NULL;
    fake_group_close(g);
    kit_close(m);
}

/* A strategy does not choose it; a program could. */
TEST(merged_batches_are_refused_where_a_plan_is_made)
{
    kit_model m;
    fake_group g;
    fl_plan *plan;

    open_rank(&m, &g, &(kit_options){.merge = 3}, 2);
    CHECK_FAILS(fl_plan_build(m.p, m.f->store, 8, true, NULL, NULL, &plan),
                FLEET_EUNSUPPORTED,
                "strategy.sharding_configs.stage 2: the sums of 3 merged");
    close_rank(&m, &g);
}

static void check_no_memory(int stage)
{
    fleet_status status = FLEET_ENOMEM;
    kit_model m;
    fake_group g;
    fl_plan *plan;
    int64_t n = 0;

    open_rank(&m, &g, &(kit_options){.clip = 0.1f}, stage);
    m.p->training.all_reduce.bucket = 300;
    while (status != FLEET_OK) {
        fl_memory_fail_at(++n, false);
        status = fl_plan_build(m.p, m.f->store, 8, true, NULL, NULL, &plan);
        fl_memory_fail_at(0, false);
        CHECK(status == FLEET_OK || status == FLEET_ENOMEM);
    }
    CHECK(n > 20);
    fl_plan_destroy(plan);
    close_rank(&m, &g);
}

TEST(an_allocation_that_fails_leaves_no_plan)
{
    check_no_memory(2);
    check_no_memory(3);
}
