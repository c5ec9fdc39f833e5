/* file_writer.c - files being written. From the second buffer on a thread
 * hashes a full one and writes it, while the next one is filled: a checkpoint
 * gathers rows as fast as they are written. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/file/file_writer.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/thread.h"

enum { WRITE_BUFFER = 1 << 20 };

struct fl_writer_queue {
    fl_writer *writer;
    fl_file_progress *progress;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t change;
    char *buffer; /* of the thread while there are bytes in it */
    size_t used;
    bool end;
    fl_error error; /* FLEET_OK: none yet */
};

/* --- a buffer ------------------------------------------------------------- */

/* The kernel begins to write it at once, which leaves less to the flush at the
 * end; where a file system cannot do that, the flush does it. What this
 * call refuses the flush need not say again. */
static fleet_status begin_to_flush(fl_writer *w, size_t size)
{
    int failed =
        sync_file_range(w->fd, w->on_disk, (off_t)size, SYNC_FILE_RANGE_WRITE);

    w->on_disk += (off_t)size;
    if (failed && (errno == EIO || errno == ENOSPC || errno == EDQUOT))
        return fl_file_failed("write", w->path);
    return FLEET_OK;
}

static fleet_status write_buffer(fl_writer *w, const char *data, size_t size)
{
    fl_hush hush;

    fl_hasher_add(w->hasher, data, size);
    fl_hush_begin(&hush);
    errno = fl_disk_write(w->fd, data, size);
    fl_hush_end(&hush);
    if (errno)
        return fl_file_failed("write", w->path);
    FL_TRY(begin_to_flush(w, size));
    return fl_file_go_on(size);
}

/* --- behind --------------------------------------------------------------- */

static void *write_behind(void *arg)
{
    fl_writer_queue *b = arg;
    fleet_status status = FLEET_OK;

    fl_file_count(b->progress);
    pthread_mutex_lock(&b->mutex);
    for (;;) {
        while (b->used == 0 && !b->end)
            pthread_cond_wait(&b->change, &b->mutex);
        if (b->used == 0)
            break;
        pthread_mutex_unlock(&b->mutex);
        if (status == FLEET_OK)
            status = write_buffer(b->writer, b->buffer, b->used);
        pthread_mutex_lock(&b->mutex);
        if (status != FLEET_OK && b->error.code == FLEET_OK)
            fl_error_take(&b->error, status);
        b->used = 0;
        pthread_cond_broadcast(&b->change);
    }
    pthread_mutex_unlock(&b->mutex);
    return NULL;
}

static void free_behind(fl_writer_queue *b)
{
    pthread_cond_destroy(&b->change);
    pthread_mutex_destroy(&b->mutex);
    fl_free(b->buffer);
    fl_free(b);
}

/* Without memory or a thread for that, the caller writes by itself. */
static void start_behind(fl_writer *w)
{
    fl_writer_queue *b = fl_alloc(sizeof *b);

    if (!b)
        return;
    *b = (fl_writer_queue){.writer = w,
                           .progress = fl_file_counted(),
                           .buffer = fl_alloc(WRITE_BUFFER)};
    pthread_mutex_init(&b->mutex, NULL);
    pthread_cond_init(&b->change, NULL);
    if (b->buffer &&
        fl_thread_start(&b->thread, write_behind, b, "a file") == FLEET_OK)
        w->behind = b;
    else
        free_behind(b);
}

/* Waits until the one before is written, and fails if it was not. */
static fleet_status hand_over(fl_writer *w)
{
    fl_writer_queue *b = w->behind;
    char *full = w->buffer;
    fleet_status status;

    pthread_mutex_lock(&b->mutex);
    while (b->used > 0)
        pthread_cond_wait(&b->change, &b->mutex);
    status = b->error.code;
    if (status == FLEET_OK) {
        w->buffer = b->buffer;
        b->buffer = full;
        b->used = w->used;
        pthread_cond_broadcast(&b->change);
    }
    pthread_mutex_unlock(&b->mutex);
    return status == FLEET_OK ? FLEET_OK : fl_error_raise(&b->error);
}

static fleet_status end_behind(fl_writer *w)
{
    fl_writer_queue *b = w->behind;
    fleet_status status;

    if (!b)
        return FLEET_OK;
    pthread_mutex_lock(&b->mutex);
    b->end = true;
    pthread_cond_broadcast(&b->change);
    pthread_mutex_unlock(&b->mutex);
    pthread_join(b->thread, NULL);
    status = b->error.code == FLEET_OK ? FLEET_OK : fl_error_raise(&b->error);
    free_behind(b);
    w->behind = NULL;
    return status;
}

/* --- a file --------------------------------------------------------------- */

fleet_status fl_writer_open(fl_writer *w, const char *folder, const char *name)
{
    *w = (fl_writer){.fd = -1};
    w->path = fl_path_join(folder, name);
    w->buffer = fl_alloc(WRITE_BUFFER);
    w->hasher = fl_alloc(sizeof *w->hasher);
    if (!w->path || !w->buffer || !w->hasher) {
        w->status = FLEET_ENOMEM;
        return FLEET_ENOMEM;
    }
    fl_hasher_init(w->hasher, 0);
    w->fd = fl_file_open(AT_FDCWD, w->path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (w->fd < 0)
        w->status = fl_file_failed("create", w->path);
    return w->status;
}

static void write_full(fl_writer *w)
{
    if (!w->behind && w->on_disk > 0)
        start_behind(w);
    w->status = w->behind ? hand_over(w) : write_buffer(w, w->buffer, w->used);
    w->used = 0;
}

void fl_writer_put(fl_writer *w, const void *data, size_t size)
{
    const char *from = data;

    if (w->status != FLEET_OK)
        return;
    w->written += size;
    while (size > 0 && w->status == FLEET_OK) {
        size_t n = WRITE_BUFFER - w->used;

        if (n > size)
            n = size;
        memcpy(w->buffer + w->used, from, n);
        w->used += n;
        from += n;
        size -= n;
        if (w->used == WRITE_BUFFER)
            write_full(w);
    }
}

static fleet_status write_rest(fl_writer *w)
{
    fleet_status behind = end_behind(w);

    if (w->status != FLEET_OK)
        return w->status;
    FL_TRY(behind);
    if (w->used > 0)
        FL_TRY(write_buffer(w, w->buffer, w->used));
    return fl_disk_flush(w->fd) == 0 ? FLEET_OK
                                     : fl_file_failed("flush", w->path);
}

fleet_status fl_writer_close(fl_writer *w, uint64_t *size, uint64_t *hash)
{
    fleet_status status = write_rest(w);

    if (w->fd >= 0 && close(w->fd) != 0 && status == FLEET_OK)
        status = fl_file_failed("close", w->path);
    if (size)
        *size = w->written;
    if (hash && w->hasher)
        *hash = fl_hasher_end(w->hasher);
    fl_free(w->path);
    fl_free(w->buffer);
    fl_free(w->hasher);
    *w = (fl_writer){.fd = -1};
    return status;
}

fleet_status fl_file_write(const char *folder, const char *name,
                           const void *data, size_t size, uint64_t *hash)
{
    fl_writer w;

    fl_writer_open(&w, folder, name);
    fl_writer_put(&w, data, size);
    return fl_writer_close(&w, NULL, hash);
}
