/* table_call.h - what calls on rows and weights have in common: what is asked
 * of the processes that keep them, and what all workers do together. */
#pragma once

#include "fleet/job/handle.h"
#include "runtime/store/job_command.h"

/* Answers of the parts that keep something, each for fl_free(). */
typedef struct fl_answers {
    char **of;
    int n;
} fl_answers;

void fl_answers_done(fl_answers *a);

/* The table, once all programs' are in the store. */
fleet_status fl_call_table(fleet *f, const char *call, const char *table,
                           fl_rows **rows);

/* Ask all parts of a table. */
fleet_status fl_call_read(fleet *f, const fl_rows *rows, const char *text,
                          fl_answers *a);

/* A write of all workers, of a table, a parameter, or (NULL) of all: `mine` is
 * whether this one's call is right. If all are right, and the same, the first
 * one's write() is called, and all return when it has returned. */
typedef fleet_status fl_call_writer(void *arg);
fleet_status fl_call_together(fleet *f, const char *call, const char *of,
                              fleet_status mine, fl_call_writer *write,
                              void *arg);

/* From write(): a command to all that keep it. */
fleet_status fl_call_write(fleet *f, bool remote, const char *text);
