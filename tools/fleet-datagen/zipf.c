/* zipf.c - draws by Zipf's law. */
#include "zipf.h"

#include <math.h>

#include "base/rng_draw.h"

/* By rejection and inversion (Hörmann, Derflinger 1996): the rank's probability
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

static double curve(const zipf *z, double x)
{
    return exp(-z->exponent * log(x));
}

/* From 1 on. */
static double area(const zipf *z, double x)
{
    return exp_share((1 - z->exponent) * log(x)) * log(x);
}

static double area_inverse(const zipf *z, double a)
{
    double t = fmax((1 - z->exponent) * a, -1);

    return exp(log_share(t) * a);
}

void zipf_begin(zipf *z)
{
    z->first = area(z, 1.5) - 1;
    z->last = area(z, (double)z->n + 0.5);
    z->squeeze = 2 - area_inverse(z, area(z, 2.5) - curve(z, 2));
}

static int64_t rank_at(const zipf *z, double unit)
{
    double a = z->last + unit * (z->first - z->last);
    double x = area_inverse(z, a), k = floor(x + 0.5);

    k = fmin(fmax(k, 1), (double)z->n);
    if (k - x <= z->squeeze || a >= area(z, k + 0.5) - curve(z, k))
        return (int64_t)k - 1;
    return -1;
}

/* Each word of each draw is an attempt. */
int64_t zipf_draw(const zipf *z, uint64_t seed, uint64_t stream,
                  uint64_t number)
{
    for (uint64_t attempt = 0;; attempt++) {
        fl_rng4 r = fl_rng_block(seed, stream, number + (attempt << 48));

        for (int i = 0; i < 4; i++) {
            int64_t rank = rank_at(z, ((double)r.v[i] + 0.5) * 0x1p-32);

            if (rank >= 0)
                return rank;
        }
    }
}

/* Of a million ranks one by one; the area below the curve is the others' to
 * twelve digits. */
double zipf_sum(const zipf *z)
{
    const int64_t most = 1000000, some = z->n < most ? z->n : most;
    double sum = 0;

    for (int64_t i = some; i > 0; i--)
        sum += curve(z, (double)i);
    if (z->n > some)
        sum += area(z, (double)z->n + 0.5) - area(z, (double)some + 0.5);
    return sum;
}
