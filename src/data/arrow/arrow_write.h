/* arrow_write.h - Parquet files written by Apache Arrow; the functions of
 * fl_parquet_table that write. */
#pragma once

#include "data/format/parquet_table.h"

#ifdef __cplusplus
extern "C" {
#endif

fleet_status fl_arrow_create(const char *path, const fl_parquet_column *column,
                             int n, fl_parquet_writer **writer);
fleet_status fl_arrow_write(fl_parquet_writer *w, int64_t rows,
                            const fl_parquet_piece *piece);
fleet_status fl_arrow_finish(fl_parquet_writer *w);
void fl_arrow_abandon(fl_parquet_writer *w);

#ifdef __cplusplus
}
#endif
