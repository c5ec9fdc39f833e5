/* metrics.h - metrics over all that was evaluated, and over all workers.
 *
 * In a job fleet_metrics_auc(), _value(), _sum(), _max() and _min() wait for
 * all workers that have not left: all must make the same calls in the same
 * order, with as many numbers. All workers get the same result, to the bit.
 * FLEET_EPEER, FLEET_ETIMEDOUT: one of them is gone, or does not come;
 * FLEET_ESTATE: before fleet_init_worker(). fleet_evaluate() (report.h) is of
 * the calling worker alone.
 *
 * Threads: as the executors of the handle, see executor.h.
 */
#ifndef FLEET_METRICS_H
#define FLEET_METRICS_H

#include <fleet/program.h>

#ifdef __cplusplus
extern "C" {
#endif

/* fleet_metrics_reset - all metric states of the handle, which fleet_auc() and
 * fleet_metric() make, start anew. */
FLEET_API fleet_status fleet_metrics_reset(fleet *fleet);

/* fleet_metrics_auc - the area under the ROC curve by the states of an output
 * of fleet_auc(), summed over all workers; 0.5 when a class is missing. */
FLEET_API fleet_status fleet_metrics_auc(fleet *fleet, const fleet_var *auc,
                                         double *out);

/* fleet_metrics_value - a metric by the sums of an output of fleet_metric(),
 * added up over all workers. */
FLEET_API fleet_status fleet_metrics_value(fleet *fleet,
                                           const fleet_var *metric,
                                           double *out);

/* fleet_metrics_auc_of - the same of two histograms of n buckets, the lowest
 * scores first; trapezoids from the highest bucket down. NULL: no samples. */
FLEET_API double fleet_metrics_auc_of(const int64_t *pos, const int64_t *neg,
                                      int64_t n);

/* Element by element over all workers, in place; at most 4,194,304 of them; n 0
 * is a barrier. FLEET_OK in one process, which has all there is. */
FLEET_API fleet_status fleet_metrics_sum(fleet *fleet, double *x, int64_t n);
FLEET_API fleet_status fleet_metrics_max(fleet *fleet, double *x, int64_t n);
FLEET_API fleet_status fleet_metrics_min(fleet *fleet, double *x, int64_t n);

#ifdef __cplusplus
}
#endif

#endif
