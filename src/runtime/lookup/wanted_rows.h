/* wanted_rows.h - rows of a table that may be out of memory (table_api.h):
 * asked for, and then waited for, or looked after from time to time. A table
 * whose rows are all in memory costs one comparison.
 *
 *   fl_wanted_rows w = {0};
 *   status = fl_rows_bring(&w, rows, key, n);
 *   if (status == FLEET_OK)
 *       status = rows->methods->find(rows, key, n, row);
 *   ... the rows are used ...
 *   fl_wanted_rows_done(&w);
 */
#pragma once

#include "runtime/store/table_api.h"

typedef struct fl_wanted_rows {
    fl_rows *rows; /* NULL: nothing was asked for */
    uint64_t token;
} fl_wanted_rows;

/* Ask; of a table that has `want`. On failure there is nothing to release. */
fleet_status fl_wanted_rows_ask(fl_wanted_rows *w, fl_rows *rows,
                                const uint64_t *key, int64_t n);
fleet_status fl_wanted_rows_ready(const fl_wanted_rows *w, bool *ready);

/* Until they are ready. FLEET_ETIMEDOUT: they were not within rows->wait_ms. */
fleet_status fl_wanted_rows_wait(const fl_wanted_rows *w);
void fl_wanted_rows_release(fl_wanted_rows *w);

/* Ask and wait. fl_wanted_rows_done() follows, after a failure, too. */
static inline fleet_status fl_rows_bring(fl_wanted_rows *w, fl_rows *rows,
                                         const uint64_t *key, int64_t n)
{
    if (!rows->methods->want)
        return FLEET_OK;
    FL_TRY(fl_wanted_rows_ask(w, rows, key, n));
    return fl_wanted_rows_wait(w);
}

static inline void fl_wanted_rows_done(fl_wanted_rows *w)
{
    if (w->rows)
        fl_wanted_rows_release(w);
}
