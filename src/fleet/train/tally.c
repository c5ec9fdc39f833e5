/* tally.c - area under the curve, logarithmic loss and accuracy of
 * predictions. */
#include "fleet/train/tally.h"

#include <math.h>

#include <fleet/metrics.h>

#include "base/memory.h"
#include "ops/metrics.h"
#include "runtime/graph/program.h"

enum { BUCKETS = 65536 };

fleet_status fl_tally_check_rows(const char *what, const fleet_var *v)
{
    return fl_shape_batched(&v->shape)
               ? FLEET_OK
               : fl_fail(FLEET_ESHAPE,
                         "%s \"%s\" %s is one of a whole batch: expected one "
                         "of each sample",
                         what, v->name, fl_shape_print(&v->shape).chars);
}

fleet_status fl_tally_open(fl_tally *j, int64_t classes)
{
    *j = (fl_tally){.classes = classes};
    FL_TRY(FL_NEW(&j->pos, BUCKETS * sizeof *j->pos));
    return FL_NEW(&j->neg, BUCKETS * sizeof *j->neg);
}

void fl_tally_close(fl_tally *j)
{
    fl_free(j->pos);
    fl_free(j->neg);
    *j = (fl_tally){0};
}

static double label_of(fleet_dtype dtype, const void *labels, int64_t row)
{
    return dtype == FLEET_INT64 ? (double)((const int64_t *)labels)[row]
                                : (double)((const float *)labels)[row];
}

static void count_binary(fl_tally *j, double p, double label)
{
    const double least = 1e-15;
    int64_t at = (int64_t)(p * BUCKETS);
    double q = label > 0.5 ? p : 1 - p;

    at = at < 0 ? 0 : at >= BUCKETS ? BUCKETS - 1 : at;
    (label > 0.5 ? j->pos : j->neg)[at]++;
    j->logloss -= log(q < least ? least : q);
    j->right += (p > 0.5) == (label > 0.5);
}

static fleet_status count_row(fl_tally *j, const float *p, double label,
                              int64_t row)
{
    int64_t best = 0;

    for (int64_t c = 0; c < j->classes; c++)
        if (!isfinite(p[c]))
            return fl_fail(FLEET_ENUMERIC,
                           "evaluation: the prediction of sample %lld is not a "
                           "finite number",
                           (long long)(j->samples + row));
    if (j->classes <= 2 && label != 0.0 && label != 1.0)
        return fl_fail(FLEET_EINVAL,
                       "evaluation: label %g of sample %lld is "
                       "neither 0 nor 1",
                       label, (long long)(j->samples + row));
    if (j->classes <= 2 && !fl_is_probability((double)p[j->classes - 1]))
        return fl_fail(FLEET_EINVAL,
                       "evaluation: the prediction %g of sample %lld is no "
                       "probability: expected a number from 0 to 1",
                       (double)p[j->classes - 1],
                       (long long)(j->samples + row));
    if (j->classes <= 2) {
        count_binary(j, (double)p[j->classes - 1], label);
        return FLEET_OK;
    }
    for (int64_t c = 1; c < j->classes; c++)
        if (p[c] > p[best])
            best = c;
    j->right += (double)best == label;
    return FLEET_OK;
}

fleet_status fl_tally_add(fl_tally *j, const float *p, fleet_dtype dtype,
                          const void *labels, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++)
        FL_TRY(count_row(j, p + i * j->classes, label_of(dtype, labels, i), i));
    j->samples += rows;
    return FLEET_OK;
}

fleet_status fl_tally_result(const fl_tally *j, double loss,
                             fleet_evaluation *out)
{
    const bool binary = j->classes <= 2;
    const double n = (double)j->samples;

    if (j->samples == 0)
        return fl_fail(FLEET_EEND, "evaluation: the dataset has no sample");
    *out = (fleet_evaluation){
        .samples = j->samples,
        .auc = binary ? fleet_metrics_auc_of(j->pos, j->neg, BUCKETS)
                      : (double)NAN,
        .logloss = binary ? j->logloss / n : (double)NAN,
        .accuracy = (double)j->right / n,
        .loss = loss,
    };
    return FLEET_OK;
}
