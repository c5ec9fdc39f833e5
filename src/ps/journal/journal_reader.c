/* journal_reader.c - the files of a journal one after the other, each read
 * whole. */
#include "ps/journal/journal_reader.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/memory.h"
#include "ps/journal/journal_writer.h"

struct fl_journal_reader {
    char *folder, *text;
    uint32_t first; /* files before it are not read; 0: none is left out */
    uint32_t *file; /* numbers, in rising order */
    size_t n_file, file_capacity;
    size_t at_file; /* that is read, or is next */
    char *path;     /* of it */
    char *data;     /* of it; NULL: it was not read yet */
    size_t size, at;
    char *memory; /* where files are read, one after the other */
    size_t capacity;
    uint64_t lsn;  /* of the next record; 0: not known yet */
    uint64_t past; /* bytes of files before it */
    uint64_t total;
    char cut[400];
    fl_error error;
};

/* --- which files ---------------------------------------------------------- */

static fleet_status list_files(fl_journal_reader *r)
{
    DIR *dir = opendir(r->folder);
    fleet_status status = FLEET_OK;
    struct dirent *e;
    uint32_t number;

    if (!dir)
        return fl_fail(errno == ENOENT ? FLEET_ENOENT : FLEET_EIO,
                       "the log %s cannot be opened: %s", r->folder,
                       strerror(errno));
    while (status == FLEET_OK && (e = fl_disk_list(dir)) != NULL) {
        if (!fl_journal_read_name(e->d_name, "journal-", "", &number) ||
            number < r->first)
            continue;
        status = fl_grow(&r->file, &r->file_capacity, r->n_file + 1,
                         sizeof *r->file);
        if (status == FLEET_OK)
            r->file[r->n_file++] = number;
    }
    if (status == FLEET_OK && errno != 0)
        status = fl_fail(FLEET_EIO, "the log %s cannot be listed: %s",
                         r->folder, strerror(errno));
    closedir(dir);
    return status;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static fleet_status measure_files(fl_journal_reader *r)
{
    for (size_t i = 0; i < r->n_file; i++) {
        char *path = fl_journal_path(r->folder, r->file[i]);
        struct stat st = {0};

        if (!path)
            return FLEET_ENOMEM;
        if (stat(path, &st) == 0)
            r->total += (uint64_t)st.st_size;
        fl_free(path);
        if (i > 0 && r->file[i] != r->file[i - 1] + 1)
            return fl_fail(FLEET_ECORRUPT,
                           "the log %s has no file journal-%08u: the next one "
                           "is journal-%08u",
                           r->folder, (unsigned)r->file[i - 1] + 1,
                           (unsigned)r->file[i]);
    }
    return FLEET_OK;
}

/* --- one file ------------------------------------------------------------- */

/* While this file's records are applied the disk reads the next one. */
static void expect_next(const fl_journal_reader *r)
{
    char *path = r->at_file + 1 < r->n_file
                     ? fl_journal_path(r->folder, r->file[r->at_file + 1])
                     : NULL;

    if (path)
        fl_file_prefetch(path);
    fl_free(path);
}

static fleet_status read_file(fl_journal_reader *r)
{
    r->path = fl_journal_path(r->folder, r->file[r->at_file]);
    if (!r->path)
        return FLEET_ENOMEM;
    r->at = 0;
    FL_TRY(fl_file_read_into(r->path, &r->memory, &r->capacity, &r->size));
    r->data = r->memory;
    expect_next(r);
    return FLEET_OK;
}

static void drop_file(fl_journal_reader *r)
{
    r->past += r->size;
    r->size = r->at = 0;
    fl_free(r->path);
    r->path = r->data = NULL;
}

static bool is_last(const fl_journal_reader *r)
{
    return r->at_file + 1 == r->n_file;
}

static void note_cut(fl_journal_reader *r)
{
    snprintf(r->cut, sizeof r->cut,
             "%s: %zu bytes that were not whole, at offset %zu, were "
             "cut off: record %" PRIu64 " was not committed",
             r->path, r->size - r->at, r->at, r->lsn ? r->lsn : 1);
}

static fleet_status is_damaged(const fl_journal_reader *r)
{
    return fl_fail(FLEET_ECORRUPT,
                   "the log is damaged: %s, offset %zu: record %" PRIu64
                   " cannot be read",
                   r->path, r->at, r->lsn);
}

/* Is a whole record behind this place, numbered as one there may be? One that
 * says that the record at hand was not flushed when it was written itself may
 * have come to the disk alone, as the machine crashed. `any`: also such a one.
 */
static bool has_later(const fl_journal_reader *r, bool any)
{
    uint64_t most = r->lsn > 0
                        ? r->lsn + (r->size - r->at) / FL_JOURNAL_RECORD_SIZE
                        : UINT64_MAX;
    size_t at = r->at / FL_JOURNAL_ALIGN * FL_JOURNAL_ALIGN, found;
    fl_journal_record later;

    while ((found = fl_journal_record_find(r->data + at, r->size - at,
                                           r->lsn + !any, most, &later)) !=
           SIZE_MAX) {
        if (any || later.lsn - later.unflushed > r->lsn)
            return true;
        at += found + fl_journal_record_bytes(later.size);
    }
    return false;
}

/* The rest of the file is no record. */
static fleet_status cut_off(fl_journal_reader *r)
{
    if (r->at == r->size)
        return FLEET_OK;
    if (has_later(r, false))
        return is_damaged(r);
    note_cut(r);
    return FLEET_OK;
}

/* Where the files before it end it has to begin. */
static fleet_status check_first(fl_journal_reader *r, const fl_journal_file *f)
{
    if (r->lsn != 0 && f->first != r->lsn)
        return fl_fail(FLEET_ECORRUPT,
                       "the log is damaged: %s begins with record %" PRIu64
                       ", expected %" PRIu64 ", which the file before it "
                       "does not have whole%s%s",
                       r->path, f->first, r->lsn, *r->cut ? ": " : "", r->cut);
    r->lsn = f->first;
    *r->cut = 0;
    return FLEET_OK;
}

static fleet_status check_text(fl_journal_reader *r, const fl_journal_file *f)
{
    if (!r->text) {
        r->text = fl_strndup(f->text, f->text_size);
        return r->text ? FLEET_OK : FLEET_ENOMEM;
    }
    if (strlen(r->text) == f->text_size &&
        memcmp(r->text, f->text, f->text_size) == 0)
        return FLEET_OK;
    return fl_fail(FLEET_ECORRUPT,
                   "the log is damaged: %s is of another log than the files "
                   "before it",
                   r->path);
}

/* A process that dies while it makes a file leaves it without a whole head, and
 * without records. The next one makes another, of the next number. */
static fleet_status without_head(fl_journal_reader *r, fleet_status status)
{
    if (status == FLEET_ECORRUPT && !has_later(r, true)) {
        note_cut(r);
        r->at = r->size;
        return FLEET_OK;
    }
    return fl_fail_in(status, "the log is damaged: %s", r->path);
}

static fleet_status begin_file(fl_journal_reader *r)
{
    fl_journal_file f;
    fleet_status status;

    FL_TRY(read_file(r));
    status = fl_journal_file_read(r->data, r->size, &f);
    if (status != FLEET_OK)
        return without_head(r, status);
    FL_TRY(check_first(r, &f));
    FL_TRY(check_text(r, &f));
    r->at = fl_journal_file_bytes(f.text_size);
    return FLEET_OK;
}

/* --- all of it ------------------------------------------------------------ */

static fleet_status find_files(fl_journal_reader *r)
{
    FL_TRY(list_files(r));
    if (r->n_file == 0)
        return fl_fail(FLEET_ENOENT, "%s has no log", r->folder);
    qsort(r->file, r->n_file, sizeof *r->file, by_number);
    if (r->first > 0 && r->file[0] != r->first)
        return fl_fail(FLEET_ECORRUPT,
                       "the log %s has no file journal-%08u: the first one is "
                       "journal-%08u",
                       r->folder, (unsigned)r->first, (unsigned)r->file[0]);
    return measure_files(r);
}

fleet_status fl_journal_reader_open(fl_journal_reader **reader,
                                    const char *folder)
{
    return fl_journal_reader_open_at(reader, folder, 0);
}

fleet_status fl_journal_reader_open_at(fl_journal_reader **reader,
                                       const char *folder, uint32_t first)
{
    fl_journal_reader *r;
    fleet_status status;

    *reader = NULL;
    FL_TRY(FL_NEW(&r, sizeof *r));
    r->folder = fl_strdup(folder);
    r->first = first;
    status = r->folder ? find_files(r) : FLEET_ENOMEM;
    if (status == FLEET_OK)
        status = begin_file(r);
    if (status != FLEET_OK) {
        fl_journal_reader_close(r);
        return status;
    }
    *reader = r;
    return FLEET_OK;
}

void fl_journal_reader_close(fl_journal_reader *r)
{
    if (!r)
        return;
    drop_file(r);
    fl_free(r->memory);
    fl_free(r->file);
    fl_free(r->folder);
    fl_free(r->text);
    fl_free(r);
}

const char *fl_journal_reader_text(const fl_journal_reader *r)
{
    return r->text ? r->text : "";
}

static fleet_status next_record(fl_journal_reader *r, fl_journal_record *record,
                                bool *more)
{
    *more = false;
    for (;;) {
        if (!r->data)
            FL_TRY(begin_file(r));
        if (fl_journal_record_read(r->data + r->at, r->size - r->at, r->lsn,
                                   record)) {
            r->at += fl_journal_record_bytes(record->size);
            r->lsn++;
            *more = true;
            return FLEET_OK;
        }
        FL_TRY(cut_off(r));
        if (is_last(r))
            return FLEET_OK;
        drop_file(r);
        r->at_file++;
    }
}

fleet_status fl_journal_next(fl_journal_reader *r, fl_journal_record *record,
                             bool *more)
{
    fleet_status status;

    *more = false;
    FL_TRY(fl_error_raise(&r->error));
    status = next_record(r, record, more);
    if (status != FLEET_OK)
        fl_error_take(&r->error, status);
    return status;
}

void fl_journal_reader_progress(const fl_journal_reader *r, uint64_t *bytes,
                                uint64_t *total)
{
    *bytes = r->past + r->at;
    *total = r->total;
}

fl_journal_end fl_journal_reader_end(const fl_journal_reader *r)
{
    return (fl_journal_end){.lsn = r->lsn > 0 ? r->lsn : 1,
                            .file = r->file[r->n_file - 1] + 1,
                            .cut = r->cut};
}
