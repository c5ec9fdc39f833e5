/* hidden_model.h - lines of made-up data, and what their labels come from: a
 * model that is a function of a seed. Each line is a function of the seed and
 * its number alone, so that parts of a set can be made anywhere, in any order.
 *
 * A line has counts (log-normal, cut to integers) and an id in each slot (of
 * Zipf's law). Its label is 1 with the probability sigmoid(z). z is linear in
 * the logarithms of the counts and in what each id is worth, and has products
 * of vectors of the ids in slots 0 and 1, 2 and 3, and so on: what a linear
 * model cannot learn.
 */
#pragma once

#include <stdint.h>

#include "zipf.h"

enum { MOST_DENSE = 64, MOST_SLOT = 1024 };

typedef struct hidden_model {
    uint64_t seed;
    int n_dense, n_slot;
    int64_t n_id;    /* of each slot; at most 2^31 */
    double exponent; /* of Zipf's law; 0: ids are uniform */
    double positive; /* about that share of labels is 1 */
    double signal;   /* the deviation of z, about */

    /* made by hidden_model_begin() */
    double base, dense[MOST_DENSE];
    double share_dense, share_slot, share_pair; /* factors of their sums */
    zipf ranks;
} hidden_model;

typedef struct hidden_line {
    int64_t count[MOST_DENSE];
    int64_t rank[MOST_SLOT]; /* from 0, the most frequent */
    int64_t id[MOST_SLOT];   /* what stands for it */
    double probability;
    int64_t label;
} hidden_line;

void hidden_model_begin(hidden_model *m);
void hidden_model_line(const hidden_model *m, uint64_t number, hidden_line *to);
