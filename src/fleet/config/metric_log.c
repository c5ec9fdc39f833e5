/* metric_log.c - lines at the end of a file, which a crash may have cut. */
#include "fleet/config/metric_log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"

static const char begins_run[] = "{\"run\":";
static const char begins_line[] = "{\"step\":";

static fleet_status refuse_path(const char *path, const char *what)
{
    return fl_fail(FLEET_EIO, "metrics_log: cannot %s %s: %s", what, path,
                   strerror(errno));
}

fleet_status fl_metric_log_check(const char *path)
{
    const char *slash = strrchr(path, '/');
    int status;
    char *folder;

    if (access(path, F_OK) == 0 || errno != ENOENT)
        return access(path, W_OK) == 0 ? FLEET_OK : refuse_path(path, "write");
    folder =
        slash ? fl_strndup(path, (size_t)(slash - path) + 1) : fl_strdup(".");
    if (!folder)
        return FLEET_ENOMEM;
    status = access(folder, W_OK | X_OK);
    fl_free(folder);
    return status == 0 ? FLEET_OK : refuse_path(path, "make");
}

/* --- a file that exists --------------------------------------------------- */

/* Or may it become a text that does? */
static bool begins_with(const char *text, size_t n, const char *with)
{
    const size_t m = strlen(with);

    return memcmp(text, with, n < m ? n : m) == 0;
}

/* How many bytes are whole lines. */
static fleet_status whole_lines(const fl_metric_log *m, const char *text,
                                size_t size, size_t *whole)
{
    size_t n = size;

    while (n > 0 && text[n - 1] != '\n')
        n--;
    *whole = n;
    if (size == 0)
        return FLEET_OK;
    if (!begins_with(text, size, begins_run) ||
        !(begins_with(text + n, size - n, begins_run) ||
          begins_with(text + n, size - n, begins_line)))
        return fl_fail(FLEET_EFORMAT,
                       "metrics_log: %s is a file of something else: expected "
                       "lines that begin with %s or %s",
                       m->path, begins_run, begins_line);
    if (n < size)
        FL_WARN(m->log,
                "metrics_log: %s: its last line was cut off: %zu bytes of it "
                "go",
                m->path, size - n);
    return FLEET_OK;
}

/* Behind that line, or the end. */
static size_t next_line(const char *text, size_t size, size_t at)
{
    const char *end = at < size ? memchr(text + at, '\n', size - at) : NULL;

    return end ? (size_t)(end - text) + 1 : size;
}

/* Where the last run's first line is. */
static size_t last_run(const char *text, size_t size)
{
    size_t last = 0;

    for (size_t at = 0; at < size; at = next_line(text, size, at))
        if (begins_with(text + at, size - at, begins_run))
            last = at;
    return last;
}

/* How much stays of a file whose last run goes on behind its first lines. */
static size_t kept_of_run(fl_metric_log *m, const char *text, size_t size,
                          uint64_t run, int64_t lines)
{
    size_t at = last_run(text, size);
    char first[40];

    snprintf(first, sizeof first, "%s\"%016" PRIx64 "\"", begins_run, run);
    if (run == 0 || size - at < strlen(first) ||
        memcmp(text + at, first, strlen(first)) != 0)
        return size;
    at = next_line(text, size, at);
    while (lines > 0 && at < size) {
        at = next_line(text, size, at);
        lines--;
    }
    m->goes_on = lines == 0;
    return at;
}

static fleet_status mend(fl_metric_log *m, uint64_t run, int64_t lines)
{
    size_t size, whole = 0;
    fleet_status status;
    char *text;

    FL_TRY(fl_file_read(m->path, &text, &size));
    status = whole_lines(m, text, size, &whole);
    if (status == FLEET_OK)
        m->size = (int64_t)kept_of_run(m, text, whole, run, lines);
    fl_free(text);
    FL_TRY(status);
    return m->size == (int64_t)size || ftruncate(m->fd, (off_t)m->size) == 0
               ? FLEET_OK
               : refuse_path(m->path, "cut");
}

/* --- lines ---------------------------------------------------------------- */

fleet_status fl_metric_log_open(fl_metric_log *m, const char *path,
                                uint64_t run, int64_t lines, fl_log *log)
{
    struct stat st;
    fleet_status status;

    *m = (fl_metric_log){.path = path, .size = -1, .log = log};
    m->fd = fl_fd_lift(fl_disk_open(
        AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
    if (m->fd < 0)
        return refuse_path(path, "open");
    if (fstat(m->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return FLEET_OK; /* a FIFO, say */
    status = mend(m, run, lines);
    if (status != FLEET_OK)
        fl_metric_log_close(m);
    return status;
}

/* A part of it would tear the next one. */
static void take_back(fl_metric_log *m, int why)
{
    if (m->size >= 0 && ftruncate(m->fd, (off_t)m->size) != 0)
        why = errno;
    if (!m->has_failed)
        FL_WARN(m->log, "metrics_log: %s: lines are lost: %s", m->path,
                strerror(why));
    m->has_failed = true;
}

void fl_metric_log_add(fl_metric_log *m, const char *line)
{
    fl_text text = {0};
    int failed;

    if (m->fd < 0)
        return;
    fl_text_add(&text, "%s\n", line);
    failed = text.status == FLEET_OK
                 ? fl_disk_write(m->fd, text.chars, text.length)
                 : ENOMEM;
    if (failed) {
        take_back(m, failed);
    } else {
        m->size += m->size >= 0 ? (int64_t)text.length : 0;
        m->has_failed = false;
    }
    fl_text_done(&text);
}

void fl_metric_log_flush(fl_metric_log *m)
{
    if (m->fd >= 0 && m->size >= 0 && fl_disk_flush(m->fd) != 0)
        FL_WARN(m->log, "metrics_log: %s: lines may be lost in a crash: %s",
                m->path, strerror(errno));
}

void fl_metric_log_close(fl_metric_log *m)
{
    if (m->fd >= 0)
        close(m->fd);
    m->fd = -1;
}
