/* torch_test.c - the models of fleet/applications.h whose slots have no roles
 * against PyTorch; torch_kit.h says how. */
#define SUITE torch
#include "test.h"
#include "torch_kit.h"

enum { N_SLOT = 4 };

static const int64_t hidden[] = {32, 16};
static const fleet_dense_slot dense[] = {{.name = "left", .dim = 2},
                                         {.name = "right", .dim = 3}};
static const fleet_id_slot slots[N_SLOT] = {
    {.name = "one", .dim = 1},
    {.name = "three", .dim = 3},
    {.name = "some", .dim = -1},
    {.name = "mean", .dim = -1, .combiner = FLEET_MEAN},
};
static const fleet_mlp_options mlp = {
    .dim = 20, .classes = 5, .hidden = hidden, .n_hidden = 2};

/* Of images of two channels: 288 numbers. */
static const fleet_lenet_options lenet = {.channels = 2,
                                          .height = 12,
                                          .width = 12,
                                          .classes = 5,
                                          .hidden = hidden,
                                          .n_hidden = 2};

static const fleet_task_options tasks[] = {{.label = "label"},
                                           {.label = "second", .weight = 0.5f}};

/* --- a model ------------------------------------------------------------- */

/* A third of the second label is 1: of a half a bias has hardly a gradient. */
static void add_second(kit_batch *b)
{
    int64_t *label = kit_ids(b, "second", 1, 3, 8);

    for (int i = 0; i < TORCH_ROWS; i++)
        label[i] = label[i] == 0;
}

static kit_batch *ctr_batch(bool two_labels)
{
    kit_batch *b = kit_batch_new(TORCH_ROWS);

    kit_floats(b, "left", 2, 1);
    kit_floats(b, "right", 3, 2);
    kit_ids(b, "one", 1, 20, 3);
    kit_ids(b, "three", 3, 40, 4);
    kit_ragged(b, "some", 5, 30, 5);
    kit_ragged(b, "mean", 5, 30, 6);
    kit_ids(b, "label", 1, 2, 7);
    if (two_labels)
        add_second(b);
    return b;
}

static kit_batch *image_batch(int64_t dim)
{
    kit_batch *b = kit_batch_new(TORCH_ROWS);

    kit_floats(b, "image", dim, 1);
    kit_ids(b, "label", 1, 5, 2);
    return b;
}

typedef fleet_var *build_ctr(fleet_program *p, const fleet_ctr_options *o,
                             fleet_model *m);

/* The slots of all, with what the model has of its own. */
static void compare_ctr(const char *name, build_ctr *build, fleet_ctr_options o)
{
    kit_model m = torch_model();

    o.dense = dense;
    o.n_dense = 2;
    o.ids = slots;
    o.n_ids = N_SLOT;
    CHECK_OK((build(m.p, &o, &m.m), fleet_program_status(m.p)));
    torch_compare(name, &m, ctr_batch(o.n_tasks > 0), &o);
}

#define DEEP .embedding_dim = 8, .hidden = hidden, .n_hidden = 2
#define CTR(name, ...)                                                         \
    compare_ctr(#name, fleet_##name, (fleet_ctr_options){__VA_ARGS__})
#define UNITS(...)                                                             \
    (const int64_t[])                                                          \
    {                                                                          \
        __VA_ARGS__                                                            \
    }

TEST_LIMIT(models_of_one_label_agree_with_pytorch, 120)
{
    kit_model m = torch_model();

    CHECK(fleet_mlp(m.p, &mlp, &m.m) != NULL);
    torch_compare("mlp", &m, image_batch(20), NULL);
    m = torch_model();
    CHECK(fleet_lenet(m.p, &lenet, &m.m) != NULL);
    torch_compare("lenet", &m, image_batch(288), NULL);
    CTR(wide_deep, DEEP, .wide_ids = 1);
    CTR(ctr_dnn, DEEP);
    CTR(logistic_regression, .n_ids = 0);
    CTR(fm, .embedding_dim = 8);
    CTR(ffm, .embedding_dim = 4);
    CTR(nfm, DEEP);
    CTR(deepfm, DEEP);
    CTR(xdeepfm, DEEP, .cin = UNITS(7, 5), .n_cin = 2);
    CTR(dcn, DEEP, .cross_layers = 3);
    CTR(dcn_v2, DEEP);
    CTR(dcn_v2, DEEP, .low_rank = 6, .parallel = 1);
    CTR(dcn_v2, DEEP, .low_rank = 6, .experts = 3);
    CTR(dlrm, DEEP, .bottom = UNITS(12), .n_bottom = 1);
    CTR(dlrm, DEEP, .self_interaction = 1);
    CTR(autoint, DEEP, .attention = UNITS(12, 10), .n_attention = 2);
    /* one layer, without what it got, and no tower */
    CTR(autoint, .embedding_dim = 8, .hidden = hidden, .attention = UNITS(12),
        .n_attention = 1, .no_residual = 1);
    torch_ask();
}

#define TASKS .embedding_dim = 8, .tasks = tasks, .n_tasks = 2

TEST_LIMIT(models_of_several_labels_agree_with_pytorch, 120)
{
    CTR(share_bottom, TASKS, .bottom = hidden, .n_bottom = 2);
    CTR(mmoe, TASKS, .experts = 3, .expert_units = 12);
    CTR(ple, TASKS, .experts = 2, .shared_experts = 3, .expert_units = 12,
        .levels = 2);
    CTR(esmm, TASKS, .hidden = hidden, .n_hidden = 2);
    torch_ask();
}
