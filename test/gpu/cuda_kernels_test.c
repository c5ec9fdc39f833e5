/* cuda_kernels_test.c - every kernel of the CUDA plug-in computes what the
 * CPU's does: those of all operators' cases, and those of whole models that
 * merge, clip and update. */
#define SUITE cuda_kernels
#include "cuda-emu/control.h"
#include "device_kit.h"
#include "op_kit.h"
#include "test.h"

#include <stdlib.h>
#include "train_kit.h"

#include <string.h>

#include "runtime/optim/rule.h"

static void compare(void *kit, fleet_executor *e)
{
    device_kit_compare(kit, e);
}

static void compare_cases(device_kit *k, int64_t batch)
{
    for (int f = 0; op_families[f]; f++)
        for (const op_case *c = op_families[f]; c->op; c++)
            visit_case(c, batch, compare, k);
}

static void compare_all(int64_t batch, bool strict)
{
    device_kit k;

    device_kit_open(&k, strict);
    compare_cases(&k, batch);
    device_kit_close(&k);
}

TEST(agree_for_one_sample)
{
    compare_all(1, false);
}

TEST(agree_for_a_batch_that_fills_no_slice)
{
    compare_all(37, true);
}

TEST_LIMIT(agree_for_several_slices, 180)
{
    compare_all(150, false);
}

TEST(agree_when_threads_start_from_the_last)
{
    fl_emu_set_reverse(true);
    compare_all(37, false);
}

TEST(agree_when_threads_and_blocks_come_in_any_order)
{
    const char *n = getenv("FLEET_EMU_SEEDS");

    for (int i = 0; i < (n ? atoi(n) : 1); i++) {
        fl_emu_set_seed(1 + (unsigned long long)i);
        compare_all(37, false);
    }
}

TEST(agree_when_a_fused_relu_keeps_nan)
{
    fl_emu_set_relu_keeps_nan(true);
    compare_all(37, false);
}

/* Several batches, so that sums of a merge group are begun and continued. */
static void compare_model_on(device_kit *k, kit_kind kind, const kit_options *o)
{
    kit_model m;

    kit_open(&m, kind, o);
    for (int i = 0; i < 3; i++) {
        kit_batch *b = kit_batch_for(&m, 40, i);

        CHECK_OK(kit_run(m.e, b));
        device_kit_compare(k, m.e);
        kit_batch_free(b);
    }
    kit_close(&m);
}

static void compare_model(kit_kind kind, const kit_options *o)
{
    device_kit k;

    device_kit_open(&k, true);
    compare_model_on(&k, kind, o);
    device_kit_close(&k);
}

TEST(agree_in_models_with_each_optimizer)
{
    for (int i = 0; i < FL_N_RULE; i++) {
        compare_model(
            KIT_MLP,
            &(kit_options){.optimizer = fl_rule_of((fl_rule_kind)i)->name});
        compare_model(
            KIT_CTR,
            &(kit_options){.optimizer = fl_rule_of((fl_rule_kind)i)->name,
                           .l2_decay = 0.01f});
    }
}

TEST(agree_in_models_whose_slots_are_pooled)
{
    compare_model(KIT_POOLED, &(kit_options){0});
}

TEST(agree_in_models_that_merge_and_clip)
{
    compare_model(KIT_MLP, &(kit_options){.merge = 2, .clip = 0.01f});
    compare_model(KIT_CTR, &(kit_options){.merge = 2, .clip = 0.01f});
    compare_model(KIT_MLP, &(kit_options){.clip = 1e6f});
    compare_model(KIT_MLP, &(kit_options){.merge = 2, .norm_clip = 0.01f});
    compare_model(KIT_CTR, &(kit_options){.norm_clip = 0.01f});
    compare_model(KIT_CTR,
                  &(kit_options){.value_clip = 1e-3f, .l1_decay = 0.03125f});
}

static void compare_layers(void)
{
    static const char *const all[] = {"lars", "lamb"};

    for (int i = 0; i < 2; i++) {
        compare_model(KIT_MLP, &(kit_options){.layers = all[i]});
        compare_model(KIT_CTR, &(kit_options){.layers = all[i],
                                              .layer_decay = 0.1f,
                                              .l2_decay = 0.01f,
                                              .l1_decay = 0.01f,
                                              .merge = 2,
                                              .clip = 0.1f,
                                              .value_clip = 0.01f});
    }
}

TEST(agree_in_models_whose_layers_have_rates_of_their_own)
{
    compare_layers();
}

/* Their blocks have two sums, one after the other. */
TEST(agree_in_such_models_when_threads_go_on_from_the_last)
{
    fl_emu_set_reverse(true);
    compare_layers();
}

/* Parameters that have a rate and a decay of their own, or no decay. */
static fleet_var *own_numbers(fleet_program *p, fleet_var *x)
{
    x = fleet_fc(
        p, x, 9,
        &(fleet_fc_options){.weight = {.learning_rate = 0.5f, .l2_decay = 0.3f},
                            .bias = {.no_decay = 1}});
    return fleet_mean(p, fleet_square(p, fleet_fc(p, x, 40, NULL)));
}

static void compare_own_numbers(const kit_options *o)
{
    fleet *f = kit_handle(o);
    fleet_program *p = fleet_program_create(f);
    int64_t dims[] = {-1, 7};
    kit_batch *b = kit_batch_new(50);
    fleet_executor *e;
    device_kit k;

    kit_floats(b, "x", 7, 1);
    CHECK_OK(fleet_minimize(
        kit_optimizer(f, o),
        own_numbers(p, fleet_data(p, "x", FLEET_FLOAT32, dims, 2))));
    e = fleet_executor_create(p, NULL);
    CHECK_OK(kit_run(e, b));
    device_kit_open(&k, true);
    device_kit_compare(&k, e);
    device_kit_close(&k);
    fleet_executor_destroy(e);
    kit_batch_free(b);
    fleet_destroy(f);
}

TEST(agree_where_parameters_have_numbers_of_their_own)
{
    compare_own_numbers(&(kit_options){.l2_decay = 0.1f});
    compare_own_numbers(&(kit_options){.l2_decay = 0.1f, .layers = "lars"});
    compare_own_numbers(&(kit_options){.l2_decay = 0.1f, .layers = "lamb"});
}

TEST_LIMIT(agree_all_of_them, 180)
{
    device_kit k;

    device_kit_open(&k, false);
    compare_cases(&k, 600);
    compare_model_on(&k, KIT_CTR, &(kit_options){.merge = 2, .clip = 0.01f});
    compare_model_on(&k, KIT_CTR, &(kit_options){.norm_clip = 0.01f});
    compare_model_on(&k, KIT_POOLED, &(kit_options){0});
    compare_model_on(&k, KIT_SEQUENCE, &(kit_options){0});
    compare_model_on(&k, KIT_MLP, &(kit_options){.layers = "lars"});
    compare_model_on(&k, KIT_MLP, &(kit_options){.layers = "lamb"});
    device_kit_check_all(&k);
    device_kit_close(&k);
}

TEST(the_list_of_kernels_without_a_cuda_half_only_shrinks)
{
    device_kit k;

    device_kit_open(&k, false);
    for (int i = 0; device_kit_without[i]; i++)
        if (k.d->methods->kernel(k.d, device_kit_without[i], FLEET_FLOAT32))
            test_fail(__FILE__, __LINE__,
                      "%s has a CUDA half: take it off the list",
                      device_kit_without[i]);
    device_kit_close(&k);
}
