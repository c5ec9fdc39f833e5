/* metric_log.c - lines at the end of a file, which a crash may have cut. */
#include "fleet/watch/metric_log.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/thread.h"

const char fl_metric_columns[] =
    "run,step,epoch,samples,samples_per_s,loss,learning_rate,validation_loss,"
    "validation_auc,validation_logloss,validation_accuracy,validation_samples,"
    "time";

static const char begins_run[] = "{\"run\":";
static const char begins_line[] = "{\"step\":";

enum { RUN_DIGITS = 16 };

static fleet_status refuse_path(const char *path, const char *what)
{
    return fl_fail(FLEET_EIO, "metrics_log: cannot %s %s: %s", what, path,
                   strerror(errno));
}

/* --- a file that exists --------------------------------------------------- */

/* Or may it become a text that does? */
static bool begins_with(const char *text, size_t n, const char *with)
{
    const size_t m = strlen(with);

    return memcmp(text, with, n < m ? n : m) == 0;
}

/* Or may the text become a row? */
static bool is_row(const char *text, size_t n)
{
    size_t i = 0;

    while (i < n && i < RUN_DIGITS && isxdigit((unsigned char)text[i]))
        i++;
    return i == n || (i == RUN_DIGITS && text[i] == ',');
}

/* Are the first line and the last one, which begins at `last`, of the kind? */
static bool is_log(const char *columns, const char *text, size_t size,
                   size_t last)
{
    const size_t head = columns ? strlen(columns) : 0;

    if (!columns)
        return begins_with(text, size, begins_run) &&
               (begins_with(text + last, size - last, begins_run) ||
                begins_with(text + last, size - last, begins_line));
    return begins_with(text, size, columns) &&
           (size <= head || text[head] == '\n') &&
           (last == 0 || is_row(text + last, size - last));
}

/* How many bytes are whole lines. */
static fleet_status whole_lines(const char *path, const char *columns,
                                const char *text, size_t size, size_t *whole)
{
    size_t n = size;

    while (n > 0 && text[n - 1] != '\n')
        n--;
    *whole = n;
    if (size == 0 || is_log(columns, text, size, n))
        return FLEET_OK;
    if (columns)
        return fl_fail(FLEET_EFORMAT,
                       "metrics_log: %s is a file of something else: expected "
                       "the columns %s",
                       path, columns);
    return fl_fail(FLEET_EFORMAT,
                   "metrics_log: %s is a file of something else: expected "
                   "lines that begin with %s or %s",
                   path, begins_run, begins_line);
}

/* All of it, for fl_free(). */
static fleet_status read_lines(const char *path, const char *columns,
                               char **text, size_t *size, size_t *whole)
{
    fleet_status status = fl_file_read(path, text, size);

    if (status != FLEET_OK)
        return fl_fail_in(status, "metrics_log");
    status = whole_lines(path, columns, *text, *size, whole);
    if (status != FLEET_OK)
        fl_free(*text);
    return status;
}

static fleet_status check_file(const char *path, const char *columns,
                               mode_t mode)
{
    size_t size, whole;
    char *text;

    if (S_ISDIR(mode))
        errno = EISDIR;
    if (S_ISDIR(mode) || access(path, W_OK) != 0)
        return refuse_path(path, "write");
    if (!S_ISREG(mode))
        return FLEET_OK;
    FL_TRY(read_lines(path, columns, &text, &size, &whole));
    fl_free(text);
    return FLEET_OK;
}

fleet_status fl_metric_log_check(const char *path, const char *columns)
{
    const char *slash = strrchr(path, '/');
    struct stat st;
    char *folder;
    int status;

    if (stat(path, &st) == 0)
        return check_file(path, columns, st.st_mode);
    if (errno != ENOENT)
        return refuse_path(path, "write");
    folder =
        slash ? fl_strndup(path, (size_t)(slash - path) + 1) : fl_strdup(".");
    if (!folder)
        return FLEET_ENOMEM;
    status = access(folder, W_OK | X_OK);
    fl_free(folder);
    return status == 0 ? FLEET_OK : refuse_path(path, "make");
}

/* --- going on behind some of its lines ------------------------------------ */

/* Behind that line, or the end. */
static size_t next_line(const char *text, size_t size, size_t at)
{
    const char *end = at < size ? memchr(text + at, '\n', size - at) : NULL;

    return end ? (size_t)(end - text) + 1 : size;
}

/* Is a row of another run than the one in front of it? */
static bool begins_rows(const char *text, size_t at, size_t before)
{
    return before == 0 || strncmp(text + at, text + before, RUN_DIGITS) != 0;
}

/* Where the last run's first line is; 0 of a CSV without rows. */
static size_t last_run(const fl_metric_log *m, const char *text, size_t size)
{
    size_t last = 0, before = 0;

    for (size_t at = 0; at < size; at = next_line(text, size, at)) {
        if (!m->columns ? begins_with(text + at, size - at, begins_run)
                        : at > 0 && begins_rows(text, at, before))
            last = at;
        before = at;
    }
    return last;
}

/* How much stays of a file whose last run goes on behind its first lines. */
static size_t kept_of_run(fl_metric_log *m, const char *text, size_t size,
                          uint64_t run, int64_t lines)
{
    const bool csv = m->columns != NULL;
    size_t at = last_run(m, text, size);
    char first[40];

    snprintf(first, sizeof first,
             csv ? "%s%016" PRIx64 "," : "%s\"%016" PRIx64 "\"",
             csv ? "" : begins_run, run);
    if (run == 0 || size - at < strlen(first) ||
        memcmp(text + at, first, strlen(first)) != 0)
        return size;
    at = csv ? at : next_line(text, size, at);
    while (lines > 0 && at < size) {
        at = next_line(text, size, at);
        lines--;
    }
    m->goes_on = lines == 0;
    return at;
}

static fleet_status mend(fl_metric_log *m, uint64_t run, int64_t lines)
{
    size_t size, whole, kept;
    char *text;

    FL_TRY(read_lines(m->path, m->columns, &text, &size, &whole));
    if (whole < size)
        FL_WARN(m->log,
                "metrics_log: %s: its last line was cut off: %zu bytes of it "
                "go",
                m->path, size - whole);
    kept = kept_of_run(m, text, whole, run, lines);
    m->is_empty = kept == 0;
    fl_free(text);
    return kept == size || ftruncate(m->fd, (off_t)kept) == 0
               ? FLEET_OK
               : refuse_path(m->path, "cut");
}

/* Lines of two trainings at a time would be each other's. */
static fleet_status take_file(fl_metric_log *m, uint64_t run, int64_t lines)
{
    if (flock(m->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return fl_fail(FLEET_EEXIST,
                       "metrics_log: another training is writing %s: expected "
                       "one at a time",
                       m->path);
    m->is_file = true;
    return mend(m, run, lines);
}

/* --- lines ---------------------------------------------------------------- */

/* No FIFO is waited for: one without a reader is refused, a full one takes no
 * line. */
fleet_status fl_metric_log_open(fl_metric_log *m, const char *path,
                                const char *columns, uint64_t run,
                                int64_t lines, fl_log *log)
{
    struct stat st;
    fleet_status status;

    *m = (fl_metric_log){
        .path = path, .columns = columns, .is_empty = true, .log = log};
    m->fd = fl_fd_lift(fl_disk_open(
        AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK,
        0666));
    if (m->fd < 0)
        return refuse_path(path, "open");
    if (fstat(m->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return FLEET_OK; /* a FIFO, say */
    status = take_file(m, run, lines);
    if (status != FLEET_OK)
        fl_metric_log_close(m);
    return status;
}

/* A part of it would tear the next one. before: where the line began. */
static void take_back(fl_metric_log *m, off_t before, int why)
{
    if (m->is_file && ftruncate(m->fd, before) != 0)
        why = errno;
    if (!m->has_failed)
        FL_WARN(m->log, "metrics_log: %s: lines are lost: %s", m->path,
                strerror(why));
}

void fl_metric_log_add(fl_metric_log *m, const char *line)
{
    const off_t before = m->is_file ? lseek(m->fd, 0, SEEK_END) : 0;
    fl_text text = {0};
    int failed = ENOMEM;
    fl_hush hush;

    fl_text_add(&text, "%s\n", line);
    fl_hush_begin(&hush);
    if (text.status == FLEET_OK)
        failed = fl_disk_write(m->fd, text.chars, text.length);
    fl_hush_end(&hush);
    if (failed)
        take_back(m, before, failed);
    m->has_failed = failed != 0;
    fl_text_done(&text);
}

void fl_metric_log_flush(fl_metric_log *m)
{
    if (m->is_file && fl_disk_flush(m->fd) != 0)
        FL_WARN(m->log, "metrics_log: %s: lines may be lost in a crash: %s",
                m->path, strerror(errno));
}

void fl_metric_log_close(fl_metric_log *m)
{
    if (m->fd >= 0)
        close(m->fd);
    m->fd = -1;
}
