/* load_chain.h - a save that adds to earlier saves (adr/0122), read as one:
 * these are its chain, and the first of them has all rows. */
#pragma once

#include "fleet/save/load.h"

enum { FL_MOST_LINKS = 10000 };

/* An entry of a manifest's "chain". */
typedef struct fl_chain_entry {
    const char *folder; /* beside the save's own */
    uint64_t hash;      /* of its manifest */
} fl_chain_entry;

fleet_status fl_chain_entry_read(const fl_at *at, fl_chain_entry *e);

/* The names of the folders that the save at the path adds to. */
typedef fleet_status fl_chain_visitor(void *arg, const char *folder);
fleet_status fl_chain_names(const char *path, fl_chain_visitor *visit,
                            void *arg);

/* Opens the saves that the open save names; one that is missing, or another
 * one than that which was added to, is named. Of a save without a chain
 * nothing. path: the save's. */
fleet_status fl_chain_open(fl_saved *s, const char *path);
void fl_chain_close(fl_saved *s);

/* All parts are checked: which rows are there at the end. */
fleet_status fl_chain_count(fl_saved *s);

/* fl_saved_each() of a save with links, behind fl_chain_count(). */
fleet_status fl_chain_each(const fl_saved *s, fl_saved_visitor *visit,
                           void *arg);
