/* stream_internal.h - a stream as stream_statistics.c opens it. */
#pragma once

#include "data/parse/parser.h"
#include "data/stream.h"

/* A stream, unchecked, whose lines are parsed in another way. */
fleet_status fl_stream_open_as(fl_stream **stream, const fl_stream_spec *spec,
                               fl_parse *parse);

/* From the lines of a batch to moments of the columns that standardize. */
fl_parse fl_parse_statistics;
