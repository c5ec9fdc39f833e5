/* wakeup.c - a wakeup is an eventfd, which sockets are polled beside. */
#include "net/wakeup.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

fleet_status fl_wakeup_create(fl_wakeup *w)
{
    w->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (w->fd < 0)
        return fl_fail(FLEET_EIO, "cannot make an eventfd: %s",
                       strerror(errno));
    return FLEET_OK;
}

void fl_wakeup_destroy(fl_wakeup *w)
{
    if (w->fd >= 0)
        close(w->fd);
    w->fd = -1;
}

/* In a signal handler, too: errno stays. EAGAIN is a bell that rings
 * already. */
void fl_wakeup_ring(const fl_wakeup *w)
{
    const uint64_t one = 1;
    int e = errno;

    while (write(w->fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
    errno = e;
}

void fl_wakeup_clear(const fl_wakeup *w)
{
    uint64_t count;

    while (read(w->fd, &count, sizeof count) < 0 && errno == EINTR)
        ;
}
