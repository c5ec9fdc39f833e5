/* internal.h - what stream.c and check.c have for statistics.c alone. */
#ifndef FL_DATA_INTERNAL_H
#define FL_DATA_INTERNAL_H

#include "data/parse.h"

/* All that fl_stream_check() checks, but for the statistics. */
fleet_status fl_stream_check_but_statistics(const fl_stream_spec *spec);

/* A stream, unchecked, whose lines are parsed in another way. */
fleet_status fl_stream_open_as(fl_stream **stream, const fl_stream_spec *spec,
                               fl_parse *parse);

#endif
