/* math_ops_test.c - operators of unaries.def and binaries.def against
 * references in double and finite differences, what they refuse, and
 * prelu's parameter; those of comparisons.def, and where(), which is made of
 * both. */
#define SUITE math_ops
#include "op_cases.h"
#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/job/handle.h"
#include "runtime/graph/program.h"

/* --- references, builders ------------------------------------------------- */

REF_UNARY(exp, exp(x))
REF_UNARY(log, log(x))
REF_UNARY(sqrt, sqrt(x))
REF_UNARY(abs, fabs(x))
REF_UNARY(pow, pow(x, 2.5))
REF_UNARY(cube, x *x *x)
REF_UNARY(clip, x<-0.5 ? -0.5 : x> 0.25 ? 0.25 : x)
REF_UNARY(elu, x > 0 ? x : 0.7 * expm1(x))
REF_UNARY(gelu, x *(1 + erf(x / sqrt(2))) / 2)
REF_UNARY(gelu_tanh,
          x *(1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))) / 2)
REF_UNARY(swish, x / (1 + exp(-1.5 * x)))
REF_UNARY(silu, x / (1 + exp(-x)))
REF_UNARY(softplus, log1p(exp(x)))
REF_BINARY(div, a / b)
REF_BINARY(min, a < b ? a : b)
REF_BINARY(max, a > b ? a : b)
REF_BINARY(prelu, a > 0 ? a : a * b)
/* of a - 1 and 1 - b, as COMPARE() builds them */
#define REF_COMPARE(name, formula)                                             \
    REF_BINARY(name, (a -= 1, b = 1 - b, (formula) ? 1 : 0))
REF_COMPARE(equal, a == b)
REF_COMPARE(not_equal, a != b)
REF_COMPARE(less_than, a < b)
REF_COMPARE(less_equal, a <= b)
REF_COMPARE(greater_than, a > b)
REF_COMPARE(greater_equal, a >= b)
REF_COMPARE(logical_and, a != 0 && b != 0)
REF_COMPARE(logical_or, a != 0 || b != 0)
REF_COMPARE(logical_xor, (a != 0) != (b != 0))
REF_UNARY(logical_not, x == 0)
REF_UNARY(constant, x + 2.5)

static void ref_where(const ref_tensor *const *in, ref_tensor *out)
{
    for (int64_t i = 0; i < out->count; i++) {
        bool first = broadcast(in[0], out, i) != 0;

        out->data[i] = broadcast(in[first ? 1 : 2], out, i);
    }
}

BUILD(exp, fleet_exp(p, in[0]))
BUILD(log, fleet_log(p, in[0]))
BUILD(sqrt, fleet_sqrt(p, in[0]))
BUILD(abs, fleet_abs(p, in[0]))
BUILD(pow, fleet_pow(p, in[0], 2.5f))
BUILD(cube, fleet_pow(p, in[0], 3))
BUILD(clip, fleet_clip(p, in[0], -0.5f, 0.25f))
BUILD(elu, fleet_elu(p, in[0], 0.7f))
BUILD(gelu, fleet_gelu(p, in[0], 0))
BUILD(gelu_tanh, fleet_gelu(p, in[0], 1))
BUILD(swish, fleet_swish(p, in[0], 1.5f))
BUILD(silu, fleet_swish(p, in[0], 0))
BUILD(softplus, fleet_softplus(p, in[0]))
BUILD(div, fleet_div(p, in[0], in[1]))
BUILD(min, fleet_min(p, in[0], in[1]))
BUILD(max, fleet_max(p, in[0], in[1]))
BUILD(prelu_channel,
      fleet_prelu(p, in[0], FLEET_PRELU_CHANNEL,
                  &(fleet_param_attr){.name = fleet_var_name(in[1])}))
BUILD(prelu_all,
      fleet_prelu(p, in[0], FLEET_PRELU_ALL,
                  &(fleet_param_attr){.name = fleet_var_name(in[1])}))

/* fleet_metric() of one batch */
static double mean_of(const ref_tensor *const *in, double (*of)(double, double))
{
    double sum = 0;

    for (int64_t i = 0; i < in[0]->count; i++)
        sum += of(in[0]->data[i], in[1]->data[i]);
    return sum / (double)in[0]->count;
}

static double absolute(double x, double y)
{
    return fabs(x - y);
}

static double square(double x, double y)
{
    return (x - y) * (x - y);
}

static double cost(double x, double y)
{
    return -log(y > 0 ? x : 1 - x);
}

static double both(double x, double y)
{
    return x > 0.5 && y > 0;
}

static double either(double x, double y)
{
    return (x > 0.5) + y;
}

#define REF_METRIC(name, formula)                                              \
    static void ref_##name(const ref_tensor *const *in, ref_tensor *out)       \
    {                                                                          \
        out->data[0] = formula;                                                \
    }
REF_METRIC(mae, mean_of(in, absolute))
REF_METRIC(rmse, sqrt(mean_of(in, square)))
REF_METRIC(log_loss, mean_of(in, cost))
REF_METRIC(f1, 2 * mean_of(in, both) / fmax(mean_of(in, either), 1e-9))
BUILD(mae, fleet_metric(p, FLEET_METRIC_MAE, in[0], in[1], 0))
BUILD(rmse, fleet_metric(p, FLEET_METRIC_RMSE, in[0], in[1], 0))
BUILD(log_loss, fleet_metric(p, FLEET_METRIC_LOG_LOSS, in[0], in[1], 0))
BUILD(f1, fleet_metric(p, FLEET_METRIC_F1, in[0], in[1], 0))

/* of small integers, so that there are equal ones and zeros */
#define COMPARE(name)                                                          \
    BUILD(name, fleet_##name(p, fleet_scale(p, fleet_cast(p, in[0]), 1, -1),   \
                             fleet_scale(p, fleet_cast(p, in[1]), -1, 1)))
COMPARE(equal)
COMPARE(not_equal)
COMPARE(less_than)
COMPARE(less_equal)
COMPARE(greater_than)
COMPARE(greater_equal)
COMPARE(logical_and)
COMPARE(logical_or)
COMPARE(logical_xor)
BUILD(logical_not, fleet_logical_not(p, fleet_cast(p, in[0])))
BUILD(constant, fleet_add(p, in[0], fleet_constant(p, 2.5f)))
BUILD(where, fleet_where(p, in[0], in[1], in[2]))

#define ONE(name, low, high)                                                   \
    {                                                                          \
#name, "", IN(1, WITHIN(19, low, high)), build_##name, ref_##name, 0,  \
            false                                                              \
    }
/* a dividend and what is not near 0 */
#define DIVISOR(...)                                                           \
    {                                                                          \
        __VA_ARGS__, false, false, 0.5, 2                                      \
    }

/* no gradient: inputs [B, 7] and [7] of -1, 0 and 1 */
#define COMPARED(name)                                                         \
    {                                                                          \
#name, "", IN(2, IDS(7, 3), IDS(7, 3)), build_##name, ref_##name, 0,   \
            true                                                               \
    }

const op_case math_cases[] = {
    ONE(exp, -3, 3),
    ONE(log, 0.1, 4),
    ONE(sqrt, 0.1, 4),
    ONE(abs, -1, 1),
    ONE(pow, 0.1, 2),
    {"pow", "a whole factor", IN(1, DATA2(19)), build_cube, ref_cube, 0, false},
    ONE(clip, -1, 1),
    ONE(elu, -3, 2),
    ONE(gelu, -4, 4),
    ONE(gelu_tanh, -4, 4),
    ONE(swish, -4, 4),
    {"swish", "silu", IN(1, DATA2(19)), build_silu, ref_silu, 0, false},
    ONE(softplus, -6, 6),
    {"div", "equal shapes", IN(2, DATA2(21), DIVISOR({-1, 21}, 2)), build_div,
     ref_div, 0, false},
    {"div", "by a column", IN(2, DATA3(4, 5), DIVISOR({-1, 4, 1}, 3)),
     build_div, ref_div, 0, false},
    {"div", "a column by a vector", IN(2, DATA3(4, 1), DIVISOR({5}, 1)),
     build_div, ref_div, 0, false},
    {"div", "a vector by a batch", IN(2, PARAM1(6), DIVISOR({-1, 6}, 2)),
     build_div, ref_div, 0, false},
    {"min", "equal shapes", IN(2, DATA3(3, 7), DATA3(3, 7)), build_min, ref_min,
     0, false},
    {"min", "with a vector", IN(2, DATA3(4, 18), PARAM1(18)), build_min,
     ref_min, 0, false},
    {"max", "equal shapes", IN(2, DATA2(21), DATA2(21)), build_max, ref_max, 0,
     false},
    {"max", "both are broadcast", IN(2, DATA3(13, 1), PARAM2(13, 9)), build_max,
     ref_max, 0, false},
    {"prelu", "a number of each channel", IN(2, DATA2(11), PARAM1(11)),
     build_prelu_channel, ref_prelu, 0, false},
    {"prelu", "one number", IN(2, DATA3(3, 5), PARAM1(1)), build_prelu_all,
     ref_prelu, 0, false},
    COMPARED(equal),
    COMPARED(not_equal),
    COMPARED(less_than),
    COMPARED(less_equal),
    COMPARED(greater_than),
    COMPARED(greater_equal),
    COMPARED(logical_and),
    COMPARED(logical_or),
    COMPARED(logical_xor),
    {"equal", "to 0: logical_not", IN(1, IDS(7, 3)), build_logical_not,
     ref_logical_not, 0, true},
    {"constant", "", IN(1, DATA2(7)), build_constant, ref_constant, 0, false},
    {"metric", "mae", IN(2, DATA3(3, 5), DATA3(3, 5)), build_mae, ref_mae, 0,
     true},
    {"metric", "rmse of integers", IN(2, DATA2(3), IDS(3, 4)), build_rmse,
     ref_rmse, 0, true},
    {"metric", "log loss", IN(2, PROB(1), IDS(1, 2)), build_log_loss,
     ref_log_loss, 0, true},
    {"metric", "f1", IN(2, PROB(1), IDS(1, 2)), build_f1, ref_f1, 0, true},
    {"where_true", "equal shapes", IN(3, IDS(6, 2), DATA2(6), DATA2(6)),
     build_where, ref_where, 0, false},
    {"where_false", "all are broadcast", IN(3, IDS(1, 2), PARAM1(18), DATA2(1)),
     build_where, ref_where, 0, false},
    END_OF_CASES,
};

TEST(agree_with_their_references_for_one_sample)
{
    check_cases(math_cases, 1, 1);
}

TEST_LIMIT(agree_with_their_references_for_several_slices, 180)
{
    check_cases(math_cases, 150, 3);
}

TEST(agree_with_their_references_in_plain_c)
{
    setenv("FLEET_ISA", "plain", 1);
    check_cases(math_cases, 37, 1);
}

TEST(agree_with_their_references_in_avx2)
{
    setenv("FLEET_ISA", "avx2", 1);
    check_cases(math_cases, 37, 2);
}

/* --- what is refused ------------------------------------------------------ */

BUILD(pow_0, fleet_pow(p, in[0], 0))
BUILD(pow_nan, fleet_pow(p, in[0], NAN))
BUILD(clip_same, fleet_clip(p, in[0], 1, 1))
BUILD(clip_infinite, fleet_clip(p, in[0], 0, INFINITY))
BUILD(elu_negative, fleet_elu(p, in[0], -1))
BUILD(swish_nan, fleet_swish(p, in[0], NAN))
BUILD(exp_ids, fleet_exp(p, kit_data_ids(p, "i", 2)))
BUILD(add_large, fleet_add(p,
                           fleet_data(p, "a", FLEET_FLOAT32,
                                      (int64_t[]){-1, INT64_C(1) << 40, 1}, 3),
                           fleet_data(p, "b", FLEET_FLOAT32,
                                      (int64_t[]){-1, 1, INT64_C(1) << 40}, 3)))
BUILD(div_shape, fleet_div(p, in[0], kit_data(p, "y", 3)))
BUILD(max_ids, fleet_max(p, in[0], kit_data_ids(p, "i", 4)))
BUILD(prelu_mode, fleet_prelu(p, in[0], (fleet_prelu_mode)3, NULL))
BUILD(prelu_mean,
      fleet_prelu(p, fleet_mean(p, in[0]), FLEET_PRELU_CHANNEL, NULL))
BUILD(min_null, fleet_min(p, in[0], NULL))
BUILD(less_than_ids, fleet_less_than(p, in[0], kit_data_ids(p, "i", 4)))
BUILD(where_shape, fleet_where(p, in[0], in[0], kit_data(p, "y", 3)))
BUILD(where_ragged, fleet_where(p, fleet_data_ragged(p, "i"), in[0], in[0]))
BUILD(where_null, fleet_where(p, in[0], in[0], NULL))
BUILD(not_null, fleet_logical_not(p, NULL))
BUILD(constant_nan, fleet_constant(p, NAN))

TEST(arguments_that_cannot_be_are_refused_by_name)
{
    static const op_refusal refusals[] = {
        {build_pow_0, FLEET_EINVAL, "pow: factor 0"},
        {build_pow_nan, FLEET_EINVAL, "pow: factor nan must be finite"},
        {build_clip_same, FLEET_EINVAL, "clip: min 1 must be below max 1"},
        {build_clip_infinite, FLEET_EINVAL, "clip: max inf must be finite"},
        {build_elu_negative, FLEET_EINVAL, "elu: alpha -1"},
        {build_swish_nan, FLEET_EINVAL, "swish: beta nan"},
        {build_exp_ids, FLEET_EDTYPE, "exp: \"i\" is int64, not float32"},
        {build_div_shape, FLEET_ESHAPE,
         "div: \"x\" [-1,4] and \"y\" [-1,3] do not fit"},
        {build_add_large, FLEET_ESHAPE, "is not possible"},
        {build_max_ids, FLEET_EDTYPE, "max: \"i\" is int64, not float32"},
        {build_prelu_mode, FLEET_EINVAL, "prelu: mode 3 does not exist"},
        {build_prelu_mean, FLEET_ESHAPE, "has shape [1]; expected [-1,C]"},
        {build_min_null, FLEET_EINVAL, "NULL as its input"},
        {build_less_than_ids, FLEET_EDTYPE,
         "less_than: \"i\" is int64, not float32"},
        {build_where_shape, FLEET_ESHAPE,
         "where_false: \"x\" [-1,4] and \"y\" [-1,3] do not fit"},
        {build_where_ragged, FLEET_EDTYPE,
         "where_true: \"i\" is ragged int64, not float32"},
        {build_where_null, FLEET_EINVAL, "NULL as its input"},
        {build_not_null, FLEET_EINVAL, "NULL as its input"},
        {build_constant_nan, FLEET_EINVAL,
         "constant: value nan must be finite"},
    };

    check_refusals(refusals, sizeof refusals / sizeof *refusals, NULL);
}

/* Paddle's where() behaves so, a product with a mask would not. */
TEST(where_lets_nothing_through_of_what_it_does_not_take)
{
    enum { N = 19 };
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    fleet_var *c = kit_data(p, "c", N), *x = kit_data(p, "x", N);
    fleet_var *y = fleet_where(p, c, x, fleet_constant(p, 7));
    float on[N], in[N], out[N], want[N];
    const int64_t dims[] = {1, N};
    fleet_feed feed[] = {{"c", FLEET_FLOAT32, on, dims, 2, NULL},
                         {"x", FLEET_FLOAT32, in, dims, 2, NULL}};
    fleet_fetch fetch = {.var = y, .data = out, .size = sizeof out};
    fleet_executor *e = fleet_executor_create(p, NULL);

    for (int i = 0; i < N; i++) {
        on[i] = i % 3 == 0 ? 0 : i % 2 ? -1e-44f : 3;
        in[i] = i % 3 == 0 ? i % 2 ? NAN : -INFINITY : (float)i;
        want[i] = i % 3 == 0 ? 7 : (float)i;
    }
    CHECK_OK(fleet_executor_run(e, feed, 2, &fetch, 1));
    CHECK_CLOSE(out, want, N, 0);
    fleet_executor_destroy(e);
    fleet_destroy(f);
}

TEST(prelu_begins_with_a_quarter_in_the_shape_of_its_mode)
{
    static const struct {
        fleet_prelu_mode mode;
        int n_dim;
        int64_t dim[2];
    } want[] = {{FLEET_PRELU_ALL, 1, {1}},
                {FLEET_PRELU_CHANNEL, 2, {3, 1}},
                {FLEET_PRELU_ELEMENT, 2, {3, 2}}};

    for (int i = 0; i < 3; i++) {
        fleet *f = kit_handle(&(kit_options){0});
        fleet_program *p = fleet_program_create(f);
        fleet_var *x =
            fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, 3, 2}, 3);
        fleet_var *y = fleet_prelu(p, x, want[i].mode, NULL);
        float in[6] = {-1, -2, 3, -4, 5, -6}, out[6];
        fleet_feed feed = {"x", FLEET_FLOAT32, in, (int64_t[]){1, 3, 2},
                           3,   NULL};
        fleet_fetch fetch = {.var = y, .data = out, .size = sizeof out};
        fleet_executor *e = fleet_executor_create(p, NULL);
        int64_t dims[FLEET_MAX_DIM];
        fleet_var *alpha = fleet_program_var(p, "prelu_0.alpha");

        CHECK(alpha != NULL);
        CHECK_INT(fleet_var_shape(alpha, dims), want[i].n_dim);
        CHECK(memcmp(dims, want[i].dim, (size_t)want[i].n_dim * sizeof *dims) ==
              0);
        CHECK_OK(fleet_executor_run(e, &feed, 1, &fetch, 1));
        CHECK_CLOSE(out, ((float[]){-0.25f, -0.5f, 3, -1, 5, -1.5f}), 6, 0);
        fleet_executor_destroy(e);
        fleet_destroy(f);
    }
}

/* Paddle's elementwise_max and elementwise_min. */
TEST(of_two_equal_numbers_the_second_gets_the_gradient)
{
    for (int larger = 0; larger < 2; larger++) {
        fleet *f = kit_handle(&(kit_options){0});
        fleet_program *p = fleet_program_create(f);
        fleet_param_attr a = {.name = "a",
                              .initializer = {FLEET_INIT_CONSTANT, 2, 0}};
        fleet_param_attr b = {.name = "b",
                              .initializer = {FLEET_INIT_CONSTANT, 2, 0}};
        fleet_var *x = kit_data(p, "x", 3);
        fleet_var *va = fleet_parameter(p, (int64_t[]){3}, 1, &a);
        fleet_var *vb = fleet_parameter(p, (int64_t[]){3}, 1, &b);
        fleet_var *m = larger ? fleet_max(p, va, vb) : fleet_min(p, va, vb);
        fleet_var *loss = fleet_mean(p, fleet_mul(p, x, m));
        float ones[3] = {3, 3, 3};
        fleet_feed feed = {"x", FLEET_FLOAT32, ones, (int64_t[]){1, 3},
                           2,   NULL};
        fleet_executor *e;

        CHECK_OK(fleet_minimize(fleet_sgd(f, 1), loss));
        e = fleet_executor_create(p, NULL);
        CHECK_OK(fleet_executor_run(e, &feed, 1, NULL, 0));
        CHECK_CLOSE(fl_store_param(f->store, "a")->flat->weight +
                        fl_store_param(f->store, "a")->offset,
                    ((float[]){2, 2, 2}), 3, 0);
        CHECK_CLOSE(fl_store_param(f->store, "b")->flat->weight +
                        fl_store_param(f->store, "b")->offset,
                    ((float[]){1, 1, 1}), 3, 0);
        fleet_executor_destroy(e);
        fleet_destroy(f);
    }
}
