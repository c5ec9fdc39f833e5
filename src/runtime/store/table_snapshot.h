/* table_snapshot.h - a table's part of a snapshot (snapshot.h): its rows as
 * they were. One thread changes the table, another one reads the snapshot. */
#pragma once

#include "runtime/store/table_api.h"

typedef struct fl_rows_snapshot fl_rows_snapshot;

/* By the thread that changes the table. FLEET_EUNSUPPORTED for rows that are
 * not in this process's memory. */
fleet_status fl_table_snapshot(const fl_rows *r, fl_rows_snapshot **s);
void fl_table_snapshot_free(fl_rows_snapshot *s);

int64_t fl_table_snapshot_count(const fl_rows_snapshot *s);

/* Before the rows of these keys change, or go. FLEET_ENOMEM: they must not. */
fleet_status fl_table_snapshot_change(fl_rows_snapshot *s, const uint64_t *key,
                                      int64_t n);

/* As fl_rows_class.each; once. */
fleet_status fl_table_snapshot_each(fl_rows_snapshot *s, fl_row_visitor *visit,
                                    void *arg);

/* Bytes of rows that were copied and have not been read yet. From any
 * thread. */
int64_t fl_table_snapshot_bytes(const fl_rows_snapshot *s);
