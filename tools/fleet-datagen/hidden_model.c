/* hidden_model.c - draws of counts and ids, and the model that gives labels. */
#include "hidden_model.h"

#include <math.h>

#include "base/rng_draw.h"
#include "hidden_id.h"

/* Sequences of the seed: of lines, and of what is the same in all of them. */
enum {
    OF_COUNTS = 1,
    OF_LABELS,
    OF_WEIGHTS,
    OF_RANKS = 1 << 16,
    OF_WORTHS = 2 << 16,
    OF_VECTORS = 3 << 16
};

enum { FACTORS = 4 }; /* of the vector of an id: what a draw gives */

/* The logarithm of 1 + a count: its mean and deviation. */
static const double COUNT_MEAN = 1.63, COUNT_DEVIATION = 0.86;

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

    m->ranks = (zipf){.n = m->n_id, .exponent = m->exponent};
    zipf_begin(&m->ranks);
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
        to->rank[s] =
            zipf_draw(&m->ranks, m->seed, (uint64_t)(OF_RANKS + s), number);
        to->id[s] = hidden_id(m->seed, s, to->rank[s]);
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
