/* source.c - a file's bytes, through its unpacking and its command.
 *
 * A command reads a plain file from its descriptor. For a packed file a thread
 * feeds the command's standard input; the command need not read all of it. With
 * {path} in it a command opens what it reads, which may be no file.
 */
#define _GNU_SOURCE
#include "data/io/source.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/thread.h"
#include "data/io/pipe_command.h"
#include "data/io/fd.h"
#include "data/io/unpack.h"

enum { FEED_PIECE = 256 << 10, PIPE_SIZE = 1 << 20 };

struct fl_source {
    const char *path;
    fl_source_options o;
    fl_unpack *file; /* NULL: it is o.text, */
    size_t taken;    /* bytes of it that were read; or the command's own */
    char *script;    /* the command, with the path in it; NULL: o.command */

    fl_pipe_command child;
    int out; /* the command's output is read from it */
    bool ended;

    /* the thread that feeds the command */
    pthread_t feeder;
    bool has_feeder;
    int in, enough; /* where it writes; the wakeup that ends it */
    fl_error error; /* its own; read after it was joined */
};

/* The command may close its input before the end: that is its good right. All
 * signals are blocked in it, so SIGPIPE is but an errno. */
static fleet_status write_all(fl_source *s, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t n = write(s->in, data, size);

        if (n < 0 && errno == EAGAIN)
            FL_TRY(fl_fd_wait(s->in, POLLOUT, s->o.wakeup, s->enough, 0));
        else if (n < 0 && errno == EPIPE)
            return FLEET_EEND;
        else if (n < 0 && errno != EINTR)
            return fl_fail(FLEET_EIO, "cannot write to \"%s\": %s",
                           s->o.command, strerror(errno));
        if (n > 0) {
            data += n;
            size -= (size_t)n;
        }
    }
    return FLEET_OK;
}

static fleet_status feed_file(fl_source *s)
{
    char *piece = fl_alloc(FEED_PIECE);
    fleet_status status = piece ? FLEET_OK : FLEET_ENOMEM;
    size_t n = 1;

    while (status == FLEET_OK && n > 0) {
        status = fl_unpack_read(s->file, piece, FEED_PIECE, &n);
        if (status == FLEET_OK)
            status = write_all(s, piece, n);
    }
    fl_free(piece);
    return status;
}

static void *feed_command(void *arg)
{
    fl_source *s = arg;
    fleet_status status = feed_file(s);

    if (status != FLEET_OK && status != FLEET_EEND && status != FLEET_ESTATE)
        fl_error_take(&s->error, status);
    fl_fd_close(&s->in);
    return NULL;
}

static void stop_feeder(fl_source *s)
{
    if (s->has_feeder) {
        fl_fd_wake(s->enough);
        pthread_join(s->feeder, NULL);
    }
    s->has_feeder = false;
}

/* in[0] is what the command reads, in[1] what the feeder writes to, if any. */
static fleet_status start_command(fl_source *s, int in[2])
{
    int out[2];
    fleet_status status;

    FL_TRY(fl_fd_pipe(out, PIPE_SIZE));
    s->out = out[0];
    fcntl(s->out, F_SETFL, O_NONBLOCK);
    status = fl_pipe_command_start(
        &s->child, s->script ? s->script : s->o.command, in[0], out[1]);
    fl_fd_close(&out[1]);
    return status;
}

static fleet_status start_fed_command(fl_source *s)
{
    int in[2];
    fleet_status status;

    FL_TRY(fl_fd_pipe(in, PIPE_SIZE));
    status = start_command(s, in);
    fl_fd_close(&in[0]);
    s->in = in[1];
    FL_TRY(status);
    fcntl(s->in, F_SETFL, O_NONBLOCK);
    FL_TRY(fl_fd_wakeup(&s->enough));
    FL_TRY(
        fl_thread_start(&s->feeder, feed_command, s, "feeding a pipe_command"));
    s->has_feeder = true;
    return FLEET_OK;
}

/* With nothing to read. */
static fleet_status start_opening_command(fl_source *s)
{
    fleet_status status;
    int in[2];

    s->script = fl_pipe_command_with_path(s->o.command, s->path);
    if (!s->script)
        return FLEET_ENOMEM;
    in[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (in[0] < 0)
        return fl_fail(FLEET_EIO, "cannot open /dev/null: %s", strerror(errno));
    status = start_command(s, in);
    fl_fd_close(&in[0]);
    return status;
}

static fleet_status start_source(fl_source *s)
{
    int in[2];

    if (s->o.text)
        return FLEET_OK;
    if (fl_pipe_command_has_path(s->o.command))
        return start_opening_command(s);
    FL_TRY(s->o.any ? fl_unpack_open_any(&s->file, s->path, s->o.wakeup,
                                         s->o.timeout_ms)
                    : fl_unpack_open(&s->file, s->path));
    if (!s->o.command)
        return s->o.binary ? FLEET_OK : fl_unpack_check_text(s->file);
    if (fl_is_packed(s->path))
        return start_fed_command(s);
    FL_TRY(fl_unpack_wait(s->file));
    in[0] = fl_unpack_fd(s->file);
    return start_command(s, in);
}

static fleet_status in_command(const fl_source *s, fleet_status status)
{
    if (status != FLEET_ECHILD && status != FLEET_ETIMEDOUT)
        return status;
    return fl_fail_in(status, "%s: pipe_command \"%.150s\"", s->path,
                      s->o.command);
}

fleet_status fl_source_open(fl_source **source, const char *path,
                            const fl_source_options *o)
{
    fleet_status status;
    fl_source *s;

    FL_TRY(FL_NEW(&s, sizeof *s));
    s->path = path;
    s->o = *o;
    s->in = s->out = s->enough = -1;
    status = start_source(s);
    if (status != FLEET_ETIMEDOUT) /* which is the file's */
        status = in_command(s, status);
    if (status != FLEET_OK) {
        fl_source_close(s);
        return status;
    }
    *source = s;
    return FLEET_OK;
}

/* For a wait on the command that has no text of its own yet. */
static fleet_status not_late(const fl_source *s, fleet_status status)
{
    return status != FLEET_ETIMEDOUT
               ? status
               : fl_fail(status,
                         "nothing has come for %lld ms, and it has not ended "
                         "(pipe_timeout_ms)",
                         (long long)s->o.timeout_ms);
}

static fleet_status read_command(fl_source *s, void *to, size_t size,
                                 size_t *got)
{
    fleet_status status;
    ssize_t n = -1;

    *got = 0;
    while (n < 0 && !s->ended) {
        FL_TRY(not_late(
            s, fl_fd_wait(s->out, POLLIN, s->o.wakeup, -1, s->o.timeout_ms)));
        n = read(s->out, to, size);
        if (n == 0) { /* it has closed its output */
            status = not_late(s, fl_pipe_command_wait(&s->child, s->o.wakeup,
                                                      s->o.timeout_ms));
            if (status == FLEET_ESTATE || status == FLEET_ETIMEDOUT)
                return status;
            stop_feeder(s);
            s->ended = true;
            /* a fault of the file is the reason for the command's */
            FL_TRY(s->error.code != FLEET_OK ? fl_error_raise(&s->error)
                                             : status);
        }
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return fl_fail(FLEET_EIO, "cannot read from \"%s\": %s",
                           s->o.command, strerror(errno));
    }
    *got = n > 0 ? (size_t)n : 0;
    return FLEET_OK;
}

static void read_text(fl_source *s, void *to, size_t size, size_t *got)
{
    size_t left = s->o.text_size - s->taken;

    *got = left < size ? left : size;
    memcpy(to, s->o.text + s->taken, *got);
    s->taken += *got;
}

fleet_status fl_source_read(fl_source *s, void *to, size_t size, size_t *got)
{
    if (s->o.text)
        return read_text(s, to, size, got), FLEET_OK;
    return s->o.command ? in_command(s, read_command(s, to, size, got))
                        : fl_unpack_read(s->file, to, size, got);
}

double fl_source_share(const fl_source *s)
{
    if (s->file)
        return fl_unpack_share(s->file);
    return s->o.command && !s->ended ? 0 : 1;
}

void fl_source_close(fl_source *s)
{
    if (!s)
        return;
    fl_pipe_command_kill(&s->child);
    stop_feeder(s);
    fl_fd_close(&s->in);
    fl_fd_close(&s->out);
    fl_fd_close(&s->enough);
    fl_unpack_close(s->file);
    fl_free(s->script);
    fl_free(s);
}
