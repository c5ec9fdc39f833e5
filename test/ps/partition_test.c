/* partition_test.c - what servers keep: every block is in the unit of one lane,
 * however many servers and lanes there are. */
#define SUITE partition
#include "sim_job.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "ps/aggregate/aggregate_internal.h"
#include "runtime/plan/job_signature.h"
#include "runtime/store/table.h"

/* With rates by layer a lane has all blocks of a parameter, or none. */
static void check_whole(const fl_aggregate *u, const fl_partition *keep)
{
    for (int p = 0; p < keep->n_param; p++) {
        int n = u->first_block[p + 1] - u->first_block[p];

        CHECK(n == 0 || n == fl_blocks_of(keep->param[p]));
    }
}

/* A lane's unit lists its blocks; together they are all there are. */
static void check_blocks(fl_layer_rule rule)
{
    fl_store *store = sim_store(sim_model_of(SIM_BLOCKS), fl_table_make);
    fl_partition keep;

    store->layerwise.rule = rule;
    CHECK_OK(fl_partition_make(&keep, store, 3));
    for (int n_lane = 1; n_lane <= 4; n_lane++) {
        int seen[8][2] = {{0}};
        fl_bucket_map map;

        fl_bucket_map_begin(&map, 3, (int[]){n_lane, n_lane, n_lane});
        for (int i = 0; i < 3 * n_lane; i++) {
            fl_aggregate u;

            CHECK_OK(fl_aggregate_init(
                &u, &keep, fl_bucket_map_own(&map, i / n_lane, i % n_lane)));
            for (int b = 0; b < u.n_block; b++)
                seen[u.block[b].number][u.block[b].block]++;
            if (rule != FL_NO_LAYERS)
                check_whole(&u, &keep);
            fl_aggregate_done(&u);
        }
        for (int p = 0; p < keep.n_param; p++)
            for (int64_t b = 0; b < 2; b++)
                CHECK_INT(seen[p][b], b < fl_blocks_of(keep.param[p]));
    }
    fl_partition_done(&keep);
    fl_store_destroy(store);
    sim_models_close();
}

TEST(every_block_is_in_the_unit_of_one_lane)
{
    check_blocks(FL_NO_LAYERS);
}

TEST(with_rates_by_layer_a_lane_has_whole_parameters)
{
    check_blocks(FL_LARS);
    check_blocks(FL_LAMB);
}

/* Floats of the blocks that the store has of it; they are the whole store's. */
static int64_t check_param(const fl_param *p, const fl_store *whole)
{
    const fl_param *q = fl_store_param(whole, p->name);
    int64_t n = 0;

    for (int64_t b = 0; b < fl_blocks_of(p); b++) {
        int64_t at = fl_block_offset(p, b);

        if (at < 0)
            continue;
        CHECK(memcmp(p->flat->weight + at,
                     q->flat->weight + fl_block_offset(q, b),
                     (size_t)fl_block_size(p, b) * sizeof(float)) == 0);
        n += fl_block_size(p, b);
    }
    return n;
}

static int64_t floats_of(const fl_store *s)
{
    int64_t n = 0;

    for (size_t i = 0; i < s->params.n; i++)
        n += ((const fl_param *)s->params.entry[i].value)->n;
    return n;
}

/* A lane has room for its own blocks: all lanes together for all of them, each
 * once, but for paddings. The first values are those of a whole store. */
static void check_room(const fl_bucket_map *map, int n_lane,
                       const fl_store *whole)
{
    int64_t n = 0, kept = 0;

    for (int i = 0; i < n_lane; i++) {
        fl_bucket_set own = fl_bucket_map_own(map, 0, i);
        fl_store *store =
            sim_store_of(sim_model_of(SIM_BLOCKS), fl_table_make,
                         (fl_block_filter){fl_lane_keeps_block, &own}, false);

        for (const fl_flat *g = store->flats; g; g = g->next)
            n += g->n;
        for (size_t p = 0; p < store->params.n; p++)
            kept += check_param(store->params.entry[p].value, whole);
        fl_store_destroy(store);
    }
    CHECK_INT(kept, floats_of(whole));
    CHECK(n >= kept && n < kept + 16 * (int64_t)whole->params.n * n_lane);
}

TEST(lanes_have_room_for_their_own_blocks_alone)
{
    fl_store *whole = sim_store(sim_model_of(SIM_BLOCKS), fl_table_make);
    fl_bucket_map map;

    for (int n_lane = 1; n_lane <= FL_MOST_LANE; n_lane += 5) {
        fl_bucket_map_begin(&map, 1, &n_lane);
        check_room(&map, n_lane, whole);
    }
    fl_store_destroy(whole);
    sim_models_close();
}

TEST(numbers_go_by_name)
{
    fl_store *store = sim_store(sim_model_of(SIM_SGD), fl_table_make);
    fl_partition keep;

    CHECK_OK(fl_partition_make(&keep, store, 1));
    for (int i = 1; i < keep.n_param; i++)
        CHECK(strcmp(keep.param[i - 1]->name, keep.param[i]->name) < 0);
    CHECK_INT(fl_partition_table(&keep, "first"), 0);
    CHECK_INT(fl_partition_table(&keep, "second"), 1);
    CHECK_INT(fl_partition_table(&keep, "third"), -1);
    CHECK_INT(fl_partition_param(&keep, "no such"), -1);
    fl_partition_done(&keep);
    fl_store_destroy(store);
    sim_models_close();
}

TEST(the_last_block_is_short_and_the_one_after_it_is_none)
{
    const fl_param p = {.name = "p", .n = 2 * FL_BLOCK + 5};

    CHECK_INT(fl_blocks_of(&p), 3);
    CHECK_INT(fl_block_size(&p, 0), FL_BLOCK);
    CHECK_INT(fl_block_size(&p, 2), 5);
    CHECK_INT(fl_block_size(&p, 3), 0);
    CHECK_INT(fl_block_size(&p, -1), 0);
}

static void check_difference(const char *ours, const char *theirs,
                             const char *want)
{
    char *text =
        fl_job_signature_difference("the server", ours, "the worker", theirs);

    CHECK((text != NULL) == (want != NULL));
    if (want)
        CHECK_TEXT(text, want);
    fl_free(text);
}

TEST(programs_that_differ_are_told_by_the_first_field_with_both_values)
{
    static const char two[] = "a \"x\": k 1, m 2 3\nb: k 1\n";

    check_difference(two, two, NULL);
    check_difference("", "", NULL);
    check_difference(two, "a \"x\": k 1, m 4\nb: k 1\n",
                     "a \"x\": m is 2 3 in the server, 4 in the worker");
    check_difference(two, "a \"x\": k 1, m 2 3\nb: k 12\n",
                     "b: k is 1 in the server, 12 in the worker");
    check_difference(two, "a \"x\": k 1\nb: k 1\n",
                     "a \"x\": m is 2 3 in the server, none in the worker");
    check_difference("b: k 1\n", "b: k 1, m 2\n",
                     "b: m is 2 in the worker, none in the server");
}

TEST(what_one_program_alone_has_is_told)
{
    check_difference("a: k 1\nb: k 1\n", "b: k 1\n",
                     "the server has a, the worker has not");
    check_difference("b: k 1\n", "a: k 1\nb: k 1\n",
                     "the worker has a, the server has not");
    check_difference("a: k 1\n", "a: k 1\nb: k 1\n",
                     "the worker has b, the server has not");
    check_difference("a: k 1\n", "", "the server has a, the worker has not");
    check_difference("a: k 1\nb: k 1\n", "b: k 1\na: k 1\n",
                     "a has another place");
    check_difference("a\n", "b\n", "the server has a, the worker has not");
}
