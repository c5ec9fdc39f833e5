/* load_notes.h - what the log says of a load. */
#pragma once

#include "fleet/save/load.h"
#include "fleet/save/load_how.h"

/* Parameters and tables that the store has and the save has not, and the other
 * way round. */
void fl_saved_note_absent(const fl_saved *s, const fl_store *store,
                          const fleet_load_options *o);
