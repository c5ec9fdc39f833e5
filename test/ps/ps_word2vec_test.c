/* ps_word2vec_test.c - word vectors (skip-gram with negative samples) of a
 * corpus made from a seed, in async and in geo: words of one topic come to be
 * near each other, in geo as in async. Nothing is dense: a job of tables alone.
 */
#define SUITE ps_word2vec
#include "ps_kit.h"
#include "test.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"

enum { WORDS = 200, TOPICS = 10, DIM = 16, BATCH = 64, STEPS = 1500, SEED = 7 };

static fleet_var *vectors(ps_node *n, const char *slot, const char *table)
{
    fleet_var *ids =
        fleet_data(n->s.p, slot, FLEET_INT64, (int64_t[]){-1, 1}, 2);

    return fleet_sparse_embedding(
        n->s.p, ids, DIM,
        &(fleet_sparse_embedding_options){
            .table = table, .initializer = {FLEET_INIT_UNIFORM, -0.1f, 0.1f}});
}

static void open_words(ps_node *n, const fleet_options *o)
{
    fleet_distributed_strategy s = fleet_distributed_strategy_default();
    fleet_var *word, *near, *label, *score;

    CHECK_OK(fleet_init(&n->s.f, o));
    n->s.p = fleet_program_create(n->s.f);
    word = vectors(n, "word", "words");
    near = vectors(n, "near", "contexts");
    label = fleet_data(n->s.p, "label", FLEET_FLOAT32, (int64_t[]){-1, 1}, 2);
    score = fleet_reduce_sum(n->s.p, fleet_mul(n->s.p, word, near), 1, 1);
    n->s.m.prediction = word;
    n->s.m.loss =
        fleet_mean(n->s.p, fleet_sigmoid_cross_entropy(n->s.p, score, label));
    s.a_sync_configs.k_steps = *(const int64_t *)n->job->user;
    CHECK_OK(fleet_minimize(fleet_distributed_optimizer(
                                n->s.f, fleet_adagrad(n->s.f, 0.5f, NULL), &s),
                            n->s.m.loss));
}

/* In [0, n), of that sample. */
static int64_t draw(const ps_node *n, int step, int i, int what, int64_t below)
{
    uint64_t x = (uint64_t)SEED << 60 | (uint64_t)n->index << 56 |
                 (uint64_t)step << 32 | (uint64_t)i << 8 | (uint64_t)what;

    return (int64_t)(fl_mix(x) % (uint64_t)below);
}

/* A word and one of its neighbours in the text, which are of its topic in four
 * of five cases; or a word that was drawn, with label 0. Few words are half of
 * the text. */
static fleet_status train_batch(ps_node *n, int step, float *loss)
{
    int64_t word[BATCH], near[BATCH], dims[] = {BATCH, 1};
    float label[BATCH];
    const fleet_feed feed[] = {{"word", FLEET_INT64, word, dims, 2, NULL},
                               {"near", FLEET_INT64, near, dims, 2, NULL},
                               {"label", FLEET_FLOAT32, label, dims, 2, NULL}};
    fleet_fetch fetch = {
        .var = n->s.m.loss, .data = loss, .size = sizeof *loss};

    for (int i = 0; i < BATCH; i++) {
        int64_t topic = draw(n, step, i, 0, TOPICS);
        int64_t often = draw(n, step, i, 1, 2) ? WORDS / TOPICS : 4;

        word[i] = topic + TOPICS * draw(n, step, i, 2, often);
        label[i] = (float)(i % 2);
        near[i] = i % 2 && draw(n, step, i, 3, 5)
                      ? topic + TOPICS * draw(n, step, i, 4, often)
                      : draw(n, step, i, 5, WORDS);
    }
    return fleet_executor_run(n->s.e, feed, 3, &fetch, 1);
}

static double cosine(const float *a, const float *b)
{
    double ab = 0, aa = 0, bb = 0;

    for (int d = 0; d < DIM; d++) {
        ab += (double)(a[d] * b[d]);
        aa += (double)(a[d] * a[d]);
        bb += (double)(b[d] * b[d]);
    }
    return ab / sqrt(aa * bb + 1e-30);
}

/* How much nearer two words of one topic are than two of different ones. */
static double distinction(const float *v)
{
    double same = 0, other = 0;
    int n_same = 0, n_other = 0;

    for (int a = 0; a < WORDS; a++)
        for (int b = 0; b < a; b++) {
            double c = cosine(v + a * DIM, v + b * DIM);
            bool is_same = a % TOPICS == b % TOPICS;

            same += is_same ? c : 0;
            other += is_same ? 0 : c;
            n_same += is_same;
            n_other += !is_same;
        }
    return same / n_same - other / n_other;
}

static fleet_status read_vectors(ps_node *n, float *v)
{
    int64_t word[WORDS], dims[] = {WORDS, 1};
    float label[WORDS] = {0};
    const fleet_feed feed[] = {{"word", FLEET_INT64, word, dims, 2, NULL},
                               {"near", FLEET_INT64, word, dims, 2, NULL},
                               {"label", FLEET_FLOAT32, label, dims, 2, NULL}};
    fleet_fetch fetch = {
        .var = n->s.m.prediction, .data = v, .size = WORDS * DIM * sizeof *v};

    for (int i = 0; i < WORDS; i++)
        word[i] = i;
    n->s.tester =
        fleet_executor_create(n->s.p, &(fleet_executor_options){.for_test = 1});
    return fleet_executor_run(n->s.tester, feed, 3, &fetch, 1);
}

/* number: the loss of the first and of the last 100 batches, and what the
 * vectors are worth. */
static fleet_status learn_words(ps_node *n)
{
    static float v[PS_MOST][WORDS * DIM];
    double sum[3] = {0, 0, 1};
    float loss;

    FL_TRY(ps_begin(n));
    for (int step = 0; step < STEPS; step++) {
        FL_TRY(train_batch(n, step, &loss));
        sum[0] += step < 100 ? (double)loss / 100 : 0;
        sum[1] += step >= STEPS - 100 ? (double)loss / 100 : 0;
    }
    FL_TRY(fleet_metrics_sum(n->s.f, sum, 3));
    n->number[0] = sum[0] / sum[2];
    n->number[1] = sum[1] / sum[2];
    FL_TRY(fleet_barrier_worker(n->s.f));
    FL_TRY(read_vectors(n, v[n->index]));
    n->number[2] = distinction(v[n->index]);
    return ps_end(n);
}

static const double *learn(int64_t every, ps_job *j)
{
    *j = (ps_job){.workers = 2,
                  .lanes = 2,
                  .open = open_words,
                  .work = learn_words,
                  .user = &every};
    ps_run(j);
    ps_check(j);
    return ps_worker(j, 0)->number;
}

TEST_LIMIT(words_of_a_topic_are_near_each_other_in_geo_as_in_async, 240)
{
    static ps_job a, b;
    const double *async = learn(0, &a), *geo = learn(50, &b);

    CHECK(geo[1] < geo[0] - 0.1);
    CHECK(geo[1] < async[1] + 0.03);
    CHECK(async[2] > 0.5);
    CHECK(geo[2] > async[2] - 0.1);
}
