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

/* Of a row whose counts are unknown the last number is below 0: -1 - the unseen
 * days, and - FL_SEEN_VECTOR if it has its vector, until an update has seen
 * it. */
static inline bool fl_is_uncounted(const float *numbers)
{
    return numbers[FL_AT_SEEN] < 0;
}

enum { FL_SEEN_END = 2 * FL_SEEN_VECTOR };

/* Is it a number that says what a row has seen? Another number, of a
 * damaged text, is read as 0. */
static inline bool fl_is_seen(float seen)
{
    return seen > -FL_SEEN_END && seen < FL_SEEN_END &&
           seen == (float)(int)seen;
}

static inline int fl_seen_slot(float seen)
{
    return seen < 0 || !fl_is_seen(seen)
               ? 0
               : (int)seen % FL_SEEN_VECTOR / FL_SEEN_DAYS;
}

static inline int fl_unseen_days(float seen)
{
    return fl_is_seen(seen) ? (int)(seen < 0 ? -1 - seen : seen) % FL_SEEN_DAYS
                            : 0;
}

static inline bool fl_has_vector(const float *numbers)
{
    return numbers[FL_AT_SEEN] >= FL_SEEN_VECTOR ||
           numbers[FL_AT_SEEN] <= -FL_SEEN_VECTOR;
}

/* The numbers of a row that was written or loaded without any: no score judges
 * it, but its unseen days do, until an update has seen it; the next delta has
 * it. */
void fl_accessor_uncounted(const fleet_accessor *a, float *numbers);

/* An update has changed the rows of n keys; behind the dim floats of each
 * gradient are the FL_N_PUSHED numbers of the accessor. Rows without a vector
 * have zeros again, or get it. key: fl_rows_need_keys() says whether it is
 * used. */
void fl_accessor_update(const fl_rows *r, const uint64_t *key,
                        float *const *row, const float *const *grad, int64_t n);

/* A row was written from outside, without its accessor's numbers: it has a
 * vector if that is not 0. */
void fl_accessor_find_vector(const fl_rows *r, float *row);

/* A shrink: decays what was shown and clicked. True: the score is too low. */
bool fl_accessor_decay(const fleet_accessor *a, float *numbers);

/* The same of a row, which may also be unseen for too long: it goes. */
bool fl_accessor_shrink(const fleet_accessor *a, float *numbers);

/* Has a row that stays not been seen for so long that it need not be in
 * memory? */
bool fl_accessor_is_cold(const fleet_accessor *a, const float *numbers);

/* Is a row in a save of that mode? */
bool fl_accessor_saves(const fleet_accessor *a, fleet_save_mode mode,
                       const float *numbers);

/* Such a save was written: delta scores of rows that are in a delta or a base
 * are 0, and with a day's end all rows have not been seen for a day more. */
void fl_accessor_saved(const fleet_accessor *a, fleet_save_mode mode,
                       float *numbers);
