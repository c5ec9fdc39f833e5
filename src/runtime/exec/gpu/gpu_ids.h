/* gpu_ids.h - memory on a GPU whose size depends on the number of ids in a
 * batch: ragged feeds, arrays by position of lookups, rows of tables. */
#pragma once

#include "runtime/exec/gpu/gpu_plan.h"

/* Where feeds lie in a slot's memory, and that memory. */
fleet_status fl_gpu_plan_place_feeds(fl_compiled *c);

/* A ragged feed has its ids first, then its offsets. */
size_t fl_gpu_plan_offsets_at(const fl_value *v);

/* Tables, and the positions of lookups. */
fleet_status fl_gpu_plan_find_tables(fl_compiled *c);
fleet_status fl_gpu_plan_make_positions(fl_compiled *c);

/* Before a batch is fed: room for its ids; they are of the merge group's
 * `micro`-th batch, from 0. */
fleet_status fl_gpu_plan_begin_ids(fl_compiled *c, const fl_input *input,
                                   int64_t batch, int micro);

/* Before an update: room for its rows. */
fleet_status fl_gpu_plan_make_room(fleet_executor *e, fl_compiled *c);

/* Counts of rows after an update: their bytes in pinned memory; their copies to
 * it; and once the copies are done, the counts. */
size_t fl_gpu_plan_count_bytes(const fl_compiled *c);
fleet_status fl_gpu_plan_copy_counts(fl_compiled *c);
void fl_gpu_plan_read_counts(const fl_compiled *c, const char *pinned);
