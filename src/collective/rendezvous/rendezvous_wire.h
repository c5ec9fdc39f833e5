/* rendezvous_wire.h - how ranks find each other without a launcher's help, and
 * what they send each other beside their data: over TCP, to a server, which is
 * a thread of rank 0. This header has what both sides share: addresses,
 * sockets, frames; the server is in rendezvous_server.h, a rank's side in
 * rendezvous_client.h.
 *
 * Each rank, rank 0 too, has one connection to the server. With keys both sides
 * first agree on how to seal it (rendezvous_seal.h), and all that follows is
 * sealed; rank 0's own connection stays within its process, in clear. A rank
 * begins with its handshake: a rank of another job or version, or with a number
 * that another rank has, is refused, and both sides report it. Then frames:
 *
 *   CALL      what a rank is about to do; once the server has all ranks' calls
 *             it compares them and sends CALLS to all ranks
 *   POST      a message that a rank sends or expects; MATCHED to both once
 *             both ranks have posted it
 *   FAILURE   a rank's failure, which all other ranks get; the server has
 *             failures of its own, too: a rank is gone, or has not come by the
 *             deadline
 *   LEAVE     a rank ends its communicator
 *
 * CALLS and MATCHED come to all ranks in one order. A rank that follows it
 * cannot wait for a rank that waits for it.
 *
 * Nothing that comes is trusted: sizes are bounded, what makes no sense ends
 * the connection. Numbers are in the order of bytes that both sides have: a
 * handshake of the other order has another magic number.
 */
#pragma once

#include <stddef.h>

#include "collective/comm_call.h"
#include "collective/rendezvous/rendezvous_seal.h"

enum {
    FL_RENDEZVOUS_VERSION = 2,
    FL_RENDEZVOUS_TEXT = 800,
    FL_RENDEZVOUS_NAME = 128
};
#define FL_RENDEZVOUS_MAGIC UINT64_C(0x746565666c6c66)

typedef enum fl_rendezvous_kind {
    FL_RENDEZVOUS_NONE,
    FL_RENDEZVOUS_CALL,    /* an fl_call and more */
    FL_RENDEZVOUS_CALLS,   /* of each rank: uint32_t bytes, its call and more */
    FL_RENDEZVOUS_POST,    /* fl_post */
    FL_RENDEZVOUS_MATCHED, /* fl_post */
    FL_RENDEZVOUS_FAILURE, /* int32_t code, text */
    FL_RENDEZVOUS_LEAVE,   /* nothing */
    FL_RENDEZVOUS_READY, /* uint64_t FL_RENDEZVOUS_MAGIC: all ranks have come */
    FL_N_RENDEZVOUS_KIND
} fl_rendezvous_kind;

typedef struct fl_rendezvous_frame {
    uint32_t kind, bytes;
} fl_rendezvous_frame;

typedef struct fl_post {
    int32_t way, rank; /* FL_OUT, FL_IN; the other rank */
    int64_t n;
} fl_post;

/* What a rank sends first. The server checks magic and version before it reads
 * on. */
typedef struct fl_rendezvous_handshake {
    uint64_t magic;
    uint32_t version;
    int32_t rank, size, ordered;
    char job[FL_RENDEZVOUS_NAME];
    char host[40]; /* of this start of this machine */
    char bus[32];  /* the GPU on its bus; "": none that counts */
} fl_rendezvous_handshake;

typedef struct fl_rendezvous_options {
    fl_rendezvous_handshake own;
    const char *address; /* "tcp://ip:port" */
    int listener;        /* rank 0's, or 0 */
    int64_t connect_ms;  /* until all ranks have come */
    int64_t deadline_ms;
    const fl_rank_keys *keys; /* of own.size ranks; NULL: any peer may come */
    struct fl_log *log;
} fl_rendezvous_options;

/* Bytes of a call and what may follow it. */
size_t fl_rendezvous_most_call(int size);

/* --- sockets -------------------------------------------------------------- */

/* A listening socket; FLEET_EIO names the address. Port 0: the kernel's choice,
 * which `bound` then has. */
fleet_status fl_rendezvous_listen(const char *address, int *fd,
                                  char bound[FL_RENDEZVOUS_NAME]);

/* One try to reach the address within ms; fd -1, and errno, if it fails.
 * FLEET_EINVAL: no address. */
fleet_status fl_rendezvous_connect(const char *address, int64_t ms, int *fd);

/* "10.0.0.1:4711", of this end or the remote one. */
void fl_rendezvous_name(int fd, bool remote, char name[FL_RENDEZVOUS_NAME]);

/* Send n bytes, sealed unless seal is NULL. Both sides read all the time:
 * false, the connection has ended, or takes nothing for 2 seconds. */
bool fl_rendezvous_write(int fd, fl_seal *seal, const void *p, size_t n);

/* --- frames --------------------------------------------------------------- */

bool fl_rendezvous_send(int fd, fl_seal *seal, fl_rendezvous_kind kind,
                        const void *a, size_t n_a, const void *b, size_t n_b);
bool fl_rendezvous_send_failure(int fd, fl_seal *seal, const fl_error *e);

/* A failure as it was sent; of `bytes` that are long enough, or not. */
fleet_status fl_rendezvous_failure(const char *bytes, size_t n);

/* Bytes that have come and are not whole yet. */
typedef struct fl_inbox {
    char *data;
    size_t n, room;
    fl_seal *seal;  /* by which they come; NULL: in clear */
    bool is_forged; /* what came was not sealed by the peer: no more is read */
} fl_inbox;

fleet_status fl_inbox_make(fl_inbox *in, size_t room);

/* For another connection. */
void fl_inbox_reset(fl_inbox *in);

/* Read what has come: false when the connection has ended, or is forged. */
bool fl_inbox_read(fl_inbox *in, int fd);

/* The first frame, if it is whole, and where its bytes are; FL_RENDEZVOUS_NONE:
 * not yet. False: it cannot be one. */
bool fl_inbox_frame(const fl_inbox *in, fl_rendezvous_frame *f,
                    const char **bytes);
void fl_inbox_drop(fl_inbox *in, size_t n);

/* The first frame of that kind, perhaps behind other frames. */
bool fl_inbox_find(const fl_inbox *in, fl_rendezvous_kind kind,
                   fl_rendezvous_frame *f, const char **bytes);
