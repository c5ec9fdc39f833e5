/* shuffle.h - a reader that hands out another one's samples in the order of a
 * shuffle buffer. */
#pragma once

#include "data/parse/reader.h"

/* inner is closed with it, also if this fails. */
fleet_status fl_shuffle_reader_open(fl_reader **r, const fl_reader_env *env,
                                    fl_reader *inner);
