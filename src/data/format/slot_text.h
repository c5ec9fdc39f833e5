/* slot_text.h - lines of tokens NAME:VALUE, as PaddleRec's slot data are. */
#pragma once

#include "data/parse/parser.h"

fl_parse fl_parse_slot_text;
