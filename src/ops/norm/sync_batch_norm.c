/* sync_batch_norm.c - statistics of all ranks' batches, of any sizes: each rank
 * adds up numbers and their squares in double, ranks add up the sums, and mean
 * and variance are that of one batch with all lines. */
#include "ops/norm/sync_batch_norm.h"

#include "base/memory.h"
#include "ops/norm/column_norm.h"
#include "runtime/reduce/sync_sums.h"

/* --- batch_norm.moments --------------------------------------------------- */

enum { MOMENTS, X };

static fleet_status moments_run(const fl_instance *in, const fl_range *r)
{
    const fl_batch_norm *c = in->step->config;
    const fl_column_part k = fl_column_part_of(c, r);
    const int64_t lines = fl_batch_lines(in, X, r);
    const float *x = (const float *)fl_ptr(in, X) + k.first;
    double *moments = fl_ptr(in, MOMENTS);
    double sum[FL_COLUMN_PART] = {0}, square[FL_COLUMN_PART] = {0};

    for (int64_t i = 0; i < lines; i++)
        for (int64_t j = 0; j < k.n; j++) {
            double at = (double)x[i * c->n + j];

            sum[j] += at;
            square[j] += at * at;
        }
    for (int64_t j = 0; j < k.n; j++) {
        moments[k.first + j] = sum[j];
        moments[c->n + k.first + j] = square[j];
    }
    if (k.first == 0)
        moments[fl_norm_moments(c->n) - 1] = (double)lines;
    return FLEET_OK;
}

/* --- batch_norm.combined -------------------------------------------------- */

enum { STATS, OF_MOMENTS, OF_W };

/* Rounding may leave less than nothing of a variance. */
static fleet_status combined_run(const fl_instance *in, const fl_range *r)
{
    const fl_batch_norm *c = in->step->config;
    const fl_column_part k = fl_column_part_of(c, r);
    const double *moments = fl_ptr(in, OF_MOMENTS);
    const double lines = moments[fl_norm_moments(c->n) - 1];
    float *stats = fl_ptr(in, STATS);

    for (int64_t j = k.first; j < k.first + k.n; j++) {
        double mean = moments[j] / lines;
        double variance = (moments[c->n + j] - mean * moments[j]) / lines;

        stats[FL_NORM_MEAN * c->n + j] = (float)mean;
        stats[FL_NORM_VARIANCE * c->n + j] =
            variance > 0 ? (float)variance : 0.0f;
    }
    fl_finish_stats(c, stats, fl_optional_ptr(in, OF_W), k);
    return FLEET_OK;
}

static const fl_kernel moments = {.name = "batch_norm.moments",
                                  .split = FL_SPLIT_PARTS,
                                  .prepare = fl_split_columns,
                                  .run = moments_run};
static const fl_kernel combined = {.name = "batch_norm.combined",
                                   .split = FL_SPLIT_PARTS,
                                   .prepare = fl_split_columns,
                                   .run = combined_run};

/* --- lowering ------------------------------------------------------------- */

bool fl_is_sync_norm(fl_lowering *l, const fl_node *n)
{
    const fleet_program *p = l->program;
    bool *run, is;

    if (!fl_has_sync_sums(l))
        return false;
    run = fl_alloc(p->n_node);
    if (!run) {
        l->status = FLEET_ENOMEM; /* of the lowering as a whole */
        return false;
    }
    fl_program_mark_run(p, p->training.loss, NULL, run);
    is = run[n->id];
    fl_free(run);
    return is;
}

int fl_sync_moments(int stats)
{
    return stats < 0 ? -1 : stats + 1;
}

void fl_emit_sync_stats(fl_lowering *l, const fl_node *n, const void *config,
                        fl_sync_norm v)
{
    int64_t bytes =
        fl_norm_moments(fl_columns_of(n->in[0])) * (int64_t)sizeof(double);
    int of = fl_object(l, "moments", (size_t)bytes);

    FL_EMIT(l, &moments, n, config, FL_W(of), FL_R(v.x));
    fl_emit_sync_sum(l, of, FL_WIRE_F64);
    FL_EMIT(l, &combined, n, config, FL_W(v.stats), FL_R(of), FL_R(v.w));
}
