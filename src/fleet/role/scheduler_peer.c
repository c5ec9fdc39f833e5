/* scheduler_peer.c - ask the scheduler, then say that this process lives. */
#include "fleet/role/scheduler_peer.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "fleet/role/env.h"
#include "net/own_address.h"
#include "net/roster_link.h"
#include "net/wakeup.h"

enum {
    ASK_MS = 100,    /* it says again what it wants to know */
    LINGER_MS = 500, /* of the last word */
    TAKEN_MS = 50,   /* until a port that is in use is tried again */
    GRACE_MS = 1000, /* the scheduler's own deadline says more */
    LEAST_BEAT_MS = 10,
    MOST_BEAT_MS = 1000
};

struct fl_scheduler_peer {
    fl_scheduler_options o;
    fl_scheduler_env env; /* o.env */
    uint64_t generation;  /* of the process, see fl_fork_generation() */
    fl_address numeric;   /* of the scheduler */
    fl_roster_link link;
    fl_roster_message own; /* what this process says */
    char join[FL_ROSTER_TEXT + 16];
    char host[FL_ROSTER_TEXT];
    char endpoint[FL_ROSTER_TEXT];
    char *list; /* of all processes, as START has it */
    bool has_heard, is_refused, is_done;
    fl_awake awake;
    int64_t began_ms, first_heard_ms, heard_ms, asked_ms;
    pthread_t thread;
    bool has_thread;
    fl_wakeup wakeup;
    atomic_bool stop;
};

static int64_t now_ms(fl_scheduler_peer *p)
{
    return fl_awake_at(&p->awake, fl_now_ms());
}

/* --- what it says --------------------------------------------------------- */

/* Any key of its role is good, as it has no number yet. */
static fleet_status read_key(const fl_scheduler_peer *p, fl_keys **keys)
{
    const fl_scheduler_env *e = p->o.env;
    fleet_status status = FLEET_ENOENT;

    *keys = NULL;
    if (!p->o.keys)
        return FLEET_OK;
    for (int i = 0; i < e->num[e->role] && status == FLEET_ENOENT; i++)
        status =
            fl_keys_read(keys, p->o.keys, e->role == FL_SCHEDULED_SERVER, i);
    return status;
}

/* Of "tcp://10.0.0.1:7000"; its port. */
static int split_address(const char *numeric, fl_address host)
{
    const char *colon = strrchr(numeric, ':');

    snprintf(host, FL_ADDRESS_SIZE, "%.*s", (int)(colon - numeric - 6),
             numeric + 6);
    return atoi(colon + 1);
}

/* POD_IP, or the address by which this machine reaches the scheduler. */
static fleet_status find_host(fl_scheduler_peer *p)
{
    const char *pod = fl_variable("POD_IP");
    fl_address own, host, to;
    int port;

    if (!pod) {
        port = split_address(p->numeric, host);
        FL_TRY(fl_address_route(host, port, to, own));
        fl_roster_message_set(p->host, own);
        return FLEET_OK;
    }
    snprintf(own, sizeof own,
             strchr(pod, ':') && *pod != '[' ? "tcp://[%.100s]:1"
                                             : "tcp://%.100s:1",
             pod);
    FL_TRY(fl_address_resolve(own, to));
    split_address(to, host);
    snprintf(p->host, sizeof p->host, "%s", host);
    return FLEET_OK;
}

/* A server binds before it is known: what it says cannot be lost. */
static fleet_status bind_own(fl_scheduler_peer *p, int port, int *fd)
{
    fl_address address;

    FL_TRY(fl_address_open(p->host, &port, true, fd));
    snprintf(p->endpoint, sizeof p->endpoint, "%.100s:%d", p->host, port);
    snprintf(address, sizeof address, "tcp://%.100s:%d", p->host, port);
    return p->o.keys || p->o.insecure
               ? FLEET_OK
               : fl_address_check_keyless("a server", address, *fd);
}

static fleet_status introduce(fl_scheduler_peer *p, fl_scheduler_place *place)
{
    const char *text = fl_variable("PADDLE_PORT");
    int port = 0;

    fl_scheduler_introduce(&p->o, &p->own);
    FL_TRY(find_host(p));
    snprintf(p->endpoint, sizeof p->endpoint, "%s", p->host);
    if (p->o.env->role == FL_SCHEDULED_SERVER) {
        if (text)
            FL_TRY(fl_variable_read("PADDLE_PORT", text, 1, 65535, &port));
        FL_TRY(bind_own(p, port, &place->listen_fd));
    }
    fl_roster_message_set(p->own.host, p->host);
    fl_scheduled_write_join(p->o.env->role, p->endpoint, p->join);
    p->own.rest = p->join;
    return FLEET_OK;
}

/* --- what it hears -------------------------------------------------------- */

/* Of that role and rank; id: or of that one, where rank is -1. False: none. */
static fleet_status find_listed(const fl_scheduler_peer *p, int role, int rank,
                                const char *id, fl_scheduled *one, bool *found)
{
    char *copy = fl_strdup(p->list), *at = copy;

    *found = false;
    if (!copy)
        return FLEET_ENOMEM;
    while (!*found && fl_scheduled_read(&at, one))
        *found = one->role == role &&
                 (rank < 0 ? strcmp(one->id, id) == 0 : one->rank == rank);
    fl_free(copy);
    return FLEET_OK;
}

static fleet_status count_before(const fl_scheduler_peer *p,
                                 const fl_scheduled *own, int *n)
{
    *n = 0;
    for (int k = 0; k < own->rank; k++) {
        fl_scheduled one;
        bool found;

        FL_TRY(find_listed(p, own->role, k, NULL, &one, &found));
        *n += found && strcmp(one.endpoint, own->endpoint) == 0;
    }
    return FLEET_OK;
}

/* Servers by their numbers; *whole: all of them and this process are in it. */
static fleet_status read_list(fl_scheduler_peer *p, fl_scheduler_place *place,
                              fl_scheduled *own, bool *whole)
{
    const fl_scheduler_env *e = p->o.env;

    FL_TRY(find_listed(p, e->role, -1, e->id, own, whole));
    *whole = *whole && own->rank < e->num[e->role];
    for (int k = 0; *whole && k < e->num[FL_SCHEDULED_SERVER]; k++) {
        fl_scheduled one;

        FL_TRY(find_listed(p, FL_SCHEDULED_SERVER, k, NULL, &one, whole));
        if (*whole)
            fl_text_add(&place->servers, "%s%s", k ? "," : "", one.endpoint);
    }
    if (!*whole)
        return FLEET_OK;
    place->rank = own->rank;
    if (e->role == FL_SCHEDULED_WORKER)
        FL_TRY(count_before(p, own, &place->local_index));
    return place->servers.status;
}

/* A server that was started again is to be where it was: at that address of
 * this machine, and at a port that the process before may still have. */
static fleet_status bind_again(fl_scheduler_peer *p, const char *endpoint,
                               int *fd)
{
    const int64_t end_ms = now_ms(p) + p->o.connect_ms;
    const char *colon = strrchr(endpoint, ':');
    const int n = colon ? (int)(colon - endpoint) : 0;
    fleet_status status;

    if (n != (int)strlen(p->host) || strncmp(endpoint, p->host, (size_t)n) != 0)
        return fl_fail(FLEET_EINVAL,
                       "this server, MS_NODE_ID \"%s\", is on %s, but the job "
                       "has it at %s: expected the same machine, or POD_IP",
                       p->o.env->id, p->host, endpoint);
    while ((status = bind_own(p, atoi(colon + 1), fd)) == FLEET_EIO &&
           now_ms(p) < end_ms)
        usleep(TAKEN_MS * 1000);
    return status;
}

static fleet_status take_start(fl_scheduler_peer *p, const char *list,
                               fl_scheduler_place *place)
{
    fl_scheduled own;
    bool whole;

    p->list = fl_strdup(list);
    if (!p->list)
        return FLEET_ENOMEM;
    FL_TRY(read_list(p, place, &own, &whole));
    if (!whole)
        return fl_fail(FLEET_EFORMAT,
                       "the scheduler at %s has sent a list without all "
                       "servers and this process",
                       p->o.env->address);
    p->is_done = true;
    if (p->o.env->role == FL_SCHEDULED_WORKER ||
        strcmp(own.endpoint, p->endpoint) == 0)
        return FLEET_OK;
    close(place->listen_fd);
    place->listen_fd = -1;
    return bind_again(p, own.endpoint, &place->listen_fd);
}

static fleet_status take_answer(fl_scheduler_peer *p,
                                const fl_roster_message *m,
                                fl_scheduler_place *place)
{
    const char *at = p->o.env->address;

    p->heard_ms = now_ms(p);
    if (!p->has_heard)
        p->first_heard_ms = p->heard_ms;
    p->has_heard = true;
    p->is_refused = m->kind == FL_ROSTER_REFUSED;
    if (m->kind == FL_ROSTER_REFUSED)
        return fl_fail(FLEET_EINVAL,
                       "the scheduler at %s refuses this process: %s", at,
                       m->rest);
    if (m->kind == FL_ROSTER_FAILED)
        return fl_fail(FLEET_EPEER, "the scheduler at %s: %s", at, m->rest);
    return m->kind == FL_ROSTER_START ? take_start(p, m->rest, place)
                                      : FLEET_OK;
}

static fleet_status take_answers(fl_scheduler_peer *p,
                                 fl_scheduler_place *place)
{
    fl_roster_message m;
    char *text;

    while (!p->is_done) {
        fleet_status status = fl_roster_link_receive(&p->link, NULL, &m, &text);

        if (status != FLEET_OK || !text)
            return status;
        status = take_answer(p, &m, place);
        fl_free(text);
        FL_TRY(status);
    }
    return FLEET_OK;
}

static fleet_status check_silence(fl_scheduler_peer *p)
{
    const fl_scheduler_options *o = &p->o;
    int64_t now = now_ms(p);

    if (p->has_heard && now - p->heard_ms > o->peer_ms)
        return fl_fail(FLEET_EPEER,
                       "the scheduler at %s has said nothing for %lld ms "
                       "(FLEET_PEER_DEADLINE_MS)",
                       o->env->address, (long long)o->peer_ms);
    if (p->has_heard && now - p->first_heard_ms > o->connect_ms + GRACE_MS)
        return fl_fail(FLEET_ETIMEDOUT,
                       "the scheduler at %s has answered, but not all have "
                       "come within %lld ms (FLEET_CONNECT_DEADLINE_MS)",
                       o->env->address, (long long)o->connect_ms);
    if (p->has_heard || now - p->began_ms <= o->connect_ms)
        return FLEET_OK;
    return fl_fail(FLEET_ETIMEDOUT,
                   "no scheduler has answered at %s (MS_SCHED_HOST, "
                   "MS_SCHED_PORT) within %lld ms (FLEET_CONNECT_DEADLINE_MS): "
                   "is a process with MS_ROLE=MS_SCHED started on that "
                   "machine, %s?",
                   o->env->address, (long long)o->connect_ms,
                   o->keys ? "with keys of the same folder"
                           : "without keys, too");
}

static fleet_status ask_until_told(fl_scheduler_peer *p,
                                   fl_scheduler_place *place)
{
    fl_keys *keys;

    FL_TRY(fl_address_resolve(p->o.env->address, p->numeric));
    FL_TRY(introduce(p, place));
    FL_TRY(read_key(p, &keys));
    FL_TRY(fl_roster_link_connect(&p->link, p->numeric, keys));
    while (!p->is_done) {
        if (now_ms(p) - p->asked_ms >= ASK_MS) {
            FL_TRY(fl_roster_link_send(&p->link, NULL, &p->own));
            p->asked_ms = p->awake.ms;
        }
        FL_TRY(fl_roster_link_wait(&p->link, ASK_MS));
        FL_TRY(take_answers(p, place));
        FL_TRY(check_silence(p));
    }
    return FLEET_OK;
}

/* --- while the job runs --------------------------------------------------- */

/* Whether the scheduler hears it does not matter. */
static void *keep_alive(void *arg)
{
    fl_scheduler_peer *p = arg;
    fl_socket *none = NULL;
    int64_t beat_ms = p->o.peer_ms / 5;

    beat_ms = beat_ms < MOST_BEAT_MS ? beat_ms : MOST_BEAT_MS;
    beat_ms = beat_ms > LEAST_BEAT_MS ? beat_ms : LEAST_BEAT_MS;
    while (!atomic_load(&p->stop)) {
        fl_roster_message m;
        char *text = NULL;

        (void)fl_roster_link_send(&p->link, NULL, &p->own);
        (void)fl_socket_wait(&none, 1, &p->wakeup, (int)beat_ms);
        while (fl_roster_link_receive(&p->link, NULL, &m, &text) == FLEET_OK &&
               text) {
            fl_free(text);
            text = NULL;
        }
    }
    return NULL;
}

static fleet_status begin_beats(fl_scheduler_peer *p)
{
    fleet_status status;

    p->own.kind = FL_ROSTER_READY;
    p->own.rest = p->list;
    FL_TRY(fl_wakeup_create(&p->wakeup));
    status = fl_thread_start(&p->thread, keep_alive, p, "scheduler");
    p->has_thread = status == FLEET_OK;
    return status;
}

fleet_status fl_scheduler_ask(fl_scheduler_peer **peer,
                              const fl_scheduler_options *o,
                              fl_scheduler_place *place)
{
    fl_scheduler_peer *p;
    fleet_status status;
    fl_error error;

    *peer = NULL;
    *place = (fl_scheduler_place){.listen_fd = -1};
    FL_TRY(FL_NEW(&p, sizeof *p));
    p->o = *o;
    p->env = *o->env;
    p->o.env = &p->env;
    p->wakeup.fd = -1;
    p->generation = fl_fork_generation();
    p->awake = fl_awake_from(fl_now_ms(), fl_awake_step(o->peer_ms));
    p->began_ms = p->awake.ms;
    p->asked_ms = p->began_ms - ASK_MS;
    status = ask_until_told(p, place);
    if (status == FLEET_OK)
        status = begin_beats(p);
    if (status == FLEET_OK) {
        *peer = p;
        return FLEET_OK;
    }
    fl_error_take(&error, status);
    fl_scheduler_leave(p);
    return fl_error_raise(&error);
}

/* One that was told, and never began to say that it lives, is maybe a second
 * process of its id, while the first one works. */
static bool says_good_bye(const fl_scheduler_peer *p)
{
    return p->link.socket && p->has_heard && !p->is_refused &&
           (p->has_thread || !p->is_done);
}

void fl_scheduler_leave(fl_scheduler_peer *p)
{
    if (!p)
        return;
    if (p->generation != fl_fork_generation()) {
        fl_free(p); /* the rest is the parent's */
        return;
    }
    atomic_store(&p->stop, true);
    if (p->has_thread) {
        fl_wakeup_ring(&p->wakeup);
        pthread_join(p->thread, NULL);
    }
    if (says_good_bye(p)) {
        p->own.kind = FL_ROSTER_GONE;
        p->own.rest = p->is_done ? "it has left" : "it has given up";
        (void)fl_roster_link_send(&p->link, NULL, &p->own);
    }
    fl_roster_link_close(&p->link, p->has_heard ? LINGER_MS : 0);
    if (p->wakeup.fd >= 0)
        fl_wakeup_destroy(&p->wakeup);
    fl_free(p->list);
    fl_free(p);
}
