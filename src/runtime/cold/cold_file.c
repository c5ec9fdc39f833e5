/* cold_file.c - a table's file, and the thread that reads rows from it and
 * writes pages into it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/thread.h"
#include "runtime/cold/cold_internal.h"

/* --- open, closed --------------------------------------------------------- */

/* Where a file cannot be made without a name, it loses it at once. */
static int open_named(const char *folder, uint64_t nonce)
{
    char name[48], *path;
    int fd = -1;

    snprintf(name, sizeof name, "fleet-rows-%016" PRIx64, nonce);
    path = fl_path_join(folder, name);
    if (!path) {
        errno = ENOMEM;
        return -1;
    }
    fd = fl_disk_open(AT_FDCWD, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
                      0600);
    if (fd >= 0 && fl_disk_remove(AT_FDCWD, path, 0) != 0) {
        int e = errno;

        close(fd);
        errno = e;
        fd = -1;
    }
    fl_free(path);
    return fd;
}

static int open_nameless(const char *folder, uint64_t nonce)
{
    int fd =
        fl_disk_open(AT_FDCWD, folder, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);

    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL))
        fd = open_named(folder, nonce);
    return fl_fd_lift(fd);
}

static fleet_status start_thread(fl_cold_table *t);

fleet_status fl_cold_file_open(fl_cold_table *t)
{
    t->nonce = fl_nonce();
    t->fd = open_nameless(t->cap.folder, t->nonce);
    if (t->fd < 0)
        return fl_fail(errno == ENOMEM ? FLEET_ENOMEM : FLEET_EIO,
                       "table \"%s\": cannot make a file for its rows in "
                       "cold_folder \"%s\": %s",
                       t->rows.name, t->cap.folder, strerror(errno));
    return t->cap.by_hand ? FLEET_OK : start_thread(t);
}

/* --- rows in the file ----------------------------------------------------- */

static uint64_t check_of(const fl_cold_table *t, int part, uint32_t spot,
                         const fl_cold_head *head)
{
    uint64_t where = (uint64_t)part << 32 | spot;

    return fl_hash(head + 1, t->row_bytes,
                   t->nonce ^ fl_mix(head->key) ^ fl_mix(where + 1));
}

void fl_cold_seal(const fl_cold_table *t, int part, uint32_t spot,
                  fl_cold_head *head)
{
    head->check = check_of(t, part, spot, head);
}

static fleet_status check_row(const fl_cold_table *t, int part, uint32_t spot,
                              int e, const fl_cold_head *head)
{
    if (e)
        return fl_fail(FLEET_EIO,
                       "table \"%s\": cannot read rows that are in a file in "
                       "\"%s\": %s",
                       t->rows.name, t->cap.folder, strerror(e));
    if (head->check != check_of(t, part, spot, head))
        return fl_fail(FLEET_ECORRUPT,
                       "table \"%s\": a row came back damaged from its file in "
                       "\"%s\": spot %" PRIu32 " of part %d, which says that "
                       "it is row %" PRIu64,
                       t->rows.name, t->cap.folder, spot, part, head->key);
    return FLEET_OK;
}

void fl_cold_read_spots(const fl_cold_table *t, int part, const uint32_t *spot,
                        const int64_t *at, int n, char *rows,
                        fleet_status *status)
{
    size_t size = t->part[part].pages.spot_bytes;
    int e[FL_COLD_BATCH];

    for (int i = 0; i < n; i++)
        e[i] =
            fl_disk_read_at(t->fd, rows + (size_t)i * size, size, at[i], true);
    /* what is not in memory comes at once, and not one after the other */
    for (int i = 0; i < n; i++)
        if (e[i] == EAGAIN)
            posix_fadvise(t->fd, at[i], (off_t)size, POSIX_FADV_WILLNEED);
    for (int i = 0; i < n; i++) {
        char *row = rows + (size_t)i * size;

        if (e[i] == EAGAIN)
            e[i] = fl_disk_read_at(t->fd, row, size, at[i], false);
        status[i] = check_row(t, part, spot[i], e[i],
                              (const fl_cold_head *)(const void *)row);
    }
}

fleet_status fl_cold_read_run(const fl_cold_table *t, int part, uint32_t spot,
                              int n, char *rows)
{
    const fl_cold_pages *pages = &t->part[part].pages;
    int e = fl_disk_read_at(t->fd, rows, (size_t)n * pages->spot_bytes,
                            fl_cold_pages_offset(pages, spot), false);

    for (int i = 0; i < n; i++)
        FL_TRY(check_row(
            t, part, spot + (uint32_t)i, e,
            (const fl_cold_head *)(const void *)(rows +
                                                 (size_t)i *
                                                     pages->spot_bytes)));
    return FLEET_OK;
}

fleet_status fl_cold_read_spot(const fl_cold_table *t, const fl_cold_part *p,
                               uint32_t spot, fl_cold_head *row)
{
    const char *image = fl_cold_pages_find(&p->pages, spot);
    int64_t at = fl_cold_pages_offset(&p->pages, spot);
    fleet_status status = FLEET_OK;

    if (image)
        memcpy(row, image, p->pages.spot_bytes);
    else
        fl_cold_read_spots(t, fl_cold_part_number(t, p), &spot, &at, 1,
                           (char *)row, &status);
    return status;
}

/* --- the thread's work, a part at a time ---------------------------------- */

static int by_spot(const void *a, const void *b)
{
    uint32_t x = ((const fl_cold_read *)a)->spot;
    uint32_t y = ((const fl_cold_read *)b)->spot;

    return x < y ? -1 : x > y;
}

/* Under the lock, which it gives up while it reads. */
static void read_some(fl_cold_table *t, fl_cold_part *p, char *rows)
{
    int n = p->n_read < FL_COLD_BATCH ? (int)p->n_read : FL_COLD_BATCH;
    fl_cold_read one[FL_COLD_BATCH];
    fleet_status status[FL_COLD_BATCH];
    uint32_t spot[FL_COLD_BATCH] = {0};
    int64_t at[FL_COLD_BATCH] = {0};

    p->n_read -= (size_t)n;
    memcpy(one, p->read + p->n_read, (size_t)n * sizeof *one);
    qsort(one, (size_t)n, sizeof *one, by_spot);
    for (int i = 0; i < n; i++) {
        spot[i] = one[i].spot;
        at[i] = fl_cold_pages_offset(&p->pages, spot[i]);
    }
    fl_cold_pages_read(&p->pages);
    pthread_mutex_unlock(&p->lock);
    fl_cold_read_spots(t, fl_cold_part_number(t, p), spot, at, n, rows, status);
    pthread_mutex_lock(&p->lock);
    fl_cold_pages_was_read(&p->pages);
    p->counts.reads += n;
    for (int i = 0; i < n; i++) {
        p->n_coming--;
        fl_cold_row_came(
            t, p, one[i], status[i],
            (const fl_cold_head *)(const void *)(rows +
                                                 (size_t)i *
                                                     p->pages.spot_bytes));
    }
}

void fl_cold_read_part(fl_cold_table *t, fl_cold_part *p, char *rows)
{
    pthread_mutex_lock(&p->lock);
    while (p->n_read > 0)
        read_some(t, p, rows);
    pthread_mutex_unlock(&p->lock);
}

/* The spots that it has, as runs. */
static int write_image(const fl_cold_table *t, const fl_cold_image *m,
                       size_t spot_bytes, int64_t at, int *calls)
{
    uint64_t has = m->has;
    int e = 0;

    while (has && !e) {
        int first = __builtin_ctzll(has);
        uint64_t rest = ~(has >> first);
        int n = rest ? __builtin_ctzll(rest) : FL_COLD_MOST_SPOTS - first;
        size_t from = (size_t)first * spot_bytes;

        e = fl_disk_write_at(t->fd, m->bytes + from, (size_t)n * spot_bytes,
                             at + (int64_t)from);
        has &=
            n == FL_COLD_MOST_SPOTS ? 0 : ~((((uint64_t)1 << n) - 1) << first);
        ++*calls;
    }
    return e;
}

/* Likewise. An image that cannot be written stays, with its rows. */
static void write_one(fl_cold_table *t, fl_cold_part *p)
{
    const fl_cold_image *m = p->pages.waits;
    int64_t at = fl_cold_pages_offset(&p->pages, fl_cold_spot(m->page, 0));
    int calls = 0, e;

    pthread_mutex_unlock(&p->lock);
    e = write_image(t, m, p->pages.spot_bytes, at, &calls);
    pthread_mutex_lock(&p->lock);
    p->counts.writes += calls;
    p->tries_again = false;
    p->stuck = e != 0;
    if (e == 0) {
        fl_cold_pages_written(&p->pages);
        return;
    }
    p->status = FLEET_EIO;
    fl_fail(p->status,
            "table \"%.60s\": cannot write rows into a file in \"%.80s\": %s; "
            "they stay in memory, and there is no room for more in its "
            "memory_cap_bytes, %lld",
            t->rows.name, t->cap.folder, strerror(e), (long long)t->cap.bytes);
    snprintf(p->error, sizeof p->error, "%s", fleet_last_error());
}

static void serve(fl_cold_table *t, fl_cold_part *p)
{
    pthread_mutex_lock(&p->lock);
    while (fl_cold_has_work(p)) {
        if (p->n_read > 0)
            read_some(t, p, t->rows_read);
        else
            write_one(t, p);
    }
    pthread_mutex_unlock(&p->lock);
}

static void serve_parts(fl_cold_table *t, uint32_t parts)
{
    for (int i = 0; i < FL_N_PART; i++)
        if (parts >> i & 1)
            serve(t, &t->part[i]);
}

/* --- the thread ----------------------------------------------------------- */

static void *run_thread(void *arg)
{
    fl_cold_table *t = arg;

    pthread_mutex_lock(&t->io_lock);
    while (!t->stops) {
        uint32_t parts = t->work;

        if (!parts) {
            pthread_cond_wait(&t->io_wanted, &t->io_lock);
            continue;
        }
        t->work = 0;
        t->is_busy = true;
        pthread_mutex_unlock(&t->io_lock);
        serve_parts(t, parts);
        pthread_mutex_lock(&t->io_lock);
        t->is_busy = false;
        pthread_cond_broadcast(&t->io_idle);
    }
    pthread_mutex_unlock(&t->io_lock);
    return NULL;
}

static fleet_status start_thread(fl_cold_table *t)
{
    FL_TRY(fl_thread_start(&t->thread, run_thread, t, "a table's file"));
    t->has_thread = true;
    return FLEET_OK;
}

void fl_cold_wake(fl_cold_table *t, uint32_t parts)
{
    pthread_mutex_lock(&t->io_lock);
    t->work |= parts;
    pthread_cond_signal(&t->io_wanted);
    pthread_mutex_unlock(&t->io_lock);
}

void fl_cold_work(fl_cold_table *t)
{
    uint32_t parts;

    pthread_mutex_lock(&t->io_lock);
    parts = t->work;
    t->work = 0;
    serve_parts(t, parts);
    pthread_mutex_unlock(&t->io_lock);
}

void fl_cold_wait_idle(fl_cold_table *t)
{
    if (t->cap.by_hand) {
        fl_cold_work(t);
        return;
    }
    pthread_mutex_lock(&t->io_lock);
    while (t->work || t->is_busy)
        pthread_cond_wait(&t->io_idle, &t->io_lock);
    pthread_mutex_unlock(&t->io_lock);
}

void fl_cold_file_close(fl_cold_table *t)
{
    if (t->has_thread) {
        pthread_mutex_lock(&t->io_lock);
        t->stops = true;
        pthread_cond_signal(&t->io_wanted);
        pthread_mutex_unlock(&t->io_lock);
        pthread_join(t->thread, NULL);
    }
    if (t->fd >= 0)
        close(t->fd);
}
