/* rendezvous_accept.c - how ranks come to the hub: who is let in, who is refused, who is
 * late. A stranger costs a refusal and a line in the log, nothing else. */
#define _GNU_SOURCE
#include "collective/rendezvous/rendezvous_server.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

enum { HEAD = offsetof(fl_greeting, rank) };

fl_caller *fl_rendezvous_server_place(fl_rendezvous_server *h, int fd)
{
    for (int i = 0; i < h->n_caller; i++) {
        fl_caller *c = &h->caller[i];

        if (c->fd >= 0)
            continue;
        c->fd = fd;
        c->rank = -1;
        c->has_left = false;
        c->came_ms = fl_now_ms();
        c->in.n = 0;
        c->called_ms = 0;
        fl_rendezvous_name(fd, true, c->name);
        return c;
    }
    return NULL;
}

void fl_rendezvous_server_accept(fl_rendezvous_server *h)
{
    int fd = accept4(h->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int yes = 1;

    if (fd < 0)
        return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (!fl_rendezvous_server_place(h, fd))
        close(fd);
}

/* --- letting in ---------------------------------------------------------- */

/* This thread's failure is why. */
static void refuse(fl_rendezvous_server *h, fl_caller *c)
{
    fl_error e;

    fl_error_take(&e, FLEET_EINVAL);
    snprintf(h->refused, sizeof h->refused, "; refused: %.500s", e.text);
    FL_WARN(h->m.log, "rank 0 at %s: refused: %s", h->rendezvous, e.text);
    fl_rendezvous_send_failure(c->fd, &e);
    fl_rendezvous_server_drop(h, c);
}

static fleet_status check_head(const fl_caller *c, const fl_greeting *g)
{
    if (g->magic != FL_RENDEZVOUS_MAGIC)
        return fl_fail(FLEET_EINVAL, "%s is no rank of libfleet", c->name);
    if (g->version != FL_RENDEZVOUS_VERSION)
        return fl_fail(FLEET_EINVAL,
                       "%s has version %u of the ranks' protocol, rank 0 "
                       "version %d: all ranks have one libfleet",
                       c->name, g->version, FL_RENDEZVOUS_VERSION);
    return FLEET_OK;
}

static fleet_status check_greeting(const fl_rendezvous_server *h,
                                   const fl_caller *c, const fl_greeting *g)
{
    if (strncmp(g->job, h->m.own.job, sizeof g->job) != 0)
        return fl_fail(
            FLEET_EINVAL, "rank %d at %s is of job '%.*s', rank 0 of '%s'",
            g->rank, c->name, FL_RENDEZVOUS_NAME - 1, g->job, h->m.own.job);
    if (g->size != h->size || g->rank < 0 || g->rank >= h->size)
        return fl_fail(FLEET_EINVAL,
                       "%s comes as rank %d of %d, but rank 0 expects %d ranks",
                       c->name, g->rank, g->size, h->size);
    if (h->rank[g->rank])
        return fl_fail(FLEET_EINVAL,
                       "%s comes as rank %d, which %s is already: two ranks "
                       "have one number",
                       c->name, g->rank, h->rank[g->rank]->name);
    if (g->ordered != h->m.own.ordered)
        return fl_fail(FLEET_EINVAL,
                       "rank %d %s a fixed order of sums, rank 0 %s: all have "
                       "one strategy.deterministic",
                       g->rank, g->ordered ? "has" : "does not have",
                       g->ordered ? "does not" : "does");
    return FLEET_OK;
}

/* --- all are there ------------------------------------------------------- */

static bool are_on_one_gpu(const fl_greeting *a, const fl_greeting *b)
{
    return a->bus[0] && strncmp(a->bus, b->bus, sizeof a->bus) == 0 &&
           strncmp(a->host, b->host, sizeof a->host) == 0;
}

static fleet_status check_gpus(const fl_rendezvous_server *h)
{
    for (int a = 0; a < h->size; a++)
        for (int b = a + 1; b < h->size; b++) {
            const fl_greeting *g = &h->rank[a]->greeting;

            if (are_on_one_gpu(g, &h->rank[b]->greeting))
                return fl_fail(FLEET_EINVAL,
                               "ranks %d and %d are both on GPU %.31s of one "
                               "machine: each needs its own (fleetrun "
                               "--devices, FLAGS_selected_gpus)",
                               a, b, g->bus);
        }
    return FLEET_OK;
}

void fl_rendezvous_server_open_if_complete(fl_rendezvous_server *h)
{
    const uint64_t magic = FL_RENDEZVOUS_MAGIC;
    fleet_status status;

    for (int r = 0; r < h->size; r++)
        if (!h->rank[r])
            return;
    status = check_gpus(h);
    h->is_open = true;
    if (status != FLEET_OK) {
        fl_rendezvous_server_fail(h, status, NULL);
        return;
    }
    for (int r = 0; r < h->size; r++)
        fl_rendezvous_send(h->rank[r]->fd, FL_WORD_WELCOME, &magic,
                           sizeof magic, NULL, 0);
}

void fl_rendezvous_server_admit(fl_rendezvous_server *h, fl_caller *c)
{
    fl_greeting *g = &c->greeting;
    fleet_status status;

    if (c->in.n < HEAD)
        return;
    memcpy(g, c->in.data, HEAD);
    status = check_head(c, g);
    if (status == FLEET_OK && c->in.n < sizeof *g)
        return;
    if (status == FLEET_OK) {
        memcpy(g, c->in.data, sizeof *g);
        status = check_greeting(h, c, g);
    }
    if (status != FLEET_OK) {
        refuse(h, c);
        return;
    }
    fl_inbox_drop(&c->in, sizeof *g);
    c->rank = g->rank;
    h->rank[c->rank] = c;
    if (h->failed)
        fl_rendezvous_send_failure(c->fd, &h->error);
    else
        fl_rendezvous_server_open_if_complete(h);
}

/* --- who is late --------------------------------------------------------- */

static void say_who_is_missing(fl_rendezvous_server *h)
{
    int n = 0, first = -1;

    for (int r = h->size - 1; r >= 0; r--)
        if (h->rank[r])
            n++;
        else
            first = r;
    fl_fail(FLEET_ETIMEDOUT,
            "rank %d did not come within %" PRId64
            " ms to rank 0 at %s, where %d of %d ranks are%s",
            first, h->m.connect_ms, h->rendezvous, n, h->size, h->refused);
    fl_rendezvous_server_fail(h, FLEET_ETIMEDOUT, NULL);
}

void fl_rendezvous_server_poll(fl_rendezvous_server *h)
{
    int64_t now = fl_now_ms();

    for (int i = 0; i < h->n_caller; i++) {
        fl_caller *c = &h->caller[i];

        if (c->fd >= 0 && c->rank < 0 &&
            now - c->came_ms > FL_RENDEZVOUS_HANDSHAKE_MS)
            fl_rendezvous_server_drop(h, c);
    }
    if (!h->is_open && !h->failed && now - h->began_ms > h->m.connect_ms)
        say_who_is_missing(h);
}
