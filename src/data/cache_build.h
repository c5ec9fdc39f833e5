/* cache_build.h - a file parsed into its cache. */
#pragma once

#include <stdatomic.h>

#include "data/parse/parser.h"

enum { FL_PACKED_BYTES = 4 << 20 }; /* of text, about which a block is of */

/* How many rows a block has: of wide slots fewer. */
int64_t fl_cache_rows_of(const fl_stream_spec *spec);

/* Lines, or rows of caches, are parsed, and packed while they are at hand. */
fl_parse fl_parse_packed;

/* The file's lines by spec, all of them, on spec's threads. It ends early, with
 * FLEET_ESTATE, once *stop is set. */
fleet_status fl_cache_build(const fl_stream_spec *spec, const char *file,
                            uint64_t key, const atomic_bool *stop);
