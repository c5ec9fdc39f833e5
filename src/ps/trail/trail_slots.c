/* trail_slots.c - records in files that are written over. */
#include "ps/trail/trail_slots.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/thread.h"

#define SLOT_MAGIC 0x504c5446u /* FTLP */

enum { ALIGN = 8 };

typedef struct slot_head {
    uint32_t magic, sum;
    uint64_t number, size;
} slot_head;

static size_t aligned(size_t size)
{
    return (size + ALIGN - 1) / ALIGN * ALIGN;
}

static fleet_status slot_failed(const char *what, const char *path, int why)
{
    return fl_fail(FLEET_EIO, "the log %s cannot be %s: %s", path, what,
                   strerror(why));
}

static uint32_t sum_of(const slot_head *h, const void *bytes)
{
    uint32_t sum = fl_crc32c(0, &h->number, sizeof h->number + sizeof h->size);

    return fl_crc32c(sum, bytes, h->size);
}

/* --- files ---------------------------------------------------------------- */

static fleet_status open_one(fl_trail_slots *s, int i, const char *folder,
                             const char *name)
{
    char file[40];

    snprintf(file, sizeof file, "%s-%d", name, i);
    s->path[i] = fl_path_join(folder, file);
    if (!s->path[i])
        return FLEET_ENOMEM;
    s->fd[i] = fl_fd_lift(
        fl_disk_open(AT_FDCWD, s->path[i], O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    return s->fd[i] >= 0 ? FLEET_OK : slot_failed("opened", s->path[i], errno);
}

fleet_status fl_trail_slots_open(fl_trail_slots *s, const char *folder,
                                 const char *name, bool flushes)
{
    *s = (fl_trail_slots){.fd = {-1, -1}, .flushes = flushes};
    for (int i = 0; i < 2; i++)
        FL_TRY(open_one(s, i, folder, name));
    return FLEET_OK;
}

void fl_trail_slots_close(fl_trail_slots *s)
{
    for (int i = 0; i < 2; i++) {
        if (s->path[i] && s->fd[i] >= 0)
            close(s->fd[i]);
        fl_free(s->path[i]);
    }
    fl_free(s->bytes);
    *s = (fl_trail_slots){.fd = {-1, -1}};
}

/* --- reading -------------------------------------------------------------- */

/* What is no whole record was never said to be one. */
static fleet_status read_one(const fl_trail_slots *s, int i,
                             fl_trail_record *found, bool *whole)
{
    slot_head h;
    char *data;
    size_t size;

    *whole = false;
    FL_TRY(fl_file_read(s->path[i], &data, &size));
    if (size >= sizeof h)
        memcpy(&h, data, sizeof h);
    if (size >= sizeof h && h.magic == SLOT_MAGIC &&
        h.size <= size - sizeof h && h.sum == sum_of(&h, data + sizeof h)) {
        memmove(data, data + sizeof h, h.size);
        *found = (fl_trail_record){data, h.size, h.number};
        *whole = true;
    } else {
        fl_free(data);
    }
    return FLEET_OK;
}

fleet_status fl_trail_slots_read(fl_trail_slots *s, fl_trail_record found[2],
                                 int *n)
{
    fleet_status status = FLEET_OK;
    bool whole;

    *n = 0;
    for (int i = 0; i < 2 && status == FLEET_OK; i++) {
        status = read_one(s, i, &found[*n], &whole);
        *n += status == FLEET_OK && whole;
    }
    if (*n == 2 && found[0].number > found[1].number) {
        fl_trail_record first = found[1];

        found[1] = found[0];
        found[0] = first;
    }
    if (*n > 0)
        s->number = found[*n - 1].number;
    return status;
}

const void *fl_trail_take(const fl_trail_record *r, size_t *at, size_t size)
{
    const char *data = r->data + *at;

    if (size > r->size - *at || aligned(size) > r->size - *at)
        return NULL;
    *at += aligned(size);
    return data;
}

/* --- writing -------------------------------------------------------------- */

static fleet_status write_bytes(fl_trail_slots *s, int i, const void *bytes,
                                size_t size)
{
    fl_hush hush; /* the thread is the host's */
    int failed;

    fl_hush_begin(&hush);
    failed = fl_disk_write_at(s->fd[i], bytes, size, 0);
    fl_hush_end(&hush);
    if (failed)
        return slot_failed("written", s->path[i], failed);
    if (s->flushes && fl_disk_flush(s->fd[i]) != 0)
        return slot_failed("flushed", s->path[i], errno);
    return FLEET_OK;
}

fleet_status fl_trail_slots_clear(fl_trail_slots *s)
{
    const slot_head none = {0};

    for (int i = 0; i < 2; i++)
        FL_TRY(write_bytes(s, i, &none, sizeof none));
    return FLEET_OK;
}

fleet_status fl_trail_slots_begin(fl_trail_slots *s)
{
    s->used = sizeof(slot_head);
    return fl_grow(&s->bytes, &s->capacity, s->used, 1);
}

fleet_status fl_trail_slots_put(fl_trail_slots *s, const void *data,
                                size_t size)
{
    size_t end = s->used + aligned(size);

    FL_TRY(fl_grow(&s->bytes, &s->capacity, end, 1));
    if (size > 0)
        memcpy(s->bytes + s->used, data, size);
    memset(s->bytes + s->used + size, 0, end - s->used - size);
    s->used = end;
    return FLEET_OK;
}

fleet_status fl_trail_slots_write(fl_trail_slots *s)
{
    slot_head h = {.magic = SLOT_MAGIC,
                   .number = s->number + 1,
                   .size = s->used - sizeof h};

    h.sum = sum_of(&h, s->bytes + sizeof h);
    memcpy(s->bytes, &h, sizeof h);
    s->number++;
    return write_bytes(s, (int)(s->number % 2), s->bytes, s->used);
}
