/* error_metrics_test.c - fleet_metric() over several batches against sums in
 * double, on the CPU and on a GPU; what it refuses, of which nothing is
 * counted. */
#define SUITE error_metrics
#include "gpu_kit.h"
#include "op_kit.h"
#include "test.h"

#include <math.h>

enum {
    BATCHES = 3,
    ROWS = 70,
    N = BATCHES * ROWS,
    KINDS = FLEET_METRIC_F1 + 1
};

typedef struct samples {
    float x[N];
    int64_t label[N];
} samples;

static void make_samples(samples *s)
{
    for (int i = 0; i < N; i++) {
        s->x[i] = (kit_noise(i, 3) + 1) / 2;
        s->label[i] = kit_noise(i, 4) < s->x[i] - 0.6f;
    }
    s->x[7] = 0.5f;                      /* at the threshold: not above it */
    s->x[9] = s->label[9] ? 0.0f : 1.0f; /* a probability of 0 */
}

static double share(double of, double all)
{
    return all > 0 ? of / all : 0;
}

static double wanted(const samples *s, int kind, double threshold, int n)
{
    double error = 0, square = 0, cost = 0, found = 0, right = 0, positive = 0;

    for (int i = 0; i < n; i++) {
        double x = (double)s->x[i], y = (double)s->label[i];

        error += fabs(x - y);
        square += (x - y) * (x - y);
        cost -= log(fmax(y > 0 ? x : 1 - x, 0x1p-23));
        found += x > threshold;
        right += x > threshold && y > 0;
        positive += y;
    }
    switch (kind) {
    case FLEET_METRIC_MAE:
        return share(error, n);
    case FLEET_METRIC_RMSE:
        return sqrt(share(square, n));
    case FLEET_METRIC_LOG_LOSS:
        return share(cost, n);
    case FLEET_METRIC_PRECISION:
        return share(right, found);
    case FLEET_METRIC_RECALL:
        return share(right, positive);
    default:
        return share(2 * right, found + positive);
    }
}

typedef struct scene {
    fleet *f;
    fleet_program *p;
    fleet_executor *e;
    fleet_var *metric[KINDS];
    float fetched[KINDS];
} scene;

/* cols 2: the second is the probability, and of MAE and RMSE no more. */
static void open_scene(scene *s, const char *device, int cols, float threshold)
{
    fleet_var *x, *label;

    *s = (scene){.f = kit_handle(&(kit_options){0})};
    s->p = fleet_program_create(s->f);
    kit_place(s->p, &(kit_options){.device = device});
    x = kit_data(s->p, "x", cols);
    label = kit_data_ids(s->p, "y", 1);
    for (int i = 0; i < KINDS; i++) {
        bool binary = i >= FLEET_METRIC_LOG_LOSS;

        s->metric[i] = fleet_metric(
            s->p, (fleet_metric_kind)i,
            binary || cols == 1 ? x : fleet_slice(s->p, x, 1, 1, 0), label,
            i >= FLEET_METRIC_PRECISION ? threshold : 0);
    }
    s->e = fleet_executor_create(s->p, NULL);
    CHECK_OK(fleet_program_status(s->p));
    CHECK(s->e != NULL);
}

static void close_scene(scene *s)
{
    fleet_executor_destroy(s->e);
    fleet_destroy(s->f);
}

static fleet_status run(scene *s, const float *x, const int64_t *label,
                        int cols)
{
    int64_t x_dims[] = {ROWS, cols}, label_dims[] = {ROWS, 1};
    fleet_fetch fetch[KINDS];
    float both[2 * ROWS];

    for (int i = 0; i < ROWS; i++)
        for (int c = 0; c < cols; c++)
            both[i * cols + c] = c == cols - 1 ? x[i] : 1 - x[i];
    for (int i = 0; i < KINDS; i++)
        fetch[i] = (fleet_fetch){.var = s->metric[i],
                                 .data = &s->fetched[i],
                                 .size = sizeof s->fetched[i]};
    return fleet_executor_run(
        s->e,
        (fleet_feed[]){{"x", FLEET_FLOAT32, both, x_dims, 2, NULL},
                       {"y", FLEET_INT64, label, label_dims, 2, NULL}},
        2, fetch, KINDS);
}

static void check_values(scene *s, const samples *all, double threshold, int n)
{
    for (int i = 0; i < KINDS; i++) {
        double want = wanted(all, i, threshold, n), got;

        CHECK_OK(fleet_metrics_value(s->f, s->metric[i], &got));
        CHECK_NEAR(got, want, 1e-12);
        if (n > 0)
            CHECK_NEAR((double)s->fetched[i], want, 1e-6);
    }
}

static void check_all(const char *device)
{
    samples all;
    scene s;

    make_samples(&all);
    for (int cols = 1; cols <= 2; cols++) {
        double threshold = cols == 1 ? 0.5 : 0.25;

        open_scene(&s, device, cols, cols == 1 ? 0 : 0.25f);
        for (int i = 0; i < BATCHES; i++) {
            CHECK_OK(run(&s, all.x + i * ROWS, all.label + i * ROWS, cols));
            check_values(&s, &all, threshold, (i + 1) * ROWS);
        }
        CHECK_OK(fleet_metrics_reset(s.f));
        check_values(&s, &all, threshold, 0);
        close_scene(&s);
    }
}

TEST(all_samples_since_a_reset_count)
{
    check_all(NULL);
}

TEST(on_a_gpu_all_samples_count_likewise)
{
    gpu_kit_open();
    check_all("gpu:0");
    gpu_kit_close();
}

TEST(programs_of_a_handle_do_not_mix_metrics_of_different_kinds)
{
    fleet *f = kit_handle(&(kit_options){0});
    int64_t dims[] = {ROWS, 1};
    fleet_var *m[KINDS];
    samples all;
    double got;

    make_samples(&all);
    for (int i = 0; i < KINDS; i++) {
        fleet_program *p = fleet_program_create(f);
        fleet_feed feed[] = {{"x", FLEET_FLOAT32, all.x, dims, 2, NULL},
                             {"y", FLEET_INT64, all.label, dims, 2, NULL}};
        fleet_executor *e;

        m[i] = fleet_metric(p, (fleet_metric_kind)i, kit_data(p, "x", 1),
                            kit_data_ids(p, "y", 1), 0);
        e = fleet_executor_create(p, NULL);
        CHECK_OK(fleet_executor_run(e, feed, 2, NULL, 0));
        fleet_executor_destroy(e);
    }
    for (int i = 0; i < KINDS; i++) {
        CHECK_OK(fleet_metrics_value(f, m[i], &got));
        CHECK_NEAR(got, wanted(&all, i, 0.5, ROWS), 1e-12);
    }
    fleet_destroy(f);
}

/* Metric alone of the batch, whose row 3 is bad. */
static void check_bad(float x, int64_t label, fleet_metric_kind kind,
                      fleet_status code, const char *words)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    fleet_var *m =
        fleet_metric(p, kind, kit_data(p, "x", 1), kit_data_ids(p, "y", 1), 0);
    fleet_executor *e = fleet_executor_create(p, NULL);
    float in[5] = {0.25f, 0.25f, 0.25f, x, 0.25f};
    int64_t y[5] = {1, 0, 1, label, 0}, dims[] = {5, 1};
    fleet_feed feed[] = {{"x", FLEET_FLOAT32, in, dims, 2, NULL},
                         {"y", FLEET_INT64, y, dims, 2, NULL}};
    double got;

    CHECK_FAILS(fleet_executor_run(e, feed, 2, NULL, 0), code, words);
    CHECK_OK(fleet_metrics_value(f, m, &got));
    CHECK_NEAR(got, 0, 0);
    fleet_executor_destroy(e);
    fleet_destroy(f);
}

TEST(of_a_batch_with_a_bad_sample_nothing_is_counted)
{
    check_bad(NAN, 1, FLEET_METRIC_MAE, FLEET_ENUMERIC,
              "metric: x is nan in row 3 of the batch");
    check_bad(INFINITY, 1, FLEET_METRIC_RMSE, FLEET_EINVAL,
              "metric: x inf and label 1 in row 3 of the batch; expected a "
              "finite difference");
    check_bad(1.5f, 1, FLEET_METRIC_LOG_LOSS, FLEET_EINVAL,
              "metric: x 1.5 and label 1 in row 3 of the batch; expected a "
              "number from 0 to 1, and 0 or 1");
    check_bad(0.5f, 2, FLEET_METRIC_F1, FLEET_EINVAL, "x 0.5 and label 2");
}

TEST(a_label_that_is_nan_is_named)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    fleet_var *m = fleet_metric(p, FLEET_METRIC_RMSE, kit_data(p, "x", 1),
                                kit_data(p, "y", 1), 0);
    fleet_executor *e = fleet_executor_create(p, NULL);
    float x[2] = {1, 2}, y[2] = {1, NAN};
    int64_t dims[] = {2, 1};
    fleet_feed feed[] = {{"x", FLEET_FLOAT32, x, dims, 2, NULL},
                         {"y", FLEET_FLOAT32, y, dims, 2, NULL}};

    CHECK(m != NULL);
    CHECK_FAILS(fleet_executor_run(e, feed, 2, NULL, 0), FLEET_ENUMERIC,
                "metric: label is nan in row 1 of the batch");
    fleet_executor_destroy(e);
    fleet_destroy(f);
}

#define OF(kind, x, label, threshold)                                          \
    fleet_metric(p, FLEET_METRIC_##kind, x, label, threshold)
#define BUILD(name, expression)                                                \
    static fleet_var *build_##name(fleet_program *p, fleet_var **in)           \
    {                                                                          \
        (void)in;                                                              \
        return expression;                                                     \
    }

BUILD(kind, fleet_metric(p, (fleet_metric_kind)6, in[0], in[0], 0))
BUILD(threshold, OF(F1, kit_data(p, "p", 1), kit_data_ids(p, "y", 1), 1))
BUILD(of_mae, OF(MAE, in[0], in[0], 0.5f))
BUILD(shape, OF(RMSE, in[0], kit_data(p, "y", 3), 0))
BUILD(ids, OF(MAE, kit_data_ids(p, "i", 4), in[0], 0))
BUILD(wide, OF(RECALL, in[0], kit_data_ids(p, "y", 1), 0))
BUILD(label, OF(LOG_LOSS, kit_data(p, "p", 1), in[0], 0))
BUILD(folded, OF(F1, fleet_reshape(p, in[0], (int64_t[]){-2, 2}, 2),
                 kit_data_ids(p, "y", 1), 0))
BUILD(ragged, OF(MAE, in[0], fleet_data_ragged(p, "r"), 0))
BUILD(null, OF(MAE, in[0], NULL, 0))

TEST(arguments_that_cannot_be_are_refused_by_name)
{
    static const op_refusal refusals[] = {
        {build_kind, FLEET_EINVAL, "metric: kind 6 does not exist"},
        {build_threshold, FLEET_EINVAL, "metric: threshold 1 is not in (0, 1)"},
        {build_of_mae, FLEET_EINVAL,
         "metric: threshold 0.5 is for precision, recall and F1"},
        {build_shape, FLEET_ESHAPE,
         "metric: \"y\" has shape [-1,3]; expected that of x"},
        {build_ids, FLEET_EDTYPE, "metric: \"i\" is int64, not float32"},
        {build_wide, FLEET_ESHAPE, "expected [-1,1] or [-1,2]"},
        {build_label, FLEET_ESHAPE, "has shape [-1,4]; expected [-1,1]"},
        {build_folded, FLEET_ESHAPE,
         "\"y\" has shape [-1,1]; expected as many rows as the input"},
        {build_ragged, FLEET_EDTYPE, "metric: \"r\" is ragged int64"},
        {build_null, FLEET_EINVAL, "NULL as its input"},
    };
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    fleet_var *x = kit_data(p, "x", 1);
    double got;

    check_refusals(refusals, sizeof refusals / sizeof *refusals, NULL);
    CHECK_FAILS(fleet_metrics_value(f, OF(MAE, x, x, 0), NULL), FLEET_EINVAL,
                "no place for it");
    CHECK_FAILS(fleet_metrics_value(f, x, &got), FLEET_EINVAL,
                "\"x\" is not the output of fleet_metric()");
    CHECK_FAILS(fleet_metrics_value(f, OF(MAE, x, x, 0), &got), FLEET_ESTATE,
                "was never run");
    fleet_destroy(f);
}
