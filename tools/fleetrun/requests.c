/* requests.c - a socket of datagrams: no request waits for another one, and
 * fleetrun for none. */
#include "requests.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

fleet_status run_requests_open(const char *folder, int *fd)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};

    snprintf(at.sun_path, sizeof at.sun_path, "%s/%s", folder, RUN_REQUESTS);
    *fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd >= 0 && bind(*fd, (struct sockaddr *)&at, sizeof at) == 0)
        return FLEET_OK;
    return fl_fail(FLEET_EIO, "cannot listen at %s: %s", at.sun_path,
                   strerror(errno));
}

bool run_requests_receive(int fd, run_request *r)
{
    ssize_t n;

    r->from_size = sizeof r->from;
    n = recvfrom(fd, r->words, sizeof r->words - 1, MSG_DONTWAIT,
                 (struct sockaddr *)&r->from, &r->from_size);
    if (n < 0)
        return false;
    r->words[n] = 0;
    return true;
}

/* Who does not wait for it any more does not get it. */
void run_requests_answer(int fd, const run_request *r, const char *words)
{
    sendto(fd, words, strlen(words), MSG_DONTWAIT | MSG_NOSIGNAL,
           (const struct sockaddr *)&r->from, r->from_size);
}
