/* cache_build.h - a file parsed into its cache. */
#pragma once

#include <stdatomic.h>

#include "data/layout/spec.h"

/* The file's lines by spec, all of them, on spec's threads. It ends early, with
 * FLEET_ESTATE, once *stop is set. */
fleet_status fl_cache_build(const fl_stream_spec *spec, const char *file,
                            uint64_t key, const atomic_bool *stop);
