/* accessor.h - what a table's rows have been shown and clicked, behind their
 * weights and states, as Fleet's CtrCommonAccessor has it: fleet_accessor of
 * fleet/nn.h has the formulas. Element by element, in IEEE's arithmetic. */
#pragma once

#include "runtime/store/table_api.h"

float fl_accessor_score(const fleet_accessor *a, float show, float click);

/* Its FL_N_ACCESSOR numbers of a row. */
static inline float *fl_accessor_of(const fl_rows *r, float *row)
{
    return row + (fl_rows_shown(r, row) - row);
}

static inline int fl_seen_slot(float seen)
{
    return (int)(seen / FL_SEEN_DAYS);
}

static inline int fl_unseen_days(float seen)
{
    return (int)seen - fl_seen_slot(seen) * FL_SEEN_DAYS;
}

/* An update has changed n rows; behind the dim floats of each gradient are the
 * FL_N_PUSHED numbers of the accessor. */
void fl_accessor_update(const fl_rows *r, float *const *row,
                        const float *const *grad, int64_t n);

/* A shrink: decays a row's numbers. True: the row goes. */
bool fl_accessor_shrink(const fleet_accessor *a, float *numbers);

/* Is a row in a save of that mode? */
bool fl_accessor_saves(const fleet_accessor *a, fleet_save_mode mode,
                       const float *numbers);

/* Such a save was written: delta scores of rows that are in a delta or a base
 * are 0, and with a day's end all rows have not been seen for a day more. */
void fl_accessor_saved(const fleet_accessor *a, fleet_save_mode mode,
                       float *numbers);
