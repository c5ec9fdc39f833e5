/* rendezvous_server.c - the hub's thread, and what ranks tell each other: see rendezvous.h. */
#include "collective/rendezvous/rendezvous_server.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"

/* --- failure ------------------------------------------------------------- */

void fl_rendezvous_server_fail(fl_rendezvous_server *h, fleet_status code,
                               const fl_caller *from)
{
    if (h->failed)
        return;
    fl_error_take(&h->error, code);
    h->failed = true;
    for (int r = 0; r < h->size; r++)
        if (h->rank[r] && h->rank[r] != from)
            fl_rendezvous_send_failure(h->rank[r]->fd, &h->error);
}

void fl_rendezvous_server_drop(fl_rendezvous_server *h, fl_caller *c)
{
    shutdown(c->fd, SHUT_WR);
    close(c->fd);
    c->fd = -1;
    if (c->rank >= 0)
        h->rank[c->rank] = NULL;
}

static void nonsense(fl_rendezvous_server *h, fl_caller *c)
{
    fl_fail(FLEET_EPEER, "rank %d at %s talks nonsense", c->rank, c->name);
    fl_rendezvous_server_fail(h, FLEET_EPEER, NULL);
    fl_rendezvous_server_drop(h, c);
}

/* --- calls --------------------------------------------------------------- */

static int count_calls(const fl_rendezvous_server *h, int64_t *first_ms)
{
    int n = 0;

    *first_ms = INT64_MAX;
    for (int r = 0; r < h->size; r++)
        if (h->rank[r] && h->rank[r]->called_ms) {
            n++;
            if (h->rank[r]->called_ms < *first_ms)
                *first_ms = h->rank[r]->called_ms;
        }
    return n;
}

static void give_all(fl_rendezvous_server *h)
{
    size_t n = 0;
    char *all = fl_alloc((size_t)h->size * (h->most_call + sizeof(uint32_t)));

    if (!all) {
        fl_rendezvous_server_fail(h, FLEET_ENOMEM, NULL);
        return;
    }
    for (int r = 0; r < h->size; r++) {
        fl_caller *c = h->rank[r];

        memcpy(all + n, &c->bytes, sizeof c->bytes);
        memcpy(all + n + sizeof c->bytes, c->call, c->bytes);
        n += sizeof c->bytes + c->bytes;
        c->called_ms = 0;
    }
    for (int r = 0; r < h->size; r++)
        fl_rendezvous_send(h->rank[r]->fd, FL_WORD_ALL, all, n, NULL, 0);
    fl_free(all);
}

static void take_call(fl_rendezvous_server *h, fl_caller *c, const char *bytes,
                      size_t n)
{
    int64_t first;

    if (n < sizeof(fl_call) || n > h->most_call || c->called_ms) {
        nonsense(h, c);
        return;
    }
    memcpy(c->call, bytes, n);
    c->bytes = (uint32_t)n;
    c->called_ms = fl_now_ms();
    if (count_calls(h, &first) == h->size)
        give_all(h);
}

/* --- messages ------------------------------------------------------------ */

static void let_go(fl_rendezvous_server *h, int from, int to, int64_t n)
{
    const fl_post out = {FL_OUT, to, n}, in = {FL_IN, from, n};

    fl_rendezvous_send(h->rank[from]->fd, FL_WORD_GO, &out, sizeof out, NULL,
                       0);
    fl_rendezvous_send(h->rank[to]->fd, FL_WORD_GO, &in, sizeof in, NULL, 0);
}

static void match_posts(fl_rendezvous_server *h, int from, int to,
                        int64_t *post)
{
    if (post[FL_OUT] < 0 || post[FL_IN] < 0)
        return;
    if (post[FL_OUT] == post[FL_IN]) {
        let_go(h, from, to, post[FL_OUT]);
        post[FL_OUT] = post[FL_IN] = -1;
        return;
    }
    fl_fail(FLEET_EINVAL,
            "calls do not match: rank %d sends %" PRId64
            " bytes to rank %d, which expects %" PRId64,
            from, post[FL_OUT], to, post[FL_IN]);
    fl_rendezvous_server_fail(h, FLEET_EINVAL, NULL);
}

static void has_left(fl_rendezvous_server *h, int rank)
{
    fl_fail(FLEET_EPEER, "rank %d has ended its group", rank);
    fl_rendezvous_server_fail(h, FLEET_EPEER, NULL);
}

static void take_post(fl_rendezvous_server *h, fl_caller *c, const char *bytes,
                      size_t n)
{
    fl_post p = {.way = -1};
    int from, to;
    int64_t *post;

    if (n == sizeof p)
        memcpy(&p, bytes, sizeof p);
    if (p.way < 0 || p.way >= FL_N_WAY || p.rank < 0 || p.rank >= h->size ||
        p.n < 0) {
        nonsense(h, c);
        return;
    }
    from = p.way == FL_OUT ? c->rank : p.rank;
    to = p.way == FL_OUT ? p.rank : c->rank;
    post = h->post[from * h->size + to];
    if (post[p.way] >= 0) {
        nonsense(h, c);
        return;
    }
    post[p.way] = p.n;
    if (!h->rank[p.rank] || h->rank[p.rank]->has_left)
        has_left(h, p.rank);
    else
        match_posts(h, from, to, post);
}

/* Messages that wait for it wait in vain. */
static void take_leave(fl_rendezvous_server *h, fl_caller *c)
{
    c->has_left = true;
    for (int r = 0; r < h->size; r++)
        if (h->post[r * h->size + c->rank][FL_OUT] >= 0 ||
            h->post[c->rank * h->size + r][FL_IN] >= 0)
            has_left(h, c->rank);
}

/* --- frames -------------------------------------------------------------- */

static void take_failure(fl_rendezvous_server *h, fl_caller *c,
                         const char *bytes, size_t n)
{
    fl_rendezvous_server_fail(h, fl_rendezvous_failure(bytes, n), c);
}

static void take(fl_rendezvous_server *h, fl_caller *c,
                 const fl_rendezvous_frame *f, const char *bytes)
{
    switch (f->word) {
    case FL_WORD_BYE:
        take_leave(h, c);
        break;
    case FL_WORD_FAIL:
        take_failure(h, c, bytes, f->bytes);
        break;
    case FL_WORD_CALL:
    case FL_WORD_POST:
        if (!h->is_open)
            nonsense(h, c);
        else if (h->failed)
            break;
        else if (f->word == FL_WORD_CALL)
            take_call(h, c, bytes, f->bytes);
        else
            take_post(h, c, bytes, f->bytes);
        break;
    default:
        nonsense(h, c);
    }
}

static void has_ended(fl_rendezvous_server *h, fl_caller *c)
{
    bool is_rank = c->rank >= 0 && !c->has_left;

    if (is_rank && h->is_open) {
        fl_fail(FLEET_EPEER,
                "rank %d is dead or cut off: its connection from %s has ended",
                c->rank, c->name);
        fl_rendezvous_server_fail(h, FLEET_EPEER, NULL);
    }
    if (is_rank && !h->is_open)
        snprintf(h->refused, sizeof h->refused,
                 "; rank %d had come from %s and has gone again", c->rank,
                 c->name);
    fl_rendezvous_server_drop(h, c);
}

static void hear(fl_rendezvous_server *h, fl_caller *c)
{
    bool is_up = fl_inbox_read(&c->in, c->fd);
    const char *bytes;
    fl_rendezvous_frame f;

    if (c->rank < 0)
        fl_rendezvous_server_admit(h, c);
    while (c->fd >= 0 && c->rank >= 0) {
        if (!fl_inbox_frame(&c->in, &f, &bytes)) {
            nonsense(h, c);
            return;
        }
        if (f.word == FL_WORD_NONE)
            break;
        take(h, c, &f, bytes);
        fl_inbox_drop(&c->in, sizeof f + f.bytes);
    }
    if (c->fd >= 0 && !is_up)
        has_ended(h, c);
}

/* --- who is late --------------------------------------------------------- */

static void late(fl_rendezvous_server *h, int rank, int waits)
{
    char text[FL_CALL_TEXT];
    fl_call call;

    memcpy(&call, h->rank[waits]->call, sizeof call);
    if (call.kind < 0 || call.kind > FL_CALL_RECV) {
        nonsense(h, h->rank[waits]);
        return;
    }
    fl_call_text(&call, text);
    fl_fail(FLEET_ETIMEDOUT,
            "rank %d did not come within %" PRId64 " ms: rank %d waits in %s",
            rank, h->m.deadline_ms, waits, text);
    fl_rendezvous_server_fail(h, FLEET_ETIMEDOUT, NULL);
}

static void look_at_calls(fl_rendezvous_server *h)
{
    int missing = -1, waits = -1;
    int64_t first;

    if (h->failed || !h->is_open || count_calls(h, &first) == 0)
        return;
    for (int r = h->size - 1; r >= 0; r--) {
        const fl_caller *c = h->rank[r];

        if (!c || c->has_left) {
            has_left(h, r);
            return;
        }
        if (c->called_ms == 0)
            missing = r;
        else
            waits = r;
    }
    if (missing >= 0 && fl_now_ms() - first > h->m.deadline_ms)
        late(h, missing, waits);
}

/* --- the thread ---------------------------------------------------------- */

static bool has_rank_0(const fl_rendezvous_server *h)
{
    return h->rank[0] && !h->rank[0]->has_left;
}

static void wait_for_somebody(fl_rendezvous_server *h)
{
    int64_t first;
    bool is_idle = h->failed || (h->is_open && count_calls(h, &first) == 0);

    for (int i = 0; i < h->n_caller; i++)
        h->poll[i] = (struct pollfd){.fd = h->caller[i].fd, .events = POLLIN};
    h->poll[h->n_caller] = (struct pollfd){.fd = h->listener, .events = POLLIN};
    poll(h->poll, (nfds_t)h->n_caller + 1,
         is_idle ? FL_RENDEZVOUS_HANDSHAKE_MS : FL_RENDEZVOUS_POLL_MS);
}

static void work(fl_rendezvous_server *h)
{
    wait_for_somebody(h);
    for (int i = 0; i < h->n_caller; i++)
        if (h->poll[i].revents && h->caller[i].fd == h->poll[i].fd)
            hear(h, &h->caller[i]);
    if (h->poll[h->n_caller].revents)
        fl_rendezvous_server_accept(h);
    fl_rendezvous_server_poll(h);
    look_at_calls(h);
}

static void *serve(void *arg)
{
    fl_rendezvous_server *h = arg;

    fl_rendezvous_server_open_if_complete(h);
    do
        work(h);
    while (has_rank_0(h));
    for (int r = 1; r < h->size; r++)
        if (h->rank[r])
            fl_rendezvous_send(h->rank[r]->fd, FL_WORD_BYE, NULL, 0, NULL, 0);
    for (int i = 0; i < h->n_caller; i++)
        if (h->caller[i].fd >= 0)
            fl_rendezvous_server_drop(h, &h->caller[i]);
    close(h->listener);
    h->listener = -1;
    return NULL;
}

/* --- its life ------------------------------------------------------------ */

static void destroy(fl_rendezvous_server *h)
{
    for (int i = 0; h->caller && i < h->n_caller; i++) {
        if (h->caller[i].fd > 0)
            close(h->caller[i].fd);
        fl_free(h->caller[i].in.data);
        fl_free(h->caller[i].call);
    }
    if (h->listener > 0)
        close(h->listener);
    fl_free(h->caller);
    fl_free(h->poll);
    fl_free(h->rank);
    fl_free(h->post);
    fl_free(h);
}

static fleet_status make_places(fl_rendezvous_server *h)
{
    size_t n = (size_t)h->n_caller, size = (size_t)h->size;

    FL_TRY(FL_NEW(&h->caller, n * sizeof *h->caller));
    FL_TRY(FL_NEW(&h->poll, (n + 1) * sizeof *h->poll));
    FL_TRY(FL_NEW(&h->rank, size * sizeof(fl_caller *)));
    FL_TRY(FL_NEW(&h->post, size * size * sizeof *h->post));
    for (size_t i = 0; i < size * size; i++)
        h->post[i][FL_OUT] = h->post[i][FL_IN] = -1;
    for (size_t i = 0; i < n; i++) {
        fl_caller *c = &h->caller[i];

        c->fd = -1;
        c->in.room = sizeof(fl_greeting) + h->most_call + FL_RENDEZVOUS_TEXT;
        FL_TRY(FL_NEW(&c->in.data, c->in.room));
        FL_TRY(FL_NEW(&c->call, h->most_call));
    }
    return FLEET_OK;
}

static fleet_status listen_there(fl_rendezvous_server *h)
{
    if (h->m.listener == 0)
        return fl_rendezvous_listen(h->m.address, &h->listener, h->rendezvous);
    h->listener = h->m.listener;
    fl_rendezvous_name(h->listener, false, h->rendezvous);
    return FLEET_OK;
}

/* Rank 0's end is a pair's: nobody can come in its place. */
static fleet_status start(fl_rendezvous_server *h, int *fd)
{
    int pair[2];
    fl_caller *c;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
                   pair) != 0)
        return fl_fail(FLEET_EIO, "ranks meet: no pair of sockets: %s",
                       strerror(errno));
    c = fl_rendezvous_server_place(h, pair[0]);
    snprintf(c->name, sizeof c->name, "this process");
    c->rank = 0;
    c->greeting = h->m.own;
    h->rank[0] = c;
    *fd = pair[1];
    h->began_ms = fl_now_ms();
    return fl_thread_start(&h->thread, serve, h, "ranks that meet");
}

fleet_status fl_rendezvous_server_start(fl_rendezvous_server **hub,
                                        const fl_rendezvous *m, int *fd)
{
    fleet_status status;
    fl_rendezvous_server *h;

    FL_TRY(FL_NEW(&h, sizeof *h));
    h->m = *m;
    h->size = m->own.size;
    h->listener = -1;
    h->n_caller = h->size + FL_RENDEZVOUS_UNKNOWN_PEERS;
    h->most_call = fl_rendezvous_most_call(h->size);
    status = make_places(h);
    if (status == FLEET_OK)
        status = listen_there(h);
    if (status == FLEET_OK)
        status = start(h, fd);
    if (status == FLEET_OK)
        *hub = h;
    else
        destroy(h);
    return status;
}

void fl_rendezvous_server_name(const fl_rendezvous_server *h,
                               char name[FL_RENDEZVOUS_NAME])
{
    memcpy(name, h->rendezvous, sizeof h->rendezvous);
}

void fl_rendezvous_server_join(fl_rendezvous_server *h)
{
    if (!h)
        return;
    pthread_join(h->thread, NULL);
    destroy(h);
}
