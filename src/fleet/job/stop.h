/* stop.h - the wish that training passes stop: fleet_train_stop(). Each handle
 * counts the wishes that it has met, so that one wish stops each handle once.
 */
#pragma once

#include "fleet/job/handle.h"

/* Wishes of this process so far. */
unsigned fl_stop_count(void);

/* Of this handle alone, by the thread that trains with it. */
static inline void fl_stop_handle(fleet *f)
{
    f->stops_met = fl_stop_count() - 1;
}

static inline bool fl_stop_wanted(const fleet *f)
{
    return fl_stop_count() != f->stops_met;
}
