/* stream_internal.h - what the files of a stream have for each other alone. */
#ifndef FL_DATA_STREAM_INTERNAL_H
#define FL_DATA_STREAM_INTERNAL_H

#include "data/parse.h"

/* Are there statistics for what standardizes? */
fleet_status fl_stream_check_statistics(const fl_stream_spec *spec);

/* A stream, unchecked, whose lines are parsed in another way. */
fleet_status fl_stream_open_as(fl_stream **stream, const fl_stream_spec *spec,
                               fl_parse *parse);

#endif
