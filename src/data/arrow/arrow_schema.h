/* arrow_schema.h - columns of Parquet files by their names. */
#pragma once

#include <parquet/schema.h>

#include "data/format/parquet_table.h"

/* The column that has the name of *what, whose kind and is_list are found, and
 * its place among the file's columns. FLEET_EFORMAT: there is none, or it is
 * nothing that a slot can have. path: of the file, for the error. */
fleet_status arrow_find_column(const parquet::SchemaDescriptor &s,
                               const char *path, fl_parquet_column *what,
                               int *leaf);
