/* json_lines.h - lines that are JSON objects, whose keys are slots. */
#pragma once

#include "data/parse/parser.h"

fl_parse fl_parse_json_lines;
