/* schema_probe.h - configurations that ask the reader for all that it takes. */
#pragma once

#include "base/error.h"

/* Configuration i, for fl_free(); *text NULL: there are no more. Each is good,
 * and each key is asked for by the reading of one of them. */
fleet_status fl_schema_probe(int i, char **text);
