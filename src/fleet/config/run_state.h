/* run_state.h - what a configuration's training has seen, in its checkpoints:
 * in the extra bytes (fleet_extra_set()), as JSON. */
#pragma once

#include "fleet/config/run_internal.h"

/* Before a checkpoint: from now on the handle's are this training's. Nothing,
 * unless something is watched. */
fleet_status fl_run_state_put(fl_config_run *t);

/* Out of bytes; the state stays if they are a program's own. FLEET_ECONFIG. */
fleet_status fl_run_state_read(const void *extra, size_t size, fl_run_state *s);

/* After a load, by a training that goes on: take what the checkpoint has.
 * *known: it has a state. */
fleet_status fl_run_state_take(fl_config_run *t, bool *known);
