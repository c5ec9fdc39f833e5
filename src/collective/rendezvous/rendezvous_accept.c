/* rendezvous_accept.c - how ranks come to the server: which are let in, refused
 * or missing. An unknown peer costs a refusal and a line in the log, nothing
 * else. */
#define _GNU_SOURCE
#include "collective/rendezvous/rendezvous_accept.h"

#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

enum {
    HEAD = offsetof(fl_rendezvous_handshake, rank),
    MOST_LINES = 100 /* of the log, about refused connections */
};

/* If all are taken, that of the peer that has been without a handshake for
 * longest: silent peers keep no rank out. */
static fl_connection *find_place(fl_rendezvous_server *s)
{
    fl_connection *oldest = NULL;

    for (int i = 0; i < s->n_connection; i++) {
        fl_connection *c = &s->connection[i];

        if (c->fd < 0)
            return c;
        if (c->rank < 0 && (!oldest || c->accepted_ms < oldest->accepted_ms))
            oldest = c;
    }
    if (oldest)
        fl_rendezvous_server_drop(s, oldest);
    return oldest;
}

fl_connection *fl_rendezvous_server_add(fl_rendezvous_server *s, int fd)
{
    fl_connection *c = find_place(s);

    if (!c)
        return NULL;
    c->fd = fd;
    c->rank = -1;
    c->has_left = false;
    c->accepted_ms = fl_rendezvous_server_now(s);
    fl_inbox_reset(&c->in);
    c->called_ms = 0;
    fl_rendezvous_name(fd, true, c->name);
    return c;
}

void fl_rendezvous_server_accept(fl_rendezvous_server *s)
{
    int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int yes = 1;

    if (fd < 0)
        return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (!fl_rendezvous_server_add(s, fd))
        close(fd);
}

/* --- handshakes ---------------------------------------------------------- */

/* For the reason that is this thread's failure; `says`: the peer hears it. */
static void refuse_connection(fl_rendezvous_server *s, fl_connection *c,
                              bool says)
{
    fl_error e;

    fl_error_take(&e, FLEET_EINVAL);
    snprintf(s->refused, sizeof s->refused, "; refused: %.500s", e.text);
    if (++s->n_refused <= MOST_LINES)
        FL_WARN(s->options.log, "rank 0 at %s: refused: %s%s", s->address,
                e.text,
                s->n_refused < MOST_LINES ? "" : "; further ones are counted");
    if (says)
        fl_rendezvous_send_failure(c->fd, c->in.seal, &e);
    fl_rendezvous_server_drop(s, c);
}

/* --- keys ----------------------------------------------------------------- */

static void refuse_keyless(fl_rendezvous_server *s, fl_connection *c, bool says)
{
    s->n_keyless++;
    refuse_connection(s, c, says);
}

/* What a rank without keys says first is known, and answered. */
static bool refuse_plain(fl_rendezvous_server *s, fl_connection *c)
{
    uint64_t magic;

    memcpy(&magic, c->in.data, sizeof magic);
    if (magic == FL_SEAL_MAGIC)
        return false;
    if (magic == FL_RENDEZVOUS_MAGIC)
        fl_fail(FLEET_EINVAL,
                "%s has no keys, and rank 0 has: FLEET_KEYS names their folder",
                c->name);
    else
        fl_fail(FLEET_EINVAL, "%s is no rank of libfleet with keys", c->name);
    refuse_keyless(s, c, magic == FL_RENDEZVOUS_MAGIC);
    return true;
}

/* From its answer on the server believes sealed bytes alone. */
static void answer_request(fl_rendezvous_server *s, fl_connection *c)
{
    fl_seal_request request;
    fl_seal_answer answer;

    if (c->in.n < sizeof request.magic || refuse_plain(s, c) ||
        c->in.n < sizeof request)
        return;
    memcpy(&request, c->in.data, sizeof request);
    if (c->in.n > sizeof request ||
        !fl_seal_accept(c->seal, &request, &answer)) {
        fl_fail(FLEET_EINVAL, "%s does not begin as a rank of this job",
                c->name);
        refuse_keyless(s, c, false);
        return;
    }
    fl_inbox_reset(&c->in);
    c->in.seal = c->seal;
    fl_rendezvous_write(c->fd, NULL, &answer, sizeof answer);
}

static void refuse_forged(fl_rendezvous_server *s, fl_connection *c)
{
    fl_fail(FLEET_EINVAL, "%s comes as rank %d and does not have its key",
            c->name, fl_seal_rank(c->seal));
    refuse_keyless(s, c, false);
}

/* --- what a rank says of itself ------------------------------------------- */

static fleet_status check_head(const fl_connection *c,
                               const fl_rendezvous_handshake *h)
{
    if (h->magic == FL_SEAL_MAGIC)
        return fl_fail(FLEET_EINVAL, "%s has keys, and rank 0 has none",
                       c->name);
    if (h->magic != FL_RENDEZVOUS_MAGIC)
        return fl_fail(FLEET_EINVAL, "%s is no rank of libfleet", c->name);
    if (h->version != FL_RENDEZVOUS_VERSION)
        return fl_fail(FLEET_EINVAL,
                       "%s has version %u of the ranks' protocol, rank 0 "
                       "version %d: all ranks have one libfleet",
                       c->name, h->version, FL_RENDEZVOUS_VERSION);
    return FLEET_OK;
}

static fleet_status check_handshake(const fl_rendezvous_server *s,
                                    const fl_connection *c,
                                    const fl_rendezvous_handshake *h)
{
    if (strncmp(h->job, s->options.own.job, sizeof h->job) != 0)
        return fl_fail(FLEET_EINVAL,
                       "rank %d at %s is of job '%.*s', rank 0 of '%s'",
                       h->rank, c->name, FL_RENDEZVOUS_NAME - 1, h->job,
                       s->options.own.job);
    if (h->size != s->size || h->rank < 0 || h->rank >= s->size)
        return fl_fail(FLEET_EINVAL,
                       "%s comes as rank %d of %d, but rank 0 expects %d ranks",
                       c->name, h->rank, h->size, s->size);
    if (c->in.seal && h->rank != fl_seal_rank(c->seal))
        return fl_fail(FLEET_EINVAL,
                       "%s comes as rank %d with the key of rank %d", c->name,
                       h->rank, fl_seal_rank(c->seal));
    if (s->rank[h->rank])
        return fl_fail(FLEET_EINVAL,
                       "%s comes as rank %d, which %s is already: two ranks "
                       "have one number",
                       c->name, h->rank, s->rank[h->rank]->name);
    if (h->ordered != s->options.own.ordered)
        return fl_fail(FLEET_EINVAL,
                       "rank %d %s a fixed order of sums, rank 0 %s: all have "
                       "one strategy.deterministic",
                       h->rank, h->ordered ? "has" : "does not have",
                       h->ordered ? "does not" : "does");
    return FLEET_OK;
}

/* --- all have come ------------------------------------------------------- */

static fleet_status check_gpus(const fl_rendezvous_server *s)
{
    for (int a = 0; a < s->size; a++)
        for (int b = a + 1; b < s->size; b++) {
            const fl_rendezvous_handshake *h = &s->rank[a]->handshake,
                                          *other = &s->rank[b]->handshake;

            if (h->bus[0] && strncmp(h->bus, other->bus, sizeof h->bus) == 0 &&
                strncmp(h->host, other->host, sizeof h->host) == 0)
                return fl_fail(FLEET_EINVAL,
                               "ranks %d and %d are both on GPU %.31s of one "
                               "machine: each needs its own (fleetrun "
                               "--devices, FLAGS_selected_gpus)",
                               a, b, h->bus);
        }
    return FLEET_OK;
}

void fl_rendezvous_server_open_if_complete(fl_rendezvous_server *s)
{
    const uint64_t magic = FL_RENDEZVOUS_MAGIC;
    fleet_status status;

    for (int r = 0; r < s->size; r++)
        if (!s->rank[r])
            return;
    status = check_gpus(s);
    s->is_open = true;
    if (status != FLEET_OK) {
        fl_rendezvous_server_fail(s, status, NULL);
        return;
    }
    for (int r = 0; r < s->size; r++)
        fl_rendezvous_server_send(s->rank[r], FL_RENDEZVOUS_READY, &magic,
                                  sizeof magic);
}

void fl_rendezvous_server_admit(fl_rendezvous_server *s, fl_connection *c)
{
    fl_rendezvous_handshake *h = &c->handshake;
    fleet_status status;

    if (s->options.keys && !c->in.seal) {
        answer_request(s, c);
        return;
    }
    if (c->in.is_forged) {
        refuse_forged(s, c);
        return;
    }
    if (c->in.n < HEAD)
        return;
    memcpy(h, c->in.data, HEAD);
    status = check_head(c, h);
    if (status == FLEET_OK && c->in.n < sizeof *h)
        return;
    if (status == FLEET_OK) {
        memcpy(h, c->in.data, sizeof *h);
        status = check_handshake(s, c, h);
    }
    if (status != FLEET_OK) {
        s->n_keyless += c->in.seal && h->rank != fl_seal_rank(c->seal);
        refuse_connection(s, c, true);
        return;
    }
    fl_inbox_drop(&c->in, sizeof *h);
    c->rank = h->rank;
    s->rank[c->rank] = c;
    if (s->failed)
        fl_rendezvous_send_failure(c->fd, c->in.seal, &s->error);
    else
        fl_rendezvous_server_open_if_complete(s);
}

/* --- deadlines ----------------------------------------------------------- */

static void fail_missing(fl_rendezvous_server *s)
{
    int n = 0, first = -1;

    for (int r = s->size - 1; r >= 0; r--)
        if (s->rank[r])
            n++;
        else
            first = r;
    fl_fail(FLEET_ETIMEDOUT,
            "rank %d did not come within %" PRId64
            " ms to rank 0 at %s, where %d of %d ranks are%s",
            first, s->options.connect_ms, s->address, n, s->size, s->refused);
    fl_rendezvous_server_fail(s, FLEET_ETIMEDOUT, NULL);
}

void fl_rendezvous_server_check_deadlines(fl_rendezvous_server *s)
{
    int64_t now = fl_rendezvous_server_now(s);

    for (int i = 0; i < s->n_connection; i++) {
        fl_connection *c = &s->connection[i];

        if (c->fd >= 0 && c->rank < 0 &&
            now - c->accepted_ms > FL_ACCEPT_HANDSHAKE_MS)
            fl_rendezvous_server_drop(s, c);
    }
    if (!s->is_open && !s->failed && now - s->began_ms > s->options.connect_ms)
        fail_missing(s);
}
