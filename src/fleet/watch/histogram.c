/* histogram.c - two walks over the numbers: from where to where, then into
 * which bucket. */
#include "fleet/watch/histogram.h"

#include <math.h>

static void sum_up(fl_histogram *h, const float *x, int64_t n)
{
    float least = INFINITY, most = -INFINITY;

    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) {
            h->nonfinite++;
            continue;
        }
        least = x[i] < least ? x[i] : least;
        most = x[i] > most ? x[i] : most;
        h->sum += (double)x[i];
        h->squares += (double)x[i] * (double)x[i];
    }
    h->n = n - h->nonfinite;
    h->least = h->n > 0 ? (double)least : 0;
    h->most = h->n > 0 ? (double)most : 0;
}

void fl_histogram_of(fl_histogram *h, const float *x, int64_t n)
{
    double scale;

    *h = (fl_histogram){0};
    sum_up(h, x, n);
    scale = h->most > h->least ? FL_BUCKETS / (h->most - h->least) : 0;
    for (int64_t i = 0; i < n; i++) {
        int bucket;

        if (!isfinite(x[i]))
            continue;
        bucket = (int)(((double)x[i] - h->least) * scale);
        h->count[bucket < FL_BUCKETS ? bucket : FL_BUCKETS - 1]++;
    }
}

double fl_histogram_limit(const fl_histogram *h, int bucket)
{
    return bucket == FL_BUCKETS - 1
               ? h->most
               : h->least +
                     (h->most - h->least) * (bucket + 1) / (double)FL_BUCKETS;
}
