/* arrow_read.h - columns of Parquet files, read by Apache Arrow; the functions
 * of fl_parquet_table that read. */
#pragma once

#include "data/format/parquet_table.h"

#ifdef __cplusplus
extern "C" {
#endif

fleet_status fl_arrow_open(const char *path, const char *text, size_t text_size,
                           fl_parquet_column *column, int n,
                           fl_parquet_file **file);
int fl_arrow_count_groups(const fl_parquet_file *f);
int64_t fl_arrow_count_rows(const fl_parquet_file *f, int group);
fleet_status fl_arrow_read(fl_parquet_file *f, int group, int64_t *rows,
                           fl_parquet_piece *piece);
void fl_arrow_close(fl_parquet_file *f);

#ifdef __cplusplus
}
#endif
