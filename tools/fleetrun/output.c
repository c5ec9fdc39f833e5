/* output.c - a buffer between a pipe, a log and fleetrun's own output. */
#define _GNU_SOURCE
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/memory.h"

enum { LONGEST_LINE = 64 << 10 }; /* a longer one comes in pieces */

fleet_status run_output_adopt(run_output *o, int log, int show, int from)
{
    const run_output before = *o;

    run_output_close(o);
    *o = (run_output){.from = -1,
                      .log = log,
                      .show = show,
                      .log_fails = before.log_fails,
                      .show_error = before.show_error};
    FL_TRY(FL_NEW(&o->buffer, LONGEST_LINE));
    fcntl(from, F_SETFL, O_NONBLOCK);
    o->from = from;
    return FLEET_OK;
}

fleet_status run_output_open(run_output *o, int log, int show, int *to)
{
    fleet_status status;
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) != 0)
        return fl_fail(FLEET_EIO, "cannot make a pipe: %s", strerror(errno));
    status = run_output_adopt(o, log, show, ends[0]);
    if (status != FLEET_OK) {
        close(ends[0]);
        close(ends[1]);
        return status;
    }
    *to = ends[1];
    return FLEET_OK;
}

void run_output_close(run_output *o)
{
    if (o->from >= 0)
        close(o->from);
    fl_free(o->buffer);
    o->from = -1;
    o->buffer = NULL;
    o->filled = o->whole = o->shown = 0;
}

static bool is_full(const run_output *o)
{
    return o->shown < o->whole;
}

bool run_output_is_over(const run_output *o)
{
    return o->from < 0 && !is_full(o);
}

struct pollfd run_output_wants(const run_output *o)
{
    if (is_full(o))
        return (struct pollfd){.fd = o->show, .events = POLLOUT};
    return (struct pollfd){.fd = o->from, .events = POLLIN};
}

/* What the log does not take is shown, if it is not anyway: the reason of a
 * failure comes last. */
static void log_failed(run_output *o, size_t at, int e)
{
    if (!o->log_fails)
        dprintf(2, "fleetrun: a log is incomplete: %s%s\n", strerror(e),
                o->show < 0 ? "; its other lines follow" : "");
    o->log_fails = true;
    if (o->show < 0) {
        o->show = STDERR_FILENO;
        o->shown = at;
    }
}

static void write_log(run_output *o)
{
    size_t at = 0;

    while (at < o->whole) {
        ssize_t n = write(o->log, o->buffer + at, o->whole - at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            log_failed(o, at, errno);
            return;
        }
        at += (size_t)n;
    }
}

/* Whole lines go to the log; the last one waits for its end. */
static void accept_lines(run_output *o, bool last)
{
    const char *end = memrchr(o->buffer, '\n', o->filled);

    if (last || (!end && o->filled == LONGEST_LINE))
        o->whole = o->filled;
    else
        o->whole = end ? (size_t)(end - o->buffer) + 1 : 0;
    write_log(o);
    if (o->show < 0)
        o->shown = o->whole;
}

void run_output_end(run_output *o)
{
    int n = 0;

    if (o->from >= 0 && ioctl(o->from, FIONREAD, &n) == 0)
        o->rest = (size_t)n;
    o->ending = true;
}

static bool read_pipe(run_output *o)
{
    size_t most;
    ssize_t n;

    memmove(o->buffer, o->buffer + o->whole, o->filled - o->whole);
    o->filled -= o->whole;
    o->whole = o->shown = 0;
    most = LONGEST_LINE - o->filled;
    if (o->ending && most > o->rest)
        most = o->rest;
    n = most == 0 ? 0 : read(o->from, o->buffer + o->filled, most);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return errno == EINTR;
    if (n > 0)
        o->filled += (size_t)n;
    if (n > 0 && o->ending)
        o->rest -= (size_t)n;
    accept_lines(o, n <= 0);
    if (n <= 0) {
        close(o->from);
        o->from = -1;
    }
    return true;
}

/* A pipe that poll() calls writable takes PIPE_BUF bytes without waiting. */
static bool show_lines(run_output *o)
{
    struct pollfd wants = run_output_wants(o);
    size_t n = o->whole - o->shown;
    ssize_t written;

    if (poll(&wants, 1, 0) != 1)
        return false;
    written = write(o->show, o->buffer + o->shown, n < PIPE_BUF ? n : PIPE_BUF);
    if (written < 0 && (errno == EINTR || errno == EAGAIN))
        return errno == EINTR;
    if (written >= 0) {
        o->shown += (size_t)written;
        return true;
    }
    if (errno != EPIPE) /* else its reader has gone, and wants no more */
        o->show_error = errno;
    o->show = -1; /* the log goes on */
    o->shown = o->whole;
    return true;
}

bool run_output_step(run_output *o)
{
    if (is_full(o))
        return show_lines(o);
    return o->from >= 0 && read_pipe(o);
}
