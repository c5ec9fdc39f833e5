/* save_changes.h - a save of what has changed since another one (adr/0122):
 * which rows it has, and what the manifest says of it. */
#pragma once

#include "fleet/save/save.h"
#include "runtime/store/key_log.h"

/* Of a table. */
typedef struct fl_save_changes {
    uint64_t since; /* updates at the save before */
    uint64_t *key;  /* that came or went since; then the ones that are gone */
    bool *is_here;
    int64_t n;
} fl_save_changes;

fleet_status fl_save_changes_begin(fl_save_changes *c, fl_save_link *link,
                                   const fl_rows *r);
void fl_save_changes_done(fl_save_changes *c);

/* Has the row changed? All rows are asked for. */
bool fl_save_changes_has(fl_save_changes *c, uint64_t key,
                         const fl_row_head *head);

/* Behind the last row: the keys are now those without a row. */
void fl_save_changes_gone(fl_save_changes *c);

/* Freezes the tables' logs of keys, unless a snapshot has; then
 * s->link->refused says whether one of them does not know the link's base. */
void fl_save_check_link(const fl_save *s);

/* "version", and the links of a save that adds to earlier saves. */
fleet_status fl_save_put_version(const fl_save *s, fl_json *manifest);

/* The manifest is written: its text, and the hash of that. */
fleet_status fl_save_note_link(const fl_save *s, const char *manifest,
                               uint64_t hash);
