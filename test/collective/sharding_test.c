/* sharding_test.c - strategy.sharding: each rank has the states of its part and
 * no others, and all end with the bits of ranks that have all of them. */
#define SUITE sharding
#include "rank_kit.h"
#include "test.h"

#include <malloc.h>
#include <string.h>

#include "runtime/optim/rule.h"

/* --- parts --------------------------------------------------------------- */

/* A handle whose one group has these parameters, without a program. */
typedef struct layout {
    fl_store store;
    fl_flat group;
    fl_param param[6];
} layout;

static void lay_out(layout *k, const int64_t *n, int count, int ranks)
{
    static const char *const name[] = {"a", "b", "c", "d", "e", "f"};

    memset(k, 0, sizeof *k);
    k->store.share.ranks = ranks;
    for (int i = 0; i < count; i++) {
        k->param[i] = (fl_param){.name = name[i],
                                 .flat = &k->group,
                                 .offset = k->group.n,
                                 .n = n[i]};
        k->group.n += (n[i] + 15) / 16 * 16;
        CHECK_OK(fl_map_put(&k->store.params, name[i], &k->param[i]));
    }
}

static bool is_block(const layout *k, int64_t at)
{
    for (int i = 0; i < 6; i++)
        if (at >= k->param[i].offset && at < k->param[i].offset + k->param[i].n)
            return (at - k->param[i].offset) % FL_BLOCK == 0;
    return false;
}

static void check_parts(const int64_t *n, int count, int ranks)
{
    layout k;

    lay_out(&k, n, count, ranks);
    CHECK_INT(fl_share_first(&k.store, &k.group, 0), 0);
    CHECK_INT(fl_share_first(&k.store, &k.group, ranks), k.group.n);
    for (int r = 0; r < ranks; r++) {
        int64_t first = fl_share_first(&k.store, &k.group, r);
        int64_t end = fl_share_first(&k.store, &k.group, r + 1);

        CHECK(first <= end);
        CHECK(first == k.group.n || is_block(&k, first));
    }
    fl_map_done(&k.store.params);
}

TEST(parts_follow_each_other_and_begin_at_blocks)
{
    static const int64_t small[] = {3}, mixed[] = {5, 100000, 16, 16384, 1, 40};

    for (int ranks = 1; ranks <= 7; ranks++) {
        check_parts(small, 1, ranks);
        check_parts(mixed, 6, ranks);
        check_parts(mixed + 1, 3, ranks);
    }
}

TEST(parts_are_of_one_size_but_for_a_block)
{
    static const int64_t large[] = {1000, 3000000, 1000};
    layout k;

    lay_out(&k, large, 3, 3);
    for (int r = 0; r < 3; r++) {
        int64_t n = fl_share_first(&k.store, &k.group, r + 1) -
                    fl_share_first(&k.store, &k.group, r);

        CHECK(n > k.group.n / 3 - FL_BLOCK && n < k.group.n / 3 + FL_BLOCK);
    }
    fl_map_done(&k.store.params);
}

/* --- memory -------------------------------------------------------------- */

typedef struct wide {
    size_t bytes[FAKE_MOST_RANKS]; /* of both states of Adam */
    int64_t floats;
} wide;

/* What a rank of a model with a large layer has in memory. */
static void measure(fake_rank *r, void *arg)
{
    wide *w = arg;
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    fleet_var *x = fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, 300}, 2);
    fleet_executor *e;
    fl_flat *g;

    CHECK_OK(fleet_minimize(kit_optimizer(f, &(kit_options){0}),
                            fleet_mean(p, fleet_fc(p, x, 1000, NULL))));
    f->store->agree = &r->rounds;
    f->store->share = (fl_share){r->p.rank, r->p.size, 1};
    e = fleet_executor_create(p, NULL);
    CHECK(e != NULL);
    g = f->store->flats;
    if (r->p.rank == 0)
        w->floats = g->n;
    for (int i = 0; i < 2; i++)
        w->bytes[r->p.rank] += malloc_usable_size(g->state[i]);
    fleet_executor_destroy(e);
    f->store->agree = NULL;
    fleet_destroy(f);
}

TEST(a_rank_has_memory_for_its_part_of_the_states_alone)
{
    const size_t slack = 2 * (FL_BLOCK + 2048) * sizeof(float);

    for (int ranks = 1; ranks <= 4; ranks++) {
        fake_group g;
        wide w = {0};

        fake_group_open(&g, ranks);
        fake_group_run(&g, measure, &w);
        fake_group_close(&g);
        for (int r = 0; r < ranks; r++)
            CHECK(w.bytes[r] <=
                  2 * sizeof(float) * (size_t)w.floats / (size_t)ranks + slack);
    }
}

/* --- bits ---------------------------------------------------------------- */

static void check_equal(rank_lesson *s, int ranks)
{
    rank_lesson whole = *s;

    s->also.sharded = true;
    whole.also.sharded = false;
    rank_train(s, ranks);
    rank_train(&whole, ranks);
    CHECK(memcmp(s->weight[0], whole.weight[0], sizeof s->weight[0]) == 0);
    CHECK_INT(s->updates[0], whole.updates[0]);
}

TEST(ranks_end_with_the_bits_of_ranks_that_have_all_states)
{
    for (int i = 0; i < FL_N_RULE; i++)
        for (int ranks = 1; ranks <= 4; ranks++) {
            rank_lesson s = {
                .how = {.optimizer = fl_rule_of((fl_rule_kind)i)->name,
                        .l2_decay = 0.01f},
                .batches = 12,
                .last = 50,
                .passes = 1};

            check_equal(&s, ranks);
        }
}

TEST(so_they_do_with_merging_clipping_and_unequal_ends)
{
    for (int batches = 1; batches <= 11; batches++) {
        rank_lesson s = {.how = {.merge = 2, .clip = 0.05f},
                         .also.all_reduce.bucket = 700,
                         .batches = batches,
                         .last = 17,
                         .passes = 2};

        check_equal(&s, 2 + batches % 2);
    }
}

TEST(so_they_do_with_rates_of_their_own)
{
    static const char *const layers[] = {"lars", "lamb"};

    for (int i = 0; i < 2; i++)
        for (int ranks = 2; ranks <= 4; ranks++) {
            rank_lesson s = {
                .how = {.layers = layers[i], .clip = 0.5f, .l2_decay = 0.01f},
                .batches = 11,
                .last = 31,
                .passes = 1};

            check_equal(&s, ranks);
        }
}

TEST(so_they_do_with_float16_and_with_the_largest_gradients_alone)
{
    for (int ranks = 2; ranks <= 3; ranks++) {
        rank_lesson half = {.how = {.optimizer = "adagrad"},
                            .also.all_reduce.fp16 = true,
                            .batches = 11,
                            .last = 31,
                            .passes = 1};
        rank_lesson dgc = {.how = {.optimizer = "momentum"},
                           .also.dgc = {true, 0.9f, 1, 2, 100},
                           .batches = 11,
                           .last = 31,
                           .passes = 1};

        check_equal(&half, ranks);
        check_equal(&dgc, ranks);
    }
}

/* A failure between two ranks' parts ends both. */
TEST(a_rank_that_fails_ends_the_others)
{
    rank_lesson s = {.also = {.sharded = true, .all_reduce.bucket = 5000},
                     .batches = 4,
                     .last = 50,
                     .passes = 1};
    fake_group g;

    fake_group_open(&g, 2);
    g.fail_at = 3; /* a round, a bucket, the weights */
    fake_group_run(&g, rank_learn, &s);
    fake_group_close(&g);
    CHECK_INT(s.status[1], FLEET_EIO);
    CHECK_INT(s.status[0], FLEET_EPEER);
    CHECK_CONTAINS(s.error[0], "rank 1 cannot go on");
}
