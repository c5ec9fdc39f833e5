/* ops_test.c - every operator: its cases for the kit, and that none is without
 * one. */
#define SUITE ops
#include "op_cases.h"
#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/ops.h"
#include "runtime/simd/simd.h"

/* --- references ---------------------------------------------------------- */

static double activate(double x, int kind)
{
    switch (kind) {
    case FLEET_RELU:
        return x > 0 ? x : 0;
    case FLEET_TANH:
        return tanh(x);
    case FLEET_SIGMOID:
        return 1 / (1 + exp(-x));
    case FLEET_LEAKY_RELU:
        return x > 0 ? x : 0.02 * x;
    default:
        return x;
    }
}

static void fc(const ref_tensor *const *in, ref_tensor *out, int activation)
{
    int64_t k = cols_of(in[0]), n = in[1]->dim[1];

    for (int64_t r = 0; r < rows_of(in[0]); r++)
        for (int64_t j = 0; j < n; j++) {
            double sum = in[2] ? in[2]->data[j] : 0;

            for (int64_t i = 0; i < k; i++)
                sum += in[0]->data[r * k + i] * in[1]->data[i * n + j];
            out->data[r * n + j] = activate(sum, activation);
        }
}

static void ref_matmul(const ref_tensor *const *in, ref_tensor *out)
{
    fc((const ref_tensor *const[]){in[0], in[1], NULL}, out, FLEET_LINEAR);
}

#define REF_FC(name, activation)                                               \
    static void ref_fc_##name(const ref_tensor *const *in, ref_tensor *out)    \
    {                                                                          \
        fc(in, out, activation);                                               \
    }

REF_FC(linear, FLEET_LINEAR)
REF_FC(relu, FLEET_RELU)
REF_FC(tanh, FLEET_TANH)
REF_FC(sigmoid, FLEET_SIGMOID)
REF_FC(leaky_relu, FLEET_LEAKY_RELU)

REF_BINARY(add, a + b)
REF_BINARY(sub, a - b)
REF_BINARY(mul, a *b)

REF_UNARY(scale, -1.5 * x + 0.25)
REF_UNARY(square, x *x)
REF_UNARY(relu, activate(x, FLEET_RELU))
REF_UNARY(tanh, activate(x, FLEET_TANH))
REF_UNARY(sigmoid, activate(x, FLEET_SIGMOID))
REF_UNARY(leaky_relu, x > 0 ? x : 0.3 * x)
REF_UNARY(same, x)

static void ref_concat(const ref_tensor *const *in, ref_tensor *out)
{
    int64_t at = 0, whole = cols_of(out);

    for (int i = 0; i < 3; i++) {
        int64_t n = cols_of(in[i]);

        for (int64_t r = 0; r < rows_of(out); r++)
            for (int64_t j = 0; j < n; j++)
                out->data[r * whole + at + j] = in[i]->data[r * n + j];
        at += n;
    }
}

/* [B, 2, 3] and [B, 2, 1] along axis 2 */
static void ref_concat_inner(const ref_tensor *const *in, ref_tensor *out)
{
    for (int64_t r = 0; r < rows_of(out); r++)
        for (int64_t i = 0; i < 2; i++) {
            for (int64_t j = 0; j < 3; j++)
                out->data[(r * 2 + i) * 4 + j] =
                    in[0]->data[(r * 2 + i) * 3 + j];
            out->data[(r * 2 + i) * 4 + 3] = in[1]->data[r * 2 + i];
        }
}

/* [B, 4, 5] over axis 1; over axis 2 */
static void ref_sum_1(const ref_tensor *const *in, ref_tensor *out)
{
    for (int64_t r = 0; r < rows_of(in[0]); r++)
        for (int64_t i = 0; i < 4; i++)
            for (int64_t j = 0; j < 5; j++)
                out->data[r * 5 + j] += in[0]->data[(r * 4 + i) * 5 + j];
}

static void ref_sum_2(const ref_tensor *const *in, ref_tensor *out)
{
    for (int64_t r = 0; r < rows_of(in[0]) * 4; r++)
        for (int64_t j = 0; j < 5; j++)
            out->data[r] += in[0]->data[r * 5 + j];
}

static void ref_mean(const ref_tensor *const *in, ref_tensor *out)
{
    for (int64_t i = 0; i < in[0]->count; i++)
        out->data[0] += in[0]->data[i] / (double)in[0]->count;
}

static void ref_softmax(const ref_tensor *const *in, ref_tensor *out)
{
    int64_t n = in[0]->dim[in[0]->n_dim - 1];

    for (int64_t r = 0; r < in[0]->count / n; r++) {
        double sum = 0;

        for (int64_t j = 0; j < n; j++)
            sum += exp(in[0]->data[r * n + j]);
        for (int64_t j = 0; j < n; j++)
            out->data[r * n + j] = exp(in[0]->data[r * n + j]) / sum;
    }
}

static void ref_cross_entropy(const ref_tensor *const *in, ref_tensor *out)
{
    for (int64_t r = 0; r < rows_of(out); r++)
        out->data[r] =
            -log(in[0]->data[r * cols_of(in[0]) + (int64_t)in[1]->data[r]]);
}

static void ref_softmax_ce(const ref_tensor *const *in, ref_tensor *out)
{
    int64_t n = cols_of(in[0]);

    for (int64_t r = 0; r < rows_of(out); r++) {
        const double *x = in[0]->data + r * n;
        double sum = 0;

        for (int64_t j = 0; j < n; j++)
            sum += exp(x[j]);
        out->data[r] = log(sum) - x[(int64_t)in[1]->data[r]];
    }
}

static void ref_sigmoid_ce(const ref_tensor *const *in, ref_tensor *out)
{
    for (int64_t r = 0; r < out->count; r++) {
        double x = in[0]->data[r], t = in[1]->data[r];

        out->data[r] = fmax(x, 0) - x * t + log1p(exp(-fabs(x)));
    }
}

static void ref_log_loss(const ref_tensor *const *in, ref_tensor *out)
{
    const double e = (double)1e-4f;

    for (int64_t r = 0; r < out->count; r++) {
        double p = in[0]->data[r], t = in[1]->data[r];

        out->data[r] = -t * log(p + e) - (1 - t) * log(1 - p + e);
    }
}

/* ids [B, 3], W [7, 5], row 2 is padding */
static void ref_embedding(const ref_tensor *const *in, ref_tensor *out)
{
    for (int64_t i = 0; i < in[1]->count; i++)
        for (int64_t j = 0; j < 5; j++) {
            int64_t id = (int64_t)in[1]->data[i];

            out->data[i * 5 + j] = id == 2 ? 0 : in[0]->data[id * 5 + j];
        }
}

static void ref_accuracy(const ref_tensor *const *in, ref_tensor *out)
{
    int64_t n = cols_of(in[0]), right = 0;

    for (int64_t r = 0; r < rows_of(in[0]); r++) {
        int64_t best = 0;

        for (int64_t j = 1; j < n; j++)
            if (in[0]->data[r * n + j] > in[0]->data[r * n + best])
                best = j;
        right += best == (int64_t)in[1]->data[r];
    }
    out->data[0] = (double)right / (double)rows_of(in[0]);
}

/* All pairs of a positive and a negative, in 4096 buckets. */
static void ref_auc(const ref_tensor *const *in, ref_tensor *out)
{
    double pairs = 0, won = 0;

    for (int64_t a = 0; a < in[0]->count; a++)
        for (int64_t b = 0; b < in[0]->count; b++)
            if (in[1]->data[a] > 0.5 && in[1]->data[b] < 0.5) {
                double pa = floor(in[0]->data[a] * 4096);
                double pb = floor(in[0]->data[b] * 4096);

                pairs += 1;
                won += pa > pb ? 1 : pa == pb ? 0.5 : 0;
            }
    out->data[0] = pairs > 0 ? won / pairs : 0.5;
}

/* --- builders ------------------------------------------------------------ */

static fleet_var *fc_of(fleet_program *p, fleet_var **in,
                        fleet_activation activation)
{
    int64_t dims[FLEET_MAX_DIM];

    fleet_var_shape(in[1], dims);
    return fleet_fc(p, in[0], dims[1],
                    &(fleet_fc_options){.activation = activation,
                                        .weight.name = fleet_var_name(in[1]),
                                        .bias.name = fleet_var_name(in[2])});
}

#define FC(name, activation)                                                   \
    static fleet_var *build_fc_##name(fleet_program *p, fleet_var **in)        \
    {                                                                          \
        return fc_of(p, in, activation);                                       \
    }

FC(linear, FLEET_LINEAR)
FC(relu, FLEET_RELU)
FC(tanh, FLEET_TANH)
FC(sigmoid, FLEET_SIGMOID)
FC(leaky_relu, FLEET_LEAKY_RELU)

BUILD(matmul, fleet_matmul(p, in[0], in[1]))
BUILD(add, fleet_add(p, in[0], in[1]))
BUILD(sub, fleet_sub(p, in[0], in[1]))
BUILD(mul, fleet_mul(p, in[0], in[1]))
BUILD(scale, fleet_scale(p, in[0], -1.5f, 0.25f))
BUILD(square, fleet_square(p, in[0]))
BUILD(relu, fleet_relu(p, in[0]))
BUILD(tanh, fleet_tanh(p, in[0]))
BUILD(sigmoid, fleet_sigmoid(p, in[0]))
BUILD(leaky_relu, fleet_leaky_relu(p, in[0], 0.3f))
BUILD(leaky_default, fleet_leaky_relu(p, fc_of(p, in, FLEET_LINEAR), 0))
BUILD(fused_relu, fleet_relu(p, fc_of(p, in, FLEET_LINEAR)))
BUILD(concat, fleet_concat(p, in, 3, 1))
BUILD(concat_inner, fleet_concat(p, in, 2, 2))
BUILD(reshape, fleet_reshape(p, in[0], (int64_t[]){-1, 2, 3}, 3))
BUILD(sum_1, fleet_reduce_sum(p, in[0], 1, 0))
BUILD(sum_2, fleet_reduce_sum(p, in[0], 2, 1))
BUILD(mean, fleet_mean(p, in[0]))
BUILD(softmax, fleet_softmax(p, in[0]))
BUILD(cross_entropy, fleet_cross_entropy(p, in[0], in[1]))
BUILD(softmax_ce, fleet_softmax_with_cross_entropy(p, in[0], in[1], NULL))
BUILD(sigmoid_ce, fleet_sigmoid_cross_entropy(p, in[0], in[1]))
BUILD(log_loss, fleet_log_loss(p, in[0], in[1], 0))
BUILD(embedding, fleet_embedding(p, in[1], 7, 5,
                                 &(fleet_embedding_options){
                                     .table.name = fleet_var_name(in[0]),
                                     .has_padding = 1,
                                     .padding_id = 2}))
BUILD(accuracy, fleet_accuracy(p, in[0], in[1]))
BUILD(auc, fleet_auc(p, in[0], in[1], 0))
/* one value read by three operators, one of them a view of it */
BUILD(shared, fleet_add(p, fleet_mul(p, in[0], in[0]),
                        fleet_reshape(p, fleet_scale(p, in[0], 2, 0),
                                      (int64_t[]){-1, 6}, 2)))
REF_UNARY(shared, x *x + 2 * x)
BUILD(of_param,
      fleet_add(p, in[0], fleet_reshape(p, in[1], (int64_t[]){6, 4}, 2)))

static void ref_of_param(const ref_tensor *const *in, ref_tensor *out)
{
    for (int64_t i = 0; i < out->count; i++)
        out->data[i] = in[0]->data[i] + in[1]->data[i % 24];
}

/* --- the cases ----------------------------------------------------------- */

const op_case op_cases[] = {
    {"fc", "linear, 40 to 24", IN(3, DATA2(40), PARAM2(40, 24), PARAM1(24)),
     build_fc_linear, ref_fc_linear, 0, false},
    {"fc", "relu, 17 to 33", IN(3, DATA2(17), PARAM2(17, 33), PARAM1(33)),
     build_fc_relu, ref_fc_relu, 0, false},
    {"fc", "tanh, few units", IN(3, DATA2(19), PARAM2(19, 2), PARAM1(2)),
     build_fc_tanh, ref_fc_tanh, 0, false},
    {"fc", "sigmoid, one unit", IN(3, DATA2(70), PARAM2(70, 1), PARAM1(1)),
     build_fc_sigmoid, ref_fc_sigmoid, 0, false},
    {"fc", "sigmoid by oneDNN", IN(3, DATA2(9), PARAM2(9, 12), PARAM1(12)),
     build_fc_sigmoid, ref_fc_sigmoid, 0, false},
    {"fc", "three dimensions in", IN(3, DATA3(3, 4), PARAM2(12, 9), PARAM1(9)),
     build_fc_linear, ref_fc_linear, 0, false},
    {"fc", "a relu after it is fused",
     IN(3, DATA2(11), PARAM2(11, 13), PARAM1(13)), build_fused_relu,
     ref_fc_relu, 0, false},
    {"matmul", "31 to 18", IN(2, DATA2(31), PARAM2(31, 18)), build_matmul,
     ref_matmul, 0, false},
    {"add", "equal shapes", IN(2, DATA2(21), DATA2(21)), build_add, ref_add, 0,
     false},
    {"add", "a vector to every row", IN(2, DATA3(4, 5), PARAM1(5)), build_add,
     ref_add, 0, false},
    {"sub", "a column", IN(2, DATA3(4, 5), DATA3(4, 1)), build_sub, ref_sub, 0,
     false},
    {"sub", "from a vector", IN(2, PARAM1(6), DATA2(6)), build_sub, ref_sub, 0,
     false},
    {"mul", "equal shapes", IN(2, DATA3(3, 7), DATA3(3, 7)), build_mul, ref_mul,
     0, false},
    {"mul", "both are broadcast", IN(2, DATA3(13, 1), PARAM2(13, 9)), build_mul,
     ref_mul, 0, false},
    {"mul", "a matrix times every row", IN(2, DATA3(4, 6), PARAM2(4, 6)),
     build_mul, ref_mul, 0, false},
    {"scale", "with a bias", IN(1, DATA2(19)), build_scale, ref_scale, 0,
     false},
    {"square", "", IN(1, DATA2(19)), build_square, ref_square, 0, false},
    {"relu", "", IN(1, DATA2(19)), build_relu, ref_relu, 0, false},
    {"tanh", "", IN(1, {{-1, 19}, 2, false, false, -5, 5}), build_tanh,
     ref_tanh, 0, false},
    {"sigmoid", "", IN(1, {{-1, 19}, 2, false, false, -9, 9}), build_sigmoid,
     ref_sigmoid, 0, false},
    {"leaky_relu", "alpha 0.3", IN(1, DATA2(19)), build_leaky_relu,
     ref_leaky_relu, 0, false},
    {"fc", "leaky_relu, few units", IN(3, DATA2(19), PARAM2(19, 3), PARAM1(3)),
     build_fc_leaky_relu, ref_fc_leaky_relu, 0, false},
    {"fc", "a leaky_relu after it is fused",
     IN(3, DATA2(17), PARAM2(17, 33), PARAM1(33)), build_leaky_default,
     ref_fc_leaky_relu, 0, false},
    {"concat", "three of different widths", IN(3, DATA2(5), DATA2(1), DATA2(8)),
     build_concat, ref_concat, 0, false},
    {"concat", "along the last of three", IN(2, DATA3(2, 3), DATA3(2, 1)),
     build_concat_inner, ref_concat_inner, 0, false},
    {"reshape", "", IN(1, DATA2(6)), build_reshape, ref_same, 0, false},
    {"reshape", "of a value that others read", IN(1, DATA2(6)), build_shared,
     ref_shared, 0, false},
    {"reshape", "of a parameter", IN(2, DATA3(6, 4), PARAM2(4, 6)),
     build_of_param, ref_of_param, 0, false},
    {"reduce_sum", "over the middle", IN(1, DATA3(4, 5)), build_sum_1,
     ref_sum_1, 0, false},
    {"reduce_sum", "over the last, kept", IN(1, DATA3(4, 5)), build_sum_2,
     ref_sum_2, 0, false},
    {"mean", "", IN(1, DATA2(7)), build_mean, ref_mean, 0, false},
    {"softmax", "ten classes", IN(1, {{-1, 10}, 2, false, false, -3, 3}),
     build_softmax, ref_softmax, 0, false},
    {"cross_entropy", "", IN(2, PROB(5), IDS(1, 5)), build_cross_entropy,
     ref_cross_entropy, 0, false},
    {"softmax_with_cross_entropy", "ten classes",
     IN(2, {{-1, 10}, 2, false, false, -3, 3}, IDS(1, 10)), build_softmax_ce,
     ref_softmax_ce, 0, false},
    {"sigmoid_cross_entropy", "",
     IN(2, {{-1, 1}, 2, false, false, -4, 4}, IDS(1, 2)), build_sigmoid_ce,
     ref_sigmoid_ce, 0, false},
    {"log_loss", "", IN(2, PROB(1), IDS(1, 2)), build_log_loss, ref_log_loss, 0,
     false},
    {"embedding", "with padding", IN(2, PARAM2(7, 5), IDS(3, 7)),
     build_embedding, ref_embedding, 0, false},
    {"accuracy", "five classes", IN(2, DATA2(5), IDS(1, 5)), build_accuracy,
     ref_accuracy, 0, true},
    {"auc", "", IN(2, PROB(1), IDS(1, 2)), build_auc, ref_auc, 0, true},
    END_OF_CASES,
};

/* --- tests --------------------------------------------------------------- */

static void check_all(int64_t batch, int threads)
{
    check_cases(op_cases, batch, threads);
}

TEST(agree_with_their_references_for_one_sample)
{
    check_all(1, 1);
}

TEST(agree_with_their_references_for_a_batch_that_fills_no_slice)
{
    check_all(37, 2);
}

TEST_LIMIT(agree_with_their_references_for_several_slices, 180)
{
    check_all(150, 3);
}

TEST(agree_with_their_references_in_plain_c)
{
    setenv("FLEET_ISA", "plain", 1);
    check_all(37, 1);
}

TEST(agree_with_their_references_in_avx2)
{
    setenv("FLEET_ISA", "avx2", 1);
    check_all(37, 1);
}

TEST(each_has_a_case)
{
    for (int i = 0; fl_ops[i]; i++) {
        bool found = strcmp(fl_ops[i]->name, "sparse_embedding") == 0 ||
                     strcmp(fl_ops[i]->name, "sequence_embedding") == 0 ||
                     strcmp(fl_ops[i]->name, "sequence_pool") == 0 ||
                     strcmp(fl_ops[i]->name, "sequence_pad") == 0 ||
                     strcmp(fl_ops[i]->name, "sequence_mask") == 0;

        /* ragged: lookup_test.c, sequence_pool_test.c, sequence_test.c */
        for (int f = 0; op_families[f]; f++)
            for (const op_case *c = op_families[f]; c->op; c++)
                found = found || strcmp(c->op, fl_ops[i]->name) == 0;
        if (!found)
            test_fail(__FILE__, __LINE__, "op %s has no case", fl_ops[i]->name);
    }
}

/* --- leaky_relu: what a case does not show -------------------------------- */

/* Each activation of the list, on each instruction set. */
TEST(no_activation_makes_a_number_of_nan)
{
    for (const fl_simd *const *t = fl_simd_all(); *t; t++)
        for (int kind = FLEET_LINEAR + 1; kind < FL_N_ACTIVATION; kind++) {
            float x = NAN;

            (*t)->activation[kind].forward(&x, &x, 0.3f, 1);
            CHECK(isnan(x));
        }
}

TEST(leaky_relu_refuses_an_alpha_that_cannot_be)
{
    static const float alphas[] = {NAN, INFINITY, -INFINITY, -0.1f};

    for (int i = 0; i < 4; i++) {
        fleet *f = kit_handle(&(kit_options){0});
        fleet_program *p = fleet_program_create(f);
        fleet_var *x = fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, 4}, 2);

        CHECK(!fleet_leaky_relu(p, x, alphas[i]));
        CHECK_STATUS(fleet_program_status(p), FLEET_EINVAL);
        CHECK_CONTAINS(fleet_last_error(), "leaky_relu: alpha");
        fleet_destroy(f);
    }
}

typedef struct leaky_model {
    fleet *f;
    fleet_program *p;
    fleet_var *x, *h, *y, *loss; /* h: before the activation */
    fleet_executor *e;
} leaky_model;

static leaky_model leaky_open(int units)
{
    leaky_model m = {.f = kit_handle(&(kit_options){0})};

    m.p = fleet_program_create(m.f);
    m.x = fleet_data(m.p, "x", FLEET_FLOAT32, (int64_t[]){-1, 7}, 2);
    m.h = fleet_fc(m.p, m.x, units, NULL);
    m.y = fleet_leaky_relu(m.p, m.h, 0.3f);
    m.loss = fleet_mean(m.p, fleet_square(m.p, m.y));
    CHECK_OK(fleet_minimize(fleet_sgd(m.f, 0.5f), m.loss));
    m.e = fleet_executor_create(m.p, NULL);
    return m;
}

static void leaky_close(leaky_model *m)
{
    fleet_executor_destroy(m->e);
    fleet_destroy(m->f);
}

/* A fetch of what lies between them keeps the two apart. */
TEST(a_fused_leaky_relu_trains_to_the_same_bits)
{
    static const int units[] = {3, 33}; /* kernels of our own, and oneDNN's */

    for (int i = 0; i < 2; i++) {
        leaky_model fused = leaky_open(units[i]), apart = leaky_open(units[i]);
        char *plan = fleet_program_dump(fused.p, FLEET_DUMP_PLAN, 40);
        float *h = malloc(sizeof *h * 40 * (size_t)units[i]);

        CHECK(!strstr(plan, "  leaky_relu"));
        for (int step = 0; step < 5; step++) {
            kit_batch *b = kit_batch_new(40);

            kit_floats(b, "x", 7, step);
            CHECK_OK(kit_run(fused.e, b));
            CHECK_OK(kit_fetch(apart.e, b, apart.h, h, 40 * units[i]));
            CHECK(kit_hash(fused.f) == kit_hash(apart.f));
            kit_batch_free(b);
        }
        free(h);
        fleet_free(plan);
        leaky_close(&fused);
        leaky_close(&apart);
    }
}

TEST(a_predictor_has_a_leaky_relu_with_its_alpha)
{
    const char *path = test_path("model");
    leaky_model m = leaky_open(5);
    fleet_executor *tester =
        fleet_executor_create(m.p, &(fleet_executor_options){.for_test = 1});
    kit_batch *b = kit_batch_new(10);
    fleet_feed feed[KIT_MOST_FEEDS];
    float want[50], got[50];
    size_t size = sizeof got;
    fleet_predictor *p;

    kit_floats(b, "x", 7, 1);
    CHECK_OK(kit_fetch(tester, b, m.y, want, 50));
    CHECK_OK(fleet_save_inference_model(m.f, path, &m.x, 1, &m.y, 1));
    p = fleet_load_inference_model(path);
    CHECK(p != NULL);
    CHECK_OK(fleet_predictor_run(p, feed, kit_feeds(b, feed), (void *[]){got},
                                 &size, 1));
    CHECK(memcmp(got, want, sizeof got) == 0);
    fleet_predictor_destroy(p);
    kit_batch_free(b);
    fleet_executor_destroy(tester);
    leaky_close(&m);
}
