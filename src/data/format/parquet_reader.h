/* parquet_reader.h - the reader of Parquet files: rows of a list of files. A
 * row's "line" has the text of its block and the row's place as its size; with
 * a shuffle it is the row by itself. */
#pragma once

#include "data/format/parquet_table.h"
#include "data/parse/reader.h"

/* What the plug-in libfleet_arrow.so brings; FLEET_EUNSUPPORTED where it is
 * not, or cannot be used. */
fleet_status fl_parquet_reader_table(const fl_parquet_table **table);

fleet_status fl_parquet_reader_open(fl_reader **reader,
                                    const fl_reader_env *env);
