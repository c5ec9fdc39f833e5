/* made_slots.h - slots that no line has: crossed ids, and numbers whose bucket
 * is an id. */
#pragma once

#include "data/parse/parser.h"

/* Fill the slots that lines do not have, once all slots in front
 * of them have their values.
 * FLEET_EFORMAT: a sample has too many combinations. */
fleet_status fl_made_slots_fill(const fl_parser *p, fl_batch_buffer *buffer);
