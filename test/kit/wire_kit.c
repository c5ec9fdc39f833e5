/* wire_kit.c - see wire_kit.h. */
#define _GNU_SOURCE
#define SUITE wire_kit
#include "wire_kit.h"
#include "test.h"

#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST_LINKS = 16, LOOK_MS = 20, HANG_UP_MS = 20000 };

static void keep(wire_record *r, const char *bytes, size_t n)
{
    while (r->n + n > r->capacity) {
        r->capacity = r->capacity ? 2 * r->capacity : 1 << 16;
        r->bytes = realloc(r->bytes, r->capacity);
        CHECK(r->bytes);
    }
    memcpy(r->bytes + r->n, bytes, n);
    r->n += n;
}

/* --- the stranger --------------------------------------------------------- */

int wire_connect(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
    return fd;
}

void wire_say(int fd, const void *bytes, size_t n)
{
    (void)!send(fd, bytes, n, MSG_NOSIGNAL);
}

void wire_greet_as(int fd, const void *name, size_t size)
{
    static const char greeting[64] = "\xff\0\0\0\0\0\0\0\0\x7f\3\0NULL";
    char ready[255] = "\4\0\5READY\x0bSocket-Type\0\0\0\6DEALER"
                      "\x08Identity\0\0\0";
    enum { BEFORE_SIZE = 42 };

    CHECK(size <= 200);
    ready[1] = (char)(BEFORE_SIZE - 1 + size);
    ready[BEFORE_SIZE] = (char)size;
    if (size > 0)
        memcpy(ready + BEFORE_SIZE + 1, name, size);
    wire_say(fd, greeting, sizeof greeting);
    wire_say(fd, ready, BEFORE_SIZE + 1 + size);
}

void wire_greet(int fd)
{
    wire_greet_as(fd, NULL, 0);
}

void wire_hear(int fd, void *to, size_t n)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    for (size_t have = 0; have < n;) {
        ssize_t k;

        CHECK(poll(&p, 1, HANG_UP_MS * TEST_SLOWNESS) == 1);
        k = read(fd, (char *)to + have, n - have);
        CHECK(k > 0);
        have += (size_t)k;
    }
}

void wire_hear_greeting(int fd)
{
    unsigned char greeting[64], command[2], body[255];

    wire_hear(fd, greeting, sizeof greeting);
    wire_hear(fd, command, sizeof command);
    CHECK(command[0] == 4); /* READY */
    wire_hear(fd, body, command[1]);
}

void wire_say_frame(int fd, const void *bytes, size_t n, bool more)
{
    unsigned char head[9] = {(unsigned char)(2 | more)};

    for (int i = 0; i < 8; i++)
        head[1 + i] = (unsigned char)(n >> (56 - 8 * i));
    wire_say(fd, head, sizeof head);
    wire_say(fd, bytes, n);
}

void wire_hear_end(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char bytes[4096];

    for (;;) {
        CHECK(poll(&p, 1, HANG_UP_MS * TEST_SLOWNESS) == 1);
        if (read(fd, bytes, sizeof bytes) <= 0)
            break;
    }
    close(fd);
}

/* --- the proxy ------------------------------------------------------------ */

typedef struct links {
    struct pollfd p[1 + 2 * MOST_LINKS]; /* the listener, then pairs */
    int n;
} links;

static void accept_link(wire *w, links *l)
{
    int client = accept4(w->listener, NULL, NULL, SOCK_CLOEXEC);

    if (client < 0)
        return;
    CHECK(l->n < 1 + 2 * MOST_LINKS);
    l->p[l->n++] = (struct pollfd){.fd = client, .events = POLLIN};
    l->p[l->n++] =
        (struct pollfd){.fd = wire_connect(w->to_port), .events = POLLIN};
}

static void close_link(links *l, int i)
{
    int first = i % 2 ? i : i - 1;

    for (int k = first; k < first + 2; k++) {
        close(l->p[k].fd);
        l->p[k].fd = -1;
        l->p[k].revents = 0;
    }
}

/* Of the last n bytes that the first client has said. */
static void spoil_byte(wire *w, char *bytes, size_t n)
{
    int64_t at = w->spoil_at - (int64_t)(w->first.n - n);

    if (w->spoil_at < 0 || at < 0 || at >= (int64_t)n)
        return;
    bytes[at] ^= 4;
    w->spoil_at = -1;
}

static bool must_repeat(wire *w)
{
    bool must = w->repeat_at >= 0 && (int64_t)w->first.n > w->repeat_at;

    if (must)
        w->repeat_at = -1;
    return must;
}

static void send_on(int to, const char *bytes, ssize_t n)
{
    for (ssize_t sent = 0, k = 0; sent < n && k >= 0; sent += k)
        k = send(to, bytes + sent, (size_t)(n - sent), MSG_NOSIGNAL);
}

static void pass_on(wire *w, links *l, int i)
{
    char bytes[1 << 16];
    int to = l->p[i % 2 ? i + 1 : i - 1].fd;
    ssize_t n = read(l->p[i].fd, bytes, sizeof bytes);

    if (n <= 0) {
        close_link(l, i);
        return;
    }
    keep(&w->all, bytes, (size_t)n);
    if (i == 1) {
        keep(&w->first, bytes, (size_t)n);
        spoil_byte(w, bytes, (size_t)n);
    }
    send_on(to, bytes, n);
    if (i == 1 && must_repeat(w))
        send_on(to, bytes, n);
}

static void *run_wire(void *arg)
{
    wire *w = arg;
    links l = {.p = {{.fd = w->listener, .events = POLLIN}}, .n = 1};

    while (!atomic_load(&w->stop)) {
        int n = l.n;

        poll(l.p, (nfds_t)n, LOOK_MS);
        for (int i = 1; i < n; i++)
            if (l.p[i].fd >= 0 && l.p[i].revents)
                pass_on(w, &l, i);
        if (l.p[0].revents)
            accept_link(w, &l);
    }
    for (int i = 1; i < l.n; i += 2)
        close_link(&l, i);
    return NULL;
}

void wire_listen(wire *w, int to_port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;

    memset(w, 0, sizeof *w);
    w->to_port = to_port;
    w->spoil_at = w->repeat_at = -1;
    w->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(w->listener >= 0 &&
          bind(w->listener, (struct sockaddr *)&a, size) == 0 &&
          listen(w->listener, 100) == 0 &&
          getsockname(w->listener, (struct sockaddr *)&a, &size) == 0);
    w->port = ntohs(a.sin_port);
}

void wire_start(wire *w)
{
    CHECK(pthread_create(&w->thread, NULL, run_wire, w) == 0);
}

void wire_open(wire *w, int to_port)
{
    wire_listen(w, to_port);
    wire_start(w);
}

void wire_close(wire *w)
{
    atomic_store(&w->stop, true);
    pthread_join(w->thread, NULL);
    close(w->listener);
}

void wire_done(wire *w)
{
    free(w->first.bytes);
    free(w->all.bytes);
}

bool wire_has(const wire *w, const void *bytes, size_t n)
{
    return memmem(w->all.bytes, w->all.n, bytes, n) != NULL;
}
