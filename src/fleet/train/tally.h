/* tally.h - predictions compared with labels: an evaluation, added up sample by
 * sample, in their order. */
#pragma once

#include <fleet/nn.h>
#include <fleet/report.h>

typedef struct fl_tally {
    int64_t classes;    /* columns of the prediction */
    int64_t *pos, *neg; /* histograms, two classes */
    double logloss;
    int64_t right, samples;
} fl_tally;

/* Has v a row for each sample, as a mean over the batch has not? what: how the
 * failure, FLEET_ESHAPE, begins. */
fleet_status fl_tally_check_rows(const char *what, const fleet_var *v);

fleet_status fl_tally_open(fl_tally *j, int64_t classes);

/* p: rows x classes; labels: of each row one, FLEET_INT64 or FLEET_FLOAT32.
 * FLEET_ENUMERIC, FLEET_EINVAL: fleet_evaluate()'s. */
fleet_status fl_tally_add(fl_tally *j, const float *p, fleet_dtype dtype,
                          const void *labels, int64_t rows);

/* Of what was added; loss is its own. FLEET_EEND: there was no sample. */
fleet_status fl_tally_result(const fl_tally *j, double loss,
                             fleet_evaluation *out);
void fl_tally_close(fl_tally *j);
