/* shuffle.h - a reader that hands out another one's samples in the order of a
 * shuffle buffer. */
#ifndef FL_DATA_SHUFFLE_H
#define FL_DATA_SHUFFLE_H

#include "data/format/reader.h"

/* inner is closed with it, also if this fails. */
fleet_status fl_shuffle_reader_open(fl_reader **r, const fl_reader_env *env,
                                    fl_reader *inner);

#endif
