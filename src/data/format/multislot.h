/* multislot.h - Fleet's text format: of each slot a count and its values. */
#pragma once

#include "data/parse/parser.h"

fl_parse fl_parse_multislot;
