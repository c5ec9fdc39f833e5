/* dgc_test.c - ranks that exchange the largest elements of their gradients:
 * what is sent, what is kept, and that training goes on as it would. */
#define SUITE dgc
#include "rank_kit.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/reduce/dgc.h"

static double distance(const rank_lesson *a, const rank_lesson *b)
{
    double most = 0;

    for (int i = 0; i < RANK_MOST_FLOATS; i++)
        most =
            fmax(most, fabs((double)a->weight[0][i] - (double)b->weight[0][i]));
    return most;
}

static int weights_that_differ(const rank_lesson *a, const rank_lesson *b)
{
    int n = 0;

    for (int i = 0; i < RANK_MOST_FLOATS; i++)
        n += a->weight[0][i] != b->weight[0][i];
    return n;
}

/* What is sent loses its momentum: if all is, none is left. */
TEST(if_all_is_sent_it_is_plain_descent)
{
    for (int ranks = 1; ranks <= 4; ranks++) {
        rank_lesson s = {.how = {.optimizer = "sgd", .learning_rate = 0.1f},
                         .batches = 7,
                         .last = 29,
                         .passes = 2};
        rank_lesson dgc = s;

        dgc.how.optimizer = "momentum";
        dgc.also.dgc = (fl_training){.dgc = {true, 0, 0, 1, 1}}.dgc;
        rank_train(&s, ranks);
        rank_train(&dgc, ranks);
        CHECK(distance(&s, &dgc) <= 1e-6);
        CHECK_INT(dgc.updates[0], s.updates[0]);
    }
}

TEST(before_it_begins_and_for_small_parameters_it_is_momentum)
{
    rank_lesson s = {.how = {.optimizer = "momentum"},
                     .batches = 9,
                     .last = 31,
                     .passes = 1};
    rank_lesson late = s, small = s;

    late.also.dgc = (fl_training){.dgc = {true, 0.9f, 3, 1, 1}}.dgc;
    small.also.dgc = (fl_training){.dgc = {true, 0.9f, 0, 1, 5000}}.dgc;
    rank_train(&s, 3);
    rank_train(&late, 3);
    rank_train(&small, 3);
    CHECK_INT(weights_that_differ(&s, &late), 0);
    CHECK_INT(weights_that_differ(&s, &small), 0);
    late.also.dgc.begin = 2;
    rank_train(&late, 3);
    CHECK(weights_that_differ(&s, &late) > 0);
}

/* 1321 weights in six parameters; one in a hundred of each, and at least one,
 * by each of two ranks. */
TEST(an_update_changes_no_more_than_what_was_sent)
{
    rank_lesson s = {.how = {.optimizer = "momentum"},
                     .also.dgc = {true, 0.99f, 0, 1, 1},
                     .batches = 2,
                     .last = 50};
    rank_lesson after = s;

    after.passes = 1;
    rank_train(&s, 2);
    rank_train(&after, 2);
    CHECK(weights_that_differ(&s, &after) > 0);
    CHECK(weights_that_differ(&s, &after) <= 2 * (1 + 1 + 1 + 1 + 6 + 7));
}

static double loss_with(const rank_lesson *s, int rank)
{
    rank_lesson alone = {.how = s->how};
    double loss = 0;
    kit_model m;
    work k;

    rank_model(&m, &alone);
    rank_executor(&m);
    work_open(&k, &m, s->batches, s->last);
    for (int i = 0; i < k.n; i++) {
        memcpy(rank_group(&m)->weight, s->weight[rank],
               (size_t)rank_group(&m)->n * sizeof(float));
        loss += (double)kit_step(m.e, k.b[i], m.m.loss);
    }
    work_close(&k);
    kit_close(&m);
    return loss;
}

/* Unequal numbers of batches, so that ranks are idle at the ends. Momentum is
 * not lost altogether: it learns faster than without. */
TEST(training_with_a_twentieth_of_the_gradients_goes_on)
{
    rank_lesson first = {.how = {.optimizer = "sgd", .learning_rate = 0.05f},
                         .batches = 11,
                         .last = 50};
    rank_lesson s = first, dgc;
    double before, plain, now;

    s.passes = 100;
    dgc = s;
    dgc.how.optimizer = "momentum";
    dgc.also.dgc = (fl_training){.dgc = {true, 0.95f, 4, 8, 1}}.dgc;
    rank_train(&first, 3);
    rank_train(&s, 3);
    rank_train(&dgc, 3);
    before = loss_with(&first, 0);
    plain = loss_with(&s, 0);
    now = loss_with(&dgc, 0);
    fprintf(stderr, "losses: %g, without momentum %g, with dgc %g\n", before,
            plain, now);
    CHECK(before - now > 1.5 * (before - plain));
}

/* --- by hand ------------------------------------------------------------- */

typedef struct hand {
    kit_model m[2];
    float w[RANK_MOST_FLOATS], sum[RANK_MOST_FLOATS];
    float momentum[2][RANK_MOST_FLOATS], left[2][RANK_MOST_FLOATS];
} hand;

static int larger_first(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x < y) - (x > y);
}

static void send_largest(hand *h, int r, const fl_param *p, double density)
{
    float size[RANK_MOST_FLOATS];
    int64_t k = (int64_t)ceil((double)p->n * density);

    for (int64_t i = 0; i < p->n; i++)
        size[i] = fabsf(h->left[r][p->offset + i]);
    qsort(size, (size_t)p->n, sizeof *size, larger_first);
    for (int64_t i = p->offset; i < p->offset + p->n; i++) {
        if (fabsf(h->left[r][i]) < size[k - 1])
            continue;
        h->sum[i] += h->left[r][i];
        h->left[r][i] = h->momentum[r][i] = 0;
    }
}

/* The model descends with rate 1: the gradient is what its weights lose. */
static void step_by_hand(hand *h, int r, const kit_batch *b, double density)
{
    const fl_map *params = &h->m[r].f->store->params;
    fl_flat *g = rank_group(&h->m[r]);

    memcpy(g->weight, h->w, (size_t)g->n * sizeof(float));
    CHECK_OK(kit_run(h->m[r].e, b));
    for (int64_t i = 0; i < g->n; i++) {
        float gradient = (h->w[i] - g->weight[i]) / 2;

        h->momentum[r][i] = 0.9f * h->momentum[r][i] + gradient;
        h->left[r][i] += h->momentum[r][i];
    }
    for (size_t i = 0; i < params->n; i++)
        send_largest(h, r, params->entry[i].value, density);
}

static void train_by_hand(hand *h, const rank_lesson *s)
{
    rank_lesson alone = {.how = {.optimizer = "sgd", .learning_rate = 1}};
    work k;

    for (int r = 0; r < 2; r++) {
        rank_model(&h->m[r], &alone);
        rank_executor(&h->m[r]);
    }
    memcpy(h->w, rank_group(&h->m[0])->weight,
           (size_t)rank_group(&h->m[0])->n * sizeof(float));
    work_open(&k, &h->m[0], s->batches, s->last);
    for (int i = 0; i < k.n; i += 2) {
        memset(h->sum, 0, sizeof h->sum);
        for (int r = 0; r < 2; r++)
            step_by_hand(h, r, k.b[i + r], 1 - (double)s->also.dgc.sparsity);
        for (int j = 0; j < RANK_MOST_FLOATS; j++)
            h->w[j] -= s->how.learning_rate * h->sum[j];
    }
    work_close(&k);
    for (int r = 0; r < 2; r++)
        kit_close(&h->m[r]);
}

/* By hand gradients are not quite the same, so that one or the other of two
 * that are nearly equal may be sent. */
TEST(what_is_sent_and_what_is_kept_is_as_by_hand)
{
    rank_lesson s = {.how = {.optimizer = "momentum", .learning_rate = 0.5f},
                     .also.dgc = {true, 0.875f, 0, 1, 1},
                     .batches = 12,
                     .last = 50,
                     .passes = 1};
    static hand h;
    int differ = 0;

    rank_train(&s, 2);
    train_by_hand(&h, &s);
    for (int i = 0; i < RANK_MOST_FLOATS; i++)
        differ += fabsf(s.weight[0][i] - h.w[i]) > 1e-5f;
    fprintf(stderr, "%d weights differ\n", differ);
    CHECK(differ <= 20);
}

/* ------------------------------------------------------------------------- */

TEST(the_part_that_is_sent_shrinks_from_a_quarter)
{
    fl_training t = {.dgc = {true, 0.999f, 10, 4, 1}};

    CHECK(fl_dgc_density(&t, 9) == 0);
    CHECK(fl_dgc_density(&t, 10) < 0.25);
    for (int i = 10; i < 13; i++)
        CHECK(fabs(fl_dgc_density(&t, i + 1) / fl_dgc_density(&t, i) -
                   pow(0.004, 0.25)) < 1e-3);
    CHECK(fabs(fl_dgc_density(&t, 13) - 0.001) < 1e-6);
    CHECK(fl_dgc_density(&t, 1000) == fl_dgc_density(&t, 13));
    t.dgc.sparsity = 0.5f;
    CHECK(fl_dgc_density(&t, 10) == 0.5);
}

TEST(a_clip_by_global_norm_is_refused)
{
    fake_group g;
    kit_model m;

    fake_group_open(&g, 2);
    kit_build(&m, KIT_MLP,
              &(kit_options){.optimizer = "momentum", .clip = 0.1f});
    m.p->training.dgc.on = m.o->residuals = true;
    m.f->store->agree = &g.rank[0].rounds;
    CHECK(fleet_program_dump(m.p, FLEET_DUMP_PLAN, 40) == NULL);
    CHECK_CONTAINS(fleet_last_error(), "strategy.dgc: no rank knows");
    m.o->clip_norm = 0;
    m.o->value_clip = 0.1f;
    CHECK(fleet_program_dump(m.p, FLEET_DUMP_PLAN, 40) == NULL);
    CHECK_CONTAINS(fleet_last_error(),
                   "strategy.dgc: ranks exchange parts of what they have "
                   "gathered over many steps, which a clip by value is not of");
    m.f->store->agree = NULL;
    kit_close(&m);
    fake_group_close(&g);
}
