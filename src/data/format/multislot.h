/* multislot.h - Fleet's text format: of each slot a count and its values. */
#ifndef FL_DATA_FORMAT_MULTISLOT_H
#define FL_DATA_FORMAT_MULTISLOT_H

#include "data/format/parser.h"

fl_parse fl_parse_multislot;

#endif
