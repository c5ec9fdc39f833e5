/* load_states.h - the states that a save has of a parameter or a table,
 * compared with what an optimizer keeps. */
#pragma once

#include "fleet/save/load.h"
#include "fleet/save/load_how.h"

/* The optimizer's states must be the saved ones, unless other ones may be;
 * without an optimizer, none are read. */
fleet_status fl_saved_check_states(const fl_rule *rule, fl_saved_item *item,
                                   const fleet_load_options *o);

/* Say in the log which of them begin anew, and which are left out. */
void fl_saved_note_states(const fl_saved_item *item, const fl_store *store,
                          const fl_rule *rule);
