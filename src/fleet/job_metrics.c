/* job_metrics.c - metrics of a handle, and over all workers of its job. */
#include <string.h>

#include "base/memory.h"
#include "fleet/ranks.h"
#include "ops/math/error_metrics.h"
#include "ops/ops.h"
#include "ps/worker/worker_io.h"

/* More numbers than that fit in no message. */
enum { MOST_NUMBERS = 1 << 22 };

static const fl_reduction link_has[FL_N_REDUCE] = {
    [FL_ALL_SUM] = FL_REDUCTION_SUM,
    [FL_ALL_MAX] = FL_REDUCTION_MAX,
    [FL_ALL_MIN] = FL_REDUCTION_MIN,
};

static fleet_status over_workers(fleet *f, const char *call, fl_reduce how,
                                 double *x, int64_t n)
{
    FL_TRY(fl_handle_check_worker(f, call));
    if (n > 0 && !x)
        return fl_fail(FLEET_EINVAL, "%s: no array of %lld elements", call,
                       (long long)n);
    if (n < 0 || n > MOST_NUMBERS)
        return fl_fail(FLEET_EINVAL, "%s: %lld elements; expected 0 to %d",
                       call, (long long)n, (int)MOST_NUMBERS);
    if (fl_has_ranks(f))
        return fl_ranks_reduce(f, how, x, (int)n);
    if (!f->worker_io)
        return FLEET_OK; /* of one worker, it is what it is */
    return fl_worker_io_reduce(f->worker_io, link_has[how], x, (int)n);
}

/* Two histograms, as numbers that can be added up. */
static fleet_status copy_states(fleet *f, const fl_state *pos,
                                const fl_state *neg, double *x, int64_t n)
{
    fleet_status status;

    pthread_rwlock_rdlock(&f->store->lock);
    status = fl_mirror_use(f->store, pos->data, false, false);
    if (status == FLEET_OK)
        status = fl_mirror_use(f->store, neg->data, false, false);
    for (int64_t i = 0; status == FLEET_OK && i < n; i++) {
        x[i] = (double)((const int64_t *)pos->data)[i];
        x[n + i] = (double)((const int64_t *)neg->data)[i];
    }
    pthread_rwlock_unlock(&f->store->lock);
    return status;
}

static fleet_status auc_over_workers(fleet *f, const fl_state *pos,
                                     const fl_state *neg, double *out)
{
    int64_t n = pos->shape.dim[0], *sums = NULL;
    fleet_status status;
    double *x;

    FL_TRY(FL_NEW(&x, (size_t)(2 * n) * sizeof *x));
    FL_GOTO(done, FL_NEW(&sums, (size_t)(2 * n) * sizeof *sums));
    FL_GOTO(done, copy_states(f, pos, neg, x, n));
    for (int64_t at = 0; at < 2 * n; at += MOST_NUMBERS) {
        const int64_t rest = 2 * n - at;

        FL_GOTO(done, over_workers(f, "fleet_metrics_auc", FL_ALL_SUM, x + at,
                                   rest < MOST_NUMBERS ? rest : MOST_NUMBERS));
    }
    for (int64_t i = 0; i < 2 * n; i++)
        sums[i] = (int64_t)x[i];
    *out = fleet_metrics_auc_of(sums, sums + n, n);
done:
    fl_free(sums);
    fl_free(x);
    return status;
}

fleet_status fleet_metrics_reset(fleet *f)
{
    fleet_status status;

    FL_TRY(fl_handle_check(f, "fleet_metrics_reset"));
    pthread_rwlock_wrlock(&f->store->lock);
    status = fl_store_reset_states(f->store);
    pthread_rwlock_unlock(&f->store->lock);
    return status;
}

fleet_status fleet_metrics_auc(fleet *f, const fleet_var *auc, double *out)
{
    const fl_node *n = auc ? auc->producer : NULL;
    const fl_state *pos, *neg;

    FL_TRY(fl_handle_check(f, "fleet_metrics_auc"));
    if (!out)
        return fl_fail(FLEET_EINVAL, "fleet_metrics_auc: no place for it");
    if (!n || strcmp(n->op->name, "auc") != 0)
        return fl_fail(FLEET_EINVAL,
                       "fleet_metrics_auc: \"%s\" is not the "
                       "output of fleet_auc()",
                       fleet_var_name(auc));
    pos = fl_store_state(f->store, n->in[n->n_in - 2]->name);
    neg = fl_store_state(f->store, n->in[n->n_in - 1]->name);
    if (!pos || !neg)
        return fl_fail(FLEET_ESTATE, "fleet_metrics_auc: \"%s\" was never run",
                       auc->name);
    return auc_over_workers(f, pos, neg, out);
}

static fleet_status copy_sums(fleet *f, const fl_state *s, double *sums)
{
    fleet_status status;

    pthread_rwlock_rdlock(&f->store->lock);
    status = fl_mirror_use(f->store, s->data, false, false);
    if (status == FLEET_OK)
        memcpy(sums, s->data, s->size);
    pthread_rwlock_unlock(&f->store->lock);
    return status;
}

fleet_status fleet_metrics_value(fleet *f, const fleet_var *metric, double *out)
{
    const fl_node *n = metric ? metric->producer : NULL;
    double sums[FL_METRIC_SUMS];
    const fl_state *s;

    FL_TRY(fl_handle_check(f, "fleet_metrics_value"));
    if (!out)
        return fl_fail(FLEET_EINVAL, "fleet_metrics_value: no place for it");
    if (!n || n->op != &fl_op_metric)
        return fl_fail(FLEET_EINVAL,
                       "fleet_metrics_value: \"%s\" is not the output of "
                       "fleet_metric()",
                       fleet_var_name(metric));
    s = fl_store_state(f->store, n->in[n->n_in - 1]->name);
    if (!s)
        return fl_fail(FLEET_ESTATE,
                       "fleet_metrics_value: \"%s\" was never run",
                       metric->name);
    FL_TRY(copy_sums(f, s, sums));
    FL_TRY(over_workers(f, "fleet_metrics_value", FL_ALL_SUM, sums,
                        FL_METRIC_SUMS));
    *out = fl_metric_of((int)fl_node_int(n, "kind"), sums);
    return FLEET_OK;
}

fleet_status fleet_metrics_sum(fleet *f, double *x, int64_t n)
{
    return over_workers(f, "fleet_metrics_sum", FL_ALL_SUM, x, n);
}

fleet_status fleet_metrics_max(fleet *f, double *x, int64_t n)
{
    return over_workers(f, "fleet_metrics_max", FL_ALL_MAX, x, n);
}

fleet_status fleet_metrics_min(fleet *f, double *x, int64_t n)
{
    return over_workers(f, "fleet_metrics_min", FL_ALL_MIN, x, n);
}
