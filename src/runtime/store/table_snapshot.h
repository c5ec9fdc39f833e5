/* table_snapshot.h - a table's part of a snapshot (snapshot.h): its rows as
 * they were. One thread changes the table, another one reads the snapshot. */
#pragma once

#include "runtime/store/table_api.h"

typedef struct fl_rows_snapshot fl_rows_snapshot;

/* What a kind of table has for it: fl_rows_class.snapshot. */
typedef struct fl_snapshot_class {
    /* By the thread that changes the table. */
    fleet_status (*begin)(const fl_rows *r, fl_rows_snapshot **s);
    void (*end)(fl_rows_snapshot *s);

    /* Before the rows of these keys change, or go. FLEET_ENOMEM: they must
     * not. */
    fleet_status (*change)(fl_rows_snapshot *s, const uint64_t *key, int64_t n);

    /* As fl_rows_class.each; once. */
    fleet_status (*each)(fl_rows_snapshot *s, fl_row_visitor *visit, void *arg);
} fl_snapshot_class;

/* The first of what a kind of table has in it. */
struct fl_rows_snapshot {
    const fl_snapshot_class *methods;
    int64_t n;             /* rows */
    _Atomic int64_t bytes; /* of rows that were copied and have not been read
                              yet. From any thread */
};

extern const fl_snapshot_class fl_table_snapshots; /* of fl_table_make() */

/* FLEET_EUNSUPPORTED for rows of which there is none. */
fleet_status fl_table_snapshot(const fl_rows *r, fl_rows_snapshot **s);
