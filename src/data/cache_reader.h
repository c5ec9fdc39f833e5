/* cache_reader.h - a reader of files' caches, which makes missing ones first.
 * Where one cannot be made it reads the files themselves.
 *
 * A "line" is a row: of a block, which many lines have, or by itself where a
 * shuffle keeps lines apart from their blocks. */
#pragma once

#include "data/parse/reader.h"

fleet_status fl_cache_reader_open(fl_reader **reader, const fl_reader_env *env);

/* Of a stream with such a reader. */
fl_parse fl_cache_parse;
