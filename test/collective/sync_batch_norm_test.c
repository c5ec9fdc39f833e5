/* sync_batch_norm_test.c - statistics of all ranks' batches: gradients against
 * differences of a reference, batches of unequal sizes and numbers, rows that
 * ranks share out, a batch that is wrong, and what it does not go with. */
#define SUITE sync_batch_norm
#include "fake_comm.h"
#include "rank_kit.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- a reference ---------------------------------------------------------- */

/* W, w, b of y = batch_norm(x W) w + b, whose distance from t is the loss. */
enum { RANKS = 2, IN = 4, OUT = 3, N_W = IN * OUT, N_ALL = N_W + 2 * OUT };
enum { MOST_ROWS = 40 };
static const int64_t rows_of[RANKS] = {MOST_ROWS, 23};

static float x_of(int rank, int64_t row, int i)
{
    return kit_noise(row * IN + i, rank) * (float)(1 + i) + (float)rank;
}

static float t_of(int rank, int64_t row, int j)
{
    return kit_noise(row * OUT + j, 10 + rank);
}

static double h_of(const double *p, int rank, int64_t row, int j)
{
    double sum = 0;

    for (int i = 0; i < IN; i++)
        sum += (double)x_of(rank, row, i) * p[i * OUT + j];
    return sum;
}

typedef struct column {
    double mean, variance;
} column;

static column column_of(const double *p, int j)
{
    double sum = 0, squares = 0, n = 0;

    for (int r = 0; r < RANKS; r++)
        for (int64_t i = 0; i < rows_of[r]; i++, n++)
            sum += h_of(p, r, i, j);
    for (int r = 0; r < RANKS; r++)
        for (int64_t i = 0; i < rows_of[r]; i++)
            squares += pow(h_of(p, r, i, j) - sum / n, 2);
    return (column){sum / n, squares / n};
}

/* The mean over the ranks of the mean over a rank's own numbers. */
static double loss_of(const double *p)
{
    double loss = 0;

    for (int j = 0; j < OUT; j++) {
        column c = column_of(p, j);

        for (int r = 0; r < RANKS; r++)
            for (int64_t i = 0; i < rows_of[r]; i++) {
                double z = (h_of(p, r, i, j) - c.mean) /
                           sqrt(c.variance + (double)1e-5f);
                double y = z * p[N_W + j] + p[N_W + OUT + j];

                loss += pow(y - (double)t_of(r, i, j), 2) /
                        (double)(RANKS * OUT * rows_of[r]);
            }
    }
    return loss;
}

/* --- ranks ---------------------------------------------------------------- */

static const char *const names[] = {"h.w", "n.w", "n.b"};
static const int64_t sizes[] = {N_W, OUT, OUT};

typedef struct step {
    bool sync, looks;
    float before[RANKS][N_ALL], after[RANKS][N_ALL];
    float mean[RANKS][OUT], variance[RANKS][OUT];
} step;

static void read_all(fleet *f, float *to)
{
    for (int i = 0; i < 3; to += sizes[i++])
        CHECK_OK(fleet_parameter_get(f, names[i], to, sizes[i]));
}

static void build(kit_model *m)
{
    const kit_options how = {.optimizer = "sgd", .learning_rate = 1};
    fleet_var *y, *t;

    *m = (kit_model){.f = kit_handle(&how)};
    m->p = fleet_program_create(m->f);
    y = fleet_fc(m->p, kit_data(m->p, "x", IN), OUT,
                 &(fleet_fc_options){.name = "h", .no_bias = 1});
    y = fleet_batch_norm(m->p, y, &(fleet_batch_norm_options){.name = "n"});
    t = kit_data(m->p, "t", OUT);
    m->m.prediction = fleet_batch_norm(m->p, t, NULL);
    m->m.loss = fleet_mean(m->p, fleet_square(m->p, fleet_sub(m->p, y, t)));
    CHECK_OK(fleet_minimize(kit_optimizer(m->f, &how), m->m.loss));
}

static kit_batch *batch_of(int rank)
{
    kit_batch *b = kit_batch_new(rows_of[rank]);
    float *x = kit_floats(b, "x", IN, 0), *t = kit_floats(b, "t", OUT, 0);

    for (int64_t i = 0; i < b->rows; i++) {
        for (int j = 0; j < IN; j++)
            x[i * IN + j] = x_of(rank, i, j);
        for (int j = 0; j < OUT; j++)
            t[i * OUT + j] = t_of(rank, i, j);
    }
    return b;
}

static void take_step(fake_rank *r, void *arg)
{
    step *s = arg;
    int rank = r->p.rank;
    kit_batch *b = batch_of(rank);
    float seen[MOST_ROWS * OUT];
    kit_model m;

    build(&m);
    m.p->training.sync_batch_norm = s->sync;
    r->rounds.store = m.f->store;
    m.f->store->agree = &r->rounds;
    m.e = fleet_executor_create(m.p, NULL);
    CHECK(m.e != NULL);
    read_all(m.f, s->before[rank]);
    if (s->looks && rank == 0)
        CHECK_OK(kit_fetch(m.e, b, m.m.prediction, seen, MOST_ROWS * OUT));
    else
        CHECK_OK(kit_run(m.e, b));
    read_all(m.f, s->after[rank]);
    CHECK_OK(fleet_parameter_get(m.f, "n.mean", s->mean[rank], OUT));
    CHECK_OK(fleet_parameter_get(m.f, "n.variance", s->variance[rank], OUT));
    kit_batch_free(b);
    m.f->store->agree = NULL;
    r->rounds.store = NULL;
    kit_close(&m);
}

static double change_of(const double *p, int i)
{
    const double d = 1e-5;
    double moved[2][N_ALL];

    for (int k = 0; k < 2; k++) {
        memcpy(moved[k], p, sizeof moved[k]);
        moved[k][i] += k ? -d : d;
    }
    return (loss_of(moved[0]) - loss_of(moved[1])) / (2 * d);
}

/* By how much a step is off at most from the gradient of the reference. */
static double worst_of(const step *s)
{
    double p[N_ALL], worst = 0;

    for (int i = 0; i < N_ALL; i++)
        p[i] = (double)s->before[0][i];
    for (int i = 0; i < N_ALL; i++)
        worst = fmax(worst, fabs((double)s->before[0][i] -
                                 (double)s->after[0][i] - change_of(p, i)));
    return worst;
}

/* Of what each rank's own statistics are it is far off. */
TEST(gradients_are_those_of_the_statistics_of_all_lines)
{
    step s = {.sync = true}, own = {.sync = false};
    fake_group g;

    fake_group_open(&g, RANKS);
    fake_group_run(&g, take_step, &s);
    fake_group_run(&g, take_step, &own);
    fake_group_close(&g);
    CHECK(memcmp(s.after[0], s.after[1], sizeof *s.after) == 0);
    CHECK(worst_of(&s) < 1e-6);
    CHECK(worst_of(&own) > 1e-2);
}

TEST(moving_averages_follow_all_lines)
{
    step s = {.sync = true};
    double p[N_ALL];
    fake_group g;

    fake_group_open(&g, RANKS);
    fake_group_run(&g, take_step, &s);
    fake_group_close(&g);
    for (int i = 0; i < N_ALL; i++)
        p[i] = (double)s.before[0][i];
    for (int j = 0; j < OUT; j++) {
        column c = column_of(p, j);

        for (int r = 0; r < RANKS; r++) {
            CHECK(fabs((double)s.mean[r][j] - 0.1 * c.mean) < 1e-6);
            CHECK(fabs((double)s.variance[r][j] - 0.9 - 0.1 * c.variance) <
                  1e-6);
        }
    }
}

/* --- several updates ------------------------------------------------------ */

static void by_all_batches(fleet_distributed_strategy *s)
{
    s->is_collective = 1;
    s->sync_batch_norm = 1;
}

static kit_batch *both(const kit_batch *a, const kit_batch *b)
{
    kit_batch *all = kit_batch_new(a->rows + b->rows);

    for (int i = 0; i < a->n; i++) {
        size_t row = (size_t)a->dims[i][1] * fleet_dtype_size(a->feed[i].dtype);
        char *to =
            i == 0 ? (char *)kit_floats(all, a->feed[i].name, a->dims[i][1], 0)
                   : (char *)kit_ids(all, a->feed[i].name, a->dims[i][1], 5, 0);

        memcpy(to, a->feed[i].data, row * (size_t)a->rows);
        memcpy(to + row * (size_t)a->rows, b->feed[i].data,
               row * (size_t)b->rows);
    }
    return all;
}

/* Batches two by two are one of all rows; the last one is alone. */
TEST(ranks_with_unequal_numbers_of_batches_are_one_with_theirs)
{
    rank_lesson s = {.how = {.optimizer = "sgd",
                             .normalized = true,
                             .choose = by_all_batches},
                     .batches = 5,
                     .passes = 1,
                     .last = WORK_ROWS};
    const kit_options one = {.optimizer = "sgd", .normalized = true};
    const fl_flat *want;
    kit_model m;
    work k;

    rank_train(&s, 2);
    CHECK_INT(s.updates[0], 3);
    kit_open(&m, KIT_MLP, &one);
    work_open(&k, &m, s.batches, s.last);
    for (int i = 0; i < k.n; i += 2) {
        kit_batch *b = i + 1 < k.n ? both(k.b[i], k.b[i + 1]) : NULL;

        CHECK_OK(kit_run(m.e, b ? b : k.b[i]));
        kit_batch_free(b);
    }
    want = rank_group(&m);
    for (int64_t i = 0; i < want->n; i++)
        CHECK(fabsf(s.weight[0][i] - want->weight[i]) <=
              2e-6f * fmaxf(1, fabsf(want->weight[i])));
    work_close(&k);
    kit_close(&m);
}

/* Buckets leave behind the last sum of statistics, on all ranks. */
TEST(so_they_are_with_small_buckets_and_what_reduces_otherwise)
{
    for (int i = 0; i < 3; i++) {
        rank_lesson s = {.how = {.optimizer = i == 2 ? "momentum" : "adam",
                                 .normalized = true,
                                 .threads = 2},
                         .also = {.sync_batch_norm = true,
                                  .all_reduce = {.bucket = 60, .fp16 = i == 1},
                                  .dgc = {i == 2, 0.9f, 0, 1, 100}},
                         .batches = 7,
                         .passes = 2,
                         .last = 17};

        rank_train(&s, 3);
        CHECK_INT(s.updates[0], 6);
    }
}

/* --- a batch that is wrong ------------------------------------------------ */

static void spoil(work *k, int rank)
{
    if (rank == 1)
        ((float *)(uintptr_t)k->b[1]->feed[0].data)[3] = NAN;
}

TEST(the_rank_whose_batch_is_wrong_names_it_and_others_where_it_comes_from)
{
    rank_lesson s = {.how = {.normalized = true, .choose = by_all_batches},
                     .batches = 4,
                     .passes = 1,
                     .last = WORK_ROWS,
                     .spoil = spoil};

    rank_try(&s, 2);
    CHECK_INT(s.status[1], FLEET_ENUMERIC);
    CHECK_CONTAINS(s.error[1], "input \"image\"");
    CHECK_INT(s.status[0], FLEET_ENUMERIC);
    CHECK_CONTAINS(s.error[0], "strategy.sync_batch_norm");
}

/* Each call in turn. */
TEST(a_rank_that_fails_in_the_middle_ends_all)
{
    rank_lesson s = {.how = {.normalized = true, .choose = by_all_batches},
                     .batches = 2,
                     .passes = 1,
                     .last = WORK_ROWS};
    int calls;

    rank_train(&s, 2);
    calls = s.calls[1];
    CHECK(calls > 4);
    for (s.fail_at = 1; s.fail_at <= calls; s.fail_at++) {
        rank_try(&s, 2);
        CHECK_INT(s.status[1], FLEET_EIO);
        CHECK_INT(s.status[0], FLEET_EPEER);
        CHECK_CONTAINS(s.error[0], "rank 1 cannot go on");
    }
}

/* --- one process, plans --------------------------------------------------- */

TEST(in_one_process_it_is_batch_norm)
{
    uint64_t hash[2];

    for (int i = 0; i < 2; i++) {
        kit_model m;

        kit_open(&m, KIT_MLP,
                 &(kit_options){.normalized = true,
                                .choose = i ? by_all_batches : NULL});
        hash[i] = kit_train(&m, 40, 3);
        kit_close(&m);
    }
    CHECK(hash[0] == hash[1]);
}

/* The first rank looks at more than the other: what the loss does not reach is
 * summed by nobody else. */
TEST(what_the_loss_does_not_reach_is_of_the_ranks_own_batch)
{
    step s = {.sync = true, .looks = true}, blind = {.sync = true};
    fake_group g;

    fake_group_open(&g, RANKS);
    fake_group_run(&g, take_step, &s);
    fake_group_run(&g, take_step, &blind);
    fake_group_close(&g);
    CHECK(memcmp(s.after, blind.after, sizeof s.after) == 0);
}
