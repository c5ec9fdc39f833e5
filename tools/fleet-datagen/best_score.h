/* best_score.h - the best scores that anything can reach on lines of which the
 * true probabilities are known. */
#pragma once

#include <stdint.h>

/* Of lines with a label: AUC and log loss. */
typedef struct best_score {
    int64_t n, positives;
    double logloss;               /* summed up */
    int64_t *negative, *positive; /* by probability, BEST_BUCKETS each */
} best_score;

enum { BEST_BUCKETS = 1 << 18 };

void best_score_note(best_score *s, int64_t label, double probability);
double best_score_auc(const best_score *s);

/* Of items that are to be found among all there are: the share that is among
 * the k likeliest (recall@k), and NDCG@k, 1 / log2(place + 1) of each. */
typedef struct best_places {
    int64_t k, n;
    double recall, gain; /* summed up */
} best_places;

/* So many items are likelier; so many are as likely, it among them, whose order
 * is by chance. */
void best_places_note(best_places *p, int64_t above, int64_t ties);
