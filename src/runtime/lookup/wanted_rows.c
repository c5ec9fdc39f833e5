/* wanted_rows.c - rows asked for, and waited for with a deadline. */
#include "runtime/lookup/wanted_rows.h"

#include <time.h>

#include "base/clock.h"

enum { FIRST_NAP_NS = 20000, MOST_NAP_NS = 1000000 };

fleet_status fl_wanted_rows_ask(fl_wanted_rows *w, fl_rows *rows,
                                const uint64_t *key, int64_t n)
{
    *w = (fl_wanted_rows){0};
    FL_TRY(rows->methods->want(rows, key, n, &w->token));
    w->rows = rows;
    return FLEET_OK;
}

fleet_status fl_wanted_rows_ready(const fl_wanted_rows *w, bool *ready)
{
    *ready = true;
    return w->rows ? w->rows->methods->is_ready(w->rows, w->token, ready)
                   : FLEET_OK;
}

fleet_status fl_wanted_rows_wait(const fl_wanted_rows *w)
{
    fl_wait wait = fl_wait_for(w->rows->wait_ms);
    struct timespec nap = {.tv_nsec = FIRST_NAP_NS};
    bool ready, helped = false;

    for (;;) {
        FL_TRY(fl_wanted_rows_ready(w, &ready));
        if (ready)
            return FLEET_OK;
        if (!helped && w->rows->methods->help) {
            w->rows->methods->help(w->rows, w->token);
            helped = true;
            continue;
        }
        helped = false;
        if (fl_wait_left(&wait) == 0)
            return fl_fail(FLEET_ETIMEDOUT,
                           "table \"%s\": rows that are wanted have not come "
                           "into memory within %.1f s",
                           w->rows->name, (double)w->rows->wait_ms / 1000);
        nanosleep(&nap, NULL);
        if (nap.tv_nsec < MOST_NAP_NS)
            nap.tv_nsec *= 2;
    }
}

void fl_wanted_rows_release(fl_wanted_rows *w)
{
    w->rows->methods->release(w->rows, w->token);
    *w = (fl_wanted_rows){0};
}
