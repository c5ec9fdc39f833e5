/* load_into.h - a save that is brought into a store. */
#pragma once

#include "fleet/save/load.h"
#include "fleet/save/load_how.h"

/* Bring the save into the store, whatever both have: of dense parameters the
 * blocks that the store keeps, of tables the rows in the buckets `rows` (NULL:
 * all). A store with a remote has no rows of its own and gets none. All of it
 * is compared before anything is changed: shapes are equal; what one of both
 * does not have is as fleet_load_options says. */
fleet_status fl_saved_apply(fl_saved *s, fl_store *store,
                            const fl_bucket_set *rows, const fl_load_how *how);

/* Where a saved table goes in this process; NULL: nowhere. */
fl_rows *fl_saved_target(const fl_saved *s, const fl_store *store,
                         const fl_load_how *how, const fl_saved_item *item);

/* Say in the log what was not loaded as it was saved. */
void fl_saved_note(const fl_saved *s, const fl_store *store,
                   const fl_load_how *how);
