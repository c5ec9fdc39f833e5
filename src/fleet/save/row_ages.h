/* row_ages.h - ages in saves: how many updates ago rows have changed, of tables
 * whose rows go by it, and what such a table remembers of earlier updates. In a
 * save both count back from its own number of updates; so a load may set
 * another one. */
#pragma once

#include "runtime/store/store.h"

/* Has a save with states ages of the table's rows? Of what waits for such a
 * table, too. */
bool fl_row_ages_saved(const fl_store *store, const fl_rows *r);

/* The age, after that number of updates, of a row that has changed at that
 * version; below 0 of one that was written since. A row of version 0, which was
 * loaded without an age, has FL_NO_AGE. */
#define FL_NO_AGE INT64_MAX
int64_t fl_row_age(uint64_t changed_at, int64_t updates);
uint64_t fl_row_changed_at(int64_t age, int64_t updates);

/* The numbers of a record of kind FL_RECORD_LIFE, with marks: how many updates
 * ago the table was loaded, and its filter emptied; then, of each mark, how
 * many updates ago it was made, and its seconds. */
enum { FL_LIFE_NUMBERS = 2, FL_MARK_NUMBERS = 2 };
enum { FL_MOST_LIFE = FL_LIFE_NUMBERS + FL_MARK_NUMBERS * FL_LIFE_MARKS };

static inline size_t fl_life_numbers(uint64_t n_mark)
{
    return FL_LIFE_NUMBERS + FL_MARK_NUMBERS * (size_t)n_mark;
}

/* Into to[FL_MOST_LIFE]; how many of them. */
size_t fl_life_write(const fl_life *life, int64_t updates, int64_t *to);

/* Back, from a record with n marks. keeps: other rows stay, which were loaded
 * when the life says so. */
void fl_life_read(fl_life *life, int64_t updates, const char *record,
                  uint64_t n_mark, bool keeps);
