/* rendezvous_client.c - a rank's connection to the rendezvous server. */
#include "collective/rendezvous/rendezvous_client.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "collective/rendezvous/rendezvous_server.h"
#include "net/wakeup.h"

enum { TRY_MS = 1000, PAUSE_MS = 30, LOOK_MS = 50, SLACK_MS = 2000 };

struct fl_rendezvous_client {
    int fd;
    fl_wakeup wakeup;
    pthread_mutex_t sending;
    fl_inbox in;
    bool has_left;                /* rank 0 has sent LEAVE */
    fl_rendezvous_server *server; /* rank 0's */
};

/* --- connecting ---------------------------------------------------------- */

typedef struct attempt {
    const fl_rendezvous_options *options;
    fl_wait wait;
    char why[200]; /* the last try failed */
} attempt;

static int64_t ms_left(attempt *s)
{
    return fl_wait_left(&s->wait);
}

static fleet_status fail_unreached(const attempt *s)
{
    return fl_fail(FLEET_ETIMEDOUT,
                   "rank %d did not reach rank 0 at %s within %" PRId64
                   " ms: %s",
                   s->options->own.rank, s->options->address,
                   s->options->connect_ms, s->why);
}

static fleet_status fail_not_libfleet(const attempt *s)
{
    return fl_fail(FLEET_EPEER,
                   "what listens at %s, where rank 0 should, is no libfleet",
                   s->options->address);
}

/* The first frame on this connection; none: it has ended, or time is over. */
static fleet_status receive_first(attempt *s, fl_rendezvous_client *c,
                                  fl_rendezvous_frame *f, const char **bytes)
{
    struct pollfd one = {.fd = c->fd, .events = POLLIN};

    for (;;) {
        if (!fl_inbox_frame(&c->in, f, bytes))
            return fail_not_libfleet(s);
        if (f->kind != FL_RENDEZVOUS_NONE)
            return FLEET_OK;
        if (ms_left(s) == 0)
            return FLEET_OK;
        poll(&one, 1, LOOK_MS);
        if (!fl_inbox_read(&c->in, c->fd))
            return FLEET_OK;
    }
}

static fleet_status await_ready(attempt *s, fl_rendezvous_client *c, bool *done)
{
    uint64_t magic = 0;
    const char *bytes;
    fl_rendezvous_frame f;

    FL_TRY(receive_first(s, c, &f, &bytes));
    if (f.kind == FL_RENDEZVOUS_NONE) {
        snprintf(s->why, sizeof s->why,
                 ms_left(s) ? "it ended the connection" : "it does not answer");
        return FLEET_OK;
    }
    if (f.kind == FL_RENDEZVOUS_LEAVE)
        return fl_fail(FLEET_EPEER,
                       "rank 0 at %s has ended before all ranks had come",
                       s->options->address);
    if (f.kind == FL_RENDEZVOUS_FAILURE)
        return fl_rendezvous_failure(bytes, f.bytes);
    if (f.bytes == sizeof magic)
        memcpy(&magic, bytes, sizeof magic);
    if (f.kind != FL_RENDEZVOUS_READY || magic != FL_RENDEZVOUS_MAGIC)
        return fail_not_libfleet(s);
    fl_inbox_drop(&c->in, sizeof f + f.bytes);
    *done = true;
    return FLEET_OK;
}

static fleet_status try_once(attempt *s, fl_rendezvous_client *c, bool *done)
{
    int64_t ms = ms_left(s) < TRY_MS ? ms_left(s) : TRY_MS;
    fleet_status status = FLEET_OK;

    FL_TRY(fl_rendezvous_connect(s->options->address, ms, &c->fd));
    if (c->fd < 0) {
        snprintf(s->why, sizeof s->why, "%s", strerror(errno));
        return FLEET_OK;
    }
    if (send(c->fd, &s->options->own, sizeof s->options->own, MSG_NOSIGNAL) ==
        sizeof s->options->own)
        status = await_ready(s, c, done);
    if (!*done) {
        close(c->fd);
        c->fd = -1;
        c->in.n = 0;
    }
    return status;
}

/* The server names the missing rank at the same deadline: it has a little
 * longer. */
static fleet_status connect_and_wait(const fl_rendezvous_options *o,
                                     fl_rendezvous_client *c)
{
    attempt s = {o, fl_wait_for(o->connect_ms + SLACK_MS), "no answer"};
    bool done = false;

    if (o->own.rank == 0) {
        FL_TRY(fl_rendezvous_server_start(&c->server, o, &c->fd));
        FL_TRY(await_ready(&s, c, &done));
        return done ? FLEET_OK : fail_unreached(&s);
    }
    for (;;) {
        FL_TRY(try_once(&s, c, &done));
        if (done)
            return FLEET_OK;
        if (ms_left(&s) <= SLACK_MS)
            return fail_unreached(&s);
        poll(NULL, 0, PAUSE_MS);
    }
}

static fleet_status make_client(fl_rendezvous_client *c,
                                const fl_rendezvous_options *o)
{
    size_t call = sizeof(uint32_t) + fl_rendezvous_most_call(o->own.size);

    c->in.room = sizeof(fl_rendezvous_frame) + (size_t)o->own.size * call +
                 FL_RENDEZVOUS_TEXT;
    FL_TRY(FL_NEW(&c->in.data, c->in.room));
    if (fl_wakeup_create(&c->wakeup) != FLEET_OK)
        return fl_fail(FLEET_EIO, "ranks meet: no eventfd: %s",
                       strerror(errno));
    return connect_and_wait(o, c);
}

fleet_status fl_rendezvous_client_open(fl_rendezvous_client **client,
                                       const fl_rendezvous_options *o)
{
    fleet_status status;
    fl_error e;
    fl_rendezvous_client *c;

    *client = NULL;
    FL_TRY(FL_NEW(&c, sizeof *c));
    c->fd = c->wakeup.fd = -1;
    pthread_mutex_init(&c->sending, NULL);
    status = make_client(c, o);
    if (status == FLEET_OK) {
        *client = c;
        return status;
    }
    fl_error_take(&e, status);
    fl_rendezvous_client_close(c);
    return fl_error_raise(&e);
}

/* --- frames -------------------------------------------------------------- */

bool fl_rendezvous_client_send(fl_rendezvous_client *c, fl_rendezvous_kind kind,
                               const void *a, size_t n_a, const void *b,
                               size_t n_b)
{
    bool ok;

    pthread_mutex_lock(&c->sending);
    ok = fl_rendezvous_send(c->fd, kind, a, n_a, b, n_b);
    pthread_mutex_unlock(&c->sending);
    return ok;
}

fleet_status fl_rendezvous_client_check(const fl_rendezvous_client *c)
{
    return c->has_left ? fl_fail(FLEET_EPEER, "rank 0 has ended its group")
                       : FLEET_OK;
}

static fleet_status fail_dead(void)
{
    return fl_fail(FLEET_EPEER, "rank 0 is dead or cut off: its connection has "
                                "ended");
}

fleet_status fl_rendezvous_client_failure(fl_rendezvous_client *c)
{
    bool is_up = c->has_left || fl_inbox_read(&c->in, c->fd);
    const char *bytes;
    fl_rendezvous_frame f;

    if (fl_inbox_find(&c->in, FL_RENDEZVOUS_FAILURE, &f, &bytes))
        return fl_rendezvous_failure(bytes, f.bytes);
    if (!is_up && !fl_inbox_find(&c->in, FL_RENDEZVOUS_LEAVE, &f, &bytes))
        return fail_dead();
    return FLEET_OK;
}

fleet_status fl_rendezvous_client_next(fl_rendezvous_client *c,
                                       fl_rendezvous_frame *f,
                                       const char **bytes)
{
    bool is_up = c->has_left || fl_inbox_read(&c->in, c->fd);

    if (!fl_inbox_frame(&c->in, f, bytes))
        return fl_fail(FLEET_EPEER, "rank 0 talks nonsense");
    if (f->kind == FL_RENDEZVOUS_LEAVE) {
        c->has_left = true;
        f->kind = FL_RENDEZVOUS_NONE;
    }
    if (f->kind == FL_RENDEZVOUS_NONE && !is_up && !c->has_left)
        return fail_dead();
    return FLEET_OK;
}

void fl_rendezvous_client_drop(fl_rendezvous_client *c,
                               const fl_rendezvous_frame *f)
{
    fl_inbox_drop(&c->in, sizeof *f + f->bytes);
}

void fl_rendezvous_client_wait(fl_rendezvous_client *c, int ms)
{
    struct pollfd two[] = {{.fd = c->has_left ? -1 : c->fd, .events = POLLIN},
                           {.fd = c->wakeup.fd, .events = POLLIN}};

    if (poll(two, 2, ms) > 0 && two[1].revents)
        fl_wakeup_clear(&c->wakeup);
}

void fl_rendezvous_client_wake(fl_rendezvous_client *c)
{
    fl_wakeup_ring(&c->wakeup);
}

void fl_rendezvous_client_name(const fl_rendezvous_client *c,
                               char name[FL_RENDEZVOUS_NAME])
{
    if (c->server)
        memcpy(name, c->server->address, sizeof c->server->address);
    else
        fl_rendezvous_name(c->fd, false, name);
}

void fl_rendezvous_client_close(fl_rendezvous_client *c)
{
    if (!c)
        return;
    if (c->fd >= 0) {
        fl_rendezvous_client_send(c, FL_RENDEZVOUS_LEAVE, NULL, 0, NULL, 0);
        shutdown(c->fd, SHUT_WR);
        close(c->fd);
    }
    fl_rendezvous_server_join(c->server);
    fl_wakeup_destroy(&c->wakeup);
    pthread_mutex_destroy(&c->sending);
    fl_free(c->in.data);
    fl_free(c);
}
