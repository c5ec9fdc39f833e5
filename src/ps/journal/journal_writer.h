/* journal_writer.h - records written into a journal's files, before what they
 * say is done.
 *
 * Records are put, any number of them, and then committed together: what was
 * put before a commit that has succeeded is durable. A journal that has failed
 * stays failed, with the words of the first failure: after a flush that has
 * failed it is not known what lies on the disk (Rebello et al. 2020, "Can
 * Applications Recover from fsync Failures?"), so what it says is never asked
 * for again.
 *
 * Threads: one at a time. */
#pragma once

#include "ps/journal/journal_record.h"

/* What may happen after a commit without a loss. */
typedef enum fl_journal_level {
    FL_JOURNAL_SURVIVES_PROCESS, /* kill -9 of the process: it was written */
    FL_JOURNAL_SURVIVES_POWER    /* a crash of the machine: it was flushed */
} fl_journal_level;

/* A file is closed, and the next one begun, where it would have more bytes. */
enum { FL_JOURNAL_ROLL_BYTES = 64 << 20 };

typedef struct fl_journal_options {
    const char *folder;  /* there is one, of this journal alone */
    const char *text;    /* what each file says of its owner */
    uint32_t first_file; /* number of the first file that is written */
    uint64_t first_lsn;  /* and of the first record; from 1 on */
    size_t roll_bytes;   /* 0: FL_JOURNAL_ROLL_BYTES */
    fl_journal_level level;
} fl_journal_options;

typedef struct fl_journal_writer fl_journal_writer;

/* The first file is made with the first record. */
fleet_status fl_journal_writer_create(fl_journal_writer **w,
                                      const fl_journal_options *o);

/* What was not committed may be lost. NULL is fine. */
void fl_journal_writer_destroy(fl_journal_writer *w);

/* One record more, of n parts, which are done with when this returns. FLEET_EIO
 * names file and cause: no room on the disk, say. */
fleet_status fl_journal_put(fl_journal_writer *w, uint16_t kind,
                            const fl_journal_part *part, size_t n);

/* All that was put is durable. Nothing is done if nothing was put since the
 * last one. */
fleet_status fl_journal_commit(fl_journal_writer *w);

/* The same, and on the disk at every level: a process of another machine is
 * about to read it. */
fleet_status fl_journal_settle(fl_journal_writer *w);

/* Commit, and go on in another file, which is begun at once: its number. */
fleet_status fl_journal_roll(fl_journal_writer *w, uint32_t *file);

/* All that was put so far, in bytes of files. From any thread. */
uint64_t fl_journal_bytes(const fl_journal_writer *w);

/* The last record that was committed; 0: none was, and none was before. */
uint64_t fl_journal_committed(const fl_journal_writer *w);

/* "folder/journal-00000007", for fl_free(). */
char *fl_journal_path(const char *folder, uint32_t file);

/* The number in a name "journal-00000007", which begins with `begin` and ends
 * with `end`; false: it is no such name. */
bool fl_journal_read_name(const char *name, const char *begin, const char *end,
                          uint32_t *file);
