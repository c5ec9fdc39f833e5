/* load_notes.h - what the log says of a load. */
#pragma once

#include "fleet/save/load.h"
#include "fleet/save/load_how.h"

/* Parameters and tables that the store has and the save has not, and the other
 * way round. */
void fl_saved_note_absent(const fl_saved *s, const fl_store *store,
                          const fleet_load_options *o);

/* A parameter of another shape than the saved one, which begins anew. */
void fl_saved_note_shape(const fl_saved *s, const fl_store *store,
                         const fl_saved_item *item, const fl_shape *shape);

/* A save of a table without an accessor's counts, into one with it; or nothing,
 * with r NULL, too. */
void fl_saved_note_shown(const fl_saved *s, const fl_store *store,
                         const fl_saved_item *item, const fl_rows *r);
