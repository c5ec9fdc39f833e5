/* journal_record.h - the bytes of a journal: its records, and the heads of its
 * files. Functions of bytes alone; docs/formats.md has the layout.
 *
 * A journal is a sequence of records, numbered 1, 2, 3, ... without a gap (LSN,
 * the log sequence number of ARIES: Mohan et al. 1992), in files that each
 * begin where the one before ends. A record has a kind and bytes, which mean
 * nothing to a journal.
 *
 * Everything is little-endian. The sum of a record (CRC-32C) covers its number,
 * its kind, its size and its bytes, so that bytes of another record, or of a
 * file that had the place before, are never taken for it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum {
    FL_JOURNAL_VERSION = 1,
    FL_JOURNAL_ALIGN = 8,          /* records begin at multiples of it */
    FL_JOURNAL_RECORD_SIZE = 24,   /* of a record's head */
    FL_JOURNAL_FILE_SIZE = 24,     /* of a file's head, without its text */
    FL_JOURNAL_MOST_TEXT = 1 << 20 /* bytes of that text */
};

/* Bytes of a record, which need not lie together. */
typedef struct fl_journal_part {
    const void *data;
    size_t size;
} fl_journal_part;

/* A list of them, which grows and is kept. */
typedef struct fl_journal_parts {
    fl_journal_part *at;
    size_t n, capacity;
} fl_journal_parts;

/* One more; bytes right behind the last part's become bytes of that one. */
fleet_status fl_journal_add(fl_journal_parts *p, const void *data, size_t size);

/* Where an owner's records go: a journal's files, or whatever a test has in
 * their place. put NULL: nowhere. */
typedef struct fl_journal_sink {
    void *arg;
    fleet_status (*put)(void *arg, uint16_t kind, const fl_journal_part *part,
                        size_t n);
    fleet_status (*commit)(void *arg); /* what was put is durable then */
} fl_journal_sink;

typedef struct fl_journal_record {
    uint64_t lsn;
    uint16_t kind;
    uint16_t unflushed; /* how many records before it were not flushed when it
                           was written: a crash of the machine may leave it
                           without them */
    size_t size;
    const char *data; /* of a record that was read: aligned like its file */
} fl_journal_record;

/* Bytes in a file: of a record, of a file's head with its text. */
static inline size_t fl_journal_aligned(size_t size)
{
    return (size + FL_JOURNAL_ALIGN - 1) / FL_JOURNAL_ALIGN * FL_JOURNAL_ALIGN;
}

static inline size_t fl_journal_record_bytes(size_t size)
{
    return FL_JOURNAL_RECORD_SIZE + fl_journal_aligned(size);
}

static inline size_t fl_journal_file_bytes(size_t text_size)
{
    return FL_JOURNAL_FILE_SIZE + fl_journal_aligned(text_size);
}

/* The head of a record whose bytes, r->size of them, are those parts. */
void fl_journal_record_write(const fl_journal_record *r,
                             const fl_journal_part *part, size_t n,
                             char head[FL_JOURNAL_RECORD_SIZE]);

/* One more record, as in a file, behind *used bytes that grow. */
fleet_status fl_journal_append(char **bytes, size_t *capacity, size_t *used,
                               uint64_t lsn, uint16_t kind,
                               const fl_journal_part *part, size_t n);

/* What the head of a record of one's own says, without a check. */
uint64_t fl_journal_record_lsn(const char *head);
size_t fl_journal_record_size(const char *head);

/* Of whole records of one's own: how many bytes the first ones are, up to
 * `most`, but one record at least. */
size_t fl_journal_batch(const char *bytes, size_t size, size_t most);

/* Is record `lsn` at `data`, whole, in no more than `left` bytes? Then *r is
 * it, its bytes being the caller's. */
bool fl_journal_record_read(const char *data, size_t left, uint64_t lsn,
                            fl_journal_record *r);

/* The first whole record of a number from `least` to `most` in these bytes, at
 * multiples of FL_JOURNAL_ALIGN: where it begins, or SIZE_MAX. With it a record
 * that cannot be read is known to be damaged, and not only half written. */
size_t fl_journal_record_find(const char *data, size_t size, uint64_t least,
                              uint64_t most, fl_journal_record *r);

/* What a file says of itself. */
typedef struct fl_journal_file {
    uint64_t first;   /* LSN of its first record */
    const char *text; /* the same in all files of a journal, and its owner's;
                         without a 0 */
    size_t text_size;
} fl_journal_file;

/* fl_journal_file_bytes(f->text_size) bytes to `to`. */
void fl_journal_file_write(const fl_journal_file *f, char *to);

/* FLEET_ECORRUPT, with a text: the bytes are no such head. FLEET_EUNSUPPORTED:
 * of another version. Text: in `data`. */
fleet_status fl_journal_file_read(const char *data, size_t size,
                                  fl_journal_file *f);
