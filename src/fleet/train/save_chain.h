/* save_chain.h - saves of fleet_save_every of which each adds to the one before
 * it (adr/0122). */
#pragma once

#include <fleet/train.h>

#include "fleet/job/handle.h"

/* Write a save to the path, in o->folder: one of what has changed, where the
 * last ones are there still and it is not the turn of a whole one. */
fleet_status fl_save_chain_write(const fleet_save_every *o, fleet *f,
                                 const char *path);

/* The next save is whole. */
void fl_save_chain_end(fleet *f);
