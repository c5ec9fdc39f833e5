/* batch_norm_test.c - batch_norm, data_norm and dice against references and
 * finite differences; moving averages: what they become, who uses them, what
 * they have no part in. */
#define SUITE batch_norm
#include "gpu_kit.h"
#include "op_cases.h"
#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/job/handle.h"

/* --- references ----------------------------------------------------------- */

/* Of column j of lines of n numbers. */
static double mean_of(const ref_tensor *x, int64_t n, int64_t j)
{
    double sum = 0;

    for (int64_t i = j; i < x->count; i += n)
        sum += x->data[i];
    return sum * (double)n / (double)x->count;
}

static double variance_of(const ref_tensor *x, int64_t n, int64_t j)
{
    double mean = mean_of(x, n, j), sum = 0;

    for (int64_t i = j; i < x->count; i += n)
        sum += (x->data[i] - mean) * (x->data[i] - mean);
    return sum * (double)n / (double)x->count;
}

static void norm(const ref_tensor *x, const ref_tensor *w, const ref_tensor *b,
                 double epsilon, ref_tensor *out)
{
    int64_t n = x->dim[x->n_dim - 1];

    for (int64_t j = 0; j < n; j++) {
        double mean = mean_of(x, n, j);
        double root = sqrt(variance_of(x, n, j) + epsilon);

        for (int64_t i = j; i < x->count; i += n)
            out->data[i] = (x->data[i] - mean) / root * (w ? w->data[j] : 1) +
                           (b ? b->data[j] : 0);
    }
}

static void ref_norm(const ref_tensor *const *in, ref_tensor *out)
{
    norm(in[0], in[1], in[2], (double)1e-5f, out);
}

static void ref_bare(const ref_tensor *const *in, ref_tensor *out)
{
    norm(in[0], NULL, NULL, (double)0.1f, out);
}

/* As a program begins: the mean 0, the variance 1. */
static void ref_global(const ref_tensor *const *in, ref_tensor *out)
{
    int64_t n = in[1]->count;

    for (int64_t i = 0; i < out->count; i++)
        out->data[i] =
            in[0]->data[i] / sqrt(1 + (double)1e-5f) * in[1]->data[i % n] +
            in[2]->data[i % n];
}

/* A mean of 0.5, a mean square of 4. */
static void ref_data(const ref_tensor *const *in, ref_tensor *out)
{
    for (int64_t i = 0; i < out->count; i++)
        out->data[i] = (in[0]->data[i] - 0.5) / 2;
}

static void ref_dice(const ref_tensor *const *in, ref_tensor *out)
{
    norm(in[0], NULL, NULL, (double)1e-8f, out);
    for (int64_t i = 0; i < out->count; i++) {
        double p = 1 / (1 + exp(-out->data[i])), x = in[0]->data[i];

        out->data[i] = p * x + (1 - p) * in[1]->data[i % in[1]->count] * x;
    }
}

/* --- builders, cases ------------------------------------------------------ */

static fleet_batch_norm_options of(fleet_var **in)
{
    return (fleet_batch_norm_options){.scale.name = fleet_var_name(in[1]),
                                      .shift.name = fleet_var_name(in[2])};
}

static fleet_var *build_norm(fleet_program *p, fleet_var **in)
{
    fleet_batch_norm_options o = of(in);

    return fleet_batch_norm(p, in[0], &o);
}

static fleet_var *build_global(fleet_program *p, fleet_var **in)
{
    fleet_batch_norm_options o = of(in);

    o.use_global_stats = 1;
    return fleet_batch_norm(p, in[0], &o);
}

static fleet_var *build_dice(fleet_program *p, fleet_var **in)
{
    fleet_param_attr alpha = {.name = fleet_var_name(in[1])};

    return fleet_dice(p, in[0], &(fleet_dice_options){.alpha = alpha});
}

static const fleet_batch_norm_options bare = {
    .epsilon = 0.1f, .no_scale = 1, .no_shift = 1};

BUILD(bare, fleet_batch_norm(p, in[0], &bare))
BUILD(data, fleet_data_norm(p, in[0],
                            &(fleet_data_norm_options){.batch_size = 4,
                                                       .batch_sum = 2,
                                                       .batch_square_sum = 16}))

const op_case batch_norm_cases[] = {
    {"batch_norm", "of samples", IN(3, DATA2(75), PARAM1(75), PARAM1(75)),
     build_norm, ref_norm, 5e-5, false},
    {"data_norm", "of samples", IN(1, DATA2(70)), build_data, ref_data, 0,
     false},
    {"batch_norm", "of lines of samples",
     IN(3, DATA3(3, 7), PARAM1(7), PARAM1(7)), build_norm, ref_norm, 5e-5,
     false},
    {"batch_norm", "without parameters", IN(1, DATA3(2, 5)), build_bare,
     ref_bare, 5e-5, false},
    {"batch_norm", "by its moving averages",
     IN(3, DATA2(9), PARAM1(9), PARAM1(9)), build_global, ref_global, 0, false},
    {"data_norm", "of lines of samples", IN(1, DATA3(2, 5)), build_data,
     ref_data, 0, false},
    END_OF_CASES,
};

/* A batch of one has no variance, and dice's epsilon is small. */
const op_case dice_cases[] = {
    {"batch_norm", "in dice", IN(2, DATA2(9), PARAM1(9)), build_dice, ref_dice,
     5e-5, false},
    END_OF_CASES,
};

TEST(agrees_with_its_reference_for_one_sample)
{
    check_cases(batch_norm_cases, 1, 1);
}

/* The first two cases are wide, for parts of columns: differences of so many
 * elements take seconds. */
TEST(agrees_with_its_reference_for_several_slices)
{
    check_cases(batch_norm_cases + 2, 150, 3);
    check_cases(dice_cases, 150, 3);
}

TEST(agrees_with_its_reference_in_plain_c)
{
    setenv("FLEET_ISA", "plain", 1);
    check_cases(batch_norm_cases, 37, 2);
    check_cases(dice_cases, 37, 2);
}

/* --- what is refused ------------------------------------------------------ */

BUILD(momentum_1,
      fleet_batch_norm(p, in[0], &(fleet_batch_norm_options){.momentum = 1}))
BUILD(momentum_nan,
      fleet_batch_norm(p, in[0], &(fleet_batch_norm_options){.momentum = NAN}))
BUILD(epsilon,
      fleet_batch_norm(p, in[0], &(fleet_batch_norm_options){.epsilon = -1}))
BUILD(mean, fleet_batch_norm(p, fleet_mean(p, in[0]), NULL))
BUILD(data_fades,
      fleet_data_norm(p, in[0],
                      &(fleet_data_norm_options){.summary_decay_rate = 1}))
BUILD(data_size,
      fleet_data_norm(p, in[0], &(fleet_data_norm_options){.batch_size = -1}))
BUILD(data_epsilon,
      fleet_data_norm(p, in[0], &(fleet_data_norm_options){.epsilon = -1}))
BUILD(ids, fleet_batch_norm(p, kit_data_ids(p, "i", 2), NULL))
BUILD(of_ids, fleet_dice(p, kit_data_ids(p, "i", 2), NULL))
BUILD(average, fleet_fc(p, in[0], 2,
                        &(fleet_fc_options){.weight.average = 1, .name = "f"}))
static fleet_var *build_twice(fleet_program *p, fleet_var **in)
{
    const fleet_batch_norm_options o = {.name = "n"};

    return fleet_batch_norm(p, fleet_batch_norm(p, in[0], &o), &o);
}

TEST(arguments_that_cannot_be_are_refused_by_name)
{
    static const op_refusal refusals[] = {
        {build_momentum_1, FLEET_EINVAL, "momentum 1 is not in [0, 1)"},
        {build_momentum_nan, FLEET_EINVAL, "batch_norm: momentum nan"},
        {build_epsilon, FLEET_EINVAL, "batch_norm: epsilon -1"},
        {build_mean, FLEET_ESHAPE, "has shape [1]; expected [-1,N]"},
        {build_ids, FLEET_EDTYPE, "batch_norm: \"i\" is int64"},
        {build_data_fades, FLEET_EINVAL, "summary_decay_rate 1 in (0, 1)"},
        {build_data_size, FLEET_EINVAL, "data_norm: batch_size -1"},
        {build_data_epsilon, FLEET_EINVAL, "data_norm: epsilon -1"},
        {build_of_ids, FLEET_EDTYPE, "batch_norm: \"i\" is int64"},
        {build_average, FLEET_EINVAL, "f.w: average 1 is not in [0, 1)"},
        {build_twice, FLEET_EEXIST, "\"n.mean\""},
    };

    check_refusals(refusals, sizeof refusals / sizeof *refusals, NULL);
}

/* --- moving averages ------------------------------------------------------ */

enum { ROWS = 40, COLS = 3 };

typedef struct trained {
    fleet *f;
    fleet_program *p;
    fleet_var *y;
    fleet_executor *e, *tester;
} trained;

typedef struct way {
    fleet_place place;
    int merge;
    bool sums; /* of merged batches' gradients, not their mean */
    bool fp16, lars, lamb;
    float momentum, clip, value_clip, norm_clip, decay;
} way;

static trained trained_open(const way *how)
{
    fleet_options o = {.num_threads = 2};
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet_optimizer *adam;
    trained t = {0};

    CHECK_OK(fleet_init(&t.f, &o));
    t.p = fleet_program_create(t.f);
    CHECK_OK(fleet_program_place(t.p, how->place, NULL));
    t.y = fleet_batch_norm(
        t.p, kit_data(t.p, "x", COLS),
        &(fleet_batch_norm_options){.name = "n", .momentum = how->momentum});
    adam = how->lars ? fleet_momentum(t.f, 0.5f, NULL)
                     : fleet_adam(t.f, 0.5f, NULL);
    CHECK_OK(fleet_optimizer_set_l2_decay(adam, how->decay));
    CHECK_OK(fleet_optimizer_set_l1_decay(adam, how->decay));
    if (how->value_clip > 0)
        CHECK_OK(fleet_optimizer_set_value_clip(adam, how->value_clip));
    if (how->clip > 0)
        CHECK_OK(fleet_optimizer_set_global_norm_clip(adam, how->clip));
    if (how->norm_clip > 0)
        CHECK_OK(fleet_optimizer_set_norm_clip(adam, how->norm_clip));
    s.gradient_merge = how->merge > 1;
    s.gradient_merge_configs.k_steps = how->merge > 1 ? how->merge : 1;
    s.gradient_merge_configs.avg = !how->sums;
    s.amp = how->fp16;
    s.lars = how->lars;
    s.lamb = how->lamb;
    CHECK_OK(fleet_minimize(
        fleet_distributed_optimizer(t.f, adam, &s),
        fleet_mean(t.p, fleet_square(t.p, fleet_fc(t.p, t.y, 4, NULL)))));
    t.e = fleet_executor_create(t.p, NULL);
    t.tester =
        fleet_executor_create(t.p, &(fleet_executor_options){.for_test = 1});
    CHECK(t.e && t.tester);
    return t;
}

static void trained_close(trained *t)
{
    fleet_executor_destroy(t->tester);
    fleet_executor_destroy(t->e);
    fleet_destroy(t->f);
}

static void fill(float *x, int batch)
{
    for (int i = 0; i < ROWS * COLS; i++)
        x[i] = kit_noise(i, batch) * (float)(1 + i % COLS) + (float)batch;
}

static fleet_status run(fleet_executor *e, float *x, const fleet_var *var,
                        float *out)
{
    fleet_feed feed = {"x", FLEET_FLOAT32, x, (int64_t[]){ROWS, COLS}, 2, NULL};
    fleet_fetch fetch = {
        .var = var, .data = out, .size = ROWS * COLS * sizeof *out};

    return fleet_executor_run(e, &feed, 1, &fetch, out ? 1 : 0);
}

static void read_param(const trained *t, const char *name, float *to)
{
    CHECK_OK(fleet_parameter_get(t->f, name, to, COLS));
}

/* Their number; what mean and variance then are. */
static void train(trained *t, const way *how, int batches, double mean[COLS],
                  double variance[COLS])
{
    double momentum = how->momentum != 0 ? (double)how->momentum : 0.9;
    int merge = how->merge > 1 ? how->merge : 1;
    double sum[2][COLS] = {{0}};

    for (int j = 0; j < COLS; j++) {
        mean[j] = 0;
        variance[j] = 1;
    }
    for (int b = 0; b < batches; b++) {
        float x[ROWS * COLS];
        double wide[ROWS * COLS];
        ref_tensor r = {.data = wide, .count = ROWS * COLS};

        fill(x, b);
        for (int i = 0; i < ROWS * COLS; i++)
            wide[i] = (double)x[i];
        CHECK_OK(run(t->e, x, NULL, NULL));
        for (int j = 0; j < COLS; j++) {
            sum[0][j] += mean_of(&r, COLS, j);
            sum[1][j] += variance_of(&r, COLS, j);
            if ((b + 1) % merge > 0)
                continue;
            mean[j] += (1 - momentum) * (sum[0][j] / merge - mean[j]);
            variance[j] += (1 - momentum) * (sum[1][j] / merge - variance[j]);
            sum[0][j] = sum[1][j] = 0;
        }
    }
}

static void check_columns(const float *got, const double *want,
                          double tolerance)
{
    for (int j = 0; j < COLS; j++)
        if (!(fabs((double)got[j] - want[j]) <=
              tolerance * fmax(1, fabs(want[j]))))
            test_fail(__FILE__, __LINE__, "column %d: %g, not %g", j,
                      (double)got[j], want[j]);
}

/* And what executors for tests then make of a batch. */
static void check_averages(const way *how, int batches, double tolerance)
{
    trained t = trained_open(how);
    double mean[COLS], variance[COLS];
    float got[2][COLS], wb[2][COLS], x[ROWS * COLS], out[ROWS * COLS];

    train(&t, how, batches, mean, variance);
    read_param(&t, "n.mean", got[0]);
    read_param(&t, "n.variance", got[1]);
    check_columns(got[0], mean, tolerance);
    check_columns(got[1], variance, tolerance);
    read_param(&t, "n.w", wb[0]);
    read_param(&t, "n.b", wb[1]);
    fill(x, 77);
    CHECK_OK(run(t.tester, x, t.y, out));
    for (int i = 0; i < ROWS * COLS; i += COLS) {
        double want[COLS];

        for (int j = 0; j < COLS; j++)
            want[j] = ((double)x[i + j] - mean[j]) /
                          sqrt(variance[j] + (double)1e-5f) * (double)wb[0][j] +
                      (double)wb[1][j];
        check_columns(out + i, want, tolerance);
    }
    read_param(&t, "n.mean", got[1]); /* a test changes nothing */
    CHECK(memcmp(got[0], got[1], sizeof got[0]) == 0);
    trained_close(&t);
}

TEST(moving_averages_follow_the_batches)
{
    check_averages(&(way){.place = FLEET_CPU}, 5, 1e-5);
    check_averages(&(way){.place = FLEET_CPU, .momentum = 0.25f}, 3, 1e-5);
}

TEST(batches_that_are_merged_are_one_update_by_their_mean)
{
    check_averages(&(way){.place = FLEET_CPU, .merge = 3}, 6, 1e-5);
}

TEST(so_they_are_where_gradients_are_added_up)
{
    const way cpu = {.place = FLEET_CPU, .merge = 3, .sums = true};
    const way gpu = {.place = FLEET_GPU(0), .merge = 3, .sums = true};
    way scaled = gpu;

    check_averages(&cpu, 6, 1e-5);
    gpu_kit_open();
    check_averages(&gpu, 6, 1e-5);
    scaled.fp16 = true;
    check_averages(&scaled, 6, 5e-3);
    gpu_kit_close();
}

/* Adam with a rate of 0.5 would be far off, and so would what is clipped. */
TEST(what_shapes_gradients_has_no_part_in_them)
{
    check_averages(&(way){.place = FLEET_CPU, .decay = 0.3f}, 3, 1e-5);
    check_averages(&(way){.place = FLEET_CPU, .clip = 1e-3f}, 3, 1e-5);
    check_averages(&(way){.place = FLEET_CPU, .value_clip = 1e-3f}, 3, 1e-5);
    check_averages(&(way){.place = FLEET_CPU, .norm_clip = 1e-3f}, 3, 1e-5);
}

/* Nor have they a part in the norm of the others: both programs have the same
 * weights behind a clip, though one has means of a thousand. */
TEST(they_have_no_part_in_the_global_norm)
{
    float w[2][COLS];

    for (int k = 0; k < 2; k++) {
        trained t = trained_open(&(way){.place = FLEET_CPU, .clip = 1e-3f});
        float x[ROWS * COLS];

        fill(x, 1);
        for (int i = 0; k == 1 && i < ROWS * COLS; i++)
            x[i] += 1024;
        CHECK_OK(run(t.e, x, NULL, NULL));
        read_param(&t, "n.w", w[k]);
        trained_close(&t);
    }
    for (int j = 0; j < COLS; j++)
        CHECK(fabsf(w[0][j] - w[1][j]) < 1e-3f && w[0][j] != 1.0f);
}

TEST(a_gpu_has_the_same_averages)
{
    gpu_kit_open();
    check_averages(&(way){.place = FLEET_GPU(0)}, 4, 1e-5);
    check_averages(&(way){.place = FLEET_GPU(0), .merge = 2, .clip = 1e-3f}, 4,
                   1e-5);
    gpu_kit_close();
}

/* Gradients are divided by the loss's scale, which these never had. */
TEST(the_scale_of_the_loss_has_no_part_in_them)
{
    gpu_kit_open();
    check_averages(&(way){.place = FLEET_GPU(0), .fp16 = true}, 4, 5e-3);
    gpu_kit_close();
}

TEST(rates_of_layers_have_no_part_in_them)
{
    const fleet_place place[] = {FLEET_CPU, FLEET_GPU(0)};

    gpu_kit_open();
    for (int i = 0; i < 2; i++) {
        check_averages(&(way){.place = place[i], .lars = true}, 3, 1e-5);
        check_averages(&(way){.place = place[i], .lamb = true}, 3, 1e-5);
    }
    gpu_kit_close();
}

TEST(global_statistics_stay_as_they_are)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    fleet_var *y = fleet_batch_norm(
        p, kit_data(p, "x", COLS),
        &(fleet_batch_norm_options){.name = "n", .use_global_stats = 1});
    trained t = {.f = f};
    float x[ROWS * COLS], got[COLS];

    CHECK_OK(fleet_minimize(kit_optimizer(f, &(kit_options){0}),
                            fleet_mean(p, fleet_square(p, y))));
    t.e = fleet_executor_create(p, NULL);
    fill(x, 1);
    CHECK_OK(run(t.e, x, NULL, NULL));
    read_param(&t, "n.mean", got);
    CHECK(got[0] == 0 && got[COLS - 1] == 0);
    read_param(&t, "n.variance", got);
    CHECK(got[0] == 1 && got[COLS - 1] == 1);
    read_param(&t, "n.w", got);
    CHECK(got[0] != 1);
    trained_close(&t);
}

/* --- data_norm ------------------------------------------------------------ */

typedef struct summary {
    double size[COLS], sum[COLS], squares[COLS];
} summary;

static void follow(summary *s, const float *x, double fades)
{
    for (int j = 0; j < COLS; j++) {
        double mean = s->sum[j] / s->size[j], sum = 0, squares = 0;

        for (int i = j; i < ROWS * COLS; i += COLS) {
            sum += (double)x[i];
            squares += ((double)x[i] - mean) * ((double)x[i] - mean) + 0.5;
        }
        s->size[j] = fades * s->size[j] + ROWS;
        s->sum[j] = fades * s->sum[j] + sum;
        s->squares[j] = fades * s->squares[j] + squares;
    }
}

/* What Fleet adds up and fades, and these do of which ratios are used. */
static void check_summary(fleet_place place)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    trained t = {.f = f};
    summary s;
    float x[ROWS * COLS], out[2][ROWS * COLS], size[COLS];

    CHECK_OK(fleet_program_place(p, place, NULL));
    t.y = fleet_data_norm(
        p, kit_data(p, "x", COLS),
        &(fleet_data_norm_options){.name = "d",
                                   .epsilon = 0.5f,
                                   .batch_size = 10,
                                   .batch_square_sum = 20,
                                   .summary_decay_rate = 0.75f});
    CHECK_OK(fleet_minimize(
        kit_optimizer(f, &(kit_options){0}),
        fleet_mean(p, fleet_square(p, fleet_fc(p, t.y, 1, NULL)))));
    t.e = fleet_executor_create(p, NULL);
    t.tester =
        fleet_executor_create(p, &(fleet_executor_options){.for_test = 1});
    for (int j = 0; j < COLS; j++) {
        s.size[j] = 10;
        s.sum[j] = 0;
        s.squares[j] = 20;
    }
    for (int b = 0; b < 4; b++) {
        fill(x, b);
        CHECK_OK(run(t.tester, x, t.y, out[0]));
        CHECK_OK(run(t.e, x, t.y, out[1])); /* training does the same to it */
        CHECK(memcmp(out[0], out[1], sizeof out[0]) == 0);
        for (int i = 0; i < ROWS * COLS; i += COLS) {
            double want[COLS];

            for (int j = 0; j < COLS; j++)
                want[j] = ((double)x[i + j] - s.sum[j] / s.size[j]) *
                          sqrt(s.size[j] / s.squares[j]);
            check_columns(out[0] + i, want, 1e-5);
        }
        follow(&s, x, 0.75);
    }
    read_param(&t, "d.size", size);
    for (int j = 0; j < COLS; j++)
        s.size[j] *= 0.25;
    check_columns(size, s.size, 1e-5);
    trained_close(&t);
}

TEST(data_norm_goes_by_all_that_was_trained_on)
{
    check_summary(FLEET_CPU);
    gpu_kit_open();
    check_summary(FLEET_GPU(0));
    gpu_kit_close();
}

/* --- saves ---------------------------------------------------------------- */

TEST(a_predictor_has_the_bits_of_a_test)
{
    trained t = trained_open(&(way){.place = FLEET_CPU});
    const char *path = test_path("saved");
    fleet_var *in = fleet_program_var(t.p, "x");
    double mean[COLS], variance[COLS];
    float x[ROWS * COLS], want[ROWS * COLS], got[ROWS * COLS];
    fleet_feed feed = {"x", FLEET_FLOAT32, x, (int64_t[]){ROWS, COLS}, 2, NULL};
    fleet_predictor *p;

    train(&t, &(way){0}, 3, mean, variance);
    fill(x, 9);
    CHECK_OK(run(t.tester, x, t.y, want));
    CHECK_OK(fleet_save_inference_model(t.f, path, &in, 1, &t.y, 1));
    p = fleet_load_inference_model(path);
    CHECK(p != NULL);
    CHECK_OK(fleet_predictor_run(p, &feed, 1, (void *[]){got},
                                 (size_t[]){sizeof got}, 1));
    CHECK(memcmp(got, want, sizeof got) == 0);
    fleet_predictor_destroy(p);
    trained_close(&t);
}

TEST(a_checkpoint_goes_on_with_them)
{
    trained t = trained_open(&(way){.place = FLEET_CPU}), u;
    const char *path = test_path("saved");
    double mean[COLS], variance[COLS];
    uint64_t want, got;

    train(&t, &(way){0}, 3, mean, variance);
    CHECK_OK(fleet_save_persistables(t.f, path));
    train(&t, &(way){0}, 2, mean, variance);
    CHECK_OK(fleet_params_hash(t.f, &want));
    u = trained_open(&(way){.place = FLEET_CPU});
    CHECK_OK(fleet_load_model(u.f, path));
    train(&u, &(way){0}, 2, mean, variance);
    CHECK_OK(fleet_params_hash(u.f, &got));
    CHECK(got == want);
    trained_close(&t);
    trained_close(&u);
}
