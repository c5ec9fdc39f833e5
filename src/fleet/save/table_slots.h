/* table_slots.h - rows of a table with an accessor, counted slot by slot, by a
 * process that keeps some of them. */
#pragma once

#include "base/json/json.h"
#include "runtime/store/store.h"

/* Of a table with an accessor, what is done for {"op": "slots", "table": NAME},
 * a READ. Answer: of the slots that rows have, growing, {"slots": HEX, "rows":
 * HEX, "hot": HEX, "shows": HEX, "clicks": HEX}: u32, i64, then doubles. */
fleet_status fl_table_slots(const fl_store *store, fl_rows *rows,
                            char **answer);

/* n slots of an answer; each array is for fl_free(). */
typedef struct fl_slot_counts {
    uint32_t *slot;
    int64_t *rows, *hot;
    double *shows, *clicks;
    int64_t n;
} fl_slot_counts;

/* FLEET_EFORMAT for what is none; fl_slot_counts_done() after that, too. */
fleet_status fl_slot_counts_read(const char *text, fl_slot_counts *c);
void fl_slot_counts_done(fl_slot_counts *c);
