/* fd.c - pipes, eventfds, poll. */
#define _GNU_SOURCE
#include "data/io/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"

fleet_status fl_fd_pipe(int ends[2], int bytes)
{
    if (pipe2(ends, O_CLOEXEC) != 0)
        return fl_fail(FLEET_EIO, "cannot make a pipe: %s", strerror(errno));
    ends[0] = fl_fd_lift(ends[0]);
    ends[1] = fl_fd_lift(ends[1]);
    if (ends[0] < 0 || ends[1] < 0) {
        fl_fail(FLEET_EIO, "cannot make a pipe: %s", strerror(errno));
        fl_fd_close(&ends[0]);
        fl_fd_close(&ends[1]);
        return FLEET_EIO;
    }
    if (bytes > 0)
        fcntl(ends[1], F_SETPIPE_SZ, bytes); /* a smaller one works, too */
    return FLEET_OK;
}

fleet_status fl_fd_wakeup(int *wakeup)
{
    *wakeup = fl_fd_lift(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    return *wakeup >= 0 ? FLEET_OK
                        : fl_fail(FLEET_EIO, "cannot make an eventfd: %s",
                                  strerror(errno));
}

void fl_fd_wake(int wakeup)
{
    const uint64_t one = 1;
    ssize_t n;

    do
        n = write(wakeup, &one, sizeof one);
    while (n < 0 && errno == EINTR);
}

fleet_status fl_fd_wait(int fd, short events, int wakeup, int other_wakeup,
                        int64_t timeout_ms)
{
    struct pollfd p[3] = {{.fd = wakeup, .events = POLLIN},
                          {.fd = other_wakeup, .events = POLLIN},
                          {.fd = fd, .events = events}};
    fl_wait wait = fl_wait_for(timeout_ms);
    int n;

    do
        n = poll(p, 3, timeout_ms > 0 ? (int)fl_wait_nap(&wait) : -1);
    while ((n < 0 && errno == EINTR) || (n == 0 && fl_wait_left(&wait) > 0));
    if (n < 0)
        return fl_fail(FLEET_EIO, "cannot wait for a descriptor: %s",
                       strerror(errno));
    if (p[0].revents || p[1].revents)
        return fl_fail(FLEET_ESTATE, "the stream was closed");
    return n > 0 ? FLEET_OK : FLEET_ETIMEDOUT;
}

void fl_fd_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}
