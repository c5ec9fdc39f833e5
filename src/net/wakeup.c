/* wakeup.c - a bell is an eventfd; see socket.h. */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "net/socket.h"

fleet_status fl_wakeup_create(fl_wakeup *b)
{
    b->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (b->fd < 0)
        return fl_fail(FLEET_EIO, "cannot make an eventfd: %s",
                       strerror(errno));
    return FLEET_OK;
}

void fl_wakeup_destroy(fl_wakeup *b)
{
    if (b->fd >= 0)
        close(b->fd);
    b->fd = -1;
}

/* In a signal handler, too: errno stays. EAGAIN is a bell that rings already.
 */
void fl_wakeup_ring(const fl_wakeup *b)
{
    const uint64_t one = 1;
    int e = errno;

    while (write(b->fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
    errno = e;
}

void fl_wakeup_clear(const fl_wakeup *b)
{
    uint64_t count;

    while (read(b->fd, &count, sizeof count) < 0 && errno == EINTR)
        ;
}
