/* gpu_sharded_weights_test.c - ranks on GPUs that share out the weights: set
 * and read by hand, evaluated, saved, and loaded by one process. */
#define SUITE gpu_sharded_weights
#include "gpu_rank_kit.h"
#include "test.h"

#include <string.h>

#include "fleet/job/handle.h"

static void shards_weights(fleet_distributed_strategy *s)
{
    s->sharding = 1;
    s->sharding_configs.stage = 3;
    s->fuse_all_reduce_ops = 0;
    s->deterministic = 1;
}

static void in_order(fleet_distributed_strategy *s)
{
    s->deterministic = 1;
}

enum { BIASES = 33 };

/* Of the first rank, between two passes. */
static struct {
    float bias[BIASES], loss;
    uint64_t hash;
} seen[2];

static float evaluated(kit_model *m)
{
    kit_batch *b = kit_batch_for(m, 50, 9);
    fleet_executor *tester = fleet_executor_create(
        m->p, &(fleet_executor_options){.for_test = 1, .max_batch = 50});
    float loss = 0;

    CHECK(tester != NULL);
    CHECK_OK(kit_fetch(tester, b, m->m.loss, &loss, 1));
    fleet_executor_destroy(tester);
    kit_batch_free(b);
    return loss;
}

/* All ranks set a bias; the first one looks, the others wait. */
static fleet_status set_and_look(kit_model *m, gpu_rank_lesson *s, int rank)
{
    const int which = s->how.choose == shards_weights;
    float bias[BIASES];

    for (int i = 0; i < BIASES; i++)
        bias[i] = (float)i / 33.0f;
    FL_TRY(gpu_rank_train(m, s, rank));
    FL_TRY(fleet_parameter_set(m->f, "tower_0.b", bias, BIASES));
    FL_TRY(gpu_rank_train(m, s, rank));
    if (rank == 0) {
        FL_TRY(
            fleet_parameter_get(m->f, "tower_0.b", seen[which].bias, BIASES));
        seen[which].loss = evaluated(m);
        FL_TRY(fleet_params_hash(m->f, &seen[which].hash));
        FL_TRY(
            fleet_save_persistables(m->f, test_path(which ? "part" : "whole")));
    }
    FL_TRY(fleet_barrier_worker(m->f));
    return gpu_rank_train(m, s, rank);
}

static uint64_t hash_of_save(const char *name)
{
    uint64_t hash;
    kit_model m;

    kit_build(&m, KIT_MLP, &(kit_options){0});
    CHECK_OK(fleet_load_model(m.f, test_path(name)));
    hash = kit_hash(m.f);
    kit_close(&m);
    return hash;
}

static void check_bits(kit_kind kind, bool fp16)
{
    gpu_rank_lesson whole = {.kind = kind,
                             .how = {.choose = in_order, .fp16 = fp16},
                             .ranks = 2,
                             .batches = 7,
                             .last = 31,
                             .passes = 2};
    gpu_rank_lesson part = whole;

    part.how.choose = shards_weights;
    gpu_rank_open(2);
    gpu_rank_run(&whole);
    gpu_rank_run(&part);
    CHECK(part.hash == whole.hash);
    CHECK_INT(part.updates[1], whole.updates[0]);
    gpu_rank_close();
}

/* Rows of ranks are prefetched; the second rank ends first, and gives weights
 * to the first one. */
TEST_LIMIT(ranks_train_beside_tables_that_they_share_out, 100)
{
    check_bits(KIT_CTR, false);
}

TEST_LIMIT(ranks_train_in_float16, 100)
{
    check_bits(KIT_MLP, true);
}

TEST_LIMIT(weights_are_set_read_evaluated_and_saved, 100)
{
    gpu_rank_lesson whole = {.how = {.choose = in_order},
                             .ranks = 2,
                             .batches = 5,
                             .last = 31,
                             .work = set_and_look};
    gpu_rank_lesson part = whole;

    part.how.choose = shards_weights;
    gpu_rank_open(2);
    gpu_rank_run(&whole);
    gpu_rank_run(&part);
    CHECK(memcmp(&seen[1], &seen[0], sizeof seen[0]) == 0);
    CHECK(memcmp(part.weight[1], whole.weight[0], sizeof *part.weight) == 0);
    CHECK(hash_of_save("part") == seen[1].hash);
    CHECK(hash_of_save("whole") == seen[1].hash);
    gpu_rank_close();
}
