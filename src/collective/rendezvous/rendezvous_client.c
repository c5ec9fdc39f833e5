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

enum {
    TRY_MS = 1000,
    PAUSE_MS = 30,
    REFUSED_MS = 1000, /* until a rank whose key was refused tries again */
    LOOK_MS = 50,
    SLACK_MS = 2000
};

struct fl_rendezvous_client {
    int fd;
    fl_wakeup wakeup;
    pthread_mutex_t sending;
    fl_inbox in;
    fl_seal *seal; /* in.seal once it is agreed on; NULL: there are no keys, or
                      this is rank 0 */
    bool has_left; /* rank 0 has sent LEAVE */
    fl_rendezvous_server *server; /* rank 0's */
};

/* --- connecting ---------------------------------------------------------- */

typedef struct attempt {
    const fl_rendezvous_options *options;
    fl_wait wait;
    char why[200]; /* the last try failed */
    int pause_ms;  /* until the next one */
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

static fleet_status fail_keyless(const attempt *s)
{
    return fl_fail(FLEET_EPEER,
                   "what listens at %s, where rank 0 should, does not have the "
                   "key of rank 0",
                   s->options->address);
}

/* Wait for more. False: the connection has ended, or time is over. */
static bool receive_more(attempt *s, fl_rendezvous_client *c)
{
    struct pollfd one = {.fd = c->fd, .events = POLLIN};

    if (ms_left(s) == 0)
        return false;
    poll(&one, 1, LOOK_MS);
    return fl_inbox_read(&c->in, c->fd);
}

/* The first frame on this connection; none: it has ended, or time is over. */
static fleet_status receive_first(attempt *s, fl_rendezvous_client *c,
                                  fl_rendezvous_frame *f, const char **bytes)
{
    bool is_up = true;

    for (;;) {
        if (!fl_inbox_frame(&c->in, f, bytes))
            return fail_not_libfleet(s);
        if (f->kind != FL_RENDEZVOUS_NONE || !is_up)
            return FLEET_OK;
        is_up = receive_more(s, c);
    }
}

static void note_end(attempt *s)
{
    snprintf(s->why, sizeof s->why,
             ms_left(s) ? "it ended the connection" : "it does not answer");
}

/* Whose key it is that does not fit is not known. */
static void note_refusal(attempt *s, const fl_rendezvous_client *c)
{
    note_end(s);
    if (!c->in.seal)
        return;
    snprintf(s->why, sizeof s->why,
             "it ended the connection. Has it keys of the same folder?");
    s->pause_ms = REFUSED_MS;
}

static fleet_status await_ready(attempt *s, fl_rendezvous_client *c, bool *done)
{
    uint64_t magic = 0;
    const char *bytes;
    fl_rendezvous_frame f;

    FL_TRY(receive_first(s, c, &f, &bytes));
    if (f.kind == FL_RENDEZVOUS_NONE && c->in.is_forged)
        return fail_keyless(s);
    if (f.kind == FL_RENDEZVOUS_NONE) {
        note_refusal(s, c);
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

/* What comes before the first frame, if there are keys. *agreed stays false if
 * the connection ends. */
static fleet_status agree_on_keys(attempt *s, fl_rendezvous_client *c,
                                  bool *agreed)
{
    fl_seal_request request;
    fl_seal_answer answer;
    uint8_t head[FL_SEAL_HEAD];

    if (!fl_seal_begin(c->seal, s->options->own.rank, &request))
        return fl_fail(FLEET_EINVAL, "there is no key of rank %d",
                       s->options->own.rank);
    fl_rendezvous_write(c->fd, NULL, &request, sizeof request);
    while (c->in.n < sizeof answer)
        if (!receive_more(s, c)) {
            note_end(s);
            return c->in.n > 0 ? fail_keyless(s) : FLEET_OK;
        }
    memcpy(&answer, c->in.data, sizeof answer);
    if (c->in.n > sizeof answer || !fl_seal_finish(c->seal, &answer, head))
        return fail_keyless(s);
    fl_inbox_reset(&c->in);
    c->in.seal = c->seal;
    *agreed = fl_rendezvous_write(c->fd, NULL, head, sizeof head);
    return FLEET_OK;
}

static fleet_status join_at(attempt *s, fl_rendezvous_client *c, bool *done)
{
    const fl_rendezvous_handshake *own = &s->options->own;
    bool agreed = !c->seal;

    if (c->seal)
        FL_TRY(agree_on_keys(s, c, &agreed));
    if (agreed && fl_rendezvous_write(c->fd, c->in.seal, own, sizeof *own))
        return await_ready(s, c, done);
    return FLEET_OK;
}

static fleet_status try_once(attempt *s, fl_rendezvous_client *c, bool *done)
{
    int64_t ms = ms_left(s) < TRY_MS ? ms_left(s) : TRY_MS;
    fleet_status status;

    s->pause_ms = PAUSE_MS;
    FL_TRY(fl_rendezvous_connect(s->options->address, ms, &c->fd));
    if (c->fd < 0) {
        snprintf(s->why, sizeof s->why, "%s", strerror(errno));
        return FLEET_OK;
    }
    status = join_at(s, c, done);
    if (!*done) {
        close(c->fd);
        c->fd = -1;
        fl_inbox_reset(&c->in);
    }
    return status;
}

/* The server names the missing rank at the same deadline: it has a little
 * longer. */
static fleet_status connect_and_wait(const fl_rendezvous_options *o,
                                     fl_rendezvous_client *c)
{
    attempt s = {o, fl_wait_for(o->connect_ms + SLACK_MS), "no answer", 0};
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
        poll(NULL, 0, s.pause_ms);
    }
}

static fleet_status make_client(fl_rendezvous_client *c,
                                const fl_rendezvous_options *o)
{
    size_t call = sizeof(uint32_t) + fl_rendezvous_most_call(o->own.size);

    FL_TRY(fl_inbox_make(&c->in, sizeof(fl_rendezvous_frame) +
                                     (size_t)o->own.size * call +
                                     FL_RENDEZVOUS_TEXT));
    if (o->keys && o->own.rank != 0)
        FL_TRY(fl_seal_create(&c->seal, o->keys, o->own.size));
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
    ok = fl_rendezvous_send(c->fd, c->in.seal, kind, a, n_a, b, n_b);
    pthread_mutex_unlock(&c->sending);
    return ok;
}

fleet_status fl_rendezvous_client_check(const fl_rendezvous_client *c)
{
    return c->has_left ? fl_fail(FLEET_EPEER, "rank 0 has ended its group")
                       : FLEET_OK;
}

static fleet_status fail_dead(const fl_rendezvous_client *c)
{
    if (c->in.is_forged)
        return fl_fail(FLEET_EPEER,
                       "what came from rank 0 is not as rank 0 has sealed it: "
                       "changed, repeated or cut on the way");
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
        return fail_dead(c);
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
        return fail_dead(c);
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
    fl_seal_destroy(c->seal);
    fl_free(c);
}
