/* gpu_streams_test.c - in whatever order a GPU does what is queued on its
 * streams, and its blocks and threads come, a training has the same bits. */
#define SUITE gpu_streams
#include "gpu_kit.h"
#include "test.h"

#include <stdlib.h>

#include "cuda-emu/control.h"

/* Seeds of each model; make test-long sets FLEET_EMU_SEEDS. */
enum { SEEDS = 5 };

static int seeds(void)
{
    const char *n = getenv("FLEET_EMU_SEEDS");

    return n ? atoi(n) : SEEDS;
}

/* Graphs, steps one by one, a larger batch that moves memory, a prediction
 * between them. */
static uint64_t hash_of(kit_kind kind, kit_options o)
{
    kit_model m = gpu_kit_model(kind, o);
    kit_batch *b = kit_batch_for(&m, 40, 77);
    uint64_t hash;
    float loss;

    gpu_kit_train(&m, 7);
    CHECK_OK(kit_fetch(m.e, b, m.m.loss, &loss, 1));
    gpu_kit_train(&m, 2);
    hash = kit_hash(m.f);
    kit_batch_free(b);
    kit_close(&m);
    return hash;
}

static void check_orders(kit_kind kind, kit_options o)
{
    const gpu_kit_asks *ask;
    uint64_t want;

    gpu_kit_open();
    ask = gpu_kit_control();
    ask->set_seed(0);
    ask->set_late(false);
    want = hash_of(kind, o);
    ask->set_late(true);
    CHECK(hash_of(kind, o) == want);
    for (int i = 1; i <= seeds(); i++) {
        ask->set_seed((unsigned long long)i);
        if (hash_of(kind, o) != want)
            test_fail(__FILE__, __LINE__, "seed %d: other bits", i);
    }
    ask->set_seed(0);
    gpu_kit_close();
}

TEST(layers_have_the_same_bits_in_any_order)
{
    check_orders(KIT_MLP, (kit_options){.clip = 0.1f});
}

TEST(tables_have_the_same_bits_in_any_order)
{
    check_orders(KIT_CTR, (kit_options){.merge = 2});
}

TEST(rows_of_the_host_have_the_same_bits_in_any_order)
{
    check_orders(KIT_CTR, (kit_options){.guard = "cpu", .optimizer = "sgd"});
}

TEST(half_floats_have_the_same_bits_in_any_order)
{
    const fleet_amp_configs c = {.init_loss_scaling = 0x1p30f,
                                 .incr_every_n_steps = 5,
                                 .decr_every_n_nan_or_inf = 1,
                                 .incr_ratio = 2,
                                 .decr_ratio = 0.25f,
                                 .use_dynamic_loss_scaling = 1};

    check_orders(KIT_MLP, (kit_options){.fp16 = true, .scaling = &c});
}
