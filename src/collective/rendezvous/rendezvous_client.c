/* rendezvous_client.c - a rank's line to the hub: see rendezvous.h. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "collective/rendezvous/rendezvous.h"

enum { TRY_MS = 1000, PAUSE_MS = 30, SLACK_MS = 2000 };

struct fl_rendezvous_client {
    int fd, bell;
    pthread_mutex_t sending;
    fl_inbox in;
    bool has_left;             /* rank 0 has said BYE */
    fl_rendezvous_server *hub; /* rank 0's */
};

/* --- reaching the hub ---------------------------------------------------- */

typedef struct search {
    const fl_rendezvous *m;
    int64_t until_ms;
    char why[200]; /* the last try failed */
} search;

static int64_t left(const search *s)
{
    int64_t ms = s->until_ms - fl_now_ms();

    return ms > 0 ? ms : 0;
}

static fleet_status nobody(const search *s)
{
    return fl_fail(FLEET_ETIMEDOUT,
                   "rank %d did not reach rank 0 at %s within %" PRId64
                   " ms: %s",
                   s->m->own.rank, s->m->address, s->m->connect_ms, s->why);
}

static fleet_status stranger(const search *s)
{
    return fl_fail(FLEET_EPEER,
                   "what listens at %s, where rank 0 should, is no libfleet",
                   s->m->address);
}

/* Did rank 0 say something on this line? It ends if not. */
static fleet_status hear(const search *s, fl_rendezvous_client *l,
                         fl_rendezvous_frame *f, const char **bytes)
{
    struct pollfd one = {.fd = l->fd, .events = POLLIN};

    for (;;) {
        if (!fl_inbox_frame(&l->in, f, bytes))
            return stranger(s);
        if (f->word != FL_WORD_NONE)
            return FLEET_OK;
        if (left(s) == 0)
            return FLEET_OK;
        poll(&one, 1, (int)left(s));
        if (!fl_inbox_read(&l->in, l->fd))
            return FLEET_OK;
    }
}

static fleet_status be_welcome(search *s, fl_rendezvous_client *l, bool *done)
{
    uint64_t magic = 0;
    const char *bytes;
    fl_rendezvous_frame f;

    FL_TRY(hear(s, l, &f, &bytes));
    if (f.word == FL_WORD_NONE) {
        snprintf(s->why, sizeof s->why,
                 left(s) ? "it ended the connection" : "it does not answer");
        return FLEET_OK;
    }
    if (f.word == FL_WORD_BYE)
        return fl_fail(FLEET_EPEER,
                       "rank 0 at %s has ended before all ranks had come",
                       s->m->address);
    if (f.word == FL_WORD_FAIL)
        return fl_rendezvous_failure(bytes, f.bytes);
    if (f.bytes == sizeof magic)
        memcpy(&magic, bytes, sizeof magic);
    if (f.word != FL_WORD_WELCOME || magic != FL_RENDEZVOUS_MAGIC)
        return stranger(s);
    fl_inbox_drop(&l->in, sizeof f + f.bytes);
    *done = true;
    return FLEET_OK;
}

static fleet_status try_once(search *s, fl_rendezvous_client *l, bool *done)
{
    int64_t ms = left(s) < TRY_MS ? left(s) : TRY_MS;
    fleet_status status = FLEET_OK;

    FL_TRY(fl_rendezvous_connect(s->m->address, ms, &l->fd));
    if (l->fd < 0) {
        snprintf(s->why, sizeof s->why, "%s", strerror(errno));
        return FLEET_OK;
    }
    if (send(l->fd, &s->m->own, sizeof s->m->own, MSG_NOSIGNAL) ==
        sizeof s->m->own)
        status = be_welcome(s, l, done);
    if (!*done) {
        close(l->fd);
        l->fd = -1;
        l->in.n = 0;
    }
    return status;
}

/* The hub names who is missing at the same deadline: it has a little longer. */
static fleet_status reach(const fl_rendezvous *m, fl_rendezvous_client *l)
{
    search s = {m, fl_now_ms() + m->connect_ms + SLACK_MS, "nobody is there"};
    bool done = false;

    if (m->own.rank == 0) {
        FL_TRY(fl_rendezvous_server_start(&l->hub, m, &l->fd));
        FL_TRY(be_welcome(&s, l, &done));
        return done ? FLEET_OK : nobody(&s);
    }
    for (;;) {
        FL_TRY(try_once(&s, l, &done));
        if (done)
            return FLEET_OK;
        if (left(&s) <= SLACK_MS)
            return nobody(&s);
        poll(NULL, 0, PAUSE_MS);
    }
}

static fleet_status make(fl_rendezvous_client *l, const fl_rendezvous *m)
{
    size_t call = sizeof(uint32_t) + fl_rendezvous_most_call(m->own.size);

    l->in.room = sizeof(fl_rendezvous_frame) + (size_t)m->own.size * call +
                 FL_RENDEZVOUS_TEXT;
    FL_TRY(FL_NEW(&l->in.data, l->in.room));
    l->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (l->bell < 0)
        return fl_fail(FLEET_EIO, "ranks meet: no eventfd: %s",
                       strerror(errno));
    return reach(m, l);
}

fleet_status fl_rendezvous_client_open(fl_rendezvous_client **line,
                                       const fl_rendezvous *m)
{
    fleet_status status;
    fl_error e;
    fl_rendezvous_client *l;

    *line = NULL;
    FL_TRY(FL_NEW(&l, sizeof *l));
    l->fd = l->bell = -1;
    pthread_mutex_init(&l->sending, NULL);
    status = make(l, m);
    if (status == FLEET_OK) {
        *line = l;
        return status;
    }
    fl_error_take(&e, status);
    fl_rendezvous_client_close(l);
    return fl_error_raise(&e);
}

/* --- talking ------------------------------------------------------------- */

bool fl_rendezvous_client_send(fl_rendezvous_client *l, fl_word word,
                               const void *a, size_t n_a, const void *b,
                               size_t n_b)
{
    bool ok;

    pthread_mutex_lock(&l->sending);
    ok = fl_rendezvous_send(l->fd, word, a, n_a, b, n_b);
    pthread_mutex_unlock(&l->sending);
    return ok;
}

fleet_status fl_rendezvous_client_check(const fl_rendezvous_client *l)
{
    return l->has_left ? fl_fail(FLEET_EPEER, "rank 0 has ended its group")
                       : FLEET_OK;
}

static fleet_status dead(void)
{
    return fl_fail(FLEET_EPEER, "rank 0 is dead or cut off: its connection has "
                                "ended");
}

fleet_status fl_rendezvous_client_failure(fl_rendezvous_client *l)
{
    bool is_up = l->has_left || fl_inbox_read(&l->in, l->fd);
    const char *bytes;
    fl_rendezvous_frame f;

    if (fl_inbox_find(&l->in, FL_WORD_FAIL, &f, &bytes))
        return fl_rendezvous_failure(bytes, f.bytes);
    if (!is_up && !fl_inbox_find(&l->in, FL_WORD_BYE, &f, &bytes))
        return dead();
    return FLEET_OK;
}

fleet_status fl_rendezvous_client_next(fl_rendezvous_client *l,
                                       fl_rendezvous_frame *f,
                                       const char **bytes)
{
    bool is_up = l->has_left || fl_inbox_read(&l->in, l->fd);

    if (!fl_inbox_frame(&l->in, f, bytes))
        return fl_fail(FLEET_EPEER, "rank 0 talks nonsense");
    if (f->word == FL_WORD_BYE) {
        l->has_left = true;
        f->word = FL_WORD_NONE;
    }
    if (f->word == FL_WORD_NONE && !is_up && !l->has_left)
        return dead();
    return FLEET_OK;
}

void fl_rendezvous_client_drop(fl_rendezvous_client *l,
                               const fl_rendezvous_frame *f)
{
    fl_inbox_drop(&l->in, sizeof *f + f->bytes);
}

void fl_rendezvous_client_rest(fl_rendezvous_client *l, int ms)
{
    struct pollfd two[] = {{.fd = l->has_left ? -1 : l->fd, .events = POLLIN},
                           {.fd = l->bell, .events = POLLIN}};
    uint64_t rung;

    if (poll(two, 2, ms) > 0 && two[1].revents &&
        read(l->bell, &rung, sizeof rung) < 0)
        return;
}

void fl_rendezvous_client_ring(fl_rendezvous_client *l)
{
    uint64_t one = 1;

    if (write(l->bell, &one, sizeof one) < 0)
        return; /* it has rung very often */
}

void fl_rendezvous_client_name(const fl_rendezvous_client *l,
                               char name[FL_RENDEZVOUS_NAME])
{
    if (l->hub)
        fl_rendezvous_server_name(l->hub, name);
    else
        fl_rendezvous_name(l->fd, false, name);
}

void fl_rendezvous_client_close(fl_rendezvous_client *l)
{
    if (!l)
        return;
    if (l->fd >= 0) {
        fl_rendezvous_client_send(l, FL_WORD_BYE, NULL, 0, NULL, 0);
        shutdown(l->fd, SHUT_WR);
        close(l->fd);
    }
    fl_rendezvous_server_join(l->hub);
    if (l->bell >= 0)
        close(l->bell);
    pthread_mutex_destroy(&l->sending);
    fl_free(l->in.data);
    fl_free(l);
}
