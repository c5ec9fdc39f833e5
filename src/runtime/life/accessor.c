/* accessor.c - a row's shows and clicks: counted, decayed, and compared with
 * thresholds. */
#include "runtime/life/accessor.h"

#include <math.h>
#include <string.h>

#include "runtime/store/live_hash.h"

float fl_accessor_score(const fleet_accessor *a, float show, float click)
{
    return (show - click) * a->nonclk_coeff + click * a->click_coeff;
}

/* What the rule made of a vector that is not there is taken back; and the row
 * gets it with the score. */
static void hold_vector(const fl_rows *r, uint64_t key, float *row, float *x)
{
    const fleet_accessor *a = &r->life->o.accessor;
    int64_t at = r->filler.vector_at, n = r->dim - at;

    for (int i = 0; i < r->n_state; i++)
        fl_rows_first_floats(r, fl_rows_states(r, row) + r->dim * i + at, n);
    if (fl_accessor_score(a, x[FL_AT_SHOW], x[FL_AT_CLICK]) <
        a->embedx_threshold) {
        memset(row + at, 0, (size_t)n * sizeof *row);
        return;
    }
    fl_filler_vector(&r->filler, key, row, r->dim);
    x[FL_AT_SEEN] += FL_SEEN_VECTOR;
}

void fl_accessor_find_vector(const fl_rows *r, float *row)
{
    float *x = fl_accessor_of(r, row);

    if (r->filler.vector_at == 0 || fl_has_vector(x))
        return;
    for (int64_t i = r->filler.vector_at; i < r->dim; i++)
        if (row[i] != 0) {
            x[FL_AT_SEEN] +=
                fl_is_uncounted(x) ? -FL_SEEN_VECTOR : FL_SEEN_VECTOR;
            return;
        }
}

static void count_rows(const fl_rows *r, const uint64_t *key, float *const *row,
                       const float *const *grad, int64_t n)
{
    const fleet_accessor *a = &r->life->o.accessor;

    for (int64_t i = 0; i < n; i++) {
        const float *pushed = grad[i] + r->dim;
        float *x = fl_accessor_of(r, row[i]);

        x[FL_AT_SHOW] += pushed[FL_AT_SHOW];
        x[FL_AT_CLICK] += pushed[FL_AT_CLICK];
        x[FL_AT_DELTA_SCORE] +=
            fl_accessor_score(a, pushed[FL_AT_SHOW], pushed[FL_AT_CLICK]);
        x[FL_AT_SEEN] = pushed[FL_AT_SLOT] * FL_SEEN_DAYS +
                        (fl_has_vector(x) ? FL_SEEN_VECTOR : 0);
        if (r->filler.vector_at > 0 && !fl_has_vector(x))
            hold_vector(r, key[i], row[i], x);
    }
}

void fl_accessor_update(const fl_rows *r, const uint64_t *key,
                        float *const *row, const float *const *grad, int64_t n)
{
    for (int64_t i = 0, m; i < n; i += m) {
        m = fl_live_hash_apart(r, row + i, n - i);
        fl_live_hash_out(r, key + i, row + i, m);
        count_rows(r, key + i, row + i, grad + i, m);
        fl_live_hash_in(r, key + i, row + i, m);
    }
}

/* Of a row whose counts are unknown any threshold is below the score. */
static float score_of(const fleet_accessor *a, const float *x)
{
    return fl_is_uncounted(x)
               ? INFINITY
               : fl_accessor_score(a, x[FL_AT_SHOW], x[FL_AT_CLICK]);
}

void fl_accessor_uncounted(const fleet_accessor *a, float *x)
{
    x[FL_AT_SHOW] = x[FL_AT_CLICK] = 0;
    x[FL_AT_DELTA_SCORE] = a->delta_threshold;
    x[FL_AT_SEEN] = -1;
}

bool fl_accessor_decay(const fleet_accessor *a, float *x)
{
    x[FL_AT_SHOW] *= a->show_click_decay_rate;
    x[FL_AT_CLICK] *= a->show_click_decay_rate;
    return fl_accessor_score(a, x[FL_AT_SHOW], x[FL_AT_CLICK]) <
           a->delete_threshold;
}

bool fl_accessor_shrink(const fleet_accessor *a, float *x)
{
    return (fl_accessor_decay(a, x) && !fl_is_uncounted(x)) ||
           (float)fl_unseen_days(x[FL_AT_SEEN]) > a->delete_after_unseen_days;
}

bool fl_accessor_is_cold(const fleet_accessor *a, const float *x)
{
    return a->ssd_unseenday_threshold > 0 &&
           (float)fl_unseen_days(x[FL_AT_SEEN]) > a->ssd_unseenday_threshold;
}

bool fl_accessor_saves(const fleet_accessor *a, fleet_save_mode mode,
                       const float *x)
{
    float delta = mode == FLEET_SAVE_BASE ? 0 : a->delta_threshold;

    if (mode != FLEET_SAVE_DELTA && mode != FLEET_SAVE_BASE)
        return true;
    return score_of(a, x) >= a->base_threshold &&
           x[FL_AT_DELTA_SCORE] >= delta &&
           (float)fl_unseen_days(x[FL_AT_SEEN]) <= a->delta_keep_days;
}

void fl_accessor_saved(const fleet_accessor *a, fleet_save_mode mode, float *x)
{
    if ((mode == FLEET_SAVE_DELTA || mode == FLEET_SAVE_BASE) &&
        fl_accessor_saves(a, mode, x))
        x[FL_AT_DELTA_SCORE] = 0;
    if (mode == FLEET_SAVE_DAY_END &&
        fl_unseen_days(x[FL_AT_SEEN]) + 1 < FL_SEEN_DAYS)
        x[FL_AT_SEEN] += fl_is_uncounted(x) ? -1 : 1;
}
