/* rendezvous_wire.c - addresses, sockets and frames of both sides. */
#include "collective/rendezvous/rendezvous_wire.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memory.h"

enum { SEND_MS = 2000, BACKLOG = 128 };

size_t fl_rendezvous_most_call(int size)
{
    size_t counts = 2 * (size_t)size * sizeof(int64_t);
    size_t least = 2 * FL_RENDEZVOUS_NAME;

    return sizeof(fl_call) + (counts > least ? counts : least);
}

/* --- addresses ----------------------------------------------------------- */

/* "tcp://1.2.3.4:5", "tcp://[::1]:5"; for freeaddrinfo(). */
static fleet_status parse_address(const char *address, bool listens,
                                  struct addrinfo **found)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    const char *at = address ? address : "", *port = strrchr(at, ':');
    char host[FL_RENDEZVOUS_NAME];
    size_t n;

    if (strncmp(at, "tcp://", 6) == 0)
        at += 6;
    n = port && port > at ? (size_t)(port - at) : 0;
    if (n > 1 && at[0] == '[' && at[n - 1] == ']') {
        at++;
        n -= 2;
    }
    snprintf(host, sizeof host, "%.*s", (int)n, at);
    if (listens)
        hints.ai_flags |= AI_PASSIVE;
    if (n == 0 || n >= sizeof host ||
        getaddrinfo(host, port + 1, &hints, found) != 0)
        return fl_fail(
            FLEET_EINVAL,
            "ranks cannot meet at \"%.200s\": expected tcp://ip:port",
            address ? address : "");
    return FLEET_OK;
}

void fl_rendezvous_name(int fd, bool remote, char name[FL_RENDEZVOUS_NAME])
{
    struct sockaddr_storage a = {0};
    socklen_t n = sizeof a;
    char host[64] = "?", port[8] = "?";

    if ((remote ? getpeername(fd, (struct sockaddr *)&a, &n)
                : getsockname(fd, (struct sockaddr *)&a, &n)) == 0)
        getnameinfo((struct sockaddr *)&a, n, host, sizeof host, port,
                    sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(name, FL_RENDEZVOUS_NAME, strchr(host, ':') ? "[%s]:%s" : "%s:%s",
             host, port);
}

fleet_status fl_rendezvous_listen(const char *address, int *fd,
                                  char bound[FL_RENDEZVOUS_NAME])
{
    struct addrinfo *a;
    int yes = 1, e = 0;

    FL_TRY(parse_address(address, true, &a));
    *fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd >= 0)
        setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (*fd < 0 || bind(*fd, a->ai_addr, a->ai_addrlen) != 0 ||
        listen(*fd, BACKLOG) != 0)
        e = errno;
    freeaddrinfo(a);
    if (e) {
        if (*fd >= 0)
            close(*fd);
        *fd = -1;
        return fl_fail(FLEET_EIO, "rank 0 cannot listen at %s: %s", address,
                       strerror(e));
    }
    fl_rendezvous_name(*fd, false, bound);
    return FLEET_OK;
}

static bool is_connected(int fd, int64_t ms)
{
    struct pollfd one = {.fd = fd, .events = POLLOUT};
    socklen_t n = sizeof errno;
    int e = ETIMEDOUT;

    if (poll(&one, 1, (int)ms) == 1 &&
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &n) != 0)
        e = errno;
    errno = e;
    return e == 0;
}

fleet_status fl_rendezvous_connect(const char *address, int64_t ms, int *fd)
{
    struct addrinfo *a;
    int e, yes = 1;
    bool ok;

    FL_TRY(parse_address(address, false, &a));
    *fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ok = *fd >= 0 && (connect(*fd, a->ai_addr, a->ai_addrlen) == 0 ||
                      (errno == EINPROGRESS && is_connected(*fd, ms)));
    e = errno;
    freeaddrinfo(a);
    if (ok) {
        setsockopt(*fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        return FLEET_OK;
    }
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    errno = e;
    return FLEET_OK;
}

/* --- frames -------------------------------------------------------------- */

static bool send_bytes(int fd, const void *p, size_t n)
{
    const char *at = p;

    while (n > 0) {
        ssize_t sent = send(fd, at, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        struct pollfd one = {.fd = fd, .events = POLLOUT};

        if (sent > 0) {
            at += sent;
            n -= (size_t)sent;
        } else if (errno != EINTR &&
                   ((errno != EAGAIN && errno != EWOULDBLOCK) ||
                    poll(&one, 1, SEND_MS) != 1))
            return false;
    }
    return true;
}

bool fl_rendezvous_write(int fd, fl_seal *seal, const void *p, size_t n)
{
    uint8_t record[FL_SEAL_RECORD];
    const char *at = p;

    if (!seal)
        return send_bytes(fd, p, n);
    for (size_t i = 0; i < n; i += FL_SEAL_MOST) {
        size_t part = n - i < FL_SEAL_MOST ? n - i : FL_SEAL_MOST;

        if (!send_bytes(fd, record, fl_seal_wrap(seal, at + i, part, record)))
            return false;
    }
    return true;
}

bool fl_rendezvous_send(int fd, fl_seal *seal, fl_rendezvous_kind kind,
                        const void *a, size_t n_a, const void *b, size_t n_b)
{
    char small[512];
    fl_rendezvous_frame f = {(uint32_t)kind, (uint32_t)(n_a + n_b)};
    size_t n = sizeof f + n_a + n_b;

    memcpy(small, &f, sizeof f);
    if (n > sizeof small)
        return fl_rendezvous_write(fd, seal, &f, sizeof f) &&
               fl_rendezvous_write(fd, seal, a, n_a) &&
               fl_rendezvous_write(fd, seal, b, n_b);
    if (n_a > 0)
        memcpy(small + sizeof f, a, n_a);
    if (n_b > 0)
        memcpy(small + sizeof f + n_a, b, n_b);
    return fl_rendezvous_write(fd, seal, small, n);
}

bool fl_rendezvous_send_failure(int fd, fl_seal *seal, const fl_error *e)
{
    int32_t code = (int32_t)e->code;
    size_t n = strnlen(e->text, FL_RENDEZVOUS_TEXT - 1);

    return fl_rendezvous_send(fd, seal, FL_RENDEZVOUS_FAILURE, &code,
                              sizeof code, e->text, n);
}

fleet_status fl_rendezvous_failure(const char *bytes, size_t n)
{
    int32_t code = 0;

    if (n >= sizeof code)
        memcpy(&code, bytes, sizeof code);
    if (code <= FLEET_OK || code > FLEET_ENODEVICE)
        return fl_fail(FLEET_EPEER, "a rank has failed and does not say how");
    return fl_fail((fleet_status)code, "%.*s", (int)(n - sizeof code),
                   bytes + sizeof code);
}

/* --- what comes ----------------------------------------------------------- */

/* A record that begins within the room opens as a whole. */
fleet_status fl_inbox_make(fl_inbox *in, size_t room)
{
    *in = (fl_inbox){.room = room};
    return FL_NEW(&in->data, room + FL_SEAL_MOST);
}

void fl_inbox_reset(fl_inbox *in)
{
    in->n = 0;
    in->seal = NULL;
    in->is_forged = false;
}

/* Whether a connection goes on of which recv() has given n. */
static bool goes_on(ssize_t n)
{
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK ||
                               errno == EINTR));
}

static bool read_sealed(fl_inbox *in, int fd)
{
    while (in->n < in->room && !in->is_forged) {
        size_t missing;
        uint8_t *at = fl_seal_room(in->seal, &missing);
        ssize_t n = recv(fd, at, missing, MSG_DONTWAIT);

        if (n <= 0)
            return goes_on(n);
        in->is_forged =
            !fl_seal_open(in->seal, (size_t)n, in->data + in->n, &in->n);
    }
    return !in->is_forged;
}

bool fl_inbox_read(fl_inbox *in, int fd)
{
    ssize_t n;

    if (in->seal)
        return read_sealed(in, fd);
    if (in->n == in->room)
        return true;
    n = recv(fd, in->data + in->n, in->room - in->n, MSG_DONTWAIT);
    if (n > 0)
        in->n += (size_t)n;
    return goes_on(n);
}

bool fl_inbox_frame(const fl_inbox *in, fl_rendezvous_frame *f,
                    const char **bytes)
{
    *bytes = in->data + sizeof *f;
    if (in->n >= sizeof *f) {
        memcpy(f, in->data, sizeof *f);
        if (f->kind == FL_RENDEZVOUS_NONE || f->kind >= FL_N_RENDEZVOUS_KIND ||
            f->bytes > in->room - sizeof *f)
            return false;
        if (in->n >= sizeof *f + f->bytes)
            return true;
    }
    f->kind = FL_RENDEZVOUS_NONE;
    return true;
}

bool fl_inbox_find(const fl_inbox *in, fl_rendezvous_kind kind,
                   fl_rendezvous_frame *f, const char **bytes)
{
    fl_inbox rest = *in;

    while (fl_inbox_frame(&rest, f, bytes) && f->kind != FL_RENDEZVOUS_NONE) {
        size_t n = sizeof *f + f->bytes;

        if (f->kind == (uint32_t)kind)
            return true;
        rest.data += n;
        rest.room -= n;
        rest.n -= n;
    }
    return false;
}

void fl_inbox_drop(fl_inbox *in, size_t n)
{
    in->n -= n;
    memmove(in->data, in->data + n, in->n);
}
