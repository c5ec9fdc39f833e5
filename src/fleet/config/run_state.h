/* run_state.h - what a configuration's training has seen, in its checkpoints:
 * in the extra bytes (fleet_extra_set()), as JSON. */
#pragma once

#include "fleet/config/run_internal.h"

/* Before a checkpoint: from now on the handle's are this training's. Nothing,
 * unless something is watched, or was in what it goes on from. */
fleet_status fl_run_state_put(fl_config_run *t);

/* Out of bytes; the state stays if they are a program's own. FLEET_ECONFIG. */
fleet_status fl_run_state_read(const void *extra, size_t size, fl_run_state *s);

/* After a load, if there was one. *known: the training goes on, and has taken
 * the state of its checkpoint. That of another training goes. */
fleet_status fl_run_state_take(fl_config_run *t, bool *known);
