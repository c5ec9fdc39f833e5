/* criteo.h - Criteo's click logs: a label, 13 integers, 26 texts. */
#pragma once

#include "data/parse/parser.h"

fl_parse fl_parse_criteo;

/* Its slots, for fl_free(). */
fleet_status fl_criteo_slots(const char *file, fleet_slot **slots, int *n);
