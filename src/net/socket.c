/* socket.c - sockets of ZeroMQ; this file, zmq_context.c, guard.c and keys.c
 * are all that knows ZeroMQ. */
#include "net/socket.h"

#include <errno.h>
#include <string.h>
#include <zmq.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/thread.h"
#include "net/guard.h"
#include "net/limits.h"
#include "net/zmq_context.h"

/* ThreadSanitizer does not see how ZeroMQ's threads hand over a message. */
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#define HANDED_OVER(data) __tsan_release(data)
#define TAKEN_OVER(data)  __tsan_acquire(data)
#else
#define HANDED_OVER(data) ((void)(data))
#define TAKEN_OVER(data)  ((void)(data))
#endif
static const char zeromq[] = "ZeroMQ";

enum {
    MOST_QUEUED = 1000,  /* of a peer's messages, before they are received */
    MOST_BRIEF = 8,      /* messages that wait for fl_socket_connect_brief() */
    MOST_IDLE = 1 << 20, /* bytes of a socket's idle packets, frames apart */
    MOST_WAIT = 2050,    /* 1,024 lanes, where each was before it moved, and a
                         wakeup, in one fl_socket_wait() */

    /* What ZeroMQ, which ends the process when it gets no memory, takes for an
     * address, and at most for a message, or whatever it does besides. */
    ADDRESS_BYTES = 1 << 20,
    CALL_BYTES = 60 << 10
};

struct fl_socket {
    void *zmq;
    bool listening;
    uint64_t generation; /* of fork() */
    uint64_t dropped;
    const fl_guard *guard; /* NULL: every peer may come */
    void *watch;           /* of connections that the guard refuses */
    uint64_t refused;
    fl_packet_pool *pool; /* of what fl_socket_receive() gives */
    char address[FL_ADDRESS_SIZE];
    zmq_msg_t part[FL_MOST_FRAME + 1]; /* of a message under way */
};

/* --- sockets -------------------------------------------------------------- */

static const struct {
    int name, value;
} options[] = {
    {ZMQ_LINGER, 0},
    {ZMQ_SNDHWM, 0}, /* flow is by byte credits, above */
    {ZMQ_RCVHWM, 0},
    {ZMQ_BACKLOG, 1024},
    {ZMQ_TCP_KEEPALIVE, 1},
    {ZMQ_TCP_KEEPALIVE_IDLE, 30}, /* seconds */
    {ZMQ_TCP_KEEPALIVE_INTVL, 10},
    {ZMQ_TCP_KEEPALIVE_CNT, 6},
    {ZMQ_CONNECT_TIMEOUT, 3000}, /* ms; then it tries again */
};

static void set_option(void *socket, int name, int value)
{
    zmq_setsockopt(socket, name, &value, sizeof value);
}

static void set_options(fl_socket *s)
{
    /* which no other peer can know; ROUTER's own numbers begin with 0 */
    const uint64_t name[2] = {fl_nonce() | 1, fl_nonce()};
    const int64_t most = FL_MOST_FRAME_BYTES;

    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        set_option(s->zmq, options[i].name, options[i].value);
    zmq_setsockopt(s->zmq, ZMQ_MAXMSGSIZE, &most, sizeof most);
    if (s->listening) {
        set_option(s->zmq, ZMQ_ROUTER_MANDATORY, 1);
        /* a peer that sends faster than it is listened to keeps the rest in its
         * own process; one that keeps to its credit has a few on their way */
        set_option(s->zmq, ZMQ_RCVHWM, MOST_QUEUED);
        /* a client that connects anew, before its old connection is known to be
         * broken, takes its name over: ROUTER would be deaf to it */
        set_option(s->zmq, ZMQ_ROUTER_HANDOVER, 1);
        /* a socket with a domain refuses peers of ZMTP 1 and 2, as none of a
         * job is: where one says its name as the socket closes,
         * process_routing_id_msg() of libzmq 4.3 ends this process */
        zmq_setsockopt(s->zmq, ZMQ_ZAP_DOMAIN, FL_GUARD_NONE,
                       sizeof FL_GUARD_NONE - 1);
    } else {
        zmq_setsockopt(s->zmq, ZMQ_ROUTING_ID, name, sizeof name);
    }
}

static fleet_status new_socket(fl_socket **s, int type)
{
    fleet_status status;

    FL_TRY(FL_NEW(s, sizeof **s));
    FL_GOTO(failed, fl_packet_pool_create(&(*s)->pool, MOST_IDLE));
    FL_GOTO(failed, fl_zmq_open(&(*s)->zmq, type));
    (*s)->generation = fl_fork_generation();
    (*s)->listening = type == ZMQ_ROUTER;
    set_options(*s);
    return FLEET_OK;
failed:
    fl_packet_pool_destroy((*s)->pool);
    fl_free(*s);
    *s = NULL;
    return status;
}

static fleet_status check_process(const fl_socket *s)
{
    if (s->generation == fl_fork_generation())
        return FLEET_OK;
    return fl_fail(FLEET_ESTATE,
                   "%s: the socket was made before fork(), in the parent",
                   s->address);
}

static const char *cause(int e, bool tcp)
{
    switch (e) {
    case EADDRINUSE:
        return tcp ? "the port is in use by another process"
                   : "the name is in use";
    case EADDRNOTAVAIL:
    case ENODEV:
        return "no interface of this machine has that address";
    case EINVAL:
        return "not an address: tcp://host:port, ipc:///path or inproc://name";
    case EPROTONOSUPPORT:
    case ENOCOMPATPROTO:
        return "not tcp://, ipc:// or inproc://";
    default:
        return zmq_strerror(e);
    }
}

static fleet_status address_failed(const char *address, int e)
{
    bool wrong = e == EINVAL || e == EPROTONOSUPPORT || e == ENOCOMPATPROTO ||
                 e == ENAMETOOLONG;

    return fl_fail(wrong ? FLEET_EINVAL : FLEET_EIO, "%s: %s", address,
                   cause(e, strncmp(address, "tcp:", 4) == 0));
}

static bool is_tcp(const char *address)
{
    return strncmp(address, "tcp:", 4) == 0;
}

static fleet_status use_address(fl_socket *s, const char *address)
{
    size_t size = strlen(address) + 1;

    if (size > sizeof s->address)
        return fl_fail(FLEET_EINVAL, "%.40s...: an address of %zu bytes",
                       address, size - 1);
    if (!fl_port_is_sound(address))
        return address_failed(address, EINVAL);
    memcpy(s->address, address, size);
    set_option(s->zmq, ZMQ_IPV6, fl_address_is_ipv6(address));
    return FLEET_OK;
}

fleet_status fl_socket_listen(fl_socket **s)
{
    return new_socket(s, ZMQ_ROUTER);
}

/* ZeroMQ would abort when it cannot accept from what it was given, and its
 * thread wait for a client that is gone again. */
static fleet_status use_inherited(fl_socket *s, int fd)
{
    if (!is_tcp(s->address) || !fl_descriptor_listens(fd))
        return fl_fail(FLEET_EINVAL,
                       "%s: descriptor %d is no listening tcp socket",
                       s->address, fd);
    fl_descriptor_prepare(fd);
    set_option(s->zmq, ZMQ_USE_FD, fd);
    return FLEET_OK;
}

fleet_status fl_socket_bind(fl_socket *s, const char *address, int fd,
                            char bound[FL_ADDRESS_SIZE])
{
    size_t size = sizeof s->address;
    int e;

    FL_TRY(check_process(s));
    FL_TRY(use_address(s, address));
    FL_TRY(fl_thread_spare(ADDRESS_BYTES, zeromq));
    if (fl_path_is_taken(address))
        return address_failed(address, EEXIST);
    if (fd >= 0)
        FL_TRY(use_inherited(s, fd));
    if (s->guard)
        fl_guard_set(s->guard, s->zmq, is_tcp(address));
    e = zmq_bind(s->zmq, address) == 0 ? 0 : errno;
    set_option(s->zmq, ZMQ_USE_FD, -1);
    if (e)
        return address_failed(address, e);
    zmq_getsockopt(s->zmq, ZMQ_LAST_ENDPOINT, s->address, &size);
    if (bound)
        memcpy(bound, s->address, sizeof s->address);
    return FLEET_OK;
}

fleet_status fl_socket_guard(fl_socket *s, const fl_guard *guard)
{
    FL_TRY(check_process(s));
    FL_TRY(fl_guard_watch(s->zmq, &s->watch));
    s->guard = guard;
    return FLEET_OK;
}

uint64_t fl_socket_refused(fl_socket *s)
{
    return s->refused += fl_guard_refused(s->watch);
}

static fleet_status connect_queue(fl_socket **s, const char *address,
                                  const fl_keys *keys, fl_key_role role,
                                  int number, int most)
{
    fleet_status status;

    FL_TRY(new_socket(s, ZMQ_DEALER));
    set_option((*s)->zmq, ZMQ_SNDHWM, most);
    status = use_address(*s, address);
    if (status == FLEET_OK && keys && is_tcp(address))
        status = fl_guard_pin(keys, role, number, (*s)->zmq);
    if (status == FLEET_OK)
        status = fl_thread_spare(ADDRESS_BYTES, zeromq);
    if (status == FLEET_OK && zmq_connect((*s)->zmq, address) != 0)
        status = address_failed(address, errno);
    if (status != FLEET_OK) {
        fl_socket_close(*s, 0);
        *s = NULL;
    }
    return status;
}

fleet_status fl_socket_connect_as(fl_socket **s, const char *address,
                                  const fl_keys *keys, fl_key_role role,
                                  int number)
{
    return connect_queue(s, address, keys, role, number, 0);
}

fleet_status fl_socket_connect_brief(fl_socket **s, const char *address,
                                     const fl_keys *keys, int server)
{
    return connect_queue(s, address, keys, FL_ROLE_SERVER, server, MOST_BRIEF);
}

void fl_socket_close(fl_socket *s, int linger_ms)
{
    if (!s)
        return;
    if (s->generation == fl_fork_generation()) {
        set_option(s->zmq, ZMQ_LINGER, linger_ms > 0 ? linger_ms : 0);
        fl_guard_unwatch(s->zmq, s->watch);
        fl_zmq_close(s->zmq);
    }
    fl_packet_pool_destroy(s->pool);
    fl_free(s);
}

/* --- sending -------------------------------------------------------------- */

static void drop_sent(void *data, void *packet)
{
    TAKEN_OVER(data);
    fl_packet_drop(packet);
}

/* A packet that is charged must live until it has left: so its first frame is
 * never copied. */
static int make_part(zmq_msg_t *part, fl_packet *p, const fl_frame *frame)
{
    if (frame->size >= FL_COPIED_BELOW || (p->ledger && frame == p->frame)) {
        HANDED_OVER(frame->data);
        if (zmq_msg_init_data(part, frame->data, frame->size, drop_sent, p) !=
            0)
            return -1;
        fl_packet_keep(p);
        return 0;
    }
    if (zmq_msg_init_size(part, frame->size) != 0)
        return -1;
    if (frame->size > 0)
        memcpy(zmq_msg_data(part), frame->data, frame->size);
    HANDED_OVER(zmq_msg_data(part));
    return 0;
}

static void close_parts(zmq_msg_t *part, int n)
{
    for (int i = 0; i < n; i++)
        zmq_msg_close(&part[i]);
}

static fleet_status check_frames(const fl_socket *s, const fl_packet *p)
{
    if (p->n_frame < 1 || p->n_frame > FL_MOST_FRAME)
        return fl_fail(FLEET_EINVAL, "%s: a packet of %d frames, not 1 to %d",
                       s->address, p->n_frame, FL_MOST_FRAME);
    for (int i = 0; i < p->n_frame; i++)
        if (p->frame[i].size > FL_MOST_FRAME_BYTES)
            return fl_fail(
                FLEET_EINVAL, "%s: frame %d has %zu bytes, more than %d",
                s->address, i, p->frame[i].size, FL_MOST_FRAME_BYTES);
    return FLEET_OK;
}

/* All before the first leaves: a message that was begun is never given up. */
static fleet_status make_parts(fl_socket *s, fl_packet *p)
{
    for (int i = 0; i < p->n_frame; i++)
        if (make_part(&s->part[i], p, &p->frame[i]) != 0) {
            close_parts(s->part, i);
            return fl_fail(FLEET_ENOMEM, "%s: no memory to send %zu bytes",
                           s->address, p->frame[i].size);
        }
    return FLEET_OK;
}

static int send_part(void *socket, zmq_msg_t *part, bool more)
{
    int flags = ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0), rc;

    do
        rc = zmq_msg_send(part, socket, flags);
    while (rc < 0 && errno == EINTR);
    return rc;
}

static int send_id(void *socket, const fl_peer *to)
{
    zmq_msg_t id;
    int rc = zmq_msg_init_size(&id, to->size);

    if (rc != 0)
        return rc;
    memcpy(zmq_msg_data(&id), to->id, to->size);
    rc = send_part(socket, &id, true);
    if (rc < 0)
        zmq_msg_close(&id);
    return rc;
}

/* An errno, or 0. Only the first part can fail: the rest of a message goes
 * where that went, or nowhere. */
static int send_parts(fl_socket *s, const fl_peer *to, int n)
{
    int rc = to ? send_id(s->zmq, to) : 0, gone = 0;

    while (rc >= 0 && gone < n) {
        rc = send_part(s->zmq, &s->part[gone], gone + 1 < n);
        gone += rc >= 0;
    }
    rc = rc < 0 ? errno : 0;
    close_parts(s->part + gone, n - gone);
    return rc;
}

fleet_status fl_socket_send(fl_socket *s, const fl_peer *to, fl_packet *p)
{
    int e;

    if (!s)
        return FLEET_OK;
    FL_TRY(check_process(s));
    FL_TRY(check_frames(s, p));
    if (s->listening != (to != NULL))
        return fl_fail(FLEET_EINVAL, "%s: %s", s->address,
                       to ? "a connected socket has one peer"
                          : "to whom? a listening socket has many peers");
    FL_TRY(make_parts(s, p));
    if (fl_memory_spare(CALL_BYTES, zeromq) != FLEET_OK) {
        close_parts(s->part, p->n_frame);
        return FLEET_ENOMEM;
    }
    e = send_parts(s, to, p->n_frame);
    if (e == EHOSTUNREACH || e == EAGAIN)
        return fl_fail(FLEET_ENOENT, "%s: the peer is gone", s->address);
    if (e)
        return fl_fail(FLEET_EIO, "%s: cannot send: %s", s->address,
                       zmq_strerror(e));
    return FLEET_OK;
}

/* --- receiving ------------------------------------------------------------ */

/* A packet that was received, in one block: parts and frames are behind it. */
typedef struct received {
    fl_packet packet; /* the first */
    fl_packet_pool *pool;
    zmq_msg_t part[];
} received;

static size_t received_size(int n)
{
    return sizeof(received) +
           (size_t)n * (sizeof(zmq_msg_t) + sizeof(fl_frame));
}

static void release_received(fl_packet *p)
{
    received *r = (received *)p;

    close_parts(r->part, p->n_frame);
    fl_packet_pool_give(r->pool, r, received_size(p->n_frame));
}

/* Takes the first n parts; without memory they are gone. */
static fleet_status wrap_parts(fl_socket *s, int n, fl_packet **p)
{
    received *r = fl_packet_pool_take(s->pool, received_size(n));
    fl_frame *frame;

    if (!r) {
        close_parts(s->part, n);
        return fl_last_code();
    }
    frame = (fl_frame *)(void *)&r->part[n];
    r->pool = s->pool;
    r->packet = (fl_packet){.refs = 1,
                            .n_frame = n,
                            .frame_capacity = n,
                            .frame = frame,
                            .release = release_received};
    for (int i = 0; i < n; i++) {
        zmq_msg_init(&r->part[i]);
        zmq_msg_move(&r->part[i], &s->part[i]);
        frame[i] =
            (fl_frame){zmq_msg_data(&r->part[i]), zmq_msg_size(&r->part[i])};
        r->packet.bytes += frame[i].size;
    }
    *p = &r->packet;
    return FLEET_OK;
}

static int receive_part(void *socket, zmq_msg_t *part)
{
    int rc;

    zmq_msg_init(part);
    do
        rc = zmq_msg_recv(part, socket, ZMQ_DONTWAIT);
    while (rc < 0 && errno == EINTR);
    if (rc < 0)
        zmq_msg_close(part); /* keeps errno: there is nothing in it */
    else
        TAKEN_OVER(zmq_msg_data(part));
    return rc;
}

/* The sender's name, before its message. */
static int receive_peer(fl_socket *s, fl_peer *from, bool *usable)
{
    zmq_msg_t id;
    size_t size;

    if (receive_part(s->zmq, &id) < 0)
        return -1;
    size = zmq_msg_size(&id);
    *usable = size <= FL_PEER_ID && zmq_msg_more(&id);
    if (*usable) {
        from->size = (uint8_t)size;
        from->sender = 0;
        from->is_far = false;
        memcpy(from->id, zmq_msg_data(&id), size);
    }
    zmq_msg_close(&id);
    return 0;
}

/* All parts of a message; *n of them are kept. */
static int receive_parts(fl_socket *s, int *n, bool *usable)
{
    bool more = true;

    for (*n = 0; more; ++*n) {
        zmq_msg_t *part;

        if (*n > FL_MOST_FRAME) /* the last place is for what is too much */
            zmq_msg_close(&s->part[--*n]);
        part = &s->part[*n];
        if (receive_part(s->zmq, part) < 0)
            return -1;
        more = zmq_msg_more(part);
        *usable = *usable && *n < FL_MOST_FRAME &&
                  zmq_msg_size(part) <= FL_MOST_FRAME_BYTES;
    }
    return 0;
}

fleet_status fl_socket_receive(fl_socket *s, fl_peer *from, fl_packet **p)
{
    fl_peer somebody;

    *p = NULL;
    if (!s)
        return FLEET_OK;
    FL_TRY(check_process(s));
    FL_TRY(fl_memory_spare(CALL_BYTES, zeromq));
    for (;;) {
        bool usable = true;
        int n = 0, rc = 0;

        if (s->listening)
            rc = receive_peer(s, from ? from : &somebody, &usable);
        if (rc == 0)
            rc = receive_parts(s, &n, &usable);
        if (rc != 0 && errno != EAGAIN)
            return fl_fail(FLEET_EIO, "%s: cannot receive: %s", s->address,
                           zmq_strerror(errno));
        if (n == 0)
            return FLEET_OK;
        if (usable) {
            if (s->guard && from)
                from->sender = fl_guard_sender(&s->part[0]);
            else if (from)
                from->is_far = fl_guard_is_far(&s->part[0]);
            return wrap_parts(s, n, p);
        }
        close_parts(s->part, n);
        s->dropped++;
    }
}

uint64_t fl_socket_dropped(const fl_socket *s)
{
    return s->dropped;
}

/* --- waiting -------------------------------------------------------------- */

static int poll_until(zmq_pollitem_t *item, int n, int timeout_ms)
{
    int64_t end = fl_now_ms() + timeout_ms;
    int64_t left = timeout_ms;
    int rc;

    while ((rc = zmq_poll(item, n, (long)left)) < 0 && errno == EINTR)
        if (timeout_ms >= 0) {
            left = end - fl_now_ms();
            left = left > 0 ? left : 0;
        }
    return rc;
}

static int count_sockets(fl_socket *const *s, int all)
{
    int n = all < 0 ? all : 0;

    for (int i = 0; i < all; i++)
        n += s[i] != NULL;
    return n;
}

fleet_status fl_socket_wait(fl_socket *const *s, int n, const fl_wakeup *wakeup,
                            int timeout_ms)
{
    zmq_pollitem_t item[MOST_WAIT];
    int all = n;

    n = count_sockets(s, all);
    if (n < 0 || n >= MOST_WAIT)
        return fl_fail(FLEET_EINVAL, "cannot wait for %d sockets, 0 to %d", n,
                       MOST_WAIT - 1);
    FL_TRY(fl_memory_spare(CALL_BYTES, zeromq));
    for (int i = 0, k = 0; i < all; i++) {
        if (!s[i])
            continue;
        FL_TRY(check_process(s[i]));
        item[k++] = (zmq_pollitem_t){.socket = s[i]->zmq, .events = ZMQ_POLLIN};
    }
    if (wakeup)
        item[n] = (zmq_pollitem_t){.fd = wakeup->fd, .events = ZMQ_POLLIN};
    if (poll_until(item, n + (wakeup != NULL),
                   timeout_ms < 0 ? -1 : timeout_ms) < 0)
        return fl_fail(FLEET_EIO, "cannot wait for messages: %s",
                       zmq_strerror(errno));
    if (wakeup && item[n].revents)
        fl_wakeup_clear(wakeup);
    return FLEET_OK;
}
