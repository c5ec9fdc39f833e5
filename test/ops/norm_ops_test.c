/* norm_ops_test.c - layer_norm, l2_normalize, cosines and dropout: against
 * references and finite differences; what is refused; that the elements which
 * dropout keeps are those that it says, for any threads and workers. */
#define SUITE norm_ops
#include "gpu_kit.h"
#include "op_cases.h"
#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/job/handle.h"
#include "ops/norm/dropout.h"

/* --- references ----------------------------------------------------------- */

static void ref_l2(const ref_tensor *const *in, ref_tensor *out)
{
    int64_t n = in[0]->dim[in[0]->n_dim - 1];

    for (int64_t i = 0; i < out->count; i += n) {
        double sum = 0;

        for (int64_t j = 0; j < n; j++)
            sum += in[0]->data[i + j] * in[0]->data[i + j];
        for (int64_t j = 0; j < n; j++)
            out->data[i + j] = in[0]->data[i + j] / sqrt(fmax(sum, 1e-12));
    }
}

/* With an epsilon above all sums: x / 5. */
static void ref_l2_short(const ref_tensor *const *in, ref_tensor *out)
{
    for (int64_t i = 0; i < out->count; i++)
        out->data[i] = in[0]->data[i] / 5;
}

static void ref_cos(const ref_tensor *const *in, ref_tensor *out)
{
    int64_t n = in[0]->dim[in[0]->n_dim - 1];

    for (int64_t i = 0; i < out->count; i++) {
        double xy = 0, xx = 0, yy = 0;

        for (int64_t j = i * n; j < (i + 1) * n; j++) {
            xy += in[0]->data[j] * in[1]->data[j];
            xx += in[0]->data[j] * in[0]->data[j];
            yy += in[1]->data[j] * in[1]->data[j];
        }
        out->data[i] = xy / sqrt(xx * yy);
    }
}

static void layer(const ref_tensor *x, const ref_tensor *w, const ref_tensor *b,
                  int64_t n, double epsilon, ref_tensor *out)
{
    for (int64_t i = 0; i < x->count; i += n) {
        double mean = 0, square = 0;

        for (int64_t j = i; j < i + n; j++)
            mean += x->data[j] / (double)n;
        for (int64_t j = i; j < i + n; j++)
            square += (x->data[j] - mean) * (x->data[j] - mean) / (double)n;
        for (int64_t j = i; j < i + n; j++) {
            double z = (x->data[j] - mean) / sqrt(square + epsilon);

            out->data[j] =
                z * (w ? w->data[j - i] : 1) + (b ? b->data[j - i] : 0);
        }
    }
}

static void ref_layer(const ref_tensor *const *in, ref_tensor *out)
{
    layer(in[0], in[1], in[2], in[1]->count, (double)1e-5f, out);
}

static void ref_layer_bare(const ref_tensor *const *in, ref_tensor *out)
{
    layer(in[0], NULL, NULL, in[0]->dim[2], (double)0.1f, out);
}

/* The first node of a program, of a handle with seed 0, in its first batch. */
enum { COLS = 19 };

static bool is_kept(int64_t batch, int64_t row, int64_t col)
{
    fl_dropout c = {.stream = UINT64_C(1) << 63, .cols = COLS};

    return fl_dropout_draw(&c, batch, row, col / 4).v[col % 4] >=
           (uint32_t)(0.25 * 0x1p32);
}

static void ref_dropout(const ref_tensor *const *in, ref_tensor *out)
{
    for (int64_t i = 0; i < out->count; i++)
        out->data[i] =
            is_kept(0, i / COLS, i % COLS) ? in[0]->data[i] / 0.75 : 0;
}

/* --- builders, cases ------------------------------------------------------ */

static fleet_layer_norm_options of(fleet_var **in, int axis)
{
    return (fleet_layer_norm_options){.begin_norm_axis = axis,
                                      .scale.name = fleet_var_name(in[1]),
                                      .shift.name = fleet_var_name(in[2])};
}

static fleet_var *build_layer(fleet_program *p, fleet_var **in)
{
    fleet_layer_norm_options o = of(in, 0);

    return fleet_layer_norm(p, in[0], &o);
}

static fleet_var *build_layer_lines(fleet_program *p, fleet_var **in)
{
    fleet_layer_norm_options o = of(in, 2);

    return fleet_layer_norm(p, in[0], &o);
}

BUILD(l2, fleet_l2_normalize(p, in[0], 0))
BUILD(l2_short, fleet_l2_normalize(p, in[0], 25))
BUILD(cos, fleet_cos_sim(p, in[0], in[1]))
BUILD(layer_bare,
      fleet_layer_norm(p, in[0],
                       &(fleet_layer_norm_options){.begin_norm_axis = 2,
                                                   .epsilon = 0.1f,
                                                   .no_scale = 1,
                                                   .no_shift = 1}))
BUILD(dropout, fleet_dropout(p, in[0], 0.25f))

const op_case norm_cases[] = {
    {"l2_normalize", "", IN(1, DATA3(3, 11)), build_l2, ref_l2, 0, false},
    {"l2_normalize", "shorter than epsilon", IN(1, DATA2(5)), build_l2_short,
     ref_l2_short, 0, false},
    {"l2_normalize", "a cosine", IN(2, DATA2(9), DATA2(9)), build_cos, ref_cos,
     0, false},
    {"layer_norm", "of a sample", IN(3, DATA3(3, 25), PARAM1(75), PARAM1(75)),
     build_layer, ref_layer, 5e-5, false},
    {"layer_norm", "of its lines", IN(3, DATA3(4, 17), PARAM1(17), PARAM1(17)),
     build_layer_lines, ref_layer, 5e-5, false},
    {"layer_norm", "without parameters", IN(1, DATA3(2, 6)), build_layer_bare,
     ref_layer_bare, 5e-5, false},
    {"dropout", "a quarter", IN(1, DATA2(COLS)), build_dropout, ref_dropout, 0,
     false},
    END_OF_CASES,
};

TEST(agree_with_their_references_for_one_sample)
{
    check_cases(norm_cases, 1, 1);
}

TEST_LIMIT(agree_with_their_references_for_several_slices, 180)
{
    check_cases(norm_cases, 150, 3);
}

TEST(agree_with_their_references_in_plain_c)
{
    setenv("FLEET_ISA", "plain", 1);
    check_cases(norm_cases, 37, 2);
}

/* --- what is refused ------------------------------------------------------ */

BUILD(rate_1, fleet_dropout(p, in[0], 1))
BUILD(rate_nan, fleet_dropout(p, in[0], NAN))
BUILD(rate_low, fleet_dropout(p, in[0], -0.1f))
BUILD(drop_mean, fleet_dropout(p, fleet_mean(p, in[0]), 0.5f))
BUILD(drop_ids, fleet_dropout(p, kit_data_ids(p, "i", 2), 0.5f))
BUILD(l2_epsilon, fleet_l2_normalize(p, in[0], -1))
BUILD(cos_shape, fleet_cos_sim(p, in[0], kit_data(p, "y", 3)))
BUILD(layer_axis,
      fleet_layer_norm(p, in[0],
                       &(fleet_layer_norm_options){.begin_norm_axis = 2}))
BUILD(layer_epsilon,
      fleet_layer_norm(p, in[0], &(fleet_layer_norm_options){.epsilon = NAN}))
BUILD(layer_mean, fleet_layer_norm(p, fleet_mean(p, in[0]), NULL))

TEST(arguments_that_cannot_be_are_refused_by_name)
{
    static const op_refusal refusals[] = {
        {build_rate_1, FLEET_EINVAL, "dropout: rate 1 is not in [0, 1)"},
        {build_rate_nan, FLEET_EINVAL, "dropout: rate nan"},
        {build_rate_low, FLEET_EINVAL, "dropout: rate -0.1"},
        {build_drop_mean, FLEET_ESHAPE, "expected a batch"},
        {build_drop_ids, FLEET_EDTYPE, "dropout: \"i\" is int64"},
        {build_l2_epsilon, FLEET_EINVAL, "l2_normalize: epsilon -1"},
        {build_cos_shape, FLEET_ESHAPE, "cos_sim: \"x\" [-1,4] and \"y\""},
        {build_layer_axis, FLEET_EINVAL, "layer_norm: axis 2 of shape"},
        {build_layer_epsilon, FLEET_EINVAL, "layer_norm: epsilon nan"},
        {build_layer_mean, FLEET_ESHAPE, "has shape [1]; expected [-1,N]"},
    };

    check_refusals(refusals, sizeof refusals / sizeof *refusals, NULL);
}

TEST(layer_norm_begins_as_the_identity_of_what_is_normal)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    fleet_var *x = kit_data(p, "x", 4), *y = fleet_layer_norm(p, x, NULL);
    float in[4] = {1, -1, 1, -1}, out[4];
    fleet_feed feed = {"x", FLEET_FLOAT32, in, (int64_t[]){1, 4}, 2, NULL};
    fleet_fetch fetch = {.var = y, .data = out, .size = sizeof out};
    fleet_executor *e = fleet_executor_create(p, NULL);

    CHECK(fleet_program_var(p, "layer_norm_0.w") &&
          fleet_program_var(p, "layer_norm_0.b"));
    CHECK_OK(fleet_executor_run(e, &feed, 1, &fetch, 1));
    CHECK_CLOSE(out, in, 4, 1e-5);
    fleet_executor_destroy(e);
    fleet_destroy(f);
}

/* --- dropout: which elements are kept ------------------------------------- */

typedef struct dropping {
    fleet *f;
    fleet_program *p;
    fleet_var *y;
    fleet_executor *e;
} dropping;

static dropping dropping_open(int threads, int merge, fleet_place place)
{
    fleet_options o = {.num_threads = threads};
    fleet_distributed_strategy how = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet_param_attr w = {.name = "w",
                          .initializer = {FLEET_INIT_CONSTANT, 1, 0}};
    dropping d = {0};
    fleet_var *x;

    CHECK_OK(fleet_init(&d.f, &o));
    d.p = fleet_program_create(d.f);
    CHECK_OK(fleet_program_place(d.p, place, NULL));
    x = kit_data(d.p, "x", COLS);
    d.y = fleet_dropout(d.p, x, 0.25f);
    how.gradient_merge = merge > 1;
    how.gradient_merge_configs.k_steps = merge;
    CHECK_OK(fleet_minimize(
        fleet_distributed_optimizer(d.f, fleet_sgd(d.f, 0.1f), &how),
        fleet_mean(d.p,
                   fleet_mul(d.p, d.y,
                             fleet_parameter(d.p, (int64_t[]){COLS}, 1, &w)))));
    d.e = fleet_executor_create(d.p, NULL);
    return d;
}

static void dropping_close(dropping *d)
{
    fleet_executor_destroy(d->e);
    fleet_destroy(d->f);
}

enum { ROWS = 150 };

/* A batch of ones must come out as that batch of the training says. */
static void check_batch(const dropping *d, fleet_executor *e, int64_t batch)
{
    static float ones[ROWS * COLS], out[ROWS * COLS];
    fleet_feed feed = {"x", FLEET_FLOAT32, ones, (int64_t[]){ROWS, COLS},
                       2,   NULL};
    fleet_fetch fetch = {.var = d->y, .data = out, .size = sizeof out};
    int64_t kept = 0;

    for (int i = 0; i < ROWS * COLS; i++)
        ones[i] = 1;
    CHECK_OK(fleet_executor_run(e, &feed, 1, &fetch, 1));
    for (int i = 0; i < ROWS * COLS; i++) {
        bool want = batch < 0 || is_kept(batch, i / COLS, i % COLS);

        kept += want;
        CHECK(out[i] == (batch < 0 ? 1.0f : want ? (float)(1 / 0.75) : 0.0f));
    }
    if (batch >= 0) /* 2850 draws, four deviations */
        CHECK(fabs((double)kept / (ROWS * COLS) - 0.75) < 0.033);
}

TEST(dropout_keeps_the_same_elements_with_any_threads)
{
    for (int threads = 1; threads < 4; threads++) {
        dropping d = dropping_open(threads, 1, FLEET_CPU);

        for (int64_t batch = 0; batch < 3; batch++)
            check_batch(&d, d.e, batch);
        dropping_close(&d);
    }
}

/* What is_kept() says is the operator's own: that it differs is looked at. */
TEST(dropout_draws_anew_for_each_batch)
{
    for (int64_t batch = 1; batch < 4; batch++) {
        int other = 0;

        for (int i = 0; i < ROWS * COLS; i++)
            other += is_kept(batch, i / COLS, i % COLS) !=
                     is_kept(batch + 1, i / COLS, i % COLS);
        CHECK(other > 0);
    }
}

TEST(dropout_on_a_gpu_keeps_the_same_elements)
{
    gpu_kit_open();
    for (int merge = 1; merge < 4; merge += 2) {
        dropping d = dropping_open(1, merge, FLEET_GPU(0));

        for (int64_t batch = 0; batch < 4; batch++)
            check_batch(&d, d.e, batch);
        dropping_close(&d);
    }
    gpu_kit_close();
}

TEST(dropout_of_workers_is_that_of_one_process_that_merges)
{
    dropping one = dropping_open(1, 4, FLEET_CPU), worker[2];

    for (int64_t batch = 0; batch < 8; batch++)
        check_batch(&one, one.e, batch);
    for (int w = 0; w < 2; w++) {
        worker[w] = dropping_open(1, 2, FLEET_CPU);
        worker[w].f->store->worker = w;
        worker[w].f->store->workers = 2;
        for (int64_t batch = w; batch < 8; batch += 2)
            check_batch(&worker[w], worker[w].e, batch);
        dropping_close(&worker[w]);
    }
    dropping_close(&one);
}

TEST(dropout_does_nothing_where_nothing_is_trained)
{
    dropping d = dropping_open(1, 1, FLEET_CPU);
    fleet_executor *tester =
        fleet_executor_create(d.p, &(fleet_executor_options){.for_test = 1});
    char *plan = fleet_program_dump(d.p, FLEET_DUMP_PLAN, ROWS);

    CHECK_CONTAINS(plan, "dropout");
    check_batch(&d, tester, -1);
    check_batch(&d, d.e, 0);
    fleet_free(plan);
    fleet_executor_destroy(tester);
    dropping_close(&d);
}
