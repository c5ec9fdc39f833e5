/* manifest.h - reading the manifest of a save: docs/formats.md. */
#pragma once

#include "fleet/save/load.h"

/* Reads the manifest of an open folder, checked against the sum beside it: what
 * was saved, which has to be `what` unless that is NULL, and each parameter and
 * table. */
fleet_status fl_manifest_open(fl_saved *s, const char *what);

/* Values that must be in the manifest. */
fleet_status fl_manifest_int(const fl_at *object, const char *key, int64_t low,
                             int64_t high, int64_t *out);
fleet_status fl_manifest_text(const fl_at *object, const char *key,
                              const char **out);
