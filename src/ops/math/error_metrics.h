/* error_metrics.h - what both halves of the operator "metric" compute alike: a
 * sample's share of the sums, and the metric of the sums.
 *
 * metric.add   sums <- sums, x, label
 * metric       out <- sums
 *
 * The sums are four of float64. Of MAE, RMSE and LOG_LOSS: a count of numbers,
 * and their errors. Of PRECISION, RECALL and F1: true positives, false
 * positives and so on, in the order below. */
#pragma once

#include <math.h>
#include <stdbool.h>

#include <fleet/ops.h>

#include "ops/metrics.h"

enum { FL_METRIC_SUMS = 4 };

enum { FL_TRUE_POS, FL_FALSE_POS, FL_FALSE_NEG, FL_TRUE_NEG };

typedef struct fl_error_metric {
    int kind; /* fleet_metric_kind */
    float threshold;
} fl_error_metric;

/* Is x a probability, and the label 0 or 1? */
FL_EVERYWHERE bool fl_metric_is_binary(int kind)
{
    return kind >= FLEET_METRIC_LOG_LOSS;
}

/* A probability has its place; a difference has to be finite. */
FL_EVERYWHERE bool fl_metric_takes(int kind, double x, double label)
{
    if (fl_metric_is_binary(kind))
        return fl_is_probability(x) && fl_is_0_or_1(label);
    return x - label < (double)INFINITY && x - label > -(double)INFINITY;
}

/* |error|, its square; of LOG_LOSS the label's probability, which is not 0, and
 * whose logarithm each half takes. */
FL_EVERYWHERE double fl_metric_error(int kind, double x, double label)
{
    const double least = 0x1p-23;
    double error = x - label;

    if (kind == FLEET_METRIC_RMSE)
        return error * error;
    if (kind == FLEET_METRIC_MAE)
        return error < 0 ? -error : error;
    x = label == 1.0 ? x : 1 - x;
    return x < least ? least : x > 1 ? 1 : x;
}

FL_EVERYWHERE int fl_metric_cell(double x, double label, float threshold)
{
    if (x > (double)threshold)
        return label == 1.0 ? FL_TRUE_POS : FL_FALSE_POS;
    return label == 1.0 ? FL_FALSE_NEG : FL_TRUE_NEG;
}

FL_EVERYWHERE double fl_metric_ratio(double of, double all)
{
    return all > 0 ? of / all : 0;
}

FL_EVERYWHERE double fl_metric_of(int kind, const double *sum)
{
    double right = sum[FL_TRUE_POS];

    switch (kind) {
    case FLEET_METRIC_PRECISION:
        return fl_metric_ratio(right, right + sum[FL_FALSE_POS]);
    case FLEET_METRIC_RECALL:
        return fl_metric_ratio(right, right + sum[FL_FALSE_NEG]);
    case FLEET_METRIC_F1:
        return fl_metric_ratio(2 * right, 2 * right + sum[FL_FALSE_POS] +
                                              sum[FL_FALSE_NEG]);
    case FLEET_METRIC_RMSE:
        return sqrt(fl_metric_ratio(sum[1], sum[0]));
    default:
        return fl_metric_ratio(sum[1], sum[0]);
    }
}
