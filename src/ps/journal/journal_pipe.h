/* journal_pipe.h - records that one thread puts and another one takes, in
 * batches of bytes as a journal's files have them, numbered from 1: what is
 * written long need not lie in memory as a whole.
 *
 * Threads: one puts, one takes; create and destroy without either. */
#pragma once

#include "ps/journal/journal_record.h"

typedef struct fl_journal_pipe fl_journal_pipe;

/* A put waits while `most` bytes are not taken. ring(arg), by the thread that
 * puts: there is something to take; NULL: the other one looks by itself. */
fleet_status fl_journal_pipe_create(fl_journal_pipe **pipe, size_t most,
                                    void (*ring)(void *arg), void *arg);
void fl_journal_pipe_destroy(fl_journal_pipe *p); /* NULL is fine */

fl_journal_sink fl_journal_pipe_sink(fl_journal_pipe *p);

/* No more comes: for that status, whose text is the thread's last error. */
void fl_journal_pipe_end(fl_journal_pipe *p, fleet_status status);

/* No more is taken: puts fail. From any thread. */
void fl_journal_pipe_stop(fl_journal_pipe *p);

/* What was put takes the place of the caller's bytes, which grow: whole
 * records, of `most` bytes at most, but one at least. *size 0: none are left
 * now, and with *over none will come. Otherwise what the pipe was ended
 * for. */
fleet_status fl_journal_pipe_take(fl_journal_pipe *p, size_t most, char **bytes,
                                  size_t *capacity, size_t *size, bool *over);
