/* best_score.c - scores of true probabilities. */
#include "best_score.h"

#include <math.h>

void best_score_note(best_score *s, int64_t label, double probability)
{
    int at = (int)(probability * BEST_BUCKETS);

    at = at < BEST_BUCKETS ? at : BEST_BUCKETS - 1;
    s->n++;
    s->positives += label;
    (label ? s->positive : s->negative)[at]++;
    s->logloss -= log(label ? probability : 1 - probability);
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

void best_places_note(best_places *p, int64_t above, int64_t ties)
{
    double found = 0, gain = 0;

    for (int64_t place = above; place < above + ties && place < p->k; place++) {
        found += 1;
        gain += 1 / log2((double)place + 2);
    }
    p->n++;
    p->recall += found / (double)ties;
    p->gain += gain / (double)ties;
}
