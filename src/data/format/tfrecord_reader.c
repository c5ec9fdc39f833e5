/* tfrecord_reader.c - records cut from the blocks that their files were read
 * into: a length of eight bytes, its checksum, the bytes, their checksum. */
#include "data/format/tfrecord_reader.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/memory.h"
#include "data/parse/file_blocks.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "bytes as they lie");

enum {
    LENGTH = 8,
    HEAD = LENGTH + FL_TFRECORD_SUM,
    MOST = FL_LINE_LIMIT - HEAD - FL_TFRECORD_SUM
};

typedef struct tfrecord_reader {
    fl_reader reader; /* first, so that it is this */
    fl_file_blocks file;
} tfrecord_reader;

static size_t size_of(const fl_file_blocks *f)
{
    return f->filled - f->begin;
}

/* At least size bytes, unless the file ends before them. */
static fleet_status read_up_to(fl_file_blocks *f, size_t size)
{
    while (size_of(f) < size && !f->at_end)
        FL_TRY(fl_file_blocks_more(f, "record"));
    return FLEET_OK;
}

static fleet_status refuse_end(const fl_file_blocks *f, const char *inside)
{
    return fl_fail(FLEET_ECORRUPT,
                   "%.500s:%" PRId64 ": the file ends inside %s",
                   fl_file_blocks_path(f), f->number + 1, inside);
}

/* Behind a wrong length no record can be found, so it ends the reading. */
static fleet_status read_length(const fl_file_blocks *f, uint64_t *length)
{
    const char *head = fl_file_blocks_at(f);
    uint32_t sum;

    memcpy(length, head, LENGTH);
    memcpy(&sum, head + LENGTH, FL_TFRECORD_SUM);
    if (fl_crc32c_masked(head, LENGTH) != sum)
        return fl_fail(FLEET_ECORRUPT,
                       "%.500s:%" PRId64
                       ": expected a record of TFRecord, got a length with a "
                       "wrong checksum: %s",
                       fl_file_blocks_path(f), f->number + 1,
                       f->number == 0
                           ? "the file is damaged, compressed, or of "
                             "another format"
                           : "the file is damaged");
    if (*length > MOST)
        return fl_fail(
            FLEET_EFORMAT, "%.500s:%" PRId64 ": a record of more than %d MB",
            fl_file_blocks_path(f), f->number + 1, FL_LINE_LIMIT >> 20);
    return FLEET_OK;
}

/* The next record of the file that is open; *any is false at its end. */
static fleet_status next_record(fl_file_blocks *f, fl_line *line, bool *any)
{
    uint64_t length;
    char inside[60];

    FL_TRY(read_up_to(f, HEAD));
    *any = size_of(f) > 0;
    if (!*any)
        return FLEET_OK;
    if (size_of(f) < HEAD)
        return refuse_end(f, "a record's length");
    FL_TRY(read_length(f, &length));
    FL_TRY(read_up_to(f, HEAD + length + FL_TFRECORD_SUM));
    if (size_of(f) < HEAD + length + FL_TFRECORD_SUM) {
        snprintf(inside, sizeof inside, "a record of %" PRIu64 " bytes",
                 length);
        return refuse_end(f, inside);
    }
    *line = (fl_line){.text = fl_file_blocks_at(f) + HEAD,
                      .size = (uint32_t)(length + FL_TFRECORD_SUM),
                      .file = f->in.current,
                      .number = ++f->number};
    f->begin += HEAD + length + FL_TFRECORD_SUM;
    return FLEET_OK;
}

static fleet_status next_sample(fl_file_blocks *f, fl_line *line)
{
    bool any = false;

    for (;;) {
        if (f->open)
            FL_TRY(next_record(f, line, &any));
        if (any)
            return FLEET_OK;
        FL_TRY(fl_file_blocks_open(f));
    }
}

static fleet_status tfrecord_start(fl_reader *reader)
{
    fleet_status status =
        fl_file_blocks_open(&((tfrecord_reader *)reader)->file);

    return status == FLEET_EEND ? FLEET_OK : status;
}

static fleet_status tfrecord_read(fl_reader *reader, fl_lines *lines, int64_t n,
                                  int64_t *got)
{
    fl_file_blocks *f = &((tfrecord_reader *)reader)->file;
    const int64_t most = f->env.parser->spec->batch_bytes;
    int64_t bytes = 0;

    for (*got = 0; *got < n && (most == 0 || bytes < most); ++*got) {
        fl_line line;

        FL_TRY(next_sample(f, &line));
        bytes += line.size;
        if (lines)
            FL_TRY(fl_lines_add(lines, f->env.blocks, f->block, &line));
    }
    reader->share = fl_file_blocks_share(f, reader->share);
    return FLEET_OK;
}

static void tfrecord_close(fl_reader *reader)
{
    tfrecord_reader *r = (tfrecord_reader *)reader;

    fl_file_blocks_done(&r->file);
    fl_free(r);
}

fleet_status fl_tfrecord_reader_open(fl_reader **reader,
                                     const fl_reader_env *env)
{
    fleet_status status;
    tfrecord_reader *r;

    FL_TRY(FL_NEW(&r, sizeof *r));
    r->reader = (fl_reader){tfrecord_start, tfrecord_read, tfrecord_close, 0};
    status = fl_file_blocks_init(&r->file, env);
    if (status != FLEET_OK) {
        fl_free(r);
        return status;
    }
    *reader = &r->reader;
    return FLEET_OK;
}
