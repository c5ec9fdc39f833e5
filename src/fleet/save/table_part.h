/* table_part.h - what one process does of a read or a write of rows and
 * weights: this one, a lane of a server, or a rank. What is asked is JSON, and
 * so is what comes of it; numbers in it are 8 or 16 hex digits for each, so
 * that no bit is lost. */
#pragma once

#include "base/json/json.h"
#include "base/text.h"
#include "ps/partition.h"
#include "runtime/store/job_command.h"

#define FL_MOST_SECONDS ((int64_t)1 << 53)

/* Of two floats, how often rows were shown: for qsort(). */
int fl_most_shown_first(const void *a, const void *b);

/* READ or WRITE of what the store has, of a table the rows in the buckets
 * `own`; NULL: all. *answer is for fl_free(). The store is the caller's alone,
 * and on the host. */
fleet_status fl_table_part(fl_store *store, const fl_bucket_set *own,
                           fl_job_command command, const char *text,
                           char **answer);

/* {"op": "rows", "table": NAME, "keys": HEX, "states": BOOL}, with "values" in
 * a WRITE: each row's weights and, with states, its states.
 * Answer of a READ: {"at": HEX, "found": HEX, "values": HEX}: of the keys that
 * are in own buckets their places among the keys (u32), 1 if there is a row
 * (u32), and its numbers, or its first ones.
 *
 * {"op": "stat", "table": NAME}. Answer: the numbers of an fl_rows_stat,
 * and how many rows are hot.
 *
 * {"op": "slots", "table": NAME}. Answer of a READ: table_slots.h.
 *
 * {"op": "shrink", "table": NAME, "now": SECONDS}: a WRITE, after which rows
 * that have lived too long are gone.
 *
 * {"op": "shows", "table": NAME, "n": N}. Answer of a READ: {"shows": HEX}, how
 * often rows were shown, of the N that were shown most, falling.
 *
 * {"op": "saved", "table": NAME, "mode": MODE}: a WRITE, once a save of that
 * fleet_save_mode is in its place.
 *
 * {"op": "follow", "table": NAME}: a WRITE, behind which it is noted what rows
 * come and go (key_log.h).
 *
 * {"op": "param", "name": NAME, "first": I, "values": HEX}: a WRITE of weights
 * from I on. */
fleet_status fl_table_rows_text(const char *table, const uint64_t *key,
                                int64_t n, bool states, const float *values,
                                int64_t width, char **text);
fleet_status fl_table_stat_text(const char *table, char **text);
fleet_status fl_table_slots_text(const char *table, char **text);
fleet_status fl_table_shrink_text(const char *table, int64_t now, char **text);
fleet_status fl_table_shows_text(const char *table, int64_t n, char **text);
fleet_status fl_table_saved_text(const char *table, fleet_save_mode mode,
                                 char **text);
fleet_status fl_table_follow_text(const char *table, char **text);
fleet_status fl_table_param_text(const char *name, int64_t first,
                                 const float *values, int64_t n, char **text);
