/* wanted_list.h - the rows that a request was parked for, section by section,
 * until they are in memory (wanted_rows.h). */
#pragma once

#include "runtime/lookup/wanted_rows.h"

typedef struct fl_wanted_list {
    struct fl_wanted_list *next;
    fl_wanted_rows rows;
    int64_t since_ms;
} fl_wanted_list;

/* Ask for the rows of n keys, which need not be aligned. */
fleet_status fl_wanted_list_add(fl_wanted_list **list, fl_rows *rows,
                                const void *keys, int64_t n, int64_t now_ms);

/* The first rows that are not in memory yet; NULL: all are. */
fleet_status fl_wanted_list_missing(const fl_wanted_list *list,
                                    const fl_wanted_list **missing);

/* Until all of them are; by a thread that has nothing else to do. */
fleet_status fl_wanted_list_wait(const fl_wanted_list *list);
void fl_wanted_list_release(fl_wanted_list **list); /* all of them */
