/* accessor.c - a row's shows and clicks: counted, decayed, and compared with
 * thresholds. */
#include "runtime/life/accessor.h"

float fl_accessor_score(const fleet_accessor *a, float show, float click)
{
    return (show - click) * a->nonclk_coeff + click * a->click_coeff;
}

void fl_accessor_update(const fl_rows *r, float *const *row,
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
        x[FL_AT_SEEN] = pushed[FL_AT_SLOT] * FL_SEEN_DAYS;
    }
}

bool fl_accessor_shrink(const fleet_accessor *a, float *x)
{
    x[FL_AT_SHOW] *= a->show_click_decay_rate;
    x[FL_AT_CLICK] *= a->show_click_decay_rate;
    return fl_accessor_score(a, x[FL_AT_SHOW], x[FL_AT_CLICK]) <
               a->delete_threshold ||
           (float)fl_unseen_days(x[FL_AT_SEEN]) > a->delete_after_unseen_days;
}

bool fl_accessor_saves(const fleet_accessor *a, fleet_save_mode mode,
                       const float *x)
{
    float score = fl_accessor_score(a, x[FL_AT_SHOW], x[FL_AT_CLICK]);
    float delta = mode == FLEET_SAVE_BASE ? 0 : a->delta_threshold;

    if (mode != FLEET_SAVE_DELTA && mode != FLEET_SAVE_BASE)
        return true;
    return score >= a->base_threshold && x[FL_AT_DELTA_SCORE] >= delta &&
           (float)fl_unseen_days(x[FL_AT_SEEN]) <= a->delta_keep_days;
}

void fl_accessor_saved(const fleet_accessor *a, fleet_save_mode mode, float *x)
{
    if ((mode == FLEET_SAVE_DELTA || mode == FLEET_SAVE_BASE) &&
        fl_accessor_saves(a, mode, x))
        x[FL_AT_DELTA_SCORE] = 0;
    if (mode == FLEET_SAVE_DAY_END &&
        fl_unseen_days(x[FL_AT_SEEN]) + 1 < FL_SEEN_DAYS)
        x[FL_AT_SEEN] += 1;
}
