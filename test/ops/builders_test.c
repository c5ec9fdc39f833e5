/* builders_test.c - what builders refuse, and that the first refusal stays;
 * initializers. */
#define SUITE builders
#include "op_kit.h"
#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "fleet/job/handle.h"
#include "runtime/graph/program.h"

/* --- every builder ------------------------------------------------------- */

static fleet_var *matrix(fleet_program *p)
{
    return fleet_parameter(p, (int64_t[]){4, 3}, 2,
                           &(fleet_param_attr){.name = "matrix"});
}

/* A layer on x, which has to be [B, 4] or, for the others, [B, 1], or ids. */
typedef struct builder {
    const char *name;
    fleet_var *(*build)(fleet_program *p, fleet_var **in); /* x alone */
    int64_t dim;
    bool of_ids;
} builder;

#define BUILDER(id, expression)                                                \
    static fleet_var *build_##id(fleet_program *p, fleet_var **in)             \
    {                                                                          \
        fleet_var *x = *in;                                                    \
                                                                               \
        (void)x;                                                               \
        return expression;                                                     \
    }

BUILDER(fc, fleet_fc(p, x, 3, NULL))
BUILDER(embedding, fleet_embedding(p, x, 10, 3, NULL))
BUILDER(sparse, fleet_sparse_embedding(p, x, 3, NULL))
BUILDER(matmul, fleet_matmul(p, x, matrix(p)))
BUILDER(add, fleet_add(p, x, kit_data(p, "o", 4)))
BUILDER(add_to, fleet_add(p, kit_data(p, "o", 4), x))
BUILDER(sub, fleet_sub(p, x, kit_data(p, "o", 4)))
BUILDER(sub_from, fleet_sub(p, kit_data(p, "o", 4), x))
BUILDER(mul, fleet_mul(p, x, kit_data(p, "o", 4)))
BUILDER(mul_by, fleet_mul(p, kit_data(p, "o", 4), x))
BUILDER(div, fleet_div(p, x, kit_data(p, "o", 4)))
BUILDER(max_of, fleet_max(p, kit_data(p, "o", 4), x))
BUILDER(prelu, fleet_prelu(p, x, FLEET_PRELU_CHANNEL, NULL))
BUILDER(exp, fleet_exp(p, x))
BUILDER(clip, fleet_clip(p, x, -1, 1))
BUILDER(scale, fleet_scale(p, x, 2, 1))
BUILDER(square, fleet_square(p, x))
BUILDER(relu, fleet_relu(p, x))
BUILDER(tanh, fleet_tanh(p, x))
BUILDER(sigmoid, fleet_sigmoid(p, x))
BUILDER(softmax, fleet_softmax(p, x))
BUILDER(concat, fleet_concat(p, (fleet_var *[]){x, kit_data(p, "o", 1)}, 2, 1))
BUILDER(concat_to,
        fleet_concat(p, (fleet_var *[]){kit_data(p, "o", 1), x}, 2, 1))
BUILDER(reshape, fleet_reshape(p, x, (int64_t[]){-1, 2, 2}, 3))
BUILDER(reduce_sum, fleet_reduce_sum(p, x, 1, 0))
BUILDER(mean, fleet_mean(p, x))
BUILDER(ce, fleet_cross_entropy(p, x, kit_data_ids(p, "l", 1)))
BUILDER(ce_label, fleet_cross_entropy(p, kit_data(p, "o", 4), x))
BUILDER(sce,
        fleet_softmax_with_cross_entropy(p, x, kit_data_ids(p, "l", 1), NULL))
BUILDER(sce_label,
        fleet_softmax_with_cross_entropy(p, kit_data(p, "o", 4), x, NULL))
BUILDER(sigmoid_ce, fleet_sigmoid_cross_entropy(p, x, kit_data_ids(p, "l", 1)))
BUILDER(sigmoid_label, fleet_sigmoid_cross_entropy(p, kit_data(p, "o", 1), x))
BUILDER(log_loss, fleet_log_loss(p, x, kit_data_ids(p, "l", 1), 0))
BUILDER(log_loss_label, fleet_log_loss(p, kit_data(p, "o", 1), x, 0))
BUILDER(accuracy, fleet_accuracy(p, x, kit_data_ids(p, "l", 1)))
BUILDER(accuracy_label, fleet_accuracy(p, kit_data(p, "o", 4), x))
BUILDER(auc, fleet_auc(p, x, kit_data_ids(p, "l", 1), 0))
BUILDER(auc_label, fleet_auc(p, kit_data(p, "o", 1), x, 0))

#define ROW(id, dim, of_ids)                                                   \
    {                                                                          \
#id, build_##id, dim, of_ids                                           \
    }

static const builder builders[] = {
    ROW(fc, 4, false),         ROW(embedding, 4, true),
    ROW(sparse, 4, true),      ROW(matmul, 4, false),
    ROW(add, 4, false),        ROW(add_to, 4, false),
    ROW(sub, 4, false),        ROW(sub_from, 4, false),
    ROW(mul, 4, false),        ROW(mul_by, 4, false),
    ROW(div, 4, false),        ROW(max_of, 4, false),
    ROW(prelu, 4, false),      ROW(exp, 4, false),
    ROW(clip, 4, false),       ROW(scale, 4, false),
    ROW(square, 4, false),     ROW(relu, 4, false),
    ROW(tanh, 4, false),       ROW(sigmoid, 4, false),
    ROW(softmax, 4, false),    ROW(concat, 4, false),
    ROW(concat_to, 4, false),  ROW(reshape, 4, false),
    ROW(reduce_sum, 4, false), ROW(mean, 4, false),
    ROW(ce, 4, false),         ROW(ce_label, 1, true),
    ROW(sce, 4, false),        ROW(sce_label, 1, true),
    ROW(sigmoid_ce, 1, false), ROW(sigmoid_label, 1, true),
    ROW(log_loss, 1, false),   ROW(log_loss_label, 1, true),
    ROW(accuracy, 4, false),   ROW(accuracy_label, 1, true),
    ROW(auc, 1, false),        ROW(auc_label, 1, true),
};

enum { N_BUILDER = sizeof builders / sizeof *builders };

typedef struct scene {
    fleet *f;
    fleet_program *p;
} scene;

static scene open_scene(void)
{
    scene s = {.f = kit_handle(&(kit_options){0})};

    s.p = fleet_program_create(s.f);
    return s;
}

static fleet_var *good_input(fleet_program *p, const builder *b)
{
    return b->of_ids ? kit_data_ids(p, "x", b->dim) : kit_data(p, "x", b->dim);
}

/* The builder must refuse x, with that status and those words. */
static void check_refused(fleet_program *p, const builder *b, fleet_var *x,
                          fleet_status want, const char *words)
{
    fleet_var *got = b->build(p, &x);

    if (got || fleet_last_status() != want ||
        !strstr(fleet_last_error(), words))
        test_fail(__FILE__, __LINE__, "%s gave %s, %s (%s), not %s (%s)",
                  b->name, got ? "a variable" : "NULL",
                  fleet_status_name(fleet_last_status()), fleet_last_error(),
                  fleet_status_name(want), words);
}

TEST(every_builder_takes_a_good_input)
{
    for (int i = 0; i < N_BUILDER; i++) {
        scene s = open_scene();
        fleet_var *x = good_input(s.p, &builders[i]);

        if (!builders[i].build(s.p, &x))
            test_fail(__FILE__, __LINE__, "%s: %s", builders[i].name,
                      fleet_last_error());
        CHECK_OK(fleet_program_status(s.p));
        fleet_destroy(s.f);
    }
}

TEST(every_builder_refuses_null)
{
    for (int i = 0; i < N_BUILDER; i++) {
        scene s = open_scene();

        check_refused(s.p, &builders[i], NULL, FLEET_EINVAL,
                      "a layer was given NULL as its input");
        CHECK(builders[i].build(NULL, &(fleet_var *){NULL}) == NULL);
        fleet_destroy(s.f);
    }
}

TEST(every_builder_refuses_a_variable_of_another_program)
{
    for (int i = 0; i < N_BUILDER; i++) {
        scene s = open_scene(), other = open_scene();

        check_refused(s.p, &builders[i], good_input(other.p, &builders[i]),
                      FLEET_EINVAL, "is a variable of another program");
        fleet_destroy(s.f);
        fleet_destroy(other.f);
    }
}

TEST(every_builder_refuses_the_other_element_type)
{
    for (int i = 0; i < N_BUILDER; i++) {
        builder other = builders[i];
        scene s = open_scene();
        fleet_var *x;

        other.of_ids = !other.of_ids;
        x = good_input(s.p, &other);
        if (strcmp(other.name, "sigmoid_label") == 0 ||
            strcmp(other.name, "log_loss_label") == 0 ||
            strcmp(other.name, "auc_label") == 0)
            CHECK(other.build(s.p, &x) != NULL);
        else if (strcmp(other.name, "accuracy_label") != 0)
            check_refused(s.p, &builders[i], x, FLEET_EDTYPE, "\"x\"");
        fleet_destroy(s.f);
    }
}

TEST(only_sparse_embeddings_take_ragged_ids)
{
    for (int i = 0; i < N_BUILDER; i++) {
        scene s = open_scene();
        fleet_var *x = fleet_data_ragged(s.p, "x");

        if (strcmp(builders[i].name, "sparse") == 0)
            CHECK(builders[i].build(s.p, &x) != NULL);
        else
            check_refused(s.p, &builders[i], x, FLEET_EDTYPE, "ragged int64");
        fleet_destroy(s.f);
    }
}

TEST(no_label_is_ragged)
{
    scene s = open_scene();

    CHECK(fleet_log_loss(s.p, kit_data(s.p, "x", 1),
                         fleet_data_ragged(s.p, "l"), 0) == NULL);
    CHECK_FAILS(fleet_program_status(s.p), FLEET_EDTYPE,
                "label \"l\" is ragged int64, not int64 or float32");
    fleet_destroy(s.f);
}

TEST(no_builder_adds_to_a_program_that_has_run)
{
    for (int i = 0; i < N_BUILDER; i++) {
        scene s = open_scene();
        fleet_var *x = good_input(s.p, &builders[i]);

        CHECK(fleet_fc(s.p, kit_data(s.p, "y", 2), 1, NULL) != NULL);
        fleet_executor_destroy(fleet_executor_create(s.p, NULL));
        check_refused(s.p, &builders[i], x, FLEET_ESTATE,
                      "the program has run: \"");
        CHECK_OK(fleet_program_status(s.p)); /* which is none the worse */
        fleet_destroy(s.f);
    }
}

TEST(the_first_failure_stays)
{
    scene s = open_scene();
    fleet_var *x = kit_data(s.p, "x", 4);

    CHECK(fleet_fc(s.p, x, 0, NULL) == NULL);
    CHECK_FAILS(fleet_program_status(s.p), FLEET_ESHAPE,
                "fc: cannot have 0 units");
    for (int i = 0; i < N_BUILDER; i++)
        CHECK(builders[i].build(s.p, &x) == NULL);
    CHECK(kit_data_ids(s.p, "new", 1) == NULL &&
          fleet_data_ragged(s.p, "r") == NULL);
    CHECK_FAILS(fleet_program_status(s.p), FLEET_ESHAPE,
                "fc: cannot have 0 units");
    CHECK(fleet_executor_create(s.p, NULL) == NULL);
    CHECK_CONTAINS(fleet_last_error(), "fc: cannot have 0 units");
    fleet_destroy(s.f);
}

/* --- arguments that cannot be -------------------------------------------- */

#define PARAM(...)                                                             \
    fleet_parameter(p, (int64_t[]){3}, 1, &(fleet_param_attr){__VA_ARGS__})
#define FC(...) fleet_fc(p, x, 3, &(fleet_fc_options){__VA_ARGS__})
#define SPARSE(...)                                                            \
    fleet_sparse_embedding(p, kit_data_ids(p, "i", 1), 3,                      \
                           &(fleet_sparse_embedding_options){__VA_ARGS__})
#define DATA(dtype, n, ...)                                                    \
    fleet_data(p, "d", dtype, (int64_t[]){__VA_ARGS__}, n)

BUILDER(fc_activation, FC(.activation = (fleet_activation)9))
BUILDER(fc_scalar, fleet_fc(p, fleet_mean(p, x), 3, NULL))
BUILDER(matmul_shape, fleet_matmul(p, kit_data(p, "y", 5), matrix(p)))
BUILDER(matmul_batch, fleet_matmul(p, x, x))
BUILDER(add_shape, fleet_add(p, x, kit_data(p, "y", 3)))
BUILDER(concat_axis, fleet_concat(p, (fleet_var *[]){x, x}, 2, 0))
BUILDER(concat_axis_2, fleet_concat(p, (fleet_var *[]){x, x}, 2, 2))
BUILDER(concat_none, fleet_concat(p, (fleet_var *[]){x}, 0, 1))
BUILDER(concat_null, fleet_concat(p, NULL, 2, 1))
BUILDER(concat_rank,
        fleet_concat(p,
                     (fleet_var *[]){
                         x, fleet_reshape(p, x, (int64_t[]){-1, 2, 2}, 3)},
                     2, 1))
BUILDER(reshape_count, fleet_reshape(p, x, (int64_t[]){-1, 5}, 2))
BUILDER(reshape_batch, fleet_reshape(p, x, (int64_t[]){4}, 1))
BUILDER(reshape_two, fleet_reshape(p, x, (int64_t[]){-1, -1}, 2))
BUILDER(reshape_null, fleet_reshape(p, x, NULL, 2))
BUILDER(sum_axis, fleet_reduce_sum(p, x, 0, 0))
BUILDER(sum_axis_2, fleet_reduce_sum(p, x, 2, 0))
BUILDER(scale_nan, fleet_scale(p, x, NAN, 0))
BUILDER(ce_one,
        fleet_cross_entropy(p, kit_data(p, "y", 1), kit_data_ids(p, "l", 1)))
BUILDER(ce_wide, fleet_cross_entropy(p, x, kit_data_ids(p, "l", 2)))
BUILDER(log_wide, fleet_log_loss(p, x, kit_data_ids(p, "l", 1), 0))
BUILDER(auc_wide, fleet_auc(p, kit_data(p, "y", 3), kit_data_ids(p, "l", 1), 0))
BUILDER(auc_folded, fleet_auc(p, fleet_reshape(p, x, (int64_t[]){-2, 2}, 2),
                              kit_data_ids(p, "l", 1), 0))
BUILDER(accuracy_folded,
        fleet_accuracy(p, fleet_reshape(p, x, (int64_t[]){-2, 2}, 2),
                       kit_data_ids(p, "l", 1)))
BUILDER(auc_buckets,
        fleet_auc(p, kit_data(p, "y", 1), kit_data_ids(p, "l", 1), 1))
BUILDER(emb_rows, fleet_embedding(p, kit_data_ids(p, "i", 1), 0, 3, NULL))
BUILDER(emb_dim, fleet_embedding(p, kit_data_ids(p, "i", 1), 3, 0, NULL))
BUILDER(sparse_dim, fleet_sparse_embedding(p, kit_data_ids(p, "i", 1), 0, NULL))
BUILDER(sparse_rows, SPARSE(.rows = -1))
BUILDER(sparse_mean, SPARSE(.combiner = FLEET_MEAN))
BUILDER(sparse_combiner, SPARSE(.combiner = (fleet_combiner)9))
BUILDER(sparse_made, fleet_sparse_embedding(p, x, 3, NULL))
BUILDER(param_name, PARAM(.name = NULL))
BUILDER(param_empty, PARAM(.name = ""))
BUILDER(param_batch, fleet_parameter(p, (int64_t[]){-1, 2}, 2,
                                     &(fleet_param_attr){.name = "w"}))
BUILDER(data_type, DATA(FLEET_INT32, 1, -1))
BUILDER(data_rank, DATA(FLEET_FLOAT32, 0, -1))
BUILDER(data_rank_9, DATA(FLEET_FLOAT32, 9, -1, 1, 1, 1, 1, 1, 1, 1, 1))
BUILDER(data_zero, DATA(FLEET_FLOAT32, 2, -1, 0))
BUILDER(data_inner, DATA(FLEET_FLOAT32, 2, 4, -1))
BUILDER(emb_padding, fleet_embedding(p, kit_data_ids(p, "i", 1), 3, 2,
                                     &(fleet_embedding_options){
                                         .has_padding = 1, .padding_id = 3}))
BUILDER(emb_padding_low,
        fleet_embedding(p, kit_data_ids(p, "i", 1), 3, 2,
                        &(fleet_embedding_options){.has_padding = 1,
                                                   .padding_id = -1}))
BUILDER(sparse_most, SPARSE(.rows = (INT64_C(1) << 53) + 1))
BUILDER(log_nan,
        fleet_log_loss(p, kit_data(p, "y", 1), kit_data_ids(p, "l", 1), NAN))
BUILDER(log_negative,
        fleet_log_loss(p, kit_data(p, "y", 1), kit_data_ids(p, "l", 1), -1e-4f))
BUILDER(data_most, DATA(FLEET_FLOAT32, 2, -1, (INT64_C(1) << 53) + 1))
BUILDER(data_huge, DATA(FLEET_FLOAT32, 3, -1, INT64_C(1) << 40, 1 << 30))
BUILDER(data_name, fleet_data(p, NULL, FLEET_FLOAT32, (int64_t[]){-1}, 1))
BUILDER(data_twice, kit_data_ids(p, "x", 4))
BUILDER(fc_twice, (FC(.name = "f"), FC(.name = "f")))

static const op_refusal refusals[] = {
    {build_fc_activation, FLEET_EINVAL, "activation 9 does not exist"},
    {build_fc_scalar, FLEET_ESHAPE, "expected [-1,K]"},
    {build_matmul_shape, FLEET_ESHAPE,
     "matmul: cannot multiply \"y\" [-1,5] by \"matrix\" [4,3]"},
    {build_matmul_batch, FLEET_ESHAPE, "a matrix without a batch"},
    {build_add_shape, FLEET_ESHAPE, "\"x\" [-1,4] and \"y\" [-1,3] do not fit"},
    {build_concat_axis, FLEET_EINVAL, "concat: axis 0 of shape [-1,4]"},
    {build_concat_axis_2, FLEET_EINVAL, "concat: axis 2"},
    {build_concat_none, FLEET_EINVAL, "NULL as its input"},
    {build_concat_null, FLEET_EINVAL, "NULL as its input"},
    {build_concat_rank, FLEET_ESHAPE, "[-1,2,2]; expected [-1,4]"},
    {build_reshape_count, FLEET_ESHAPE, "\"x\" [-1,4] cannot become [-1,5]"},
    {build_reshape_batch, FLEET_ESHAPE, "cannot become [4]"},
    {build_reshape_two, FLEET_ESHAPE, "dimension 1 of [-1,-1]"},
    {build_reshape_null, FLEET_ESHAPE, "1 to 8 dimensions"},
    {build_sum_axis, FLEET_EINVAL, "reduce_sum: axis 0 of shape [-1,4]"},
    {build_sum_axis_2, FLEET_EINVAL, "expected 1 to 1"},
    {build_scale_nan, FLEET_EINVAL, "scale: nan and 0 must be finite"},
    {build_ce_one, FLEET_ESHAPE, "at least 2 classes"},
    {build_ce_wide, FLEET_ESHAPE, "\"l\" has shape [-1,2]; expected [-1,1]"},
    {build_log_wide, FLEET_ESHAPE, "\"x\" has shape [-1,4]; expected [-1,1]"},
    {build_auc_wide, FLEET_ESHAPE, "expected [-1,1] or [-1,2]"},
    {build_auc_folded, FLEET_ESHAPE, "expected as many rows as the input"},
    {build_accuracy_folded, FLEET_ESHAPE, "expected as many rows as"},
    {build_auc_buckets, FLEET_EINVAL, "auc: 1 buckets"},
    {build_emb_rows, FLEET_ESHAPE, "cannot have 0 rows of 3"},
    {build_emb_dim, FLEET_ESHAPE, "cannot have 3 rows of 0"},
    {build_sparse_dim, FLEET_ESHAPE, "cannot have rows of 0"},
    {build_sparse_rows, FLEET_ESHAPE, "cannot have -1 rows"},
    {build_sparse_combiner, FLEET_EINVAL, "combiner 9 does not exist"},
    {build_sparse_mean, FLEET_EINVAL, "a mean, an sqrt or a max is for ragged"},
    {build_sparse_made, FLEET_EDTYPE, "ids \"x\" are float32, not int64"},
    {build_param_name, FLEET_EINVAL, "a name is required"},
    {build_param_empty, FLEET_EINVAL, "needs a name"},
    {build_param_batch, FLEET_ESHAPE, "\"w\": it cannot have a batch"},
    {build_data_type, FLEET_EDTYPE, "data \"d\": int32; expected float32"},
    {build_data_rank, FLEET_ESHAPE, "d: expected 1 to 8 dimensions, got 0"},
    {build_data_rank_9, FLEET_ESHAPE, "d: expected 1 to 8 dimensions, got 9"},
    {build_data_zero, FLEET_ESHAPE, "d: dimension 1 of [-1,0]"},
    {build_data_inner, FLEET_ESHAPE,
     "d: dimension 1 of [4,-1] is -1: only dimension 0, the "
     "batch, may be"},
    {build_emb_padding, FLEET_EINVAL, "padding_id 3 is not in [0, 3)"},
    {build_emb_padding_low, FLEET_EINVAL, "padding_id -1 is not in [0, 3)"},
    {build_sparse_most, FLEET_ESHAPE, "cannot have 9007199254740993 rows"},
    {build_log_nan, FLEET_EINVAL, "epsilon nan"},
    {build_log_negative, FLEET_EINVAL, "epsilon -0.0001"},
    {build_data_most, FLEET_ESHAPE, "d: dimension 1"},
    {build_data_huge, FLEET_ESHAPE, "d: dimension 2"},
    {build_data_name, FLEET_EINVAL, "needs a name"},
    {build_data_twice, FLEET_EEXIST, "the name \"x\" is taken"},
    {build_fc_twice, FLEET_EEXIST, "the name \"f.w\" is taken"},
};

TEST(impossible_arguments_are_refused_by_name)
{
    check_refusals(refusals, sizeof refusals / sizeof *refusals, NULL);
}

/* --- attributes that cannot be ------------------------------------------- */

static const fleet_initializer no_kind = {(fleet_initializer_kind)99, 0, 0};
static const fleet_initializer backwards = {FLEET_INIT_UNIFORM, 1, -1};
static const fleet_initializer negative = {FLEET_INIT_NORMAL, 0, -1};
static const fleet_initializer not_finite = {FLEET_INIT_CONSTANT, INFINITY, 0};

BUILDER(init_param, PARAM(.name = "w", .initializer = no_kind))
BUILDER(init_weight, FC(.name = "f", .weight.initializer = backwards))
BUILDER(init_bias, FC(.name = "f", .bias.initializer = negative))
BUILDER(init_table,
        fleet_embedding(p, kit_data_ids(p, "i", 1), 3, 2,
                        &(fleet_embedding_options){
                            .name = "e", .table.initializer = not_finite}))
BUILDER(init_sparse, SPARSE(.initializer = negative))
BUILDER(rate_param, PARAM(.name = "w", .learning_rate = -1))
BUILDER(rate_nan, FC(.name = "f", .weight.learning_rate = NAN))
BUILDER(decay_param, PARAM(.name = "w", .l2_decay = -0.5f))
BUILDER(rate_sparse, SPARSE(.table = "t", .learning_rate = -1))
BUILDER(decay_sparse, SPARSE(.table = "t", .l2_decay = INFINITY))

TEST(impossible_attributes_are_refused_by_name)
{
    static const op_refusal attributes[] = {
        {build_init_param, FLEET_EINVAL, "w: initializer 99"},
        {build_init_weight, FLEET_EINVAL, "f.w: initializer 2 with a = 1"},
        {build_init_bias, FLEET_EINVAL, "f.b: initializer 3"},
        {build_init_table, FLEET_EINVAL, "e.w: initializer 1 with a = inf"},
        {build_init_sparse, FLEET_EINVAL, "initializer 3"},
        {build_rate_param, FLEET_EINVAL, "w: learning_rate -1"},
        {build_rate_nan, FLEET_EINVAL, "f.w: learning_rate nan"},
        {build_decay_param, FLEET_EINVAL, "w: l2_decay -0.5"},
        {build_rate_sparse, FLEET_EINVAL, "t: learning_rate -1"},
        {build_decay_sparse, FLEET_EINVAL, "t: l2_decay inf"},
    };

    check_refusals(attributes, sizeof attributes / sizeof *attributes, NULL);
}

/* --- memory -------------------------------------------------------------- */

/* Build every kind of layer while the n-th allocation fails. */
static bool builds_without_memory(int64_t n)
{
    scene s = open_scene();
    fleet_status status;

    fl_memory_fail_at(n, false);
    for (int i = 0; i < N_BUILDER; i++) {
        char name[40];

        snprintf(name, sizeof name, "x%d", i);
        fleet_var *x = builders[i].of_ids
                           ? kit_data_ids(s.p, name, builders[i].dim)
                           : kit_data(s.p, name, builders[i].dim);
        if (strcmp(builders[i].name, "fc") == 0 ||
            strcmp(builders[i].name, "embedding") == 0 ||
            strcmp(builders[i].name, "sparse") == 0 ||
            strcmp(builders[i].name, "reshape") == 0)
            builders[i].build(s.p, &x);
    }
    fleet_auc(s.p, kit_data(s.p, "p", 1), kit_data_ids(s.p, "y", 1), 0);
    fl_memory_fail_at(0, false);
    status = fleet_program_status(s.p);
    CHECK(status == FLEET_OK || status == FLEET_ENOMEM);
    fleet_destroy(s.f);
    return status == FLEET_OK;
}

TEST(building_survives_every_allocation_that_fails)
{
    int64_t n = 1;

    while (!builds_without_memory(n))
        n++;
    CHECK(n > 50);
}
