/* feed_io.c - the sockets of a subscriber. */
#include "ps/feed/feed_io.h"

#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/thread.h"
#include "net/socket.h"
#include "ps/feed/feed_offset.h"
#include "ps/locality.h"

enum {
    IDLE_BYTES = 1 << 20,
    MOST_SOCKET = 1024,
    LINGER_MS = 500 /* for what tells lanes that they may end */
};

struct fl_feed_io {
    uint64_t generation; /* of the process, see fl_fork_generation() */
    fl_address *address;
    char *job;
    char locality[160];
    const fl_keys *keys;
    fl_packet_pool *pool;
    fl_feed_client *client;
    fl_socket *socket[MOST_SOCKET]; /* as the client numbers them */
    int n_socket;
    bool missed; /* the caller has heard that a server is silent */
};

static void send_packet(void *arg, int socket, fl_packet *p)
{
    fl_feed_io *io = arg;

    fl_socket_send(io->socket[socket], NULL, p); /* a lost one is sent again */
}

static fleet_status connect_socket(void *arg, int socket, const char *address,
                                   int server)
{
    fl_feed_io *io = arg;

    if (socket >= MOST_SOCKET)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "a feed of servers with more than %d lanes",
                       MOST_SOCKET);
    fl_socket_close(io->socket[socket], 0);
    io->socket[socket] = NULL;
    FL_TRY(
        fl_socket_connect_to(&io->socket[socket], address, io->keys, server));
    io->n_socket = socket < io->n_socket ? io->n_socket : socket + 1;
    return FLEET_OK;
}

static void receive_all(fl_feed_io *io)
{
    for (int i = 0; i < io->n_socket; i++) {
        fl_packet *p;

        while (io->socket[i] &&
               fl_socket_receive(io->socket[i], NULL, &p) == FLEET_OK && p) {
            fl_feed_client_receive(io->client, i, p, fl_now_ms());
            fl_packet_drop(p);
        }
    }
}

static fleet_status wait_for_packets(fl_feed_io *io, int64_t ms)
{
    fl_socket *all[MOST_SOCKET];
    int n = 0;

    for (int i = 0; i < io->n_socket; i++)
        if (io->socket[i])
            all[n++] = io->socket[i];
    return fl_socket_wait(all, n, NULL, (int)ms);
}

/* Empty answers are of no interest, but for the last one, of a walk or of
 * all. */
static bool find_batch(fl_feed_io *io, fleet_feed_batch *batch)
{
    bool walked;

    while (fl_feed_client_next(io->client, batch, &walked, fl_now_ms()))
        if (batch->n_part > 0 || batch->begins || walked || batch->over)
            return true;
    return false;
}

/* A silent server is told of at once, and then at the end of each call, so that
 * a caller which goes on does not spin. *waits: go on with this call. */
static fleet_status look_for_silence(fl_feed_io *io, bool left, bool *waits)
{
    fleet_status status = fl_feed_client_status(io->client, fl_now_ms());
    bool missed = io->missed;

    io->missed = status == FLEET_ETIMEDOUT;
    *waits = left && (status == FLEET_OK || (io->missed && missed));
    return *waits ? FLEET_OK : status;
}

fleet_status fl_feed_io_next(fl_feed_io *io, int64_t timeout_ms,
                             fleet_feed_batch *batch, bool *came)
{
    fl_wait wait = fl_wait_for(timeout_ms);
    int64_t ms;
    bool waits;

    *came = false;
    if (io->generation != fl_fork_generation())
        return fl_fail(FLEET_ESTATE, "a feed cannot be used after fork()");
    for (;;) {
        receive_all(io);
        *came = find_batch(io, batch);
        ms = fl_feed_client_tick(io->client, fl_now_ms());
        if (*came)
            return FLEET_OK;
        if (fl_feed_client_is_over(io->client))
            return fl_fail(FLEET_EEND, "the feed is over: the job has ended");
        FL_TRY(look_for_silence(io, fl_wait_left(&wait) != 0, &waits));
        if (!waits)
            return FLEET_OK;
        if (ms > fl_wait_nap(&wait))
            ms = fl_wait_nap(&wait);
        FL_TRY(wait_for_packets(io, ms));
    }
}

fl_feed_client *fl_feed_io_client(const fl_feed_io *io)
{
    return io->client;
}

static fleet_status open_all(fl_feed_io *io, const fl_feed_options *o,
                             const char *offset)
{
    const fl_feed_host host = {io, send_packet, connect_socket};
    size_t bytes = (size_t)o->n_server * sizeof *io->address;
    fl_feed_options whole = *o;

    FL_TRY(FL_NEW(&io->address, bytes));
    memcpy(io->address, o->address, bytes);
    io->job = fl_strdup(o->job);
    FL_TRY(io->job ? FLEET_OK : FLEET_ENOMEM);
    fl_locality_text(io->locality);
    FL_TRY(fl_packet_pool_create(&io->pool, IDLE_BYTES));
    whole.address = (const fl_address *)io->address;
    whole.job = io->job;
    whole.locality = io->locality;
    whole.incarnation = (uint32_t)fl_nonce() | 1;
    whole.pool = io->pool;
    FL_TRY(fl_feed_client_create(&io->client, &whole, &host, fl_now_ms()));
    if (offset)
        FL_TRY(fl_feed_offset_resume(io->client, offset));
    for (int i = 0; i < o->n_server; i++)
        FL_TRY(connect_socket(io, i, io->address[i], i));
    return FLEET_OK;
}

fleet_status fl_feed_io_create(fl_feed_io **io, const fl_feed_options *o,
                               const fl_keys *keys, const char *offset)
{
    fleet_status status;
    fl_error error;

    FL_TRY(FL_NEW(io, sizeof **io));
    (*io)->generation = fl_fork_generation();
    (*io)->keys = keys;
    status = open_all(*io, o, offset);
    fl_error_take(&error, status);
    if (status != FLEET_OK) {
        fl_feed_io_destroy(*io);
        *io = NULL;
    }
    return fl_error_raise(&error);
}

void fl_feed_io_destroy(fl_feed_io *io)
{
    int linger_ms = 0;

    if (!io)
        return;
    if (io->client && fl_feed_client_is_over(io->client))
        linger_ms = LINGER_MS;
    for (int i = 0; i < io->n_socket; i++)
        fl_socket_close(io->socket[i], linger_ms);
    fl_feed_client_destroy(io->client);
    fl_packet_pool_destroy(io->pool);
    fl_free(io->address);
    fl_free(io->job);
    fl_free(io);
}
