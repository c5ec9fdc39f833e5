/* metrics_test.c - AUC against a count of all pairs of a positive and a
 * negative, in which a tie is half a win: on the CPU and on a GPU, with ties in
 * a score and in a bucket, over several batches. */
#define SUITE metrics
#include "gpu_kit.h"
#include "test.h"

#include <math.h>

enum { BATCHES = 3, ROWS = 70, N = BATCHES * ROWS };

typedef struct samples {
    float p[N];
    int64_t label[N];
} samples;

/* The share of pairs that are won; what ties is for the caller to say. */
static double won_pairs(const double score[N], const int64_t label[N],
                        double tie)
{
    double won = 0, pairs = 0;

    for (int a = 0; a < N; a++)
        for (int b = 0; b < N; b++)
            if (label[a] == 1 && label[b] == 0) {
                pairs++;
                won += score[a] > score[b] ? 1 : score[a] == score[b] ? tie : 0;
            }
    return pairs > 0 ? won / pairs : 0.5;
}

/* --- by a program -------------------------------------------------------- */

typedef struct result {
    double over_all; /* fleet_metrics_auc() */
    float fetched;   /* after the last batch */
} result;

/* With two columns the second counts. */
static void feed_batch(fleet_executor *e, const fleet_var *auc,
                       const samples *s, int first, int cols, float *out)
{
    int64_t p_dims[] = {ROWS, cols}, label_dims[] = {ROWS, 1};
    fleet_fetch fetch = {.var = auc, .data = out, .size = sizeof *out};
    float p[2 * ROWS];

    for (int i = 0; i < ROWS; i++)
        for (int c = 0; c < cols; c++)
            p[i * cols + c] =
                c == cols - 1 ? s->p[first + i] : 1 - s->p[first + i];
    CHECK_OK(fleet_executor_run(
        e,
        (fleet_feed[]){
            {"p", FLEET_FLOAT32, p, p_dims, 2, NULL},
            {"y", FLEET_INT64, s->label + first, label_dims, 2, NULL}},
        2, &fetch, 1));
}

static result auc_of(const samples *s, int64_t buckets, int cols,
                     const char *device)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    fleet_executor *e;
    fleet_var *auc;
    result r;

    kit_place(p, &(kit_options){.device = device});
    auc =
        fleet_auc(p, kit_data(p, "p", cols), kit_data_ids(p, "y", 1), buckets);
    e = fleet_executor_create(p, NULL);
    CHECK(auc && e);
    for (int b = 0; b < BATCHES; b++)
        feed_batch(e, auc, s, b * ROWS, cols, &r.fetched);
    CHECK_FAILS(fleet_metrics_auc(f, auc, NULL), FLEET_EINVAL,
                "no place for it");
    CHECK_OK(fleet_metrics_auc(f, auc, &r.over_all));
    fleet_executor_destroy(e);
    fleet_destroy(f);
    return r;
}

/* --- samples ------------------------------------------------------------- */

/* Scores in [0, 1), better than by chance; `steps`: multiples of 1 / steps,
 * with 1 itself among them. */
static void make_samples(samples *s, int steps, int stream)
{
    for (int i = 0; i < N; i++) {
        double x = ((double)kit_noise(i, stream) + 1) / 2;

        s->label[i] = kit_noise(i, stream + 1) < (float)x - 0.6f;
        s->p[i] = (float)(steps ? round(x * steps) / steps : x);
    }
}

static void to_double(const samples *s, double score[N])
{
    for (int i = 0; i < N; i++)
        score[i] = (double)s->p[i];
}

static void to_buckets(const samples *s, int64_t buckets, double score[N])
{
    for (int i = 0; i < N; i++)
        score[i] =
            fmin(floor((double)s->p[i] * (double)buckets), (double)buckets - 1);
}

static void check_auc(result got, double want)
{
    if (!(fabs(got.over_all - want) <= 1e-12) ||
        !(fabs((double)got.fetched - want) <= 1e-7))
        test_fail(__FILE__, __LINE__, "AUC %.15g, fetched %.9g, not %.15g",
                  got.over_all, (double)got.fetched, want);
}

/* --- what is promised ---------------------------------------------------- */

/* Nine scores, each in a bucket of its own: nothing is lost. */
static void check_ties(const char *device)
{
    double score[N];
    samples s;

    make_samples(&s, 8, 3);
    to_double(&s, score);
    CHECK(won_pairs(score, s.label, 1) - won_pairs(score, s.label, 0) > 0.05);
    for (int cols = 1; cols <= 2; cols++) {
        check_auc(auc_of(&s, 16, cols, device), won_pairs(score, s.label, 0.5));
        check_auc(auc_of(&s, 0, cols, device), won_pairs(score, s.label, 0.5));
    }
}

/* What shares a bucket ties; that is as far as it may be from the area of the
 * scores themselves. */
static void check_buckets(const char *device)
{
    double score[N], bucket[N], most;
    samples s;

    make_samples(&s, 0, 5);
    to_double(&s, score);
    for (int64_t n = 2; n <= 4096; n *= 2) {
        result got = auc_of(&s, n, 1, device);

        to_buckets(&s, n, bucket);
        check_auc(got, won_pairs(bucket, s.label, 0.5));
        most = won_pairs(bucket, s.label, 1) - won_pairs(bucket, s.label, 0);
        CHECK(fabs(got.over_all - won_pairs(score, s.label, 0.5)) <=
              most / 2 + 1e-12);
    }
}

TEST(a_tie_is_half_a_win)
{
    check_ties(NULL);
}

TEST(scores_of_one_bucket_tie)
{
    check_buckets(NULL);
}

TEST(on_a_gpu_ties_and_buckets_are_the_same)
{
    gpu_kit_open();
    check_ties("gpu:0");
    check_buckets("gpu:0");
    gpu_kit_close();
}

static void set_all(samples *s, float of_positives, float of_negatives)
{
    for (int i = 0; i < N; i++)
        s->p[i] = s->label[i] ? of_positives : of_negatives;
}

TEST(the_ends_of_the_scale_are_exact)
{
    samples s;

    make_samples(&s, 8, 7);
    set_all(&s, 0.5f, 0.5f);
    check_auc(auc_of(&s, 0, 1, NULL), 0.5);
    set_all(&s, 1, 0.999f);
    check_auc(auc_of(&s, 4096, 1, NULL), 1);
    check_auc(auc_of(&s, 16, 1, NULL), 0.5);
    set_all(&s, 0, 1);
    check_auc(auc_of(&s, 0, 1, NULL), 0);
    for (int i = 0; i < N; i++)
        s.label[i] = 1;
    check_auc(auc_of(&s, 0, 1, NULL), 0.5);
}
