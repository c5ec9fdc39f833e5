/* journal_reader.h - a journal read from its first record to its last.
 *
 * A process that dies leaves a last record that is half written: it was never
 * said to be durable, and is cut off. Everything else that cannot be read is
 * damage: it is named by file, offset and number, and nothing behind it is
 * given. What tells them apart:
 *
 *   a whole record behind it     damage; but where that record says that both
 *                                were written since the last flush, a crash of
 *                                the machine may leave the later one alone
 *   another file behind it       what was cut off, if that file begins with the
 *                                number that was expected: its writer has cut
 *                                it off, too; else damage
 *   nothing                      what was cut off
 *
 * So one record may be lost without a word, if the journal's last one is
 * damaged: its owner must know the number of what was said to be durable.
 *
 * Threads: one at a time. */
#pragma once

#include "ps/journal/journal_record.h"

typedef struct fl_journal_reader fl_journal_reader;

/* All files of the folder's journal, in their order. FLEET_ENOENT: it has none,
 * or there is no folder. FLEET_ECORRUPT: one is missing. Files of other names
 * are left alone. */
fleet_status fl_journal_reader_open(fl_journal_reader **r, const char *folder);

/* The same from that file on. */
fleet_status fl_journal_reader_open_at(fl_journal_reader **r,
                                       const char *folder, uint32_t first);
void fl_journal_reader_close(fl_journal_reader *r); /* NULL is fine */

/* What its files say of their owner; the reader's. "": no file has a whole
 * head, and so there is no record. */
const char *fl_journal_reader_text(const fl_journal_reader *r);

/* The next record, whose bytes are good until the next call; *more is false
 * after the last one. FLEET_ECORRUPT names the damage, and stays. */
fleet_status fl_journal_next(fl_journal_reader *r, fl_journal_record *record,
                             bool *more);

/* How many bytes were read, of how many. */
void fl_journal_reader_progress(const fl_journal_reader *r, uint64_t *bytes,
                                uint64_t *total);

/* After the last record: where a writer goes on, and what was cut off, as a
 * text for the log: "" if nothing was. */
typedef struct fl_journal_end {
    uint64_t lsn;
    uint32_t file;
    const char *cut; /* the reader's */
} fl_journal_end;

fl_journal_end fl_journal_reader_end(const fl_journal_reader *r);
