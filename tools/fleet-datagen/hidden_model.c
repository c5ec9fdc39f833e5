/* hidden_model.c - draws of ids, the model that gives labels, and its score. */
#include "hidden_model.h"

#include <math.h>

#include "base/rng_draw.h"

/* Sequences of the seed: of lines, and of what is the same in all of them. */
enum {
    OF_COUNTS = 1,
    OF_LABELS,
    OF_WEIGHTS,
    OF_RANKS = 1 << 16,
    OF_WORTHS = 2 << 16,
    OF_VECTORS = 3 << 16,
    OF_NAMES = 4 << 16
};

enum { FACTORS = 4 }; /* of the vector of an id: what a draw gives */

/* The logarithm of 1 + a count: its mean and deviation. */
static const double COUNT_MEAN = 1.63, COUNT_DEVIATION = 0.86;

/* --- Zipf's law ------------------------------------------------------------
 *
 * By rejection and inversion (Hörmann, Derflinger 1996): the rank's probability
 * is the area of a bar; a point is drawn below the curve x^-exponent instead,
 * whose integral can be inverted, and is dropped if no bar has it. */

/* (e^t - 1) / t, log(1 + t) / t: also where t is small. */
static double exp_share(double t)
{
    return fabs(t) > 1e-8 ? expm1(t) / t : 1 + t / 2;
}

static double log_share(double t)
{
    return fabs(t) > 1e-8 ? log1p(t) / t : 1 - t / 2;
}

static double curve(const hidden_model *m, double x)
{
    return exp(-m->exponent * log(x));
}

/* From 1 on. */
static double area(const hidden_model *m, double x)
{
    return exp_share((1 - m->exponent) * log(x)) * log(x);
}

static double area_inverse(const hidden_model *m, double a)
{
    double t = fmax((1 - m->exponent) * a, -1);

    return exp(log_share(t) * a);
}

static void begin_ranks(hidden_model *m)
{
    m->first = area(m, 1.5) - 1;
    m->last = area(m, (double)m->n_id + 0.5);
    m->squeeze = 2 - area_inverse(m, area(m, 2.5) - curve(m, 2));
}

static int64_t rank_at(const hidden_model *m, double unit)
{
    double a = m->last + unit * (m->first - m->last);
    double x = area_inverse(m, a), k = floor(x + 0.5);

    k = fmin(fmax(k, 1), (double)m->n_id);
    if (k - x <= m->squeeze || a >= area(m, k + 0.5) - curve(m, k))
        return (int64_t)k - 1;
    return -1;
}

/* Each word of each draw is an attempt. */
static int64_t draw_rank(const hidden_model *m, int slot, uint64_t number)
{
    for (uint64_t attempt = 0;; attempt++) {
        fl_rng4 r = fl_rng_block(m->seed, (uint64_t)(OF_RANKS + slot),
                                 number + (attempt << 48));

        for (int i = 0; i < 4; i++) {
            int64_t rank = rank_at(m, ((double)r.v[i] + 0.5) * 0x1p-32);

            if (rank >= 0)
                return rank;
        }
    }
}

/* --- the model ------------------------------------------------------------ */

static void normals(const hidden_model *m, int stream, uint64_t block,
                    double z[4])
{
    fl_rng4 r = fl_rng_block(m->seed, (uint64_t)stream, block);

    fl_rng_normal_words(&r, z);
}

static void begin_dense(hidden_model *m)
{
    double z[4] = {0}, square = 0;

    for (int i = 0; i < m->n_dense; i++) {
        if (i % 4 == 0)
            normals(m, OF_WEIGHTS, (uint64_t)i / 4, z);
        m->dense[i] = z[i % 4];
        square += z[i % 4] * z[i % 4];
    }
    for (int i = 0; i < m->n_dense; i++)
        m->dense[i] /= sqrt(square);
}

/* Shares of z's variance: 3 of the counts, 5 of ids, 2 of pairs, of what there
 * is. */
void hidden_model_begin(hidden_model *m)
{
    double dense = m->n_dense > 0 ? 3 : 0, slot = m->n_slot > 0 ? 5 : 0;
    double pair = m->n_slot > 1 ? 2 : 0, all = dense + slot + pair;
    double odds = log(m->positive / (1 - m->positive));

    begin_ranks(m);
    begin_dense(m);
    m->share_dense = m->signal * sqrt(dense / all);
    m->share_slot = m->signal * sqrt(slot / all / fmax(m->n_slot, 1));
    m->share_pair =
        m->signal * sqrt(pair / all / fmax(m->n_slot / 2 * FACTORS, 1));
    /* a sigmoid is flatter in the mean over a normal z (MacKay 1992) */
    m->base = odds * sqrt(1 + 3.14159265358979 / 8 * m->signal * m->signal);
}

static double add_counts(const hidden_model *m, uint64_t number,
                         hidden_line *to)
{
    double z[4] = {0}, sum = 0;
    uint64_t blocks = (uint64_t)(m->n_dense + 3) / 4;

    for (int i = 0; i < m->n_dense; i++) {
        if (i % 4 == 0)
            normals(m, OF_COUNTS, number * blocks + (uint64_t)i / 4, z);
        to->count[i] = (int64_t)floor(exp(1.5 + z[i % 4]));
        sum += m->dense[i] * (log1p((double)to->count[i]) - COUNT_MEAN) /
               COUNT_DEVIATION;
    }
    return m->share_dense * sum;
}

static double add_ids(const hidden_model *m, uint64_t number, hidden_line *to)
{
    double worth = 0, product = 0, z[4], before[FACTORS] = {0};

    for (int s = 0; s < m->n_slot; s++) {
        to->rank[s] = draw_rank(m, s, number);
        normals(m, OF_WORTHS + s, (uint64_t)to->rank[s], z);
        worth += z[0];
        normals(m, OF_VECTORS + s, (uint64_t)to->rank[s], z);
        for (int i = 0; i < FACTORS; i++) {
            product += s % 2 ? before[i] * z[i] : 0;
            before[i] = z[i];
        }
    }
    return m->share_slot * worth + m->share_pair * product;
}

void hidden_model_line(const hidden_model *m, uint64_t number, hidden_line *to)
{
    double z = m->base + add_counts(m, number, to) + add_ids(m, number, to);
    fl_rng4 r = fl_rng_block(m->seed, OF_LABELS, number);

    to->probability = 1 / (1 + exp(-z));
    to->label = ((double)r.v[0] + 0.5) * 0x1p-32 < to->probability;
}

/* The finalizer of MurmurHash3 for 32 bits, a bijection; slots begin with
 * words of their own. */
uint32_t hidden_model_id(const hidden_model *m, int slot, int64_t rank)
{
    fl_rng4 r = fl_rng_block(m->seed, OF_NAMES, (uint64_t)slot);
    uint32_t x = (uint32_t)rank ^ r.v[0];

    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x ^ x >> 16;
}

/* --- the best score ------------------------------------------------------- */

void best_score_note(best_score *s, const hidden_line *line)
{
    int at = (int)(line->probability * BEST_BUCKETS);

    at = at < BEST_BUCKETS ? at : BEST_BUCKETS - 1;
    s->n++;
    s->positives += line->label;
    (line->label ? s->positive : s->negative)[at]++;
    s->logloss -= log(line->label ? line->probability : 1 - line->probability);
}

/* Half of the pairs that are as likely. */
double best_score_auc(const best_score *s)
{
    double right = 0, below = 0;

    for (int i = 0; i < BEST_BUCKETS; i++) {
        right += (double)s->positive[i] * (below + (double)s->negative[i] / 2);
        below += (double)s->negative[i];
    }
    return right / ((double)s->positives * below);
}
