/* journal_record.c - records and heads of a journal's files, as bytes. */
#include "ps/journal/journal_record.h"

#include <string.h>

#include "base/crc32c.h"
#include "base/memory.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "fields go as they lie in memory");

/* --- parts ---------------------------------------------------------------- */

fleet_status fl_journal_add(fl_journal_parts *p, const void *data, size_t size)
{
    fl_journal_part *last = p->n > 0 ? &p->at[p->n - 1] : NULL;

    if (size == 0)
        return FLEET_OK;
    if (last && (const char *)last->data + last->size == (const char *)data) {
        last->size += size;
        return FLEET_OK;
    }
    FL_TRY(fl_grow(&p->at, &p->capacity, p->n + 1, sizeof *p->at));
    p->at[p->n++] = (fl_journal_part){data, size};
    return FLEET_OK;
}

/* --- records -------------------------------------------------------------- */

enum { AT_SUM = 0, AT_KIND = 4, AT_UNFLUSHED = 6, AT_LSN = 8, AT_SIZE = 16 };

static uint64_t u64_at(const char *data, size_t at)
{
    uint64_t x;

    memcpy(&x, data + at, sizeof x);
    return x;
}

static uint32_t u32_at(const char *data, size_t at)
{
    uint32_t x;

    memcpy(&x, data + at, sizeof x);
    return x;
}

static uint16_t u16_at(const char *data, size_t at)
{
    uint16_t x;

    memcpy(&x, data + at, sizeof x);
    return x;
}

uint64_t fl_journal_record_lsn(const char *head)
{
    return u64_at(head, AT_LSN);
}

size_t fl_journal_record_size(const char *head)
{
    return (size_t)u64_at(head, AT_SIZE);
}

void fl_journal_record_write(const fl_journal_record *r,
                             const fl_journal_part *part, size_t n,
                             char head[FL_JOURNAL_RECORD_SIZE])
{
    const uint64_t size = r->size;
    uint32_t sum;

    memcpy(head + AT_KIND, &r->kind, sizeof r->kind);
    memcpy(head + AT_UNFLUSHED, &r->unflushed, sizeof r->unflushed);
    memcpy(head + AT_LSN, &r->lsn, sizeof r->lsn);
    memcpy(head + AT_SIZE, &size, sizeof size);
    sum = fl_crc32c(0, head + AT_KIND, FL_JOURNAL_RECORD_SIZE - AT_KIND);
    for (size_t i = 0; i < n; i++)
        sum = fl_crc32c(sum, part[i].data, part[i].size);
    memcpy(head + AT_SUM, &sum, sizeof sum);
}

fleet_status fl_journal_append(char **bytes, size_t *capacity, size_t *used,
                               uint64_t lsn, uint16_t kind,
                               const fl_journal_part *part, size_t n)
{
    fl_journal_record record = {.lsn = lsn, .kind = kind};
    char head[FL_JOURNAL_RECORD_SIZE], *to;
    size_t size;

    for (size_t i = 0; i < n; i++)
        record.size += part[i].size;
    fl_journal_record_write(&record, part, n, head);
    size = fl_journal_record_bytes(record.size);
    FL_TRY(fl_grow(bytes, capacity, *used + size, 1));
    to = *bytes + *used;
    memset(to + size - FL_JOURNAL_ALIGN, 0, FL_JOURNAL_ALIGN);
    memcpy(to, head, sizeof head);
    to += sizeof head;
    for (size_t i = 0; i < n; i++) {
        if (part[i].size > 0)
            memcpy(to, part[i].data, part[i].size);
        to += part[i].size;
    }
    *used += size;
    return FLEET_OK;
}

size_t fl_journal_batch(const char *bytes, size_t size, size_t most)
{
    size_t at = 0;

    while (at < size) {
        size_t one =
            fl_journal_record_bytes(fl_journal_record_size(bytes + at));

        if (at > 0 && at + one > most)
            break;
        at += one;
    }
    return at;
}

bool fl_journal_record_read(const char *data, size_t left, uint64_t lsn,
                            fl_journal_record *r)
{
    uint64_t size;
    uint32_t sum;

    if (left < FL_JOURNAL_RECORD_SIZE || u64_at(data, AT_LSN) != lsn)
        return false;
    size = u64_at(data, AT_SIZE);
    if (size > left - FL_JOURNAL_RECORD_SIZE ||
        fl_journal_record_bytes((size_t)size) > left)
        return false;
    sum = fl_crc32c(0, data + AT_KIND, FL_JOURNAL_RECORD_SIZE - AT_KIND);
    sum = fl_crc32c(sum, data + FL_JOURNAL_RECORD_SIZE, (size_t)size);
    if (sum != u32_at(data, AT_SUM))
        return false;
    *r = (fl_journal_record){.lsn = lsn,
                             .kind = u16_at(data, AT_KIND),
                             .unflushed = u16_at(data, AT_UNFLUSHED),
                             .size = (size_t)size,
                             .data = data + FL_JOURNAL_RECORD_SIZE};
    return true;
}

/* Where few numbers are looked for almost every place is known by its number
 * not to be a record, without a sum. */
size_t fl_journal_record_find(const char *data, size_t size, uint64_t least,
                              uint64_t most, fl_journal_record *r)
{
    for (size_t at = 0; at + FL_JOURNAL_RECORD_SIZE <= size;
         at += FL_JOURNAL_ALIGN) {
        uint64_t lsn = u64_at(data + at, AT_LSN);

        if (lsn >= least && lsn <= most &&
            fl_journal_record_read(data + at, size - at, lsn, r))
            return at;
    }
    return SIZE_MAX;
}

/* --- files ---------------------------------------------------------------- */

enum {
    FILE_MAGIC = 0x4e4a4c46, /* "FLJN" */
    AT_VERSION = 4,
    AT_FIRST = 8,
    AT_TEXT_SIZE = 16,
    AT_FILE_SUM = 20
};

static uint32_t file_sum(const char *head, const char *text, size_t size)
{
    return fl_crc32c(fl_crc32c(0, head, AT_FILE_SUM), text, size);
}

void fl_journal_file_write(const fl_journal_file *f, char *to)
{
    const uint32_t magic = FILE_MAGIC, version = FL_JOURNAL_VERSION,
                   size = (uint32_t)f->text_size;
    uint32_t sum;

    memset(to, 0, fl_journal_file_bytes(f->text_size));
    memcpy(to, &magic, sizeof magic);
    memcpy(to + AT_VERSION, &version, sizeof version);
    memcpy(to + AT_FIRST, &f->first, sizeof f->first);
    memcpy(to + AT_TEXT_SIZE, &size, sizeof size);
    sum = file_sum(to, f->text, f->text_size);
    memcpy(to + AT_FILE_SUM, &sum, sizeof sum);
    if (size > 0)
        memcpy(to + FL_JOURNAL_FILE_SIZE, f->text, size);
}

fleet_status fl_journal_file_read(const char *data, size_t size,
                                  fl_journal_file *f)
{
    size_t text_size;

    if (size < FL_JOURNAL_FILE_SIZE || u32_at(data, 0) != FILE_MAGIC)
        return fl_fail(FLEET_ECORRUPT, "it is no file of a journal");
    if (u32_at(data, AT_VERSION) != FL_JOURNAL_VERSION)
        return fl_fail(
            FLEET_EUNSUPPORTED, "it is of version %u of journals, expected %d",
            (unsigned)u32_at(data, AT_VERSION), (int)FL_JOURNAL_VERSION);
    text_size = u32_at(data, AT_TEXT_SIZE);
    if (text_size > FL_JOURNAL_MOST_TEXT ||
        fl_journal_file_bytes(text_size) > size ||
        file_sum(data, data + FL_JOURNAL_FILE_SIZE, text_size) !=
            u32_at(data, AT_FILE_SUM))
        return fl_fail(FLEET_ECORRUPT, "its head is damaged");
    *f = (fl_journal_file){.first = u64_at(data, AT_FIRST),
                           .text = data + FL_JOURNAL_FILE_SIZE,
                           .text_size = text_size};
    return FLEET_OK;
}
