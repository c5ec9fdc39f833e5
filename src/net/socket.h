/* socket.h - sockets: one that listens and that many peers talk to (ROUTER of
 * ZeroMQ), one that is connected (DEALER), packets in and out without copies.
 * Nothing of ZeroMQ shows: <zmq.h> is in socket.c and zmq_context.c alone.
 *
 * All sockets of a process share one context, made by the first and ended with
 * the last, so that inproc:// joins handles of one process. After fork() a
 * child has none of them: calls give FLEET_ESTATE.
 *
 * Threads: a socket may go from thread to thread, with a lock in between; two
 * at once may not use it. fl_wakeup_ring() is safe anywhere, in signal handlers
 * too.
 */
#pragma once

#include "net/guard.h"
#include "net/packet.h"
#include "net/resolve.h"
#include "net/wakeup.h"

/* A peer of a listening socket, as ROUTER knows it. */
enum { FL_PEER_ID = 24 };
typedef struct fl_peer {
    uint8_t size;
    uint8_t id[FL_PEER_ID];
    int32_t sender; /* fl_guard_sender(): of a guarded socket; else 0 */
    bool is_far;    /* fl_guard_is_far(), if that is not guarded */
} fl_peer;

typedef struct fl_socket fl_socket;

/* --- listening ------------------------------------------------------------ */

fleet_status fl_socket_listen(fl_socket **s);

/* A peer by tcp needs a key that the guard knows, at each address that is
 * bound from now on. The guard outlives the socket. */
fleet_status fl_socket_guard(fl_socket *s, const fl_guard *guard);
uint64_t fl_socket_refused(fl_socket *s); /* connections, so far */

/* Bind one more address: "tcp://ip:port" (port 0 or "*": the kernel's choice),
 * "ipc:///path", "inproc://name". fd >= 0: a listening tcp socket that was
 * inherited, to be used in place of binding (ZMQ_USE_FD); it is the socket's
 * once that succeeded, and closed with it. `bound` gets the address as it is
 * now, port included; may be NULL. FLEET_EIO names the address and says what is
 * wrong: in use by another process, no such interface, or a host's name, which
 * fl_address_resolve() makes a number of. FLEET_EINVAL: not an address, no
 * listening socket. A socket that exists already at an ipc path is replaced,
 * even if a process listens at it. */
fleet_status fl_socket_bind(fl_socket *s, const char *address, int fd,
                            char bound[FL_ADDRESS_SIZE]);

/* --- connected ------------------------------------------------------------ */

/* Returns at once: whether a peer listens at the address shows by its
 * answers. */
fleet_status fl_socket_connect_as(fl_socket **s, const char *address,
                                  const fl_keys *keys, fl_key_role role,
                                  int number);

static inline fleet_status fl_socket_connect(fl_socket **s, const char *address)
{
    return fl_socket_connect_as(s, address, NULL, FL_ROLE_SERVER, 0);
}

/* The same with the keys of this process, by tcp: the peer has to be that
 * server. keys NULL: as above. */
static inline fleet_status fl_socket_connect_to(fl_socket **s,
                                                const char *address,
                                                const fl_keys *keys, int server)
{
    return fl_socket_connect_as(s, address, keys, FL_ROLE_SERVER, server);
}

/* The same, for messages that are said again and again: while the peer is away
 * a few wait for it, and to send more is FLEET_ENOENT. */
fleet_status fl_socket_connect_brief(fl_socket **s, const char *address,
                                     const fl_keys *keys, int server);

/* The same of a worker that listens. */
static inline fleet_status fl_socket_connect_worker(fl_socket **s,
                                                    const char *address,
                                                    const fl_keys *keys,
                                                    int worker)
{
    return fl_socket_connect_as(s, address, keys, FL_ROLE_WORKER, worker);
}

/* Close; what has not gone out within linger_ms is dropped. The process's last
 * socket waits for that, its other sockets do not. NULL is fine. */
void fl_socket_close(fl_socket *s, int linger_ms);

/* --- packets -------------------------------------------------------------- */

/* Send; never waits. Frames of 16 KB and more travel without a copy: the packet
 * is kept until ZeroMQ is done with them. The caller keeps its own reference.
 * to: the receiver (listening sockets only, else NULL). FLEET_ENOENT: no such
 * peer any more. FLEET_EINVAL: too many frames, or one of more than
 * FL_MOST_FRAME_BYTES, which would end the connection. */
fleet_status fl_socket_send(fl_socket *s, const fl_peer *to, fl_packet *p);

/* The next packet, with one reference, and the peer that sent it (listening;
 * `from` may be NULL for a connected one); *p NULL: there is none now. Never
 * waits. What is no message at all (too many frames, a sender with a long name)
 * is dropped and counted; a frame that is too large ends its connection. A
 * socket that is NULL has none, and nothing goes to it. */
fleet_status fl_socket_receive(fl_socket *s, fl_peer *from, fl_packet **p);

uint64_t fl_socket_dropped(const fl_socket *s); /* counted as above */

/* --- waiting -------------------------------------------------------------- */

/* Until one of the sockets has something to receive, the wakeup (NULL: none)
 * rings, which clears it, or timeout_ms are over (0: only look; -1: no end).
 * A socket may be NULL.
 * 1,025 sockets at most: a worker waits for 1,024 lanes. */
fleet_status fl_socket_wait(fl_socket *const *s, int n, const fl_wakeup *wakeup,
                            int timeout_ms);
