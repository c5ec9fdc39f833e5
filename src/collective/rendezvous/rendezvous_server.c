/* rendezvous_server.c - the server's thread, and what ranks send each other
 * through it. */
#include "collective/rendezvous/rendezvous_server.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "collective/rendezvous/rendezvous_accept.h"

enum { LINGER_MS = 2000 }; /* of the server, after rank 0 has left */

/* --- failure ------------------------------------------------------------- */

void fl_rendezvous_server_fail(fl_rendezvous_server *s, fleet_status code,
                               const fl_connection *from)
{
    if (s->failed)
        return;
    fl_error_take(&s->error, code);
    s->failed = true;
    for (int r = 0; r < s->size; r++)
        if (s->rank[r] && s->rank[r] != from)
            fl_rendezvous_send_failure(s->rank[r]->fd, s->rank[r]->in.seal,
                                       &s->error);
}

void fl_rendezvous_server_send(const fl_connection *c, fl_rendezvous_kind kind,
                               const void *bytes, size_t n)
{
    fl_rendezvous_send(c->fd, c->in.seal, kind, bytes, n, NULL, 0);
}

void fl_rendezvous_server_drop(fl_rendezvous_server *s, fl_connection *c)
{
    shutdown(c->fd, SHUT_WR);
    close(c->fd);
    c->fd = -1;
    if (c->rank >= 0)
        s->rank[c->rank] = NULL;
}

static void fail_nonsense(fl_rendezvous_server *s, fl_connection *c)
{
    fl_fail(FLEET_EPEER, "rank %d at %s talks nonsense", c->rank, c->name);
    fl_rendezvous_server_fail(s, FLEET_EPEER, NULL);
    fl_rendezvous_server_drop(s, c);
}

/* --- calls --------------------------------------------------------------- */

static int count_calls(const fl_rendezvous_server *s, int64_t *first_ms)
{
    int n = 0;

    *first_ms = INT64_MAX;
    for (int r = 0; r < s->size; r++)
        if (s->rank[r] && s->rank[r]->called_ms) {
            n++;
            if (s->rank[r]->called_ms < *first_ms)
                *first_ms = s->rank[r]->called_ms;
        }
    return n;
}

static void send_calls(fl_rendezvous_server *s)
{
    size_t n = 0;
    char *all = fl_alloc((size_t)s->size * (s->most_call + sizeof(uint32_t)));

    if (!all) {
        fl_rendezvous_server_fail(s, FLEET_ENOMEM, NULL);
        return;
    }
    for (int r = 0; r < s->size; r++) {
        fl_connection *c = s->rank[r];

        memcpy(all + n, &c->bytes, sizeof c->bytes);
        memcpy(all + n + sizeof c->bytes, c->call, c->bytes);
        n += sizeof c->bytes + c->bytes;
        c->called_ms = 0;
    }
    for (int r = 0; r < s->size; r++)
        fl_rendezvous_server_send(s->rank[r], FL_RENDEZVOUS_CALLS, all, n);
    fl_free(all);
}

static fl_call call_of(const fl_connection *c)
{
    fl_call call;

    memcpy(&call, c->call, sizeof call);
    return call;
}

/* All ranks have called: the same, with as much to send about it. */
static void match_calls(fl_rendezvous_server *s)
{
    const fl_call first = call_of(s->rank[0]);

    for (int r = 1; r < s->size; r++) {
        const fl_call call = call_of(s->rank[r]);

        if (!fl_call_matches(&first, &call)) {
            fl_call_differs(0, &first, r, &call);
            fl_rendezvous_server_fail(s, FLEET_EINVAL, NULL);
            return;
        }
        if (s->rank[r]->bytes != s->rank[0]->bytes) {
            fail_nonsense(s, s->rank[r]);
            return;
        }
    }
    send_calls(s);
}

static void take_call(fl_rendezvous_server *s, fl_connection *c,
                      const char *bytes, size_t n)
{
    fl_call call = {.kind = -1};
    int64_t first;

    if (n >= sizeof call)
        memcpy(&call, bytes, sizeof call);
    if (n > s->most_call || c->called_ms || call.kind < 0 ||
        call.kind > FL_CALL_RECV) {
        fail_nonsense(s, c);
        return;
    }
    memcpy(c->call, bytes, n);
    c->bytes = (uint32_t)n;
    c->called_ms = fl_rendezvous_server_now(s);
    if (count_calls(s, &first) == s->size)
        match_calls(s);
}

/* --- messages ------------------------------------------------------------ */

static void match_posts(fl_rendezvous_server *s, int from, int to,
                        int64_t *post)
{
    const fl_post out = {FL_OUT, to, post[FL_OUT]};
    const fl_post in = {FL_IN, from, post[FL_IN]};

    if (out.n < 0 || in.n < 0)
        return;
    if (out.n != in.n) {
        fl_call_sizes_differ(from, out.n, to, in.n);
        fl_rendezvous_server_fail(s, FLEET_EINVAL, NULL);
        return;
    }
    post[FL_OUT] = post[FL_IN] = -1;
    fl_rendezvous_server_send(s->rank[from], FL_RENDEZVOUS_MATCHED, &out,
                              sizeof out);
    fl_rendezvous_server_send(s->rank[to], FL_RENDEZVOUS_MATCHED, &in,
                              sizeof in);
}

static void fail_has_left(fl_rendezvous_server *s, int rank)
{
    fl_fail(FLEET_EPEER, "rank %d has ended its group", rank);
    fl_rendezvous_server_fail(s, FLEET_EPEER, NULL);
}

static void take_post(fl_rendezvous_server *s, fl_connection *c,
                      const char *bytes, size_t n)
{
    fl_post p = {.way = -1};
    int from, to;
    int64_t *post;

    if (n == sizeof p)
        memcpy(&p, bytes, sizeof p);
    if (p.way < 0 || p.way >= FL_N_WAY || p.rank < 0 || p.rank >= s->size ||
        p.n < 0) {
        fail_nonsense(s, c);
        return;
    }
    from = p.way == FL_OUT ? c->rank : p.rank;
    to = p.way == FL_OUT ? p.rank : c->rank;
    post = s->post[from * s->size + to];
    if (post[p.way] >= 0) {
        fail_nonsense(s, c);
        return;
    }
    post[p.way] = p.n;
    if (!s->rank[p.rank] || s->rank[p.rank]->has_left)
        fail_has_left(s, p.rank);
    else
        match_posts(s, from, to, post);
}

/* Messages that wait for this rank wait in vain. */
static void take_leave(fl_rendezvous_server *s, fl_connection *c)
{
    c->has_left = true;
    for (int r = 0; r < s->size; r++)
        if (s->post[r * s->size + c->rank][FL_OUT] >= 0 ||
            s->post[c->rank * s->size + r][FL_IN] >= 0)
            fail_has_left(s, c->rank);
}

/* --- frames -------------------------------------------------------------- */

static void take_frame(fl_rendezvous_server *s, fl_connection *c,
                       const fl_rendezvous_frame *f, const char *bytes)
{
    switch (f->kind) {
    case FL_RENDEZVOUS_LEAVE:
        take_leave(s, c);
        break;
    case FL_RENDEZVOUS_FAILURE:
        fl_rendezvous_server_fail(s, fl_rendezvous_failure(bytes, f->bytes), c);
        break;
    case FL_RENDEZVOUS_CALL:
    case FL_RENDEZVOUS_POST:
        if (!s->is_open)
            fail_nonsense(s, c);
        else if (s->failed)
            break;
        else if (f->kind == FL_RENDEZVOUS_CALL)
            take_call(s, c, bytes, f->bytes);
        else
            take_post(s, c, bytes, f->bytes);
        break;
    default:
        fail_nonsense(s, c);
    }
}

static void connection_ended(fl_rendezvous_server *s, fl_connection *c)
{
    bool is_rank = c->rank >= 0 && !c->has_left;

    if (is_rank && s->is_open) {
        if (c->in.is_forged)
            fl_fail(FLEET_EPEER,
                    "what came from rank %d at %s is not as the rank has "
                    "sealed it: changed, repeated or cut on the way",
                    c->rank, c->name);
        else
            fl_fail(FLEET_EPEER,
                    "rank %d is dead or cut off: its connection from %s has "
                    "ended",
                    c->rank, c->name);
        fl_rendezvous_server_fail(s, FLEET_EPEER, NULL);
    }
    if (is_rank && !s->is_open)
        snprintf(s->refused, sizeof s->refused,
                 "; rank %d had come from %s and has gone again", c->rank,
                 c->name);
    fl_rendezvous_server_drop(s, c);
}

static void receive_frames(fl_rendezvous_server *s, fl_connection *c)
{
    bool is_up = fl_inbox_read(&c->in, c->fd);
    const char *bytes;
    fl_rendezvous_frame f;

    if (c->rank < 0)
        fl_rendezvous_server_admit(s, c);
    while (c->fd >= 0 && c->rank >= 0) {
        if (!fl_inbox_frame(&c->in, &f, &bytes)) {
            fail_nonsense(s, c);
            return;
        }
        if (f.kind == FL_RENDEZVOUS_NONE)
            break;
        take_frame(s, c, &f, bytes);
        s->heard_ms = fl_rendezvous_server_now(s);
        fl_inbox_drop(&c->in, sizeof f + f.bytes);
    }
    if (c->fd >= 0 && !is_up)
        connection_ended(s, c);
}

/* --- deadlines ----------------------------------------------------------- */

static void check_calls(fl_rendezvous_server *s)
{
    int missing = -1, waits = -1;
    int64_t first;

    if (s->failed || !s->is_open || count_calls(s, &first) == 0)
        return;
    for (int r = s->size - 1; r >= 0; r--) {
        const fl_connection *c = s->rank[r];

        if (!c || c->has_left) {
            fail_has_left(s, r);
            return;
        }
        if (c->called_ms == 0)
            missing = r;
        else
            waits = r;
    }
    if (missing >= 0 &&
        fl_rendezvous_server_now(s) - first > s->options.deadline_ms) {
        const fl_call call = call_of(s->rank[waits]);

        fl_call_timed_out(missing, s->options.deadline_ms, waits, &call);
        fl_rendezvous_server_fail(s, FLEET_ETIMEDOUT, NULL);
    }
}

/* --- the thread ---------------------------------------------------------- */

static bool has_rank(const fl_rendezvous_server *s, int rank)
{
    return s->rank[rank] && !s->rank[rank]->has_left;
}

/* Rank 0 has its last message before other ranks have theirs: the server stays
 * for them until they have left too, or say nothing for a while. */
static bool serves_on(fl_rendezvous_server *s)
{
    if (has_rank(s, 0))
        return true;
    if (!s->is_open || s->failed ||
        fl_rendezvous_server_now(s) - s->heard_ms > LINGER_MS)
        return false;
    for (int r = 1; r < s->size; r++)
        if (has_rank(s, r))
            return true;
    return false;
}

static void serve_once(fl_rendezvous_server *s)
{
    int64_t first;
    bool is_idle = s->failed || (s->is_open && count_calls(s, &first) == 0 &&
                                 has_rank(s, 0));

    for (int i = 0; i < s->n_connection; i++)
        s->poll[i] =
            (struct pollfd){.fd = s->connection[i].fd, .events = POLLIN};
    s->poll[s->n_connection] =
        (struct pollfd){.fd = s->listener, .events = POLLIN};
    poll(s->poll, (nfds_t)s->n_connection + 1,
         is_idle ? FL_ACCEPT_HANDSHAKE_MS : FL_ACCEPT_POLL_MS);
    for (int i = 0; i < s->n_connection; i++)
        if (s->poll[i].revents && s->connection[i].fd == s->poll[i].fd)
            receive_frames(s, &s->connection[i]);
    if (s->poll[s->n_connection].revents)
        fl_rendezvous_server_accept(s);
    fl_rendezvous_server_check_deadlines(s);
    check_calls(s);
}

static void *serve_ranks(void *arg)
{
    fl_rendezvous_server *s = arg;

    fl_rendezvous_server_open_if_complete(s);
    do
        serve_once(s);
    while (serves_on(s));
    for (int r = 1; r < s->size; r++)
        if (s->rank[r])
            fl_rendezvous_server_send(s->rank[r], FL_RENDEZVOUS_LEAVE, NULL, 0);
    if (s->n_keyless > 0)
        FL_WARN(s->options.log,
                "rank 0 at %s: %d connections had no key of this job",
                s->address, s->n_keyless);
    for (int i = 0; i < s->n_connection; i++)
        if (s->connection[i].fd >= 0)
            fl_rendezvous_server_drop(s, &s->connection[i]);
    close(s->listener);
    s->listener = -1;
    return NULL;
}

int64_t fl_rendezvous_server_now(fl_rendezvous_server *s)
{
    return fl_awake_at(&s->awake, fl_now_ms());
}

/* --- life ---------------------------------------------------------------- */

static void free_server(fl_rendezvous_server *s)
{
    for (int i = 0; s->connection && i < s->n_connection; i++) {
        if (s->connection[i].fd > 0)
            close(s->connection[i].fd);
        fl_free(s->connection[i].in.data);
        fl_free(s->connection[i].call);
        fl_seal_destroy(s->connection[i].seal);
    }
    if (s->listener > 0)
        close(s->listener);
    fl_free(s->connection);
    fl_free(s->poll);
    fl_free(s->rank);
    fl_free(s->post);
    fl_free(s);
}

static fleet_status make_arrays(fl_rendezvous_server *s)
{
    size_t n = (size_t)s->n_connection, size = (size_t)s->size;

    FL_TRY(FL_NEW(&s->connection, n * sizeof *s->connection));
    FL_TRY(FL_NEW(&s->poll, (n + 1) * sizeof *s->poll));
    FL_TRY(FL_NEW(&s->rank, size * sizeof(fl_connection *)));
    FL_TRY(FL_NEW(&s->post, size * size * sizeof *s->post));
    for (size_t i = 0; i < size * size; i++)
        s->post[i][FL_OUT] = s->post[i][FL_IN] = -1;
    for (size_t i = 0; i < n; i++) {
        fl_connection *c = &s->connection[i];

        c->fd = -1;
        FL_TRY(fl_inbox_make(&c->in, sizeof(fl_rendezvous_handshake) +
                                         s->most_call + FL_RENDEZVOUS_TEXT));
        FL_TRY(FL_NEW(&c->call, s->most_call));
        if (s->options.keys)
            FL_TRY(fl_seal_create(&c->seal, s->options.keys, s->size));
    }
    return FLEET_OK;
}

static fleet_status start_listening(fl_rendezvous_server *s)
{
    if (s->options.listener == 0)
        return fl_rendezvous_listen(s->options.address, &s->listener,
                                    s->address);
    s->listener = s->options.listener;
    fl_rendezvous_name(s->listener, false, s->address);
    return FLEET_OK;
}

/* Rank 0's connection is a pair of sockets: no other process can take it. */
static fleet_status start_thread(fl_rendezvous_server *s, int *fd)
{
    int pair[2];
    fl_connection *c;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
                   pair) != 0)
        return fl_fail(FLEET_EIO, "ranks meet: no pair of sockets: %s",
                       strerror(errno));
    c = fl_rendezvous_server_add(s, pair[0]);
    snprintf(c->name, sizeof c->name, "this process");
    c->rank = 0;
    c->handshake = s->options.own;
    s->rank[0] = c;
    *fd = pair[1];
    return fl_thread_start(&s->thread, serve_ranks, s, "ranks that meet");
}

fleet_status fl_rendezvous_server_start(fl_rendezvous_server **server,
                                        const fl_rendezvous_options *o, int *fd)
{
    fleet_status status;
    fl_rendezvous_server *s;

    FL_TRY(FL_NEW(&s, sizeof *s));
    s->options = *o;
    s->began_ms = fl_now_ms();
    s->awake =
        fl_awake_from(s->began_ms, fl_awake_step(o->connect_ms < o->deadline_ms
                                                     ? o->connect_ms
                                                     : o->deadline_ms));
    s->size = o->own.size;
    s->listener = -1;
    s->n_connection = s->size + FL_ACCEPT_UNKNOWN_PEERS;
    s->most_call = fl_rendezvous_most_call(s->size);
    status = make_arrays(s);
    if (status == FLEET_OK)
        status = start_listening(s);
    if (status == FLEET_OK)
        status = start_thread(s, fd);
    if (status == FLEET_OK)
        *server = s;
    else
        free_server(s);
    return status;
}

void fl_rendezvous_server_join(fl_rendezvous_server *s)
{
    if (!s)
        return;
    pthread_join(s->thread, NULL);
    free_server(s);
}
