/* parquet_file.h - lines as rows of a Parquet file, which the plug-in
 * libfleet_arrow.so writes. */
#pragma once

#include "base/error.h"
#include "data_line.h"

typedef struct parquet_file parquet_file;

/* Columns have the fields' names; each count has one of its own: count_0,
 * count_1, ... FLEET_EUNSUPPORTED: there is no plug-in. FLEET_EIO. */
fleet_status parquet_file_create(const char *path, const data_line *line,
                                 parquet_file **file);
fleet_status parquet_file_add(parquet_file *f, const data_line *line);
fleet_status parquet_file_finish(parquet_file *f); /* all is in it */
void parquet_file_close(parquet_file *f);          /* NULL is fine */
