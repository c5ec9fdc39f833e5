/* table_options.h - the life of a table's rows, as users state it: checked,
 * compared, as text and from text. */
#pragma once

#include <fleet/nn.h>

#include "base/memory.h"
#include "base/text.h"

/* Is anything stated? */
bool fl_table_has_life(const fleet_table_options *o);

/* FLEET_EINVAL for what cannot be, naming the table. */
fleet_status fl_table_options_check(const char *name,
                                    const fleet_table_options *o);

/* The option that `want` states and that differs from what the table has; NULL:
 * none. */
const char *fl_table_options_differ(const fleet_table_options *has,
                                    const fleet_table_options *want);

/* Each stated option as " name value", `between` before all but the first: for
 * dumps, and for processes that compare what they train. */
void fl_table_options_print(const fleet_table_options *o, const char *between,
                            fl_text *out);

/* FLEET_EINVAL or FLEET_EUNSUPPORTED for a vector that rows of `dim` numbers,
 * kept so, cannot get late. */
fleet_status fl_accessor_vector_check(const char *name, const fleet_accessor *a,
                                      int64_t dim, fleet_row_storage storage);

/* Fleet's text of an entry: "count_filter_entry:5", "probability_entry:0.3";
 * likewise "bloom_filter_entry:COUNT:MOST_KEYS:RATE". False: it is none; its
 * numbers are checked as above. */
bool fl_entry_read(const char *text, fleet_entry *entry);
void fl_entry_print(const fleet_entry *entry, fl_text *out);

/* Fleet's defaults in place of an accessor's zeros. */
void fl_accessor_fill(fleet_accessor *a);

/* The same, and its names are the arena's from now on. */
fleet_status fl_accessor_keep(fl_arena *arena, fleet_accessor *a);

/* The name of an accessor's i-th number, and where it is; NULL: it has no more
 * of them. */
const char *fl_accessor_number(int i, fleet_accessor *a, float **number);

/* Has that number an effect? One of a vector has none where there is none. */
bool fl_accessor_has_number(int i, const fleet_accessor *a);
