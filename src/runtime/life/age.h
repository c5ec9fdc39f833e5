/* age.h - since which update rows have to have changed, by updates and by
 * seconds. Rows have versions, and no times: so a table keeps marks, how many
 * updates were done when. */
#pragma once

#include "runtime/store/table_api.h"

/* What fleet_shrink() goes by, called at that time after that number of
 * updates: rows whose last change has a lower version than the result are too
 * old; 0: none is. The time becomes a mark for later calls. A clock that goes
 * back stands still. */
uint64_t fl_age_limit(fl_life *life, uint64_t updates, int64_t now);

/* A mark later than all that there are; one that is too near to the last is not
 * kept. */
void fl_age_add_mark(fl_life *life, fl_life_mark mark);

/* The number of updates has changed by that, and no update was done: what the
 * life knows of their numbers changes with it, down to 0. */
void fl_age_move(fl_life *life, int64_t by);
