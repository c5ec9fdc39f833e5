/* journal_writer.c - a journal's files: written, flushed, and begun anew where
 * they have become long. */
#include "ps/journal/journal_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/memory.h"
#include "base/thread.h"

/* Small records are gathered; a part of COPIED_BELOW bytes or more is written
 * from where it lies. */
enum { BUFFER_BYTES = 1 << 20, COPIED_BELOW = 64 << 10 };

struct fl_journal_writer {
    fl_journal_options o;
    char *folder, *text;
    char *path; /* of the file that is written; NULL: none is */
    int fd;     /* -1: none is */
    uint32_t next_file;
    uint64_t next_lsn, committed;
    size_t file_bytes;           /* with what is in the buffer */
    atomic_uint_least64_t bytes; /* of all files */
    char *buffer;
    size_t used;
    uint32_t unflushed; /* records */
    fl_error error;
};

char *fl_journal_path(const char *folder, uint32_t file)
{
    char name[32];

    snprintf(name, sizeof name, "journal-%08u", (unsigned)file);
    return fl_path_join(folder, name);
}

bool fl_journal_read_name(const char *name, const char *begin, const char *end,
                          uint32_t *file)
{
    enum { DIGITS = 8 };
    size_t n = strlen(begin);

    if (strncmp(name, begin, n) != 0 ||
        strspn(name + n, "0123456789") != DIGITS ||
        strcmp(name + n + DIGITS, end) != 0)
        return false;
    *file = (uint32_t)strtoul(name + n, NULL, 10);
    return true;
}

fleet_status fl_journal_writer_create(fl_journal_writer **writer,
                                      const fl_journal_options *o)
{
    fl_journal_writer *w;

    *writer = NULL;
    if (strlen(o->text) > FL_JOURNAL_MOST_TEXT)
        return fl_fail(FLEET_EINVAL,
                       "a journal's text of %zu bytes: expected at most %d",
                       strlen(o->text), (int)FL_JOURNAL_MOST_TEXT);
    FL_TRY(FL_NEW(&w, sizeof *w));
    *w = (fl_journal_writer){.o = *o,
                             .folder = fl_strdup(o->folder),
                             .text = fl_strdup(o->text),
                             .fd = -1,
                             .next_file = o->first_file,
                             .next_lsn = o->first_lsn,
                             .committed = o->first_lsn - 1,
                             .buffer = fl_alloc(BUFFER_BYTES)};
    if (w->o.roll_bytes == 0)
        w->o.roll_bytes = FL_JOURNAL_ROLL_BYTES;
    if (!w->folder || !w->text || !w->buffer) {
        fl_journal_writer_destroy(w);
        return FLEET_ENOMEM;
    }
    *writer = w;
    return FLEET_OK;
}

static void close_file(fl_journal_writer *w)
{
    if (w->fd >= 0)
        close(w->fd);
    w->fd = -1;
    fl_free(w->path);
    w->path = NULL;
}

void fl_journal_writer_destroy(fl_journal_writer *w)
{
    if (!w)
        return;
    close_file(w);
    fl_free(w->folder);
    fl_free(w->text);
    fl_free(w->buffer);
    fl_free(w);
}

uint64_t fl_journal_committed(const fl_journal_writer *w)
{
    return w->committed;
}

/* --- bytes ---------------------------------------------------------------- */

static fleet_status journal_failed(const char *what, const char *path)
{
    return fl_fail(FLEET_EIO, "the log %s cannot be %s: %s", path, what,
                   strerror(errno));
}

static fleet_status write_bytes(fl_journal_writer *w, const void *data,
                                size_t size)
{
    fl_hush hush; /* a server may be opened by a thread of the host's */

    if (size == 0)
        return FLEET_OK;
    fl_hush_begin(&hush);
    errno = fl_disk_write(w->fd, data, size);
    fl_hush_end(&hush);
    return errno ? journal_failed("written", w->path) : FLEET_OK;
}

static fleet_status write_buffer(fl_journal_writer *w)
{
    size_t n = w->used;

    w->used = 0;
    return write_bytes(w, w->buffer, n);
}

static fleet_status add_bytes(fl_journal_writer *w, const void *data,
                              size_t size)
{
    if (size > BUFFER_BYTES - w->used || size >= COPIED_BELOW)
        FL_TRY(write_buffer(w));
    if (size >= COPIED_BELOW)
        return write_bytes(w, data, size);
    if (size > 0)
        memcpy(w->buffer + w->used, data, size);
    w->used += size;
    return FLEET_OK;
}

/* --- files ---------------------------------------------------------------- */

static bool flushes(const fl_journal_writer *w)
{
    return w->o.level == FL_JOURNAL_SURVIVES_POWER;
}

/* What the file has is safe. */
static fleet_status push_out(fl_journal_writer *w)
{
    FL_TRY(write_buffer(w));
    if (!flushes(w))
        return FLEET_OK;
    if (fl_disk_flush(w->fd) != 0)
        return journal_failed("flushed", w->path);
    w->unflushed = 0;
    return FLEET_OK;
}

static fleet_status write_head(fl_journal_writer *w)
{
    const fl_journal_file f = {
        .first = w->next_lsn, .text = w->text, .text_size = strlen(w->text)};
    size_t n = fl_journal_file_bytes(f.text_size);
    char *head = fl_alloc(n);
    fleet_status status;

    if (!head)
        return FLEET_ENOMEM;
    fl_journal_file_write(&f, head);
    status = write_bytes(w, head, n);
    fl_free(head);
    w->file_bytes = n;
    return status;
}

/* Its head and its name are safe before there is a record in it: records
 * without them would be damage. */
static fleet_status begin_file(fl_journal_writer *w)
{
    w->path = fl_journal_path(w->folder, w->next_file);
    if (!w->path)
        return FLEET_ENOMEM;
    w->fd = fl_fd_lift(fl_disk_open(
        AT_FDCWD, w->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (w->fd < 0)
        return journal_failed("created", w->path);
    w->next_file++;
    FL_TRY(write_head(w));
    FL_TRY(push_out(w));
    return flushes(w) ? fl_folder_flush(w->folder) : FLEET_OK;
}

/* A file that is full is whole before the next one has anything. */
static fleet_status make_room(fl_journal_writer *w, size_t bytes)
{
    if (w->fd >= 0 && w->file_bytes + bytes > w->o.roll_bytes) {
        FL_TRY(push_out(w));
        close_file(w);
    }
    return w->fd >= 0 ? FLEET_OK : begin_file(w);
}

/* --- records -------------------------------------------------------------- */

static fleet_status put_record(fl_journal_writer *w, uint16_t kind,
                               const fl_journal_part *part, size_t n)
{
    static const char zeros[FL_JOURNAL_ALIGN];
    fl_journal_record r = {.lsn = w->next_lsn, .kind = kind};
    char head[FL_JOURNAL_RECORD_SIZE];
    size_t bytes;

    for (size_t i = 0; i < n; i++)
        r.size += part[i].size;
    bytes = fl_journal_record_bytes(r.size);
    FL_TRY(make_room(w, bytes));
    if (flushes(w)) {
        if (w->unflushed == UINT16_MAX)
            FL_TRY(push_out(w));
        r.unflushed = (uint16_t)w->unflushed++;
    }
    fl_journal_record_write(&r, part, n, head);
    FL_TRY(add_bytes(w, head, sizeof head));
    for (size_t i = 0; i < n; i++)
        FL_TRY(add_bytes(w, part[i].data, part[i].size));
    FL_TRY(add_bytes(w, zeros, fl_journal_aligned(r.size) - r.size));
    w->file_bytes += bytes;
    atomic_store(&w->bytes, atomic_load(&w->bytes) + bytes);
    w->next_lsn++;
    return FLEET_OK;
}

/* The first failure stays. */
static fleet_status note_failure(fl_journal_writer *w, fleet_status status)
{
    if (status != FLEET_OK)
        fl_error_take(&w->error, status);
    return status;
}

fleet_status fl_journal_put(fl_journal_writer *w, uint16_t kind,
                            const fl_journal_part *part, size_t n)
{
    FL_TRY(fl_error_raise(&w->error));
    return note_failure(w, put_record(w, kind, part, n));
}

fleet_status fl_journal_commit(fl_journal_writer *w)
{
    FL_TRY(fl_error_raise(&w->error));
    if (w->committed + 1 == w->next_lsn)
        return FLEET_OK;
    FL_TRY(note_failure(w, push_out(w)));
    w->committed = w->next_lsn - 1;
    return FLEET_OK;
}

fleet_status fl_journal_settle(fl_journal_writer *w)
{
    FL_TRY(fl_journal_commit(w));
    if (w->fd >= 0 && fl_disk_flush(w->fd) != 0)
        return note_failure(w, journal_failed("flushed", w->path));
    return FLEET_OK;
}

static fleet_status roll(fl_journal_writer *w, uint32_t *file)
{
    if (w->fd >= 0)
        FL_TRY(push_out(w));
    close_file(w);
    *file = w->next_file;
    return begin_file(w);
}

fleet_status fl_journal_roll(fl_journal_writer *w, uint32_t *file)
{
    FL_TRY(fl_journal_commit(w));
    return note_failure(w, roll(w, file));
}

uint64_t fl_journal_bytes(const fl_journal_writer *w)
{
    return atomic_load(&w->bytes);
}
