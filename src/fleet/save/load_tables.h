/* load_tables.h - what becomes of a table as a load begins, and of the ages of
 * tables that it keeps, where it sets the number of updates: rows have the
 * numbers of updates, and are as old as before. */
#pragma once

#include "fleet/save/load.h"
#include "runtime/store/store.h"

/* The store has done `to` updates from now on, in place of store->updates: what
 * its tables know of updates before moves along, and what would come before the
 * first update is of its time. rows: of rows, too; the caller knows whether any
 * is kept. Rows that were loaded have no version and stay without. */
void fl_load_move_ages(const fl_store *store, int64_t to, bool rows);

/* The table whose keys the filter counts that has those counts. */
const fl_rows *fl_load_counted(const fl_store *store, const fl_rows *counts);

/* A table is loaded, before the ages move: it has no earlier ones. stays: it
 * keeps rows, and what comes has ages. */
void fl_load_begin_life(const fl_store *store, fl_life *life, bool stays);

/* An unknown row starts as it would have where the table was saved. Where rows
 * are trained, it is the table that says when they get a vector. */
void fl_load_take_filler(const fl_store *store, const fl_saved_item *item,
                         fl_rows *r);
